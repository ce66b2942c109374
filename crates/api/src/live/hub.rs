//! One look at the node for all who look at it.
//!
//! ```text
//!  viewer ─ waits for the next look ─┐     the first to come looks at the node,   ┌▶ rows that are new to the viewer
//!  viewer ─ waits ───────────────────┼──▶  the others find what it has seen    ───┼▶
//!  viewer ─ does not read ───────────┘     (`Shown`, gone with the last viewer)   └▶ (later: all since its last line)
//! ```
//! There is no task and no timer of its own: each viewer's stream waits by itself, so nobody waits where nobody looks.
//! A viewer who reads slowly is not asked for, holds up nobody, and has no backlog: their next line has what changed
//! since their last one. The gate closes connections that read nothing at all.

use super::rows::Rows;
use api_types::{LiveFunction, LiveQueue, TokenInfo};
use node::{Node, Table, blocking};
use parking_lot::Mutex as Lock;
use problem::Problem;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{Mutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

/// Who looks at once; the next one is refused.
pub const VIEWERS_MAX: usize = 32;
/// Of those with one token, so that nobody keeps all others out.
pub const VIEWERS_OF_TOKEN_MAX: usize = VIEWERS_MAX / 2;

/// How often the node is looked at, and where there are more functions or queues than [`MANY`].
const EVERY: Duration = Duration::from_secs(1);
const EVERY_OF_MANY: Duration = Duration::from_secs(2);
const MANY: usize = 200;

/// Those who look at one node.
pub struct Hub {
    places: Arc<Semaphore>,
    /// Places that those with a token have taken, by its name.
    taken: Arc<Lock<BTreeMap<String, usize>>>,
    /// What was seen last, for as long as somebody looks.
    shown: Lock<Weak<Mutex<Shown>>>,
}

/// One who looks; leaves when dropped.
pub struct Viewer {
    shown: Arc<Mutex<Shown>>,
    /// The last look they have seen; 0 before the first.
    since: u64,
    _place: Place,
}

/// A place among all, and among those with one token.
struct Place {
    token: String,
    taken: Arc<Lock<BTreeMap<String, usize>>>,
    _of_all: OwnedSemaphorePermit,
}

/// What was seen in the last look.
#[derive(Default)]
struct Shown {
    /// Counts the looks, from 1.
    look: u64,
    /// When to look again. None: at once.
    due: Option<Instant>,
    /// The last look in which something was gone: who has not seen it gets the lists anew.
    gone: u64,
    deployed: u64,
    table: Weak<Table>,
    node: Vec<u8>,
    /// The last hour, in which look it was new, and its number of points.
    hour: (u64, u64, Vec<u8>),
    functions: Rows<LiveFunction>,
    queues: Rows<LiveQueue>,
    /// And of which look. They are looked at when the first viewer asks for them.
    units: (u64, Vec<u8>),
}

/// What one viewer wants to see.
pub struct Sight<'a> {
    pub token: &'a TokenInfo,
    pub units: bool,
    pub function: Option<&'a str>,
}

impl Default for Hub {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(VIEWERS_MAX)), taken: Arc::default(), shown: Lock::default() }
    }
}

impl Hub {
    /// None when there are [`VIEWERS_MAX`] already, or [`VIEWERS_OF_TOKEN_MAX`] with this token.
    pub fn enter(&self, token: &str) -> Option<Viewer> {
        let place = self.place(token)?;
        let mut last = self.shown.lock();
        let shown = last.upgrade().unwrap_or_else(|| {
            let shown = Arc::default();
            *last = Arc::downgrade(&shown);
            shown
        });
        Some(Viewer { shown, since: 0, _place: place })
    }

    fn place(&self, token: &str) -> Option<Place> {
        let of_all = self.places.clone().try_acquire_owned().ok()?;
        let mut taken = self.taken.lock();
        let count = taken.get(token).copied().unwrap_or_default();
        if count >= VIEWERS_OF_TOKEN_MAX {
            return None;
        }
        taken.insert(token.to_owned(), count + 1);
        Some(Place { token: token.to_owned(), taken: self.taken.clone(), _of_all: of_all })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.taken.lock();
        if let Some(count) = taken.get_mut(&self.token) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.token);
            }
        }
    }
}

impl Viewer {
    /// The next line, once there is something new: a [`api_types::LiveLine`]. Dropping the future loses nothing.
    ///
    /// # Errors
    /// A thread of the node gave up.
    pub async fn next(&mut self, node: &Arc<Node>, wanted: Sight<'_>) -> Result<Vec<u8>, Problem> {
        loop {
            let shown = self.shown.clone().lock_owned().await;
            match shown.due.filter(|due| Instant::now() < *due) {
                Some(_) if shown.look > self.since => return Ok(self.line(node, shown, &wanted)),
                Some(due) => {
                    drop(shown);
                    sleep_until(due).await;
                }
                None => look(shown, node).await?,
            }
        }
    }

