//! `lighter.toml`: what a function is, what starts it, what it may touch and how much it may use.
//!
//! ```
//! let manifest = manifest::parse(r#"
//!     [function.hello]
//!     image = "hello.wasm"
//!     http = "/hello"
//! "#).unwrap();
//! assert_eq!(manifest.function["hello"].http[0].route, "/hello");
//! ```
//! Parse, check, then use: [`parse`] refuses unknown keys (naming the nearest known one) and every value that is out of
//! range, before anything is built or sent. The same types travel in the API, where `image` is a hash instead of a
//! path.
#![forbid(unsafe_code)]

mod bucket;
mod copies;
mod duration;
pub mod flow;
mod function;
mod http;
mod keys;
mod name;
mod near;
pub mod nearest;
mod place;
mod queue;
mod rollout;
mod sink;
mod together;
mod trigger;
mod workflow;

/// Header of a call that names the board for it; of functions whose isolation is `metal`.
pub const BOARD_HEADER: &str = "lighter-board";

pub use bucket::Bucket;
pub use copies::Copies;
pub use duration::Span;
pub use function::{Base, Errors, Function, Grants, HostGrant, Isolation, Limits, PolicyWord, Units, is_secret_name};
pub use http::{HttpTrigger, RESULTS, RouteAuth, share_method};
pub use name::Name;
pub use near::Near;
pub use place::{Label, Place, Term, TermWanted, bytes_as_text};
pub use queue::{Order, Queue, Retry, WhenFull};
pub use rollout::{Rollout, StepSize};
pub use sink::{Format, MqttSink, Sink, Webhook};
pub use trigger::{CatchUp, CronTrigger, EveryTrigger, MqttTrigger, is_topic_filter};
pub use workflow::{OnOverload, Workflow};

use problem::{Code, Problem};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Name of the manifest in a function's folder.
pub const FILE_NAME: &str = "lighter.toml";

/// Bytes of a manifest; a larger one is refused.
pub const MANIFEST_BYTES_MAX: usize = 1 << 20;

/// What helps where a manifest is too large.
pub const DIVIDE: &str = "divide it: deploying one manifest leaves the functions of others as they are";

/// Functions in one manifest; more are refused.
pub const FUNCTIONS_MAX: usize = 10_000;

/// A whole `lighter.toml`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The functions by name.
    #[serde(default)]
    pub function: BTreeMap<Name, Function>,
    /// Queues by name. A queue that is used but not listed here has the defaults.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub queue: BTreeMap<Name, Queue>,
    /// Where events leave the node, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sink: BTreeMap<Name, Sink>,
    /// Bounds of buckets, by name of the bucket.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub bucket: BTreeMap<String, Bucket>,
    /// Functions that are bounded together, by name of the workflow.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub workflow: BTreeMap<Name, Workflow>,
}

/// Reads and checks a manifest.
///
/// # Errors
/// - [`Code::ManifestSyntax`]: not TOML, with the line.
/// - [`Code::ManifestUnknownKey`]: a key nobody knows, with the nearest known one.
/// - [`Code::ManifestValue`]: a value of the wrong type or out of range, with its bounds.
/// - [`Code::ManifestConflict`]: two parts contradict each other.
pub fn parse(text: &str) -> Result<Manifest, Problem> {
    if text.len() > MANIFEST_BYTES_MAX {
        let detail = format!("the manifest has {} bytes, the limit is {MANIFEST_BYTES_MAX}", text.len());
        return Err(Problem::new(Code::ManifestSyntax, detail).with_hint(DIVIDE));
    }
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| syntax(text, &error))?;
    keys::check(&table)?;
    let manifest: Manifest = toml::from_str(text).map_err(|error| value(text, &error))?;
    manifest.check()?;
    Ok(manifest)
}

