//! One look at the node, and one line, for all viewers.
//!
//! ```text
//!  viewer ─ waits for the next look ─┐     the first to come looks at the node   ┌▶ the line: bytes that all share
//!  viewer ─ waits ───────────────────┼──▶  and writes a line, the others take ───┼▶
//!  viewer ─ does not read ───────────┘     both (`Shown`, gone with the last)    └▶ (later: all since their last)
//! ```
//! There is no task and no timer of its own: each viewer's stream waits by itself, so nobody waits where nobody looks.
//! A viewer who reads slowly is not asked for, holds up nobody, and has no backlog: their next line has what changed
//! since their last one. The gate closes connections that read nothing at all.
//!
//! In a look four numbers are read of each function; the rest, and JSON, only where they are others than before. It
//! runs apart from the threads that serve calls, and holds no lock of theirs for longer than to read two counts.

use super::rows::{LiveSource, Rows};
use api_types::{LiveQueue, NodeInfo, TokenInfo};
use axum::body::Bytes;
use node::{LiveNumbers, Node, Table, TableEntry, blocking};
use parking_lot::Mutex as Lock;
use problem::Problem;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{Mutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

/// Viewers at once; the next one is refused.
pub const VIEWERS_MAX: usize = 32;
/// Viewers with one token, so that nobody keeps all others out.
pub const VIEWERS_OF_TOKEN_MAX: usize = VIEWERS_MAX / 2;

/// How often the node is looked at, and where there are more functions or queues than [`MANY`].
const EVERY: Duration = Duration::from_secs(1);
const EVERY_OF_MANY: Duration = Duration::from_secs(2);
const MANY: usize = 200;

/// After so many looks the node is described anew; at once where something was deployed or the queues were paused. The
/// rest of it hardly changes.
const LOOKS_OF_INFO: u64 = 16;

/// How a line ends, where a viewer wants nothing of their own in it.
const END: &[u8] = b"}\n";

/// Those who look at one node.
pub struct Hub {
    seats: Arc<Semaphore>,
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
    _seat: Seat,
}

/// A seat among all, and among those with one token.
struct Seat {
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
    /// What a line begins with.
    head: Vec<u8>,
    node: Written,
    paused: Option<String>,
    hour: Written,
    /// Points of the last hour that were ever taken.
    points: u64,
    functions: Rows<LiveNumbers>,
    queues: Rows<()>,
    /// They are looked at when the first viewer asks for them.
    units: Written,
    /// Lines of this look for all who may see everything, by the look they had seen before.
    lines: Vec<(u64, Bytes)>,
}

/// Something as JSON, and in which look it was new.
#[derive(Default)]
struct Written {
    look: u64,
    json: Vec<u8>,
}

struct Deployed<'a>(&'a TableEntry);

/// What one viewer wants to see.
pub struct Sight<'a> {
    pub token: &'a TokenInfo,
    pub units: bool,
    pub function: Option<&'a str>,
}

impl Default for Hub {
    fn default() -> Self {
        Self { seats: Arc::new(Semaphore::new(VIEWERS_MAX)), taken: Arc::default(), shown: Lock::default() }
    }
}

impl Hub {
    /// None when there are [`VIEWERS_MAX`] already, or [`VIEWERS_OF_TOKEN_MAX`] with this token.
    pub fn enter(&self, token: &str) -> Option<Viewer> {
        let seat = self.seat(token)?;
        let mut last = self.shown.lock();
        let shown = last.upgrade().unwrap_or_else(|| {
            let shown = Arc::default();
            *last = Arc::downgrade(&shown);
            shown
        });
        Some(Viewer { shown, since: 0, _seat: seat })
    }

    fn seat(&self, token: &str) -> Option<Seat> {
        let of_all = self.seats.clone().try_acquire_owned().ok()?;
        let mut taken = self.taken.lock();
        let count = taken.get(token).copied().unwrap_or_default();
        if count >= VIEWERS_OF_TOKEN_MAX {
            return None;
        }
        taken.insert(token.to_owned(), count + 1);
        Some(Seat { token: token.to_owned(), taken: self.taken.clone(), _of_all: of_all })
    }
}

