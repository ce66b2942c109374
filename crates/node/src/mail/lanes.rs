//! The ways to other nodes: one after the other, the messages for one node go over the link to it, or by the engine.

use super::Book;
use super::post::name_of;
use crate::Node;
use bytes::Bytes;
use facts::Post;
use fleet_trust::NodeId;
use parking_lot::Mutex;
use problem::{Code, Problem};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::timeout;

/// Messages that wait for one node: the window of an outbox, and receipts. One more is dropped, which is as if it had
/// been lost on the way.
const WAITING_MAX: usize = 32;
/// How long a lane stays without a message.
const IDLE: Duration = Duration::from_secs(60);
/// A node that is away for less time starts again, perhaps, and nobody has to know.
const WORTH_SAYING: Duration = Duration::from_secs(5);

pub struct Lanes {
    node: Weak<Node>,
    book: Arc<dyn Book>,
    /// Through the fleet's engine, if it has one.
    post: Option<Arc<dyn Post>>,
    open: Mutex<BTreeMap<NodeId, mpsc::Sender<Bytes>>>,
    away: Mutex<BTreeMap<NodeId, Away>>,
}

/// A node that cannot be reached.
struct Away {
    since: Instant,
    is_told: bool,
}

impl Lanes {
    pub fn new(node: &Arc<Node>, book: Arc<dyn Book>, post: Option<Arc<dyn Post>>) -> Arc<Self> {
        let (open, away) = Default::default();
        Arc::new(Self { node: Arc::downgrade(node), book, post, open, away })
    }

    /// Sends a message, soon or never: mail sends again what did not arrive. Needs a tokio runtime.
    pub fn send(self: &Arc<Self>, to: NodeId, message: impl Into<Bytes>) {
        let mut open = self.open.lock();
        let lane = open.entry(to).or_insert_with(|| self.lane(to));
        if let Err(TrySendError::Closed(message)) = lane.try_send(message.into()) {
            *lane = self.lane(to);
            // A new lane has room.
            lane.try_send(message).ok();
        }
    }

    /// If a node was away until now: for how long, if that was long enough to say so.
    pub fn is_back(&self, node: &NodeId) -> Option<Option<Duration>> {
        self.away.lock().remove(node).map(|away| away.is_told.then(|| away.since.elapsed()))
    }

    /// The nodes that are away.
    pub fn away(&self) -> Vec<NodeId> {
        self.away.lock().keys().copied().collect()
    }

    fn lane(self: &Arc<Self>, to: NodeId) -> mpsc::Sender<Bytes> {
        let (sender, messages) = mpsc::channel(WAITING_MAX);
        tokio::spawn(drive(Arc::downgrade(self), to, messages));
        sender
    }

    /// Over the link; if that does not carry it, by the engine, which keeps it for a node that is away.
    async fn carry(&self, to: NodeId, message: Bytes) {
        let Err(problem) = self.carry_by_link(to, message.clone()).await else { return };
        self.is_away(to, &problem);
        if let Some(post) = &self.post
            && let Err(error) = post.send(&name_of(&to), &message).await
        {
            tracing::debug!(node = %to, %error, "mail did not go to the engine either");
        }
    }

    async fn carry_by_link(&self, to: NodeId, message: Bytes) -> Result<(), Problem> {
        let link = self.node.upgrade().and_then(|node| node.link());
        let link = link.ok_or_else(|| Problem::new(Code::MemberAway, "this node has no link to others"))?;
        link.send_mail(to, message).await
    }

    fn is_away(&self, to: NodeId, problem: &Problem) {
        let is_news = {
            let mut all = self.away.lock();
            let away = all.entry(to).or_insert_with(|| Away { since: Instant::now(), is_told: false });
            let is_long = away.since.elapsed() >= WORTH_SAYING;
            is_long && !std::mem::replace(&mut away.is_told, true)
        };
        if is_news {
            let name = self.book.name(&to).unwrap_or_else(|| to.to_string());
            tracing::info!(node = name, "mail waits: {} {}", problem.code, problem.detail);
        }
    }
}

/// Carries what comes, until nothing has come for a while.
async fn drive(lanes: Weak<Lanes>, to: NodeId, mut messages: mpsc::Receiver<Bytes>) {
    while let Ok(Some(message)) = timeout(IDLE, messages.recv()).await {
        let Some(lanes) = lanes.upgrade() else { return };
        lanes.carry(to, message).await;
    }
}