impl Manifest {
    /// Checks what the types alone cannot say. [`parse`] has done this already; the API does it for what it is sent.
    pub fn check(&self) -> Result<(), Problem> {
        if self.function.len() > FUNCTIONS_MAX {
            let detail = format!("the manifest has {} functions, the limit is {FUNCTIONS_MAX}", self.function.len());
            return Err(Problem::new(Code::ManifestValue, detail));
        }
        let mut routes: BTreeMap<_, Vec<(Vec<String>, &Name)>> = BTreeMap::new();
        for (name, function) in &self.function {
            function.check(name)?;
            for trigger in function.http.iter().chain(&function.results()) {
                let same_path = routes.entry((trigger.host.clone(), trigger.route.clone())).or_default();
                if let Some((_, other)) = same_path.iter().find(|(other, _)| share_method(other, &trigger.methods)) {
                    let (one, other) = (name.as_str(), other.as_str());
                    let detail = match one == other {
                        true => format!("function {one:?} has the route {:?} twice for one method", trigger.route),
                        false => format!("functions {other:?} and {one:?} both have the route {:?}", trigger.route),
                    };
                    return Err(Problem::new(Code::ManifestConflict, detail)
                        .with_hint("give one another route, host or methods"));
                }
                same_path.push((trigger.methods.clone(), name));
            }
        }
        self.queue.iter().try_for_each(|(name, queue)| queue.check(name))?;
        self.sink.iter().try_for_each(|(name, sink)| sink.check(name))?;
        self.bucket.iter().try_for_each(|(name, bucket)| bucket.check(name))?;
        self.check_handlers()?;
        self.check_workflows()?;
        self.check_homes()?;
        self.check_rollouts()?;
        match flow::Flow::of(self).check(self).errors.into_iter().next() {
            Some(problem) => Err(problem),
            None => Ok(()),
        }
    }

    /// The result of an `async` request is kept where its event is handled, and asked for where it came in.
    fn check_homes(&self) -> Result<(), Problem> {
        for (name, function) in &self.function {
            let Some(queue) = function.handles(name) else { continue };
            let has_home = self.queue.get(queue).is_some_and(|queue| queue.home.is_some());
            if has_home && function.http.iter().any(|trigger| trigger.is_async) {
                let detail =
                    format!("{:?} has an async route, and its queue {:?} a home", name.as_str(), queue.as_str());
                let hint = "push to the queue by `grants.push` of another function, or leave `home` away";
                return Err(Problem::new(Code::ManifestConflict, detail).with_hint(hint));
            }
        }
        Ok(())
    }

    /// In which steps a fleet takes this manifest in the place of another one. None: all nodes at once.
    pub fn rollout(&self) -> Option<&Rollout> {
        self.function.values().find_map(|function| function.place.as_ref()?.rollout.as_ref())
    }

    /// What is deployed together goes in the same steps.
    fn check_rollouts(&self) -> Result<(), Problem> {
        let named = |(name, function): (&'_ Name, &'_ Function)| {
            let rollout = function.place.as_ref()?.rollout.as_ref()?;
            (Some(rollout) != self.rollout()).then(|| name.clone())
        };
        match self.function.iter().find_map(named) {
            None => Ok(()),
            Some(name) => {
                let detail = format!("{:?} has another place.rollout than a function before it", name.as_str());
                let hint = "a deployment goes in one sequence of steps: write it at one function";
                Err(Problem::new(Code::ManifestConflict, detail).with_hint(hint))
            }
        }
    }

    /// A queue is handled by one function or sink: each event has one place to go.
    fn check_handlers(&self) -> Result<(), Problem> {
        let functions = self.function.iter().filter_map(|(name, function)| Some((function.handles(name)?, name)));
        let sinks = self.sink.iter().map(|(name, sink)| (&sink.queue, name));
        let mut handlers = BTreeMap::new();
        for (queue, handler) in functions.chain(sinks) {
            if let Some(other) = handlers.insert(queue, handler) {
                let detail = format!(
                    "{:?} and {:?} both handle the queue {:?}",
                    other.as_str(),
                    handler.as_str(),
                    queue.as_str()
                );
                let hint = "give each a queue of its own and push every event to both";
                return Err(Problem::new(Code::ManifestConflict, detail).with_hint(hint));
            }
        }
        Ok(())
    }
}

/// The JSON Schema of [`Manifest`], as `contracts/manifest.schema.json` and `lighter schema` have it.
pub fn json_schema() -> serde_json::Value {
    schemars::schema_for!(Manifest).to_value()
}

fn syntax(text: &str, error: &toml::de::Error) -> Problem {
    Problem::new(Code::ManifestSyntax, located(text, error))
}

fn value(text: &str, error: &toml::de::Error) -> Problem {
    Problem::new(Code::ManifestValue, located(text, error))
}

/// `line 3: what is wrong`, or `line 3, memory_bytes: what is wrong` where the line has a key.
fn located(text: &str, error: &toml::de::Error) -> String {
    let message = error.message().trim_end_matches('.');
    let Some(span) = error.span() else { return message.to_owned() };
    let number = text[..span.start.min(text.len())].matches('\n').count();
    let key = text.lines().nth(number).and_then(|line| line.split_once('=')).map(|(key, _)| key.trim());
    let is_key = |key: &&str| key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
    match key.filter(|key| !key.is_empty()).filter(is_key) {
        Some(key) => format!("line {}, {key}: {message}", number + 1),
        None => format!("line {}: {message}", number + 1),
    }
}

#[cfg(test)]
mod tests;
