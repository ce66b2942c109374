//! The plug point of isolation classes: what a kind of unit must do, and the checks that hold it to that.
//!
//! ```text
//!   image ──check──▶ Shape          cheap: is it one of ours, what does it export and import
//!         ──compile─▶ artefact      costly: once per image and engine, kept by the warehouse
//!         ──load────▶ Prepared      microseconds to milliseconds: ready to start units
//!                        └─call───▶ Reply    start a unit, hand it the work, stop it
//! ```
//! Rules for all kinds: fresh memory for each call by default; deadline and limits bind even in a loop, a start
//! function or a host call; output is captured as log lines; a crash is a typed problem; nothing a unit does harms the
//! node or another unit.
#![forbid(unsafe_code)]

mod body;
pub mod checks;
pub mod component;
mod log;
mod outgoing;

pub use body::{Body, BodyError, LimitedBody};
pub use log::{Level, LogLine, LogSink, Stream};
pub use outgoing::{DELAY_MAX, Origin, Outgoing};

use budget::Budget;
use bytes::Bytes;
use event::Event;
use futures_util::future::BoxFuture;
use manifest::{Function, Isolation, Name};
use problem::Problem;
use state::{Leased, State, Transaction};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A kind of unit. One instance serves the whole node.
pub trait UnitKind: Send + Sync + 'static {
    /// The word for it in manifests, metrics and the API.
    fn isolation(&self) -> Isolation;

    /// What an artefact depends on beside its image: engine version, settings, CPU. Another fingerprint means
    /// compiling anew.
    fn fingerprint(&self) -> &str;

    /// Whether units of this kind can run on this machine at all. Asked at deploy, before anything is made for one.
    ///
    /// # Errors
    /// What this machine lacks or refuses.
    fn usable(&self) -> BoxFuture<'_, Result<(), Problem>> {
        Box::pin(async { Ok(()) })
    }

    /// Says what the image is, without compiling it. Called at deploy for every image.
    ///
    /// # Errors
    /// The image cannot run here: not of this kind, no known export, an import that is not offered.
    fn check(&self, image: &[u8]) -> Result<Shape, Problem>;

    /// Makes the artefact, in this process. Takes seconds for large images: call it where blocking is allowed.
    fn compile(&self, image: &[u8]) -> Result<Vec<u8>, Problem>;

    /// Whether it takes a compiler to make one, which a node has elsewhere.
    fn has_compiler(&self) -> bool {
        false
    }

    /// Makes the artefact like [`UnitKind::compile`], of code that `compiler` makes of the image.
    ///
    /// # Errors
    /// As of [`UnitKind::compile`]; those of the compiler.
    fn compile_by(&self, image: &[u8], compiler: &mut Compiler<'_>) -> Result<Vec<u8>, Problem> {
        let _ = compiler;
        self.compile(image)
    }

    /// Makes a function ready to start units. May block for the time of a file map.
    ///
    /// # Errors
    /// The artefact does not fit this engine: compile the image anew.
    fn load(&self, artefact: Artefact, function: Deployed) -> Result<Arc<dyn Prepared>, Problem>;
}

/// Makes code of an image, for the target of this word. Only the kind knows what the word means.
pub type Compiler<'a> = dyn FnMut(&str, &[u8]) -> Result<Vec<u8>, Problem> + Send + 'a;

/// A function ready to start units. Dropping it lets calls that run end, and frees what it held.
pub trait Prepared: Send + Sync {
    /// Starts a unit and stops it again; returns how long the start took. Called once at deploy.
    fn try_start(self: Arc<Self>) -> BoxFuture<'static, Result<Duration, Problem>>;

    /// Starts a unit (or takes one kept for reuse), hands it the work and waits for the reply's head.
    ///
    /// `call.watch` hears how it ended: at once for a whole reply, later for a reply that streams. A dropped future, or
    /// a dropped reply body, stops the unit.
    ///
    /// What the function wrote and pushed is committed and durable before this returns a reply. With a lease it is
    /// committed together with the ack of the event, and durable a little later: the caller was promised neither. Only
    /// what a `wasi:http` function does after it has set the head of a reply comes later.
    ///
    /// # Errors
    /// Everything of this call is undone; the event of a lease is still leased, except with `LeaseLost`.
    /// - L3xxx: a limit.
    /// - L5xxx: the store. [`Code::Conflict`](problem::Code::Conflict): so many reruns in a row conflicted with others.
    ///   [`Code::DiskFailed`](problem::Code::DiskFailed): it may or may not be undone.
    /// - `UnitInvalid`, `UnitRetry`, `UnitFatal`: the handler said so. Other L6xxx: it trapped, or its reply is not
    ///   one.
    /// - `QueueFull`: a queue it pushed to had no room when it was committed. Like `UnitRetry`.
    /// - `LeaseLost`: the lease had ended. Another handling has the event, or will.
    fn call(self: Arc<Self>, call: Call) -> BoxFuture<'static, Result<Reply, Problem>>;

