//! One function: image, triggers, grants, limits and units.

use crate::Name;
use crate::Span;
use crate::http::{self, HttpTrigger, TRIGGERS_MAX};
use crate::place::Place;
use crate::queue::Retry;
use crate::together;
use crate::trigger::{self, CronTrigger, EveryTrigger, MqttTrigger};
use problem::{Code, Problem};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

/// A named thing to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Function {
    /// The component to run, or the Python file, folder or bundle of a process function: a path relative to the
    /// manifest; in the API the SHA-256 of an uploaded image.
    pub image: String,
    /// The command that makes `image`, run by `lighter build` in the manifest's folder with `sh -c`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
    /// How units are kept apart from the node and from each other.
    #[serde(default)]
    pub isolation: Isolation,
    /// What the code of a process function runs on: `python`, the default, is CPython with numpy; `java` is a Java
    /// virtual machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Base>,
    /// What a process function runs: `module:function`, in Java `package.Class::method`. Without it `handle` of the
    /// module that `image` names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
    /// HTTP requests that call the function: `"/route"`, a table, or a list.
    #[serde(default, deserialize_with = "http::triggers", skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "http::Triggers")]
    pub http: Vec<HttpTrigger>,
    /// The queue whose events the function handles. By default a function with other triggers than `http` has a queue
    /// of its own name. One function or sink handles a queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<Name>,
    /// MQTT messages that become events: `"meter/+/power"`, a table, or a list.
    #[serde(default, deserialize_with = "trigger::mqtt", skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "trigger::Written<MqttTrigger>")]
    pub mqtt: Vec<MqttTrigger>,
    /// An event at a steady pace: `"10s"`, a table, or a list.
    #[serde(default, deserialize_with = "trigger::every", skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "trigger::Written<EveryTrigger>")]
    pub every: Vec<EveryTrigger>,
    /// Events by a calendar: `"0 7 * * mon-fri"`, a table, or a list.
    #[serde(default, deserialize_with = "trigger::cron", skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "trigger::Written<CronTrigger>")]
    pub cron: Vec<CronTrigger>,
    /// How often a failed event is tried again.
    #[serde(default)]
    pub retry: Retry,
    /// Values the function reads by name (`lighter:unit/config`, `wasi:config`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub config: BTreeMap<String, String>,
    /// Environment variables (`wasi:cli/environment`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// What callers without a token learn about a failed call: its code and title, or also the text of the function.
    #[serde(default, skip_serializing_if = "Errors::is_brief")]
    pub errors: Errors,
    #[serde(default)]
    pub grants: Grants,
    #[serde(default)]
    pub limits: Limits,
    #[serde(default)]
    pub units: Units,
    /// Where it is in a fleet, and how many units are kept ready there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
}

/// An isolation class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// A wasm component in an isolate of its own: microseconds to start.
    #[default]
    Wasm,
    /// Native code in a Linux jail, on a base: a millisecond to start.
    Process,
    /// A portable wasm component in a kernel and a virtual machine of its own: a millisecond to start. Needs KVM.
    Microvm,
    /// A portable wasm component on a board: a machine that runs our kernel and nothing else.
    Metal,
}

impl Isolation {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Wasm => "wasm",
            Self::Process => "process",
            Self::Microvm => "microvm",
            Self::Metal => "metal",
        }
    }
}

/// What callers without a token learn about a failed call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Errors {
    /// The code and its title. Holders of a token learn everything, and the function's log has it.
    #[default]
    Brief,
    /// Everything, messages of exceptions and lines of source included.
    Full,
}

impl Errors {
    fn is_brief(&self) -> bool {
        *self == Self::Brief
    }
}

/// A prebuilt runtime for process functions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Base {
    /// CPython and numpy, and what the bundle's `requirements.lock` adds.
    #[default]
    Python,
    /// A Java virtual machine.
    Java,
    /// A Java virtual machine with classes of Android, and a converter of dex.
    Android,
}