impl Drop for Seat {
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
    /// The next line, once there is something new: a [`api_types::LiveLine`], in pieces. Dropping the future loses
    /// nothing.
    ///
    /// # Errors
    /// A thread of the node gave up.
    pub async fn next(&mut self, node: &Arc<Node>, wanted: Sight<'_>) -> Result<Vec<Bytes>, Problem> {
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

    fn line(&mut self, node: &Node, mut shown: OwnedMutexGuard<Shown>, wanted: &Sight<'_>) -> Vec<Bytes> {
        let since = if self.since < shown.gone { 0 } else { self.since };
        self.since = shown.look;
        let line = shown.line(since, wanted.token);
        let mut own = Vec::new();
        if since == 0 {
            own.extend_from_slice(b",\"token\":");
            write_json(&mut own, wanted.token);
        }
        if wanted.units {
            own.extend_from_slice(b",\"units\":");
            own.extend_from_slice(shown.units(node));
        }
        drop(shown);
        let times = wanted.function.and_then(|name| node.function_times(name).ok());
        if let Some(times) = times {
            own.extend_from_slice(b",\"function\":");
            write_json(&mut own, &times);
        }
        if own.is_empty() {
            return vec![line];
        }
        own.extend_from_slice(END);
        vec![line.slice(..line.len() - END.len()), own.into()]
    }
}

/// Looks at the node for all, apart from the threads that serve calls.
async fn look(mut shown: OwnedMutexGuard<Shown>, node: &Arc<Node>) -> Result<(), Problem> {
    let table = node.functions.table();
    let info = if shown.wants_info(node, &table) { Some(node.info().await) } else { None };
    let node = node.clone();
    blocking(move || {
        shown.see(&node, &table, info.as_ref());
        Ok(())
    })
    .await
}

impl Shown {
    fn wants_info(&self, node: &Node, table: &Arc<Table>) -> bool {
        let is_old = self.look.is_multiple_of(LOOKS_OF_INFO);
        is_old || !self.is_of(table) || self.paused != node.events.pauses.reason()
    }

    fn is_of(&self, table: &Arc<Table>) -> bool {
        std::ptr::eq(self.table.as_ptr(), Arc::as_ptr(table))
    }

    fn see(&mut self, node: &Node, table: &Arc<Table>, info: Option<&NodeInfo>) {
        self.look += 1;
        self.lines.clear();
        let is_deployed = !self.is_of(table);
        if is_deployed {
            self.table = Arc::downgrade(table);
            self.deployed += 1;
        }
        if let Some(info) = info {
            self.paused.clone_from(&info.queues_paused);
            self.node.set(self.look, info);
        }
        let points = node.hour.taken();
        if self.look == 1 || self.points != points {
            self.points = points;
            self.hour.set(self.look, &node.hour.told());
        }
        let without_function = self.functions.take(self.look, table.entries().map(Deployed), is_deployed);
        let without_queue = self.queues.take(self.look, node.live_queues(table).into_iter(), true);
        if without_function || without_queue {
            self.gone = self.look;
        }
        self.begin(node);
        self.due = Some(Instant::now() + self.every());
    }

    fn every(&self) -> Duration {
        if self.functions.len().max(self.queues.len()) > MANY { EVERY_OF_MANY } else { EVERY }
    }

    /// Writes what all lines of this look begin with, but for whether they are whole.
    fn begin(&mut self, node: &Node) {
        let (now_ms, every_ms, deployed) = (node::clock::now_ms(), self.every().as_millis(), self.deployed);
        self.head.clear();
        let head = format_args!("{{\"time_ms\":{now_ms},\"every_ms\":{every_ms},\"deployed\":{deployed},\"now\":");
        self.head.write_fmt(head).expect("memory takes it");
        write_json(&mut self.head, &node.live_now());
    }

