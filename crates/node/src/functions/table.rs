//! Every function and every route at one moment. Never changed: a change makes another one and puts it in its place.

use super::{Change, History, Live, Parts};
use gate_http::RouteTable;
use http::HeaderValue;
use manifest::{HttpTrigger, Manifest, Name, RouteAuth, Sink};
use problem::{Code, Problem};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use warehouse::ImageHash;

/// Media type of a `lighter:unit` function's reply when its trigger does not say.
pub const REPLY_TYPE: &str = "application/octet-stream";

#[derive(Default)]
pub struct Table {
    functions: BTreeMap<Name, TableEntry>,
    parts: Parts,
    handlers: BTreeMap<Name, Handler>,
    pub routes: RouteTable<Arc<Target>>,
}

/// A function that is deployed.
#[derive(Clone)]
pub struct TableEntry {
    pub live: Arc<Live>,
    pub history: Arc<History>,
}

/// What handles a queue.
#[derive(Clone)]
pub enum Handler {
    Function(Arc<Live>),
    Sink(Name, Arc<Sink>),
}

impl Handler {
    pub fn name(&self) -> &Name {
        match self {
            Self::Function(live) => live.name(),
            Self::Sink(name, _) => name,
        }
    }

    /// `function` or `sink`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Function(_) => "function",
            Self::Sink(..) => "sink",
        }
    }

    /// `function "hello"`.
    pub fn described(&self) -> String {
        format!("{} {:?}", self.kind(), self.name().as_str())
    }
}

/// What a route leads to, with all that a call needs to know worked out.
pub struct Target {
    pub live: Arc<Live>,
    pub needs_token: bool,
    pub reply_type: HeaderValue,
    /// `/http/NAME`: the source of its events.
    pub source: String,
    /// The route as the manifest has it.
    pub pattern: String,
    pub answered: Answered,
}

/// When a request of a route is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answered {
    /// By a call, with its reply.
    AtOnce,
    /// It becomes an event; the reply says where its result will be.
    Later,
    /// It asks for the result of an earlier one.
    Earlier,
}

impl Table {
    /// # Errors
    /// [`Code::RouteTaken`] names the functions that want the same route, [`Code::ManifestConflict`] those that want
    /// the same queue.
    pub fn new(functions: BTreeMap<Name, TableEntry>, parts: Parts, token_by_default: bool) -> Result<Self, Problem> {
        let mut routes = Vec::new();
        for entry in functions.values() {
            let function = &entry.live.function;
            let calls = function.http.iter().map(|trigger| {
                let work = if trigger.is_async { Answered::Later } else { Answered::AtOnce };
                (trigger.clone(), work)
            });
            for (trigger, answered) in
                calls.chain(function.results().into_iter().map(|trigger| (trigger, Answered::Earlier)))
            {
                let target = Arc::new(Target::new(entry.live.clone(), &trigger, answered, token_by_default)?);
                routes.push((entry.live.name().as_str(), trigger, target));
            }
        }
        let routes = RouteTable::build(routes.iter().map(|(name, trigger, target)| (*name, trigger, target.clone())))?;
        let handlers = handlers(&functions, &parts)?;
        Ok(Self { functions, parts, handlers, routes })
    }

    /// # Errors
    /// [`Code::FunctionUnknown`].
    pub fn get(&self, name: &str) -> Result<TableEntry, Problem> {
        self.functions
            .get(name)
            .cloned()
            .ok_or_else(|| Problem::new(Code::FunctionUnknown, format!("there is no function {name:?}")))
    }

    pub fn entry(&self, name: &str) -> Option<&TableEntry> {
        self.functions.get(name)
    }

    /// In the order of their names.
    pub fn entries(&self) -> impl Iterator<Item = &TableEntry> {
        self.functions.values()
    }

    /// Queues, sinks and buckets as deployed.
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Each queue that is handled, and by whom.
    pub fn handlers(&self) -> &BTreeMap<Name, Handler> {
        &self.handlers
    }

    pub fn count(&self) -> usize {
        self.functions.len()
    }

    /// All that is deployed, as one manifest: of each function the version that takes calls now.
    pub fn manifest(&self) -> Manifest {
        Manifest {
            function: self.entries().map(|entry| (entry.live.name().clone(), (*entry.live.function).clone())).collect(),
            queue: self.parts.queues.iter().map(|(name, part)| (name.clone(), (*part.what).clone())).collect(),
            sink: self.parts.sinks.iter().map(|(name, part)| (name.clone(), (*part.what).clone())).collect(),
            bucket: self.parts.buckets.iter().map(|(name, part)| (name.clone(), (*part.what).clone())).collect(),
            workflow: self.parts.workflows.iter().map(|(name, part)| (name.clone(), (*part.what).clone())).collect(),
        }
    }