/// What a function may touch. Nothing is granted by default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Grants {
    /// Buckets of the store, by name. Every function that is granted a bucket shares it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stores: Vec<String>,
    /// Queues it may push events to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub push: Vec<Name>,
    /// Queues from which it may pop events, besides the one it handles.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pop: Vec<Name>,
    /// Hosts the function may send HTTP requests to: `example.org`, `example.org:8443`, `*.example.org`; `*` for all on
    /// every port. Names without a port mean 80 and 443. Loopback, link-local and metadata addresses have to be named.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostGrant>,
    /// Secrets it may read by name as it reads `config`. `lighter secret set NAME` keeps their values on the node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
}

/// A host a function may reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct HostGrant {
    /// `example.org`, `*.example.org` or `*`.
    pub host: String,
    pub port: Option<u16>,
}

impl HostGrant {
    /// Whether a request to `host` and `port` is covered.
    pub fn covers(&self, host: &str, port: u16) -> bool {
        let port_fits = self.port.map_or(port == 80 || port == 443 || self.host == "*", |granted| granted == port);
        let host = host.to_ascii_lowercase();
        port_fits
            && match self.host.strip_prefix("*.") {
                Some(parent) => host.strip_suffix(parent).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
                None => self.host == "*" || self.host == host,
            }
    }

    /// Whether it names one host rather than many.
    pub fn is_named(&self) -> bool {
        !self.host.starts_with('*')
    }
}

impl TryFrom<String> for HostGrant {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let bad =
            || format!("{text:?} is not a host: write example.org, example.org:8443, [::1]:80, *.example.org or *");
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
                (host, Some(port.parse::<u16>().map_err(|_| bad())?))
            }
            _ => (text.as_str(), None),
        };
        let fixed = host.strip_prefix("*.").unwrap_or(host);
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.[]:_".contains(&b);
        if host != "*" && (fixed.is_empty() || fixed.len() > 253 || !fixed.bytes().all(plain)) {
            return Err(bad());
        }
        Ok(Self { host: host.to_owned(), port })
    }
}

impl From<HostGrant> for String {
    fn from(grant: HostGrant) -> Self {
        match grant.port {
            Some(port) => format!("{}:{port}", grant.host),
            None => grant.host,
        }
    }
}

/// How much one call, and all calls together, may use. The error names the exceeded limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Wall time of one call, in milliseconds, waiting in host calls and streaming the reply included.
    #[schemars(range(min = 1, max = 86_400_000))]
    pub time_ms: u64,
    /// CPU time of one call, in milliseconds, counted in steps of one millisecond.
    #[schemars(range(min = 1, max = 86_400_000))]
    pub cpu_ms: u64,
    /// Linear memory of one unit, in bytes, all its memories together.
    #[schemars(range(min = 65_536, max = 4_294_967_296_u64))]
    pub memory_bytes: u64,
    /// Processes and threads of one process unit.
    #[schemars(range(min = 1, max = 10_000))]
    pub processes: u32,
    /// Bytes a process unit may write to its scratch folder.
    #[schemars(range(min = 65_536, max = 1_099_511_627_776_u64))]
    pub scratch_bytes: u64,
    /// Elements of all tables of one unit.
    #[schemars(range(min = 0, max = 10_000_000))]
    pub table_elements: u64,
    /// Request body in bytes; for `lighter:unit` the reply too.
    #[schemars(range(min = 0, max = 1_099_511_627_776_u64))]
    pub body_bytes: u64,
    /// Calls running at once.
    #[schemars(range(min = 1, max = 100_000))]
    pub concurrency: u32,
    /// Calls waiting for their turn beyond that; the next one is refused.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub waiting: u32,
    /// How long a call waits for its turn, in milliseconds.
    #[schemars(range(min = 0, max = 3_600_000))]
    pub wait_ms: u64,
    /// Calls a second, all together; 0 means no such limit. Twice as many may come at once after a pause.
    #[schemars(range(min = 0, max = 10_000_000))]
    pub rate_per_second: u32,
    /// Log output of one call in bytes; more is dropped, and the log says so.
    #[schemars(range(min = 0, max = 67_108_864))]
    pub log_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            time_ms: 30_000,
            cpu_ms: 10_000,
            memory_bytes: 64 << 20,
            processes: 32,
            scratch_bytes: 64 << 20,
            table_elements: 100_000,
            body_bytes: 8 << 20,
            concurrency: 100,
            waiting: 1_000,
            wait_ms: 5_000,
            rate_per_second: 0,
            log_bytes: 64 << 10,
        }
    }
}