    /// The line for who has seen the look `since`; it is made once for all but those whose token is bound.
    fn line(&mut self, since: u64, token: &TokenInfo) -> Bytes {
        if token.is_bound() {
            return self.write(since, Some(token));
        }
        let made = self.lines.iter().find(|(seen, _)| *seen == since).map(|(_, line)| line.clone());
        made.unwrap_or_else(|| {
            let line = self.write(since, None);
            self.lines.push((since, line.clone()));
            line
        })
    }

    fn write(&self, since: u64, bound: Option<&TokenInfo>) -> Bytes {
        let mut line = self.head.clone();
        write!(line, ",\"whole\":{}", since == 0).expect("memory takes it");
        if self.node.look > since {
            line.extend_from_slice(b",\"node\":");
            line.extend_from_slice(&self.node.json);
        }
        if self.hour.look > since && bound.is_none() {
            line.extend_from_slice(b",\"hour\":");
            line.extend_from_slice(&self.hour.json);
        }
        line.extend_from_slice(b",\"functions\":");
        self.functions.write(since, |name| bound.is_none_or(|token| token.covers_function(name)), &mut line);
        line.extend_from_slice(b",\"queues\":");
        self.queues.write(since, |name| bound.is_none_or(|token| token.covers_queue(name)), &mut line);
        line.extend_from_slice(END);
        line.into()
    }

    fn units(&mut self, node: &Node) -> &[u8] {
        if self.units.look != self.look {
            self.units.set(self.look, &node.units());
        }
        &self.units.json
    }
}

impl Written {
    fn set(&mut self, look: u64, value: &impl serde::Serialize) {
        self.look = look;
        self.json.clear();
        write_json(&mut self.json, value);
    }
}

impl LiveSource for Deployed<'_> {
    type Numbers = LiveNumbers;

    fn name(&self) -> &str {
        self.0.live.name().as_str()
    }

    fn numbers(&self) -> LiveNumbers {
        self.0.live_numbers()
    }

    fn write(&self, numbers: &LiveNumbers, json: &mut Vec<u8>) {
        write_json(json, &self.0.live_function(*numbers));
    }
}

/// There are few, and all of it may change: each is written, and compared so.
impl LiveSource for LiveQueue {
    type Numbers = ();

    fn name(&self) -> &str {
        &self.name
    }

    fn numbers(&self) {}

    fn write(&self, (): &(), json: &mut Vec<u8>) {
        write_json(json, self);
    }
}

fn write_json(line: &mut Vec<u8>, value: &impl serde::Serialize) {
    serde_json::to_writer(line, value).expect("what the API sends can be JSON");
}

#[cfg(test)]
mod tests {
    use super::*;
    use api_types::Scope;

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
    fn a_line_is_made_once_for_all_who_may_see_everything() {
        let mut shown = Shown { look: 3, head: b"{\"time_ms\":1".to_vec(), ..Shown::default() };
        let queue = |name: &str| LiveQueue { name: name.to_owned(), ..LiveQueue::default() };
        shown.queues.take(3, [queue("mine"), queue("others")].into_iter(), true);
        let token = |queues: &[&str]| TokenInfo {
            name: "a".to_owned(),
            scope: Scope::Look,
            created_ms: 0,
            expires_ms: None,
            functions: Vec::new(),
            queues: queues.iter().map(ToString::to_string).collect(),
        };
        let (all, some) = (token(&[]), token(&["mine"]));
        let line = shown.line(2, &all);
        let whole = r#"{"time_ms":1,"whole":false,"functions":[],"queues":[{"name":"mine"},{"name":"others"}]}"#;
        assert_eq!(line, format!("{whole}\n"));
        assert_eq!(shown.line(2, &all).as_ptr(), line.as_ptr(), "not a copy");
        assert_eq!(shown.line(2, &some), format!("{}\n", whole.replace(r#",{"name":"others"}"#, "")));
        assert_ne!(shown.line(0, &all), line, "who has seen nothing gets all of it");
    }

    #[test]
    fn there_are_so_many_viewers_and_a_seat_that_is_left_is_free() {
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
