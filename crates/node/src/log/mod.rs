//! What functions say: the last lines of each in memory, and followers who hear new ones at once.
//!
//! ```text
//!   unit ──write──▶ FunctionLog ──▶ ring of lines, oldest dropped first     ◀── tail
//!                        └────────▶ followers, each with a bounded queue   ──▶ `lighter logs -f`
//! ```
//! Three bounds: lines a second of one function (the rest is dropped), bytes of one ring, bytes of all rings together
//! (each then holds its fair share). Every line has a number, so what was dropped shows as a gap.

mod follow;
mod ring;

pub use follow::{FOLLOWERS_MAX, Follower};

use super::clock;
use api_types::LogLine;
use follow::Followers;
use manifest::Name;
use parking_lot::RwLock;
use ring::{KeptLine, Ring};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use unit::{Level, LogWriter, Stream};

/// Bytes of the lines kept for one function.
pub const RING_BYTES_MAX: usize = 256 << 10;

/// Bytes a ring may keep even where very many functions share the memory.
const RING_BYTES_LEAST: usize = 2 << 10;

/// The logs of all functions.
pub struct Logs {
    functions: RwLock<HashMap<Name, Arc<FunctionLog>>>,
    all: Arc<LogsInner>,
}

struct LogsInner {
    bytes_max: usize,
    /// Bytes each ring may hold now; a fair share of `bytes_max`.
    ring_bytes: AtomicU64,
    followers: Followers,
    /// Also send every line to the node's own log.
    mirror: bool,
}

/// The log of one function, whatever its version.
pub struct FunctionLog {
    name: Name,
    ring: parking_lot::Mutex<Ring>,
    /// Lines that came too fast.
    dropped: AtomicU64,
    /// Bytes of calls that wrote more than they may.
    dropped_bytes: AtomicU64,
    all: Arc<LogsInner>,
}

/// Where the units of one version write.
struct VersionLog {
    log: Arc<FunctionLog>,
    version: u32,
}

impl Logs {
    pub fn new(bytes_max: usize, mirror: bool) -> Self {
        let all = LogsInner {
            bytes_max,
            ring_bytes: AtomicU64::new(RING_BYTES_MAX as u64),
            followers: Followers::default(),
            mirror,
        };
        Self { functions: RwLock::default(), all: Arc::new(all) }
    }

    /// The log of this function, which is made if it is not there.
    pub fn function(&self, name: &Name) -> Arc<FunctionLog> {
        if let Some(log) = self.functions.read().get(name.as_str()) {
            return log.clone();
        }
        let mut functions = self.functions.write();
        let log = functions.entry(name.clone()).or_insert_with(|| {
            Arc::new(FunctionLog {
                name: name.clone(),
                ring: parking_lot::Mutex::default(),
                dropped: AtomicU64::new(0),
                dropped_bytes: AtomicU64::new(0),
                all: self.all.clone(),
            })
        });
        log.clone()
    }

    pub fn remove(&self, name: &Name) {
        self.functions.write().remove(name.as_str());
    }

    /// The last `lines` lines of one function, or of all in the order they were written.
    pub fn tail(&self, name: Option<&Name>, lines: usize) -> Vec<LogLine> {
        let functions = self.functions.read();
        let mut tail: Vec<LogLine> = match name {
            Some(name) => functions.get(name.as_str()).map(|log| log.tail(lines)).unwrap_or_default(),
            None => functions.values().flat_map(|log| log.tail(lines)).collect(),
        };
        tail.sort_by_key(|line| line.time_ms);
        tail.split_off(tail.len().saturating_sub(lines))
    }

    /// Hears every line from now on, of one function or of all. None when there are [`FOLLOWERS_MAX`] already.
    pub fn follow(&self, name: Option<Name>) -> Option<Follower> {
        self.all.followers.add(name)
    }

    /// Ends every follower's stream: the node is stopping.
    pub fn close(&self) {
        self.all.followers.close();
    }

    /// Shares the memory among the functions that have lines, and drops what is over. Called now and then.
    pub fn sweep(&self) {
        let functions = self.functions.read();
        let talking = functions.values().filter(|log| log.ring.lock().bytes() > 0).count().max(1);
        let share = (self.all.bytes_max / talking).clamp(RING_BYTES_LEAST, RING_BYTES_MAX);
        self.all.ring_bytes.store(share as u64, Relaxed);
        for log in functions.values() {
            log.ring.lock().shrink(share);
        }
    }
}

impl FunctionLog {
    pub fn writer(self: &Arc<Self>, version: u32) -> Arc<dyn LogWriter> {
        Arc::new(VersionLog { log: self.clone(), version })
    }

    /// A line of the node itself about this function.
    pub fn node(&self, level: Level, version: u32, message: &str) {
        let no_call: Arc<str> = Arc::from("");
        let line = unit::LogLine { unit: 0, request_id: &no_call, level, stream: Stream::Node, message };
        self.write(version, line);
    }

    /// Lines dropped because they came too fast.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// Bytes dropped because a call wrote more than `limits.log_bytes`.
    pub fn dropped_bytes(&self) -> u64 {
        self.dropped_bytes.load(Relaxed)
    }

    fn write(&self, version: u32, line: unit::LogLine<'_>) {
        let line = KeptLine::new(version, &line, clock::now_ms());
        if self.all.mirror {
            self.mirror(&line);
        }
        let mut ring = self.ring.lock();
        let Some(sequence) = ring.push(line, self.all.ring_bytes.load(Relaxed) as usize) else {
            self.dropped.fetch_add(1, Relaxed);
            return;
        };
        // Under the lock, so that followers hear the lines in their order.
        if self.all.followers.any() {
            let line = ring.last().map(|line| line.published(sequence, &self.name));
            line.inspect(|line| self.all.followers.send(&self.name, line));
        }
    }

    fn tail(&self, lines: usize) -> Vec<LogLine> {
        self.ring.lock().tail(lines, &self.name)
    }

    fn mirror(&self, line: &KeptLine) {
        let (function, request, message) = (self.name.as_str(), &*line.request_id, &*line.message);
        let (unit, version, stream) = (line.unit, line.version, line.stream.as_str());
        match line.level {
            Level::Error => tracing::error!(target: "unit", function, version, unit, request, stream, "{message}"),
            Level::Warn => tracing::warn!(target: "unit", function, version, unit, request, stream, "{message}"),
            Level::Info => tracing::info!(target: "unit", function, version, unit, request, stream, "{message}"),
            Level::Debug => tracing::debug!(target: "unit", function, version, unit, request, stream, "{message}"),
            Level::Trace => tracing::trace!(target: "unit", function, version, unit, request, stream, "{message}"),
        }
    }
}

impl LogWriter for VersionLog {
    fn write(&self, line: unit::LogLine<'_>) {
        self.log.write(self.version, line);
    }

    fn dropped(&self, bytes: u64) {
        self.log.dropped_bytes.fetch_add(bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests;