impl Limits {
    pub const TIME_MS: RangeInclusive<u64> = 1..=86_400_000;
    pub const MEMORY_BYTES: RangeInclusive<u64> = 65_536..=4 << 30;
    pub const BODY_BYTES: RangeInclusive<u64> = 0..=1 << 40;
    /// A lease lasts this much longer than the handling may take.
    pub const LEASE_MARGIN: Duration = Duration::from_secs(5);

    pub fn time(&self) -> Duration {
        Duration::from_millis(self.time_ms)
    }

    pub fn cpu(&self) -> Duration {
        Duration::from_millis(self.cpu_ms)
    }

    pub fn wait(&self) -> Duration {
        Duration::from_millis(self.wait_ms)
    }

    /// How long a handling may take: its turn, making the function ready, and the handling itself.
    pub fn handling_max(&self) -> Duration {
        self.wait() + self.time() * 2
    }

    fn check(&self, name: &Name) -> Result<(), Problem> {
        in_range(name, "limits.time_ms", self.time_ms, Self::TIME_MS)?;
        in_range(name, "limits.cpu_ms", self.cpu_ms, Self::TIME_MS)?;
        in_range(name, "limits.memory_bytes", self.memory_bytes, Self::MEMORY_BYTES)?;
        in_range(name, "limits.processes", self.processes, 1..=10_000)?;
        in_range(name, "limits.scratch_bytes", self.scratch_bytes, 65_536..=1 << 40)?;
        in_range(name, "limits.table_elements", self.table_elements, 0..=10_000_000)?;
        in_range(name, "limits.body_bytes", self.body_bytes, Self::BODY_BYTES)?;
        in_range(name, "limits.concurrency", self.concurrency, 1..=100_000)?;
        in_range(name, "limits.waiting", self.waiting, 0..=1_000_000)?;
        in_range(name, "limits.wait_ms", self.wait_ms, 0..=3_600_000)?;
        in_range(name, "limits.rate_per_second", self.rate_per_second, 0..=10_000_000)?;
        in_range(name, "limits.log_bytes", self.log_bytes, 0..=64 << 20)
    }
}

/// How units of the function come and go.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Units {
    /// Calls one unit serves, one after the other, before a fresh one takes its place. 1, the default, gives every call
    /// fresh memory; more is faster if the start is costly (JavaScript, Python), and lets one call see what an earlier
    /// one left in memory.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub reuse_calls: u32,
    /// How long a unit kept for reuse may sit idle, in milliseconds.
    #[schemars(range(min = 0, max = 86_400_000))]
    pub reuse_idle_ms: u64,
    /// Units that handle queued events at once. 0 pauses the queue.
    #[schemars(range(min = 0, max = 10_000))]
    pub maximum: u32,
    /// Short events that one unit's worker takes from the queue at once and acks with one commit. Each is handled as it
    /// would be alone, with its own limits; one that fails, or takes longer than a few milliseconds, is undone and
    /// handled alone. 1, the default, takes one after the other. With `reuse_calls` they share a unit too. Not for a
    /// function with `grants.hosts`.
    #[schemars(range(min = 1, max = 256))]
    pub batch: u32,
    /// What decides how many there are.
    pub policy: PolicyWord,
    /// With the policy `triggers`: with this many events in the queue another unit starts.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub threshold: u64,
    /// With the policy `triggers`: pause after a start before the same trigger starts another unit. It is over when a
    /// unit ends. At most as long as a lease.
    pub grace: Span,
    /// With the policy `latency`: how old the oldest event may become before another unit starts.
    pub target: Span,
    /// Keep a core dump of the last unit that trapped, for `lighter dump`. It holds the unit's whole memory.
    pub dump: bool,
}