    /// The images of all versions that are kept.
    pub fn images(&self) -> HashSet<ImageHash> {
        let versions = self.functions.values().flat_map(|entry| &entry.history.versions);
        versions.filter_map(|version| version.function.image.parse().ok()).collect()
    }

    /// The table after these changes.
    ///
    /// # Errors
    /// [`Code::RouteTaken`] names the functions that want the same route, [`Code::ManifestConflict`] those that want
    /// the same queue.
    pub fn changed(&self, changes: &[Change], token_by_default: bool) -> Result<Self, Problem> {
        let mut functions = self.functions.clone();
        let mut parts = self.parts.clone();
        for change in changes {
            match change {
                Change::Put { live, history } => {
                    let entry = TableEntry { live: live.clone(), history: history.clone() };
                    functions.insert(live.name().clone(), entry);
                }
                Change::Remove(name) => _ = functions.remove(name),
                Change::Part(change) => parts.apply(change),
            }
        }
        Self::new(functions, parts, token_by_default)
    }

    /// # Errors
    /// [`Code::RouteTaken`]: a function outside of the manifest has a route of one inside.
    pub fn check_routes(&self, manifest: &Manifest) -> Result<(), Problem> {
        // Those that stay come first: a route belongs to who has it already.
        let stay = self.functions.iter().filter(|(name, _)| !manifest.function.contains_key(*name));
        let stay = stay.map(|(name, entry)| (name, &*entry.live.function));
        let all = stay.chain(&manifest.function);
        let routes: Vec<_> = all
            .flat_map(|(name, function)| {
                function.http.iter().cloned().chain(function.results()).map(move |trigger| (name, trigger))
            })
            .collect();
        RouteTable::build(routes.iter().map(|(name, trigger)| (name.as_str(), trigger, ()))).map(|_| ())
    }

    /// # Errors
    /// [`Code::ManifestConflict`]: a queue would have two handlers, one of them outside of the manifest.
    pub fn check_handlers(&self, manifest: &Manifest) -> Result<(), Problem> {
        let wanted = manifest.function.iter().filter_map(|(name, function)| Some((function.handles(name)?, name)));
        let wanted = wanted.chain(manifest.sink.iter().map(|(name, sink)| (&sink.queue, name)));
        for (queue, name) in wanted {
            let Some(handler) = self.handlers.get(queue) else { continue };
            let is_replaced = match handler {
                Handler::Function(live) => manifest.function.contains_key(live.name()),
                Handler::Sink(name, _) => manifest.sink.contains_key(name),
            };
            if !is_replaced {
                return Err(both_handle(queue, &handler.described(), &format!("{:?}", name.as_str())));
            }
        }
        Ok(())
    }
}

fn both_handle(queue: &Name, one: &str, other: &str) -> Problem {
    let detail = format!("{one} and {other} both handle the queue {:?}", queue.as_str());
    let hint = "give each a queue of its own and push every event to both, or remove the other first";
    Problem::new(Code::ManifestConflict, detail).with_hint(hint)
}

/// Each event has one place to go.
fn handlers(functions: &BTreeMap<Name, TableEntry>, parts: &Parts) -> Result<BTreeMap<Name, Handler>, Problem> {
    let functions = functions
        .iter()
        .filter_map(|(name, entry)| Some((entry.live.function.handles(name)?, Handler::Function(entry.live.clone()))));
    let sinks =
        parts.sinks.iter().map(|(name, part)| (&part.what.queue, Handler::Sink(name.clone(), part.what.clone())));
    let mut handlers = BTreeMap::new();
    for (queue, handler) in functions.chain(sinks) {
        let described = handler.described();
        if let Some(other) = handlers.insert(queue.clone(), handler) {
            return Err(both_handle(queue, &other.described(), &described));
        }
    }
    Ok(handlers)
}

impl Target {
    fn new(
        live: Arc<Live>,
        trigger: &HttpTrigger,
        answered: Answered,
        token_by_default: bool,
    ) -> Result<Self, Problem> {
        let reply_type = trigger.reply_type.as_deref().unwrap_or(REPLY_TYPE);
        let bad =
            |_| Problem::new(Code::ManifestValue, format!("http.reply_type {reply_type:?} cannot stand in a header"));
        Ok(Self {
            needs_token: trigger.auth.map_or(token_by_default, |auth| auth == RouteAuth::Token),
            reply_type: reply_type.parse().map_err(bad)?,
            source: format!("/http/{}", live.name()),
            pattern: trigger.route.clone(),
            answered,
            live,
        })
    }
}