    fn line(&mut self, node: &Node, mut shown: OwnedMutexGuard<Shown>, wanted: &Sight<'_>) -> Vec<u8> {
        let since = if self.since < shown.gone { 0 } else { self.since };
        self.since = shown.look;
        if wanted.units {
            shown.see_units(node);
        }
        let mut line = Vec::new();
        shown.write(&mut line, since, wanted);
        drop(shown);
        let times = wanted.function.and_then(|name| node.function_times(name).ok());
        if let Some(times) = times {
            line.extend_from_slice(b",\"function\":");
            write_json(&mut line, &times);
        }
        line.extend_from_slice(b"}\n");
        line
    }
}

/// Looks at the node for all, apart from the threads that serve calls.
async fn look(mut shown: OwnedMutexGuard<Shown>, node: &Arc<Node>) -> Result<(), Problem> {
    let info = node.info().await;
    let node = node.clone();
    blocking(move || {
        shown.node.clear();
        write_json(&mut shown.node, &info);
        shown.see(&node);
        Ok(())
    })
    .await
}

impl Shown {
    fn see(&mut self, node: &Node) {
        let table = node.functions.table();
        self.look += 1;
        if !std::ptr::eq(self.table.as_ptr(), Arc::as_ptr(&table)) {
            self.table = Arc::downgrade(&table);
            self.deployed += 1;
        }
        let points = node.hour.taken();
        if self.look == 1 || self.hour.1 != points {
            self.hour = (self.look, points, Vec::new());
            write_json(&mut self.hour.2, &node.hour.told());
        }
        let functions = node.live_functions(&table, |name| self.functions.get(name));
        let queues = node.live_queues(&table);
        let without_function = self.functions.take(self.look, functions, |one| &one.function);
        let without_queue = self.queues.take(self.look, queues, |one| &one.name);
        if without_function || without_queue {
            self.gone = self.look;
        }
        self.due = Some(Instant::now() + self.every());
    }

    fn see_units(&mut self, node: &Node) {
        if self.units.0 != self.look {
            self.units = (self.look, Vec::new());
            write_json(&mut self.units.1, &node.units());
        }
    }

    fn every(&self) -> Duration {
        if self.functions.len().max(self.queues.len()) > MANY { EVERY_OF_MANY } else { EVERY }
    }

    /// A line but for its end.
    fn write(&self, line: &mut Vec<u8>, since: u64, wanted: &Sight<'_>) {
        let (now_ms, every_ms, is_whole) = (node::clock::now_ms(), self.every().as_millis(), since == 0);
        let deployed = self.deployed;
        let head = format_args!(
            "{{\"time_ms\":{now_ms},\"whole\":{is_whole},\"every_ms\":{every_ms},\"deployed\":{deployed},\"node\":"
        );
        line.write_fmt(head).expect("memory takes it");
        line.extend_from_slice(&self.node);
        if is_whole {
            line.extend_from_slice(b",\"token\":");
            write_json(line, wanted.token);
        }
        if self.hour.0 > since && !wanted.token.is_bound() {
            line.extend_from_slice(b",\"hour\":");
            line.extend_from_slice(&self.hour.2);
        }
        line.extend_from_slice(b",\"functions\":");
        self.functions.write(since, |name| wanted.token.covers_function(name), line);
        line.extend_from_slice(b",\"queues\":");
        self.queues.write(since, |name| wanted.token.covers_queue(name), line);
        if wanted.units {
            line.extend_from_slice(b",\"units\":");
            line.extend_from_slice(&self.units.1);
        }
    }
}

fn write_json(line: &mut Vec<u8>, value: &impl serde::Serialize) {
    serde_json::to_writer(line, value).expect("what the API sends can be JSON");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn viewers_share_what_is_seen_and_the_last_one_takes_it_along() {
        let hub = Hub::default();
        let (one, two) = (hub.enter("a").unwrap(), hub.enter("b").unwrap());
        assert!(Arc::ptr_eq(&one.shown, &two.shown));
        drop(one);
        assert!(hub.shown.lock().upgrade().is_some());
        drop(two);
        assert!(hub.shown.lock().upgrade().is_none(), "nobody looks, and nothing is kept");
    }

    #[test]
    fn there_are_so_many_viewers_and_a_place_that_is_left_is_free() {
        let hub = Hub::default();
        let mut viewers: Vec<Viewer> = (0..VIEWERS_OF_TOKEN_MAX).map(|_| hub.enter("a").unwrap()).collect();
        assert!(hub.enter("a").is_none(), "one token does not keep the others out");
        viewers.extend((0..VIEWERS_MAX - VIEWERS_OF_TOKEN_MAX).map(|_| hub.enter("b").unwrap()));
        assert!(hub.enter("c").is_none());
        viewers.pop();
        viewers.push(hub.enter("c").unwrap());
        viewers.clear();
        assert!(hub.taken.lock().is_empty());
    }
}