impl Default for Units {
    fn default() -> Self {
        Self {
            reuse_calls: 1,
            reuse_idle_ms: 10_000,
            maximum: 10,
            batch: 1,
            policy: PolicyWord::Latency,
            threshold: 10,
            grace: Span::from_ms(1_000),
            target: Span::from_ms(100),
            dump: false,
        }
    }
}

/// What decides how many units handle a queue. Either way idle functions hold no unit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PolicyWord {
    /// The measured service time and the age of the oldest event.
    #[default]
    Latency,
    /// UniFaaS's triggers: first event in an empty queue, queue emptied, size at the threshold.
    Triggers,
}

impl Function {
    pub fn new(image: impl Into<String>) -> Self {
        Self {
            image: image.into(),
            build: None,
            isolation: Isolation::default(),
            base: None,
            entry: None,
            http: Vec::new(),
            queue: None,
            mqtt: Vec::new(),
            every: Vec::new(),
            cron: Vec::new(),
            retry: Retry::default(),
            errors: Errors::default(),
            config: BTreeMap::new(),
            environment: BTreeMap::new(),
            grants: Grants::default(),
            limits: Limits::default(),
            units: Units::default(),
            place: None,
        }
    }

    /// The queue whose events `name`, this function, handles; none if only HTTP calls it.
    pub fn handles<'a>(&'a self, name: &'a Name) -> Option<&'a Name> {
        let is_async = self.http.iter().any(|trigger| trigger.is_async);
        let has_own = is_async || !(self.mqtt.is_empty() && self.every.is_empty() && self.cron.is_empty());
        self.queue.as_ref().or(has_own.then_some(name))
    }

    /// The routes below which the results of its async routes are read, each once.
    pub fn results(&self) -> Vec<HttpTrigger> {
        let mut routes: Vec<HttpTrigger> = Vec::new();
        for results in self.http.iter().filter_map(HttpTrigger::results) {
            if !routes.iter().any(|known| (&known.host, &known.route) == (&results.host, &results.route)) {
                routes.push(results);
            }
        }
        routes
    }

    /// How many units a node keeps ready.
    pub fn warm(&self) -> u32 {
        self.place.as_ref().and_then(|place| place.warm).unwrap_or_default()
    }

    pub(crate) fn check(&self, name: &Name) -> Result<(), Problem> {
        if self.image.is_empty() {
            return Err(problem(name, "image is empty, name the component to run"));
        }
        self.check_isolation(name)?;
        in_range(name, "number of http triggers", self.http.len(), 0..=TRIGGERS_MAX)?;
        self.http.iter().try_for_each(|trigger| trigger.check(name))?;
        let others = self.mqtt.len() + self.every.len() + self.cron.len();
        in_range(name, "number of mqtt, every and cron triggers", others, 0..=TRIGGERS_MAX)?;
        self.mqtt.iter().try_for_each(|trigger| trigger.check(name))?;
        self.every.iter().try_for_each(|trigger| trigger.check(name))?;
        self.retry.check(name)?;
        for (table, entries) in [("config", &self.config), ("environment", &self.environment)] {
            in_range(name, &format!("number of entries in {table}"), entries.len(), 0..=1_000)?;
            for (key, value) in entries {
                if key.is_empty() || key.len() > 255 || key.contains(['=', '\0']) || value.contains('\0') {
                    let detail = format!("{table} has the name {key:?}: 1 to 255 bytes, no = and no NUL");
                    return Err(problem(name, detail));
                }
                in_range(name, &format!("bytes of {table}.{key}"), value.len(), 0..=65_536)?;
            }
        }
        self.grants.check(name)?;
        together::check(name, &self.units, &self.grants)?;
        self.limits.check(name)?;
        self.place.as_ref().map_or(Ok(()), |place| place.check(name, self.limits.concurrency))?;
        self.units.check(name, self.limits.handling_max() + Limits::LEASE_MARGIN)
    }
}

