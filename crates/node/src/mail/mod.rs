//! Mail: events for a queue whose home is another node of the fleet, and those that come from there.
//!
//! ```text
//!   a handling, a gate, the API ─▶ queue here ─▶ MailConsumer ─▶ Desk: outbox ─▶ Lanes ══ link ══▶ another node
//!                                  (bounded)     one transaction  (bounded)        ╚═══ engine ══▶    │
//!   function ◀─ queue at home ◀─ one transaction ◀─ arrive ◀─ Desk: inbox ◀══ link, or engine ◀══════─┘
//! ```
//! The queue is the first half of the outbox: a push is in it by the transaction of the handling, and a push that finds
//! it full is refused like any other. From there one consumer moves each event into the outbox, ack and letter in one
//! transaction. So no two handlings meet at the outbox, and all that is true of queues is true of this one.
//!
//! The protocol is the crate `mail`, pure; this is its shell. A node of a fleet is one household. What is done at the
//! desk for other nodes is done by the clerk, a thread of its own, so that calls do not wait for it.

mod arrive;
mod clerk;
mod consumer;
mod desk;
mod gone;
mod kept;
mod lanes;
mod names;
mod owed;
mod post;
#[cfg(test)]
pub(crate) mod tests;

pub use consumer::MailConsumer;

use crate::{Node, mqtt};
use ::mail::{Counts, Household, PushError, Rests};
use bytes::Bytes;
use clerk::Clerk;
use desk::Desk;
use facts::Post;
use fleet_trust::NodeId;
use lanes::Lanes;
pub use names::{household, node_of_source};
use parking_lot::Mutex;
use problem::Problem;
use state::{StoreError, Ticket, Transaction};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::AbortHandle;

/// The queue for what came from another node and is no event that a queue takes.
pub const UNDELIVERABLE: &str = "undeliverable";

/// Why an event is there: an attribute of it.
const REASON: &str = "deadreason";

/// Who is in the fleet, as mail asks for it.
pub trait Book: Send + Sync + 'static {
    /// The other member that has this name or id.
    fn find(&self, name_or_id: &str) -> Option<NodeId>;

    /// What people call a member.
    fn name(&self, node: &NodeId) -> Option<String>;

    /// All other members.
    fn all(&self) -> Vec<NodeId>;

    /// Whether a node was taken out of the fleet, or has left it. It never comes back under this id.
    fn is_out(&self, node: &NodeId) -> bool;
}

/// This node's mail, as long as it belongs to a fleet. Dropping it ends its tasks; what waits is on the disk.
pub struct Mail {
    own: NodeId,
    own_name: String,
    book: Arc<dyn Book>,
    desk: Arc<Desk>,
    clerk: Arc<Clerk>,
    lanes: Arc<Lanes>,
    /// Between messages that come.
    rests: Mutex<Rests>,
    tasks: Vec<AbortHandle>,
}

impl Mail {
    /// Reads what waits, and begins to send it: over the link, and by `post` where that does not carry it. Needs a
    /// tokio runtime.
    ///
    /// # Errors
    /// [`problem::Code::StateCorrupt`]: a record cannot be read. [`problem::Code::Internal`]: the system gives no
    /// thread.
    pub fn start(
        node: &Arc<Node>,
        (own, own_name): (NodeId, String),
        book: Arc<dyn Book>,
        post: Option<Arc<dyn Post>>,
    ) -> Result<Arc<Self>, Problem> {
        let desk = Arc::new(Desk::open(&node.functions.loader.state, household(&own))?);
        let (lanes, clerk) = (Lanes::new(node, book.clone(), post.clone()), Arc::new(Clerk::start()?));
        let sending = desk.clone().send(clerk.clone(), lanes.clone(), node.calls.clone());
        let mut tasks = vec![
            tokio::spawn(sending).abort_handle(),
            tokio::spawn(desk.clone().keep_durable(clerk.clone(), lanes.clone())).abort_handle(),
            tokio::spawn(gone::return_letters(Arc::downgrade(node), desk.clone(), book.clone())).abort_handle(),
        ];
        tasks.push(tokio::spawn(mqtt::cross(Arc::downgrade(node))).abort_handle());
        tasks.extend(post.map(|post| tokio::spawn(post::listen(Arc::downgrade(node), post)).abort_handle()));
        Ok(Arc::new(Self { own, own_name, book, desk, clerk, lanes, rests: Mutex::default(), tasks }))
    }

