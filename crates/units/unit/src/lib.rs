//! The plug point of isolation classes: what a class must do, and what a unit may ask of its host.
//!
//! ```text
//!   image ──check──▶ Shape          cheap: is it one of ours, what does it export and import
//!         ──compile─▶ artefact      costly: once per image and engine, kept by the warehouse
//!         ──load────▶ Prepared      microseconds to milliseconds: ready to start units
//!                        └─attempt─▶ Running ──▶ Given     start a unit, hand it the work, stop it: once
//!                                       └─ asks ─▶ Host    store, queues, log, http, clock, random, config
//! ```
//! A class knows no lease, no rerun, no ack and no disk: `crates/handling` stands above it, begins the transaction, and
//! decides what becomes of an attempt.
//!
//! Rules for all classes: fresh memory for each call by default; deadline and limits bind even in a loop, a start
//! function or a host call; output is captured as log lines; a crash is a typed problem; nothing a unit does harms the
//! node or another unit. `crates/units/checks` holds every class to them.
#![forbid(unsafe_code)]

mod body;
mod host;
mod incoming;
mod log;
mod output;
mod running;
mod seen;

pub use body::{Body, BodyError, LimitedBody};
pub use component::{Contract, Shape};
pub use host::{Departure, Entry, Host, Inbound, Outbound, Outgoing, Page, Reach, Refusal, bucket_denied};
pub use incoming::{Incoming, RequestBody};
pub use log::{Level, LogLine, LogWriter, StackFrame, Stream};
pub use output::{Denied, Output, cut};
pub use running::{Attempt, Given, Running, Spent, Stages, Timing, Work, check_reply, said};
pub use seen::{Seen, ended_meanwhile, refused};

use budget::Budget;
use futures_util::future::BoxFuture;
use manifest::{Function, Isolation, Name};
use problem::Problem;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A way to keep units apart from the node and from each other. One instance serves the whole node.
pub trait IsolationClass: Send + Sync + 'static {
    /// The word for it in manifests, metrics and the API.
    fn isolation(&self) -> Isolation;

    /// What an artefact depends on beside its image: engine version, settings, CPU. Another fingerprint means
    /// compiling anew.
    fn fingerprint(&self) -> &str;

    /// Whether units of this class can run on this machine at all. Asked at deploy, before anything is made for one.
    ///
    /// # Errors
    /// What this machine lacks or refuses.
    fn usable(&self) -> BoxFuture<'_, Result<(), Problem>> {
        Box::pin(async { Ok(()) })
    }

    /// Says what the image is, without compiling it. Called at deploy for every image.
    ///
    /// # Errors
    /// The image cannot run here: not of this class, no known export, an import that is not offered.
    fn check(&self, image: &[u8]) -> Result<Shape, Problem>;

    /// Makes the artefact, in this process. Takes seconds for large images: call it where blocking is allowed.
    fn compile(&self, image: &[u8]) -> Result<Vec<u8>, Problem>;

    /// Whether it takes a compiler to make one, which a node has elsewhere.
    fn has_compiler(&self) -> bool {
        false
    }

    /// Makes the artefact like [`IsolationClass::compile`], of code that `compiler` makes of the image.
    ///
    /// # Errors
    /// As of [`IsolationClass::compile`]; those of the compiler.
    fn compile_by(&self, image: &[u8], compiler: &mut Compiler<'_>) -> Result<Vec<u8>, Problem> {
        let _ = compiler;
        self.compile(image)
    }

    /// Whether [`IsolationClass::load`] takes no longer than a file map, and keeps no more memory than that and a few
    /// tables. Then a node that starts loads functions before their first calls.
    fn loads_at_once(&self) -> bool {
        false
    }

    /// Makes a function ready to start units. May block for the time of a file map.
    ///
    /// # Errors
    /// The artefact does not fit this engine: compile the image anew.
    fn load(&self, artefact: Artefact, function: Deployed) -> Result<Arc<dyn Prepared>, Problem>;
}

/// Makes code of an image, for the target of this word. Only the class knows what the word means.
pub type Compiler<'a> = dyn FnMut(&str, &[u8]) -> Result<Vec<u8>, Problem> + Send + 'a;

/// A function ready to start units. Dropping it lets calls that run end, and frees what it held.
pub trait Prepared: Send + Sync {
    /// The function it was made of.
    fn deployed(&self) -> &Arc<Deployed>;

    /// Starts a unit and stops it again; returns how long the start took. Called once at deploy. What a start function
    /// asks for, it asks of `host`; nothing of that is kept.
    fn try_start(self: Arc<Self>, host: Arc<dyn Host>) -> BoxFuture<'static, Result<Duration, Problem>>;

    /// Takes a unit, starting one or using one again, and hands it the work. Nothing happens before the result is
    /// polled.
    ///
    /// # Panics
    /// The work is not of the function's contract.
    fn attempt(self: Arc<Self>, attempt: Attempt) -> Box<dyn Running>;

    /// Begins to make the units that are to be ready and are not (`place.warm`). Called now and then of a function that
    /// wants some. A class that makes no units ahead does nothing.
    fn warm_up(self: Arc<Self>) {}

    /// It has had no call for a moment: what its next call finds again at little cost may go from memory. Called once
    /// after each call, or after several.
    fn rests(&self) {}

    /// The units that exist now.
    fn units(&self) -> Vec<UnitStatus>;

    /// The core dump of the last unit that trapped, if the manifest asks for dumps and one did.
    fn dump(&self) -> Option<Arc<Vec<u8>>>;

    /// Looks at a unit while it works, and lets it go on: where it is goes to its log, with the number it has there.
    /// Others are not stopped. `wants_core`: with a core file; a class says whether the call then ends.
    ///
    /// # Errors
    /// - [`Code::AttachRefused`](problem::Code::AttachRefused): the class cannot do it, or the unit is at no work.
    /// - [`Code::UnitGone`](problem::Code::UnitGone): it ended meanwhile.
    fn attach(self: Arc<Self>, unit: u64, wants_core: bool) -> BoxFuture<'static, Result<Seen, Problem>> {
        let _ = (unit, wants_core);
        let isolation = self.deployed().function.isolation.as_str();
        Box::pin(async move { Err(seen::refused(format!("the class {isolation} shows no unit at work"))) })
    }

    /// Stops units kept for reuse. Called when the function is replaced and now and then to find idle ones.
    fn sweep(&self, now: Instant, all: bool);
}

/// A compiled image, verified by the warehouse.
pub struct Artefact {
    pub path: PathBuf,
    /// Open on exactly the bytes that were verified.
    pub file: File,
}

/// A function as a class sees it.
#[derive(Clone)]
pub struct Deployed {
    pub name: Name,
    pub version: u32,
    pub function: Arc<Function>,
    pub contract: Contract,
    /// Values of the secrets it is granted.
    pub secrets: Arc<BTreeMap<String, String>>,
    pub log: Arc<dyn LogWriter>,
    /// The node's memory: what a unit, or its host on its behalf, is to keep is asked for there first.
    pub budget: Arc<Budget>,
}

impl Deployed {
    /// Whether a call of the function may write anything, and so conflict with others.
    pub fn may_write(&self) -> bool {
        let grants = &self.function.grants;
        !(grants.stores.is_empty() && grants.push.is_empty() && grants.pop.is_empty())
    }
}

/// A unit that exists now.
#[derive(Debug, Clone)]
pub struct UnitStatus {
    pub unit: u64,
    /// The call it serves; none while it waits to be used again.
    pub request_id: Option<Arc<str>>,
    pub since: Instant,
    pub calls: u64,
}
