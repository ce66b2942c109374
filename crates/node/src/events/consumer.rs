//! What handles the events of one queue: a function, or a sink. Leasing, retry and dead letters are the same for both.

use super::past::Ran;
use futures_util::future::BoxFuture;
use manifest::{Name, Retry, Sink};
use problem::{Code, Problem};
use state::{Leased, Transaction};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Handles events of one queue, several at once. Made anew when what is deployed changes; handlings that run keep the
/// one they began with.
pub trait Consumer: Send + Sync + 'static {
    /// How long one handling may take, all its waiting included. The lease lasts a little longer; a handling that takes
    /// more is dropped, and its event tried again.
    fn time_max(&self) -> Duration;

    /// Handlings at once, at most. 0 pauses the queue.
    fn workers_max(&self) -> u32;

    fn retry(&self) -> &Retry;

    /// Whether all it does is to tell the world outside, as sinks do. It gets an event once that is durable, and none
    /// while the state takes no writes: what cannot be acked would be told again and again.
    fn is_outward(&self) -> bool {
        true
    }

    /// Whether handling an event runs somebody's code, which may end the node. Then an event that was being handled
    /// when the node ended counts that as a try, and comes later. Else it keeps its place, and with it the order.
    fn may_end_node(&self) -> bool {
        true
    }

    /// Writes what belongs to the end of an event, in the transaction that makes it a dead letter.
    ///
    /// # Errors
    /// The event is tried again as if this try had not been.
    fn dies(&self, transaction: &mut Transaction, leased: &Leased, problem: &Problem) -> Result<(), Problem> {
        let _ = (transaction, leased, problem);
        Ok(())
    }

    /// Tells whoever looks after the consumer that an event became a dead letter, and why.
    fn died(&self, leased: &Leased, reason: &str) {
        let _ = (leased, reason);
    }

    /// Events it takes at once, at most, while they are short.
    fn batch_max(&self) -> usize {
        1
    }

    /// Handles events one after the other, each for the first time, and acks those that went well in one commit. Says
    /// what became of each, in their order; of those that it did not begin before `until` nothing. A dropped future
    /// must leave nothing behind.
    fn handle_together(self: Arc<Self>, leased: Vec<Arc<Leased>>, until: Instant) -> BoxFuture<'static, Vec<Together>> {
        let _ = (leased, until);
        Box::pin(async { Vec::new() })
    }

    /// Handles one event; called for each try. A dropped future must leave nothing behind that goes on.
    fn handle(self: Arc<Self>, leased: Arc<Leased>) -> BoxFuture<'static, Tried>;
}

/// A try that has ended.
pub struct Tried {
    pub outcome: Outcome,
    /// The function that had it; none of a sink.
    pub ran: Option<Ran>,
}

impl From<Outcome> for Tried {
    fn from(outcome: Outcome) -> Self {
        Self { outcome, ran: None }
    }
}

/// What became of an event that was handled together with others.
pub enum Together {
    /// It is acked.
    Acked { ran: Ran, took: Duration },
    /// Nothing is left of this try, which does not count: it is to be handled alone.
    Alone,
}

/// How one handling ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Done, and acked in the consumer's own transaction.
    Acked,
    /// Done; the runtime acks it.
    Done,
    /// It may work later: counts as a try. After the last one the event is a dead letter.
    Retry {
        problem: Problem,
        /// The longer of this pause and that of `retry` is kept.
        after: Option<Duration>,
    },
    /// It can never work: a dead letter at once.
    Dead(Problem),
    /// The lease had ended, and the event is another handling's now. Nothing of this one remains.
    Lost,
    /// Not begun, for a reason that is not the event's: it is put back without counting a try, and the queue rests.
    Postponed {
        problem: Problem,
        /// None: the runtime chooses.
        after: Option<Duration>,
    },
}

/// The kinds of sinks this node offers, made in `open.rs`.
#[derive(Default)]
pub struct SinkKinds(pub Vec<Arc<dyn SinkKind>>);

impl SinkKinds {
    /// The kind that delivers for such a sink.
    ///
    /// # Errors
    /// [`Code::ManifestValue`]: none does.
    pub fn get(&self, name: &Name, sink: &Sink) -> Result<&Arc<dyn SinkKind>, Problem> {
        self.0.iter().find(|kind| kind.takes(sink)).ok_or_else(|| {
            Problem::new(Code::ManifestValue, format!("sink {:?}: this node has no such kind of sink", name.as_str()))
        })
    }
}

/// One kind of sink.
pub trait SinkKind: Send + Sync + 'static {
    /// Whether this kind delivers for such a sink.
    fn takes(&self, sink: &Sink) -> bool;

    /// Called when the sink is deployed, for what the manifest alone cannot know, as secrets.
    ///
    /// # Errors
    /// The deployment is refused with this problem.
    fn check(&self, name: &Name, sink: &Sink) -> Result<(), Problem>;

    /// What delivers from now on. Must be cheap and must not fail: what is wrong shows in the outcomes.
    fn open(&self, name: &Name, sink: &Arc<Sink>) -> Arc<dyn Consumer>;
}
