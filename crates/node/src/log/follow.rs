//! Followers of logs: each has a queue of its own, so a slow one misses lines and holds up nobody.

use api_types::LogLine;
use manifest::Name;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::sync::mpsc;

/// Followers at once; the next one is refused.
pub const FOLLOWERS_MAX: usize = 64;

/// Lines that wait for one follower; while its queue is full it misses what is written, which shows as a gap.
const QUEUE_LINES_MAX: usize = 1_024;

#[derive(Default)]
pub struct Followers {
    count: AtomicUsize,
    list: Mutex<Vec<Queue>>,
}

struct Queue {
    /// None: all functions.
    function: Option<Name>,
    lines: mpsc::Sender<Arc<LogLine>>,
}

/// New lines, from the moment it was made. Dropping it ends it.
pub struct Follower {
    lines: mpsc::Receiver<Arc<LogLine>>,
}

impl Follower {
    /// The next line; none once the node stops.
    pub async fn next(&mut self) -> Option<Arc<LogLine>> {
        self.lines.recv().await
    }
}

impl Followers {
    /// Whether anyone may be listening.
    pub fn any(&self) -> bool {
        self.count.load(Relaxed) > 0
    }

    pub fn add(&self, function: Option<Name>) -> Option<Follower> {
        let mut list = self.list.lock();
        list.retain(|queue| !queue.lines.is_closed());
        if list.len() >= FOLLOWERS_MAX {
            return None;
        }
        let (sender, receiver) = mpsc::channel(QUEUE_LINES_MAX);
        list.push(Queue { function, lines: sender });
        self.count.store(list.len(), Relaxed);
        Some(Follower { lines: receiver })
    }

    pub fn send(&self, function: &Name, line: &LogLine) {
        let line = Arc::new(line.clone());
        let mut list = self.list.lock();
        let mut gone = false;
        for queue in list.iter().filter(|queue| queue.function.as_ref().is_none_or(|wanted| wanted == function)) {
            gone |= matches!(queue.lines.try_send(line.clone()), Err(mpsc::error::TrySendError::Closed(_)));
        }
        if gone {
            list.retain(|queue| !queue.lines.is_closed());
            self.count.store(list.len(), Relaxed);
        }
    }

    pub fn close(&self) {
        let mut list = self.list.lock();
        list.clear();
        self.count.store(0, Relaxed);
    }
}