    /// The units that exist now.
    fn units(&self) -> Vec<UnitStatus>;

    /// The core dump of the last unit that trapped, if the manifest asks for dumps and one did.
    fn dump(&self) -> Option<Arc<Vec<u8>>>;

    /// Stops units kept for reuse. Called when the function is replaced and now and then to find idle ones.
    fn sweep(&self, now: Instant, all: bool);
}

/// The contract a component exports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contract {
    /// `lighter:unit/handler`: takes [`Work::Event`].
    Unit,
    /// `wasi:http/incoming-handler`: takes [`Work::Http`].
    WasiHttp,
    /// A function with arguments, which travel as a frame: takes [`Work::Event`] whose data it is.
    Call,
}

impl Contract {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unit => "lighter:unit",
            Self::WasiHttp => "wasi:http",
            Self::Call => "lighter:call",
        }
    }
}

/// What an image is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    pub contract: Contract,
    /// Interfaces it imports, with versions.
    pub imports: Vec<String>,
}

/// A compiled image, verified by the warehouse.
pub struct Artefact {
    pub path: PathBuf,
    /// Open on exactly the bytes that were verified.
    pub file: File,
}

/// A function as a kind sees it.
#[derive(Clone)]
pub struct Deployed {
    pub name: Name,
    pub version: u32,
    pub function: Arc<Function>,
    pub contract: Contract,
    /// Values of the secrets it is granted.
    pub secrets: Arc<BTreeMap<String, String>>,
    pub state: State,
    pub log: Arc<dyn LogSink>,
    /// The node's memory: what a unit, or its host on its behalf, is to keep is asked for there first.
    pub budget: Arc<Budget>,
}

/// One call.
pub struct Call {
    /// Printable ASCII, at most 64 bytes: stands in logs and replies.
    pub request_id: Arc<str>,
    pub work: Work,
    /// When the call's wall time ends.
    pub deadline: Instant,
    pub watch: Box<dyn Watch>,
    /// Where the work comes from, if it comes from a queue: acked in the transaction of the handling that succeeds.
    pub lease: Option<Arc<Leased>>,
}

pub enum Work {
    Event(Event),
    Http(http::Request<Body>),
}

/// Hears how a call ended. Dropped without a word when the caller went away. Holds what the call occupies, such as its
/// place among the running ones.
pub trait Watch: Send {
    /// Called for leased work that succeeded, before it is committed; once more for each rerun. What is written to
    /// `transaction` here becomes durable with the handling, as the reply to one who asks for it later.
    ///
    /// # Errors
    /// Undo the handling; the call fails with this problem.
    fn commits(&mut self, transaction: &mut Transaction, reply: &WholeReply) -> Result<(), Problem> {
        let _ = (transaction, reply);
        Ok(())
    }

    fn ended(self: Box<Self>, ended: Ended);
}

/// A reply that has ended.
pub enum WholeReply {
    /// What a handler returned.
    Bytes(Bytes),
    Http(http::Response<Bytes>),
}

#[derive(Debug)]
pub struct Ended {
    pub result: Result<(), Problem>,
    pub timing: Timing,
    pub cpu: Duration,
    /// Linear memory at the end.
    pub memory_bytes: u64,
    /// Handlings that were begun again because others had changed what they had read. The times are those of the last.
    pub reruns: u32,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Timing {
    /// From the start of the call to a unit that can take it.
    pub start: Duration,
    /// In the unit: until the reply was whole, or until its head was there for a reply that streams.
    pub run: Duration,
    /// What a unit says of its own part of the run.
    pub stages: Option<Stages>,
}

/// Where a unit's own time went, as it says itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stages {
    /// Reading the arguments.
    pub decode: Duration,
    /// The function itself.
    pub run: Duration,
    /// Writing the result.
    pub encode: Duration,
}

pub struct Reply {
    pub timing: Timing,
    pub content: Content,
}

pub enum Content {
    /// What a handler returned.
    Bytes(Bytes),
    Http(http::Response<Body>),
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