    /// Whether this node is the home that a manifest names.
    pub fn is_own(&self, home: &str) -> bool {
        home == self.own_name || NodeId::read(home) == Some(self.own)
    }

    /// Takes a message that another node sent over the link. Says how long the next one is to wait.
    pub async fn hear(self: &Arc<Self>, node: &Arc<Node>, from: NodeId, message: Bytes) -> Duration {
        self.reached(from);
        self.hear_by_post(node, from, message).await
    }

    /// Takes a message that another node sent, proved by the way it came. It may be old. Says how long the next one is
    /// to wait.
    pub async fn hear_by_post(self: &Arc<Self>, node: &Arc<Node>, from: NodeId, message: Bytes) -> Duration {
        let (mail, to) = (self.clone(), node.clone());
        let taking = self.clerk.does(move || {
            let began = Instant::now();
            let answer = mail.desk.take(&to, &mail, &from, &message);
            (answer, began.elapsed())
        });
        // One that gave up is as if it had been lost on the way.
        let Some((answer, took)) = taking.await else { return Duration::ZERO };
        answer.into_iter().for_each(|answer| self.lanes.send(from, answer));
        self.rests.lock().worked(took, node.started.elapsed(), node.calls.are_coming())
    }

    /// The engine is there again: what rests because nobody answered may go through it.
    pub fn try_all_again(&self) {
        self.lanes.away().iter().for_each(|node| self.desk.wake(&household(node)));
    }

    /// Puts letters into the outbox by the transaction of somebody else: `commit` has them written with all else.
    ///
    /// # Errors
    /// There is no room for them: nothing has happened, and `commit` was not called. What it refuses is in the result.
    pub fn post_with<E: From<Problem>>(
        &self,
        letters: &[(Household, Vec<u8>)],
        commit: impl FnOnce(&dyn Fn(&mut Transaction) -> Result<(), StoreError>) -> Result<Ticket, E>,
    ) -> Result<Result<Ticket, E>, PushError> {
        self.desk.post_with(letters, commit)
    }

    /// Which node this is.
    pub fn own(&self) -> NodeId {
        self.own
    }

    /// All other members.
    pub fn members(&self) -> Vec<NodeId> {
        self.book.all()
    }

    /// Whether a node was taken out of the fleet, or has left it.
    pub fn is_out(&self, node: &NodeId) -> bool {
        self.book.is_out(node)
    }

    /// Whether a node is away, and letters wait for it.
    pub fn is_behind(&self, node: &NodeId) -> bool {
        self.lanes.away().contains(node) && self.waiting(node).letters > 0
    }

    /// There is a way to this node: what rests because nobody answered is tried now.
    pub fn reached(&self, node: NodeId) {
        let Some(told) = self.lanes.is_back(&node) else { return };
        if let Some(away_for) = told {
            let waiting = self.waiting(&node).letters;
            let name = self.book.name(&node).unwrap_or_else(|| node.to_string());
            tracing::info!(node = name, "reached again after {} s: {waiting} events wait for it", away_for.as_secs());
        }
        self.desk.wake(&household(&node));
    }

    /// What waits here for another node: letters that its disk does not have yet.
    pub fn waiting(&self, node: &NodeId) -> Counts {
        self.desk.waiting(&household(node))
    }

    /// What waits here for all other nodes.
    pub fn waiting_in_all(&self) -> Counts {
        self.desk.waiting_in_all()
    }

    /// Letters that other nodes have confirmed, and letters taken from them, since mail was started.
    pub fn totals(&self) -> Totals {
        self.desk.totals()
    }
}

impl Drop for Mail {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

/// Letters since mail was started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// On the disk of the node they were for.
    pub sent: u64,
    /// Taken into a queue here.
    pub taken: u64,
}
