//! What the gate asks of the node: to keep records and events durably, together or not at all.

use crate::broker::Message;
use problem::Problem;
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;

/// A message for functions.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub message: Arc<Message>,
    /// Who published it; of a bridge, its name.
    pub client: Arc<str>,
    pub user: Option<Arc<str>>,
    pub retain: bool,
}

/// What happens together. The last change of a record counts.
#[derive(Debug, Default, Clone)]
pub struct Changes {
    /// Records to write, or to delete where there is no value. Keys are texts of at most 1,024 bytes.
    pub records: Vec<(String, Option<Vec<u8>>)>,
    /// Messages to push into the queues of the functions whose triggers match.
    pub events: Vec<Delivery>,
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.events.is_empty()
    }

    pub fn put(&mut self, key: String, value: Vec<u8>) {
        self.records.push((key, Some(value)));
    }

    pub fn delete(&mut self, key: String) {
        self.records.push((key, None));
    }
}

/// Why nothing was changed.
#[derive(Debug, Clone)]
pub enum Refused {
    /// A queue of a function is full: the same may be accepted later.
    QueueFull(Problem),
    /// The disk is full or failing.
    Unavailable(Problem),
}

impl Refused {
    pub fn problem(&self) -> &Problem {
        match self {
            Self::QueueFull(problem) | Self::Unavailable(problem) => problem,
        }
    }
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Self::Unavailable(problem)
    }
}

/// The node, as the broker sees it. One broker uses it, from under one lock: commits come one after the other.
pub trait Node: Send + Sync + 'static {
    /// Whether a function wants messages of this topic. Asked for each message: must be quick.
    fn wants(&self, topic: &str) -> bool;

    /// Makes all changes, visible at once, and returns a number that only grows; 0 if there was nothing to do. Does not
    /// wait for the disk.
    ///
    /// # Errors
    /// Nothing was changed.
    fn commit(&self, changes: &Changes) -> Result<u64, Refused>;

    /// Waits until the commit of this number survives a power cut, and says up to which number all do.
    ///
    /// # Errors
    /// The disk failed: whether the commit survives is not known, and no later one will.
    fn durable(&self, number: u64) -> impl Future<Output = Result<u64, Problem>> + Send;

    /// Somebody at `peer` gave a wrong name or password; `user` is who there is of that name. Called for each: must be
    /// quick.
    fn failed_login(&self, peer: IpAddr, user: Option<&Arc<str>>) {
        let _ = (peer, user);
    }

    /// Hands over all records, ordered by key.
    fn restore(&self, take: &mut dyn FnMut(&str, &[u8])) -> Result<(), Problem>;
}
