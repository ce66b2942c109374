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
//! The protocol is the crate `mail`, pure; this is its shell. A node of a fleet is one household.

mod arrive;
mod consumer;
mod desk;
mod kept;
mod lanes;
mod names;
mod owed;
mod post;
#[cfg(test)]
mod tests;

pub use consumer::MailConsumer;

use crate::Node;
use ::mail::Counts;
use desk::Desk;
use facts::Post;
use fleet_trust::NodeId;
use lanes::Lanes;
use names::household;
use problem::Problem;
use std::sync::Arc;
use tokio::task::AbortHandle;

/// The queue for what came from another node and is no event that a queue takes.
pub const UNDELIVERABLE: &str = "undeliverable";

/// Who is in the fleet, as mail asks for it.
pub trait Book: Send + Sync + 'static {
    /// The other member that has this name or id.
    fn find(&self, name_or_id: &str) -> Option<NodeId>;

    /// What people call a member.
    fn name(&self, node: &NodeId) -> Option<String>;
}

/// This node's mail, as long as it belongs to a fleet. Dropping it ends its tasks; what waits is on the disk.
pub struct Mail {
    own: NodeId,
    own_name: String,
    book: Arc<dyn Book>,
    desk: Arc<Desk>,
    lanes: Arc<Lanes>,
    tasks: Vec<AbortHandle>,
}

impl Mail {
    /// Reads what waits, and begins to send it: over the link, and by `post` where that does not carry it. Needs a
    /// tokio runtime.
    ///
    /// # Errors
    /// [`problem::Code::StateCorrupt`]: a record cannot be read.
    pub fn start(
        node: &Arc<Node>,
        (own, own_name): (NodeId, String),
        book: Arc<dyn Book>,
        post: Option<Arc<dyn Post>>,
    ) -> Result<Arc<Self>, Problem> {
        let desk = Arc::new(Desk::open(&node.functions.loader.state, household(&own))?);
        let lanes = Lanes::new(node, book.clone(), post.clone());
        let mut tasks = vec![
            tokio::spawn(desk.clone().send(lanes.clone())).abort_handle(),
            tokio::spawn(desk.clone().keep_durable(lanes.clone())).abort_handle(),
        ];
        tasks.extend(post.map(|post| tokio::spawn(post::listen(Arc::downgrade(node), post)).abort_handle()));
        Ok(Arc::new(Self { own, own_name, book, desk, lanes, tasks }))
    }

    /// Whether this node is the home that a manifest names.
    pub fn is_own(&self, home: &str) -> bool {
        home == self.own_name || NodeId::read(home) == Some(self.own)
    }

    /// Takes a message that another node sent over the link. Says whether it was looked at.
    pub fn hear(&self, node: &Node, from: NodeId, message: &[u8]) -> bool {
        self.reached(from);
        self.hear_by_post(node, from, message);
        true
    }

    /// Takes a message that another node sent, proved by the way it came. It may be old.
    pub fn hear_by_post(&self, node: &Node, from: NodeId, message: &[u8]) {
        let answer = self.desk.take(node, self, &from, message);
        answer.into_iter().for_each(|answer| self.lanes.send(from, answer));
    }

    /// The engine is there again: what rests because nobody answered may go through it.
    pub fn try_all_again(&self) {
        self.lanes.away().iter().for_each(|node| self.desk.wake(&household(node)));
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