impl Units {
    /// `lease`: how long a unit may have an event.
    fn check(&self, name: &Name, lease: Duration) -> Result<(), Problem> {
        in_range(name, "units.reuse_calls", self.reuse_calls, 1..=1_000_000_000)?;
        in_range(name, "units.reuse_idle_ms", self.reuse_idle_ms, 0..=86_400_000)?;
        in_range(name, "units.maximum", self.maximum, 0..=10_000)?;
        in_range(name, "units.threshold", self.threshold, 1..=1_000_000_000)
            .map_err(|problem| problem.with_hint("1 starts a unit for each event that waits, up to `units.maximum`"))?;
        in_range(name, "units.grace", self.grace, Span::from_ms(0)..=Span::from_ms(86_400_000))?;
        in_range(name, "units.target", self.target, Span::from_ms(1)..=Span::from_ms(86_400_000))?;
        if self.policy == PolicyWord::Triggers && self.grace.duration() > lease {
            let lease_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
            let detail = format!(
                "function {:?}: units.grace is {}, longer than the lease of an event, which is {}",
                name.as_str(),
                self.grace,
                Span::from_ms(lease_ms)
            );
            let hint =
                "a hung unit would outlast its lease without help: shorten `units.grace`, or raise `limits.time_ms`";
            return Err(Problem::new(Code::ManifestConflict, detail).with_hint(hint));
        }
        Ok(())
    }
}

impl Function {
    /// Keys that mean something in one isolation class only.
    fn check_isolation(&self, name: &Name) -> Result<(), Problem> {
        match self.isolation {
            Isolation::Wasm | Isolation::Microvm | Isolation::Metal if self.base.is_some() => {
                Err(problem(name, "base is for isolation = \"process\""))
            }
            Isolation::Wasm | Isolation::Microvm | Isolation::Metal if self.entry.is_some() => {
                Err(problem(name, "entry is for isolation = \"process\""))
            }
            Isolation::Process if self.units.dump => Err(problem(
                name,
                "units.dump is for isolation = \"wasm\" and \"microvm\": a process leaves a traceback in its log",
            )),
            Isolation::Metal if self.units.dump => {
                Err(problem(name, "units.dump is for isolation = \"wasm\" and \"microvm\": a board keeps nothing"))
            }
            _ => Ok(()),
        }
    }
}

impl Grants {
    fn check(&self, name: &Name) -> Result<(), Problem> {
        let counts = [self.stores.len(), self.hosts.len(), self.secrets.len(), self.push.len(), self.pop.len()];
        for (what, count) in ["stores", "hosts", "secrets", "push", "pop"].into_iter().zip(counts) {
            in_range(name, &format!("number of grants.{what}"), count, 0..=256)?;
        }
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b);
        for bucket in &self.stores {
            if bucket.is_empty() || bucket.len() > 64 || bucket.starts_with('.') || !bucket.bytes().all(plain) {
                return Err(problem(
                    name,
                    format!(
                        "grants.stores has {bucket:?}: 1 to 64 of a-z, 0-9, '.', '_' and '-', not beginning with '.'"
                    ),
                ));
            }
        }
        match self.secrets.iter().find(|secret| !is_secret_name(secret)) {
            Some(bad) => Err(problem(name, format!("grants.secrets has {bad:?}: 1 to 64 of A-Z, a-z, 0-9 and '_'"))),
            None => Ok(()),
        }
    }
}

/// Whether a secret may have this name.
pub fn is_secret_name(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn problem(name: &Name, what: impl Display) -> Problem {
    Problem::new(Code::ManifestValue, format!("function {:?}: {what}", name.as_str()))
}

pub(crate) fn in_range<T: PartialOrd + Display>(
    name: &Name,
    what: &str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<(), Problem> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(problem(name, format!("{what} is {value}, it must be between {} and {}", range.start(), range.end())))
}
