//! One handling: a transaction, a unit run on it, and what became of both. It stands above the classes of isolation.
//!
//! ```text
//!   work ─▶ attempt: a class starts a unit and hands it the work
//!    ▲         │ what the unit asks meanwhile: `host.rs`, one transaction, begun by the first use of store or queue
//!    │         ▼
//!    │       reply ─▶ commit: writes, pushes, the ack of the lease ─▶ durable, if not leased ─▶ reply to the caller
//!    │         │         │conflict
//!    │         │         └──▶ undone, once more in a fresh unit: at most RERUNS_MAX in all
//!    └─────────│────────────┘
//!              ├▶ head: committed where the unit sets it, durable before it is sent; what follows is a second
//!              │  transaction (`reply.rs`)
//!              └▶ failure, trap, limit: undone; a failure says why once what it has read is durable
//! ```
//! Leased events of one function may share a transaction, each with a part of its own: `batch.rs`.
//!
//! There is one loop, in `rerun.rs`, for every class and both contracts. It knows nothing of how a unit is kept apart,
//! and a class knows nothing of leases, reruns, acks and disks.
#![forbid(unsafe_code)]

mod batch;
mod host;
mod kept;
mod once;
mod outgoing;
mod reply;
mod requests;
mod rerun;
mod values;

pub use batch::Batch;
pub use kept::kept;
pub use once::once;
pub use outgoing::{DELAY_MAX, id_of_push};
pub use rerun::RERUNS_MAX;

use bytes::Bytes;
use egress::Clients;
use host::{Cause, Handling};
use http_body_util::Full;
use problem::Problem;
use state::{Leased, State, Transaction};
use std::sync::Arc;
use std::time::{Duration, Instant};
use unit::{Body, Prepared, Timing};

/// Handles work. One serves the whole node; cheap to clone.
#[derive(Clone)]
pub struct Handler {
    state: State,
    client: Arc<Clients<Full<Bytes>>>,
}

/// One call.
pub struct Call {
    /// Printable ASCII, at most 64 bytes: stands in logs and replies.
    pub request_id: Arc<str>,
    pub work: Work,
    /// When the call's wall time ends.
    pub deadline: Instant,
    /// Where the work comes from, if it comes from a queue: acked in the transaction of the handling that succeeds.
    pub lease: Option<Arc<Leased>>,
}

/// Work as it comes from a gate or a queue.
pub type Work = unit::Work<Body>;

/// Whoever has work handled. Dropped without a word when the handling is. Holds what the call occupies, such as its
/// place among the running ones.
pub trait Caller: Send + Unpin + 'static {
    /// Called for leased work that succeeded, before it is committed; once more for each rerun. What is written to
    /// `transaction` here becomes durable with the handling, as the reply to one who asks for it later.
    ///
    /// # Errors
    /// Undo the handling; the call fails with this problem.
    fn commits(&mut self, transaction: &mut Transaction, reply: &WholeReply) -> Result<(), Problem> {
        let _ = (transaction, reply);
        Ok(())
    }

    /// At once for a whole reply, later for one that streams.
    fn ended(self, ended: Ended);
}

/// Wants to know nothing.
impl Caller for () {
    fn ended(self, _: Ended) {}
}

/// A reply that has ended.
pub enum WholeReply {
    /// What a handler returned.
    Bytes(Bytes),
    Http(http::Response<Bytes>),
}

/// How a call ended.
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

pub struct Reply {
    pub timing: Timing,
    pub content: Content,
}

pub enum Content {
    /// What a handler returned.
    Bytes(Bytes),
    Http(http::Response<Body>),
}

impl Handler {
    /// A handler whose outgoing connections belong to the current runtime.
    pub fn new(state: State) -> Self {
        Self { state, client: Clients::new() }
    }

    /// Has a unit do the work, and waits for the reply or its head.
    ///
    /// `caller` hears how it ended. A dropped future, or a dropped reply body, stops the unit.
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
    /// - `QueueFull`: a queue it pushed to had no room when it was committed; or, with a lease, when it pushed, and the
    ///   handler gave up. Like `UnitRetry`.
    /// - `WorkflowEnded`: it pushed to a queue whose workflow has ended.
    /// - `LeaseLost`: the lease had ended. Another handling has the event, or will.
    pub async fn handle(&self, prepared: Arc<dyn Prepared>, call: Call, caller: impl Caller) -> Result<Reply, Problem> {
        rerun::handle(self, prepared, call, caller).await
    }

    /// Starts a unit and stops it again; returns how long the start took.
    ///
    /// # Errors
    /// What the start says.
    pub async fn try_start(&self, prepared: &Arc<dyn Prepared>) -> Result<Duration, Problem> {
        let deployed = prepared.deployed();
        let deadline = Instant::now() + deployed.function.limits.time();
        let host = Handling::new(self, deployed.clone(), "deploy".into(), deadline, Cause::default());
        prepared.clone().try_start(Arc::new(host)).await
    }
}
