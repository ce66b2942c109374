//! What the parts of one connection know of each other: a few counters, written by the connection's own tasks.

use crate::crowd::Standing;
use crate::http1::Refused;
use crate::room::Room;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A client may cancel this many requests of one connection, and half of those answered, before the gate gives up the
/// connection. Asking and cancelling at once is an attack that costs the client nothing (HTTP/2 rapid reset).
const CANCELLED_MAX: u64 = 128;

/// The state of one connection.
#[derive(Debug)]
pub struct Line {
    /// Counts the connections of the gate.
    pub number: u64,
    begin: Instant,
    /// Requests handed on.
    requests: AtomicU64,
    answered: AtomicU64,
    cancelled: AtomicU64,
    /// Requests and streaming replies the node is working on just now.
    working: AtomicU64,
    /// Bytes read and written.
    moved: AtomicU64,
    /// Milliseconds from `begin` to the first byte of a head that is not whole yet, plus one. Zero: there is none.
    head_since: AtomicU64,
    head_late: AtomicBool,
    trusted: AtomicBool,
    /// The number of the request that is refused, counted from one, and why. It is the last one.
    refused: OnceLock<(u64, Refused)>,
    /// Bodies that are still arriving.
    receiving: AtomicU64,
    /// It sends what is no request, and too much of it.
    flooding: AtomicBool,
    pub room: Room,
}

/// What [`watch`](crate::watch) decides upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    pub requests: u64,
    pub moved: u64,
    pub working: bool,
    /// Whether the client has not sent all of a request.
    pub receiving: bool,
    pub head_since: Option<Instant>,
}

impl Line {
    pub fn new(number: u64, room: Room) -> Self {
        Self {
            number,
            begin: Instant::now(),
            requests: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            cancelled: AtomicU64::new(0),
            working: AtomicU64::new(0),
            moved: AtomicU64::new(0),
            head_since: AtomicU64::new(0),
            head_late: AtomicBool::new(false),
            trusted: AtomicBool::new(false),
            refused: OnceLock::new(),
            receiving: AtomicU64::new(0),
            flooding: AtomicBool::new(false),
            room,
        }
    }

    /// Counts a request; returns its number, from one.
    pub fn request(&self) -> u64 {
        self.requests.fetch_add(1, Relaxed) + 1
    }

    pub fn refuse(&self, request: u64, refused: Refused) {
        // The guard stops at the first refusal, so there is no second one to lose.
        let _ = self.refused.set((request, refused));
    }

    /// Why this request is refused, if it is.
    pub fn refused(&self, request: u64) -> Option<Refused> {
        self.refused.get().filter(|(number, _)| *number == request).map(|(_, refused)| *refused)
    }

    pub fn has_refused(&self) -> bool {
        self.refused.get().is_some()
    }

    pub fn work_begins(&self) {
        self.working.fetch_add(1, Relaxed);
    }

    pub fn work_pauses(&self) {
        self.working.fetch_sub(1, Relaxed);
    }

    pub fn answer(&self) {
        self.answered.fetch_add(1, Relaxed);
    }

    pub fn cancel(&self) {
        self.cancelled.fetch_add(1, Relaxed);
    }

    /// A body begins to arrive.
    pub fn receives(&self) {
        self.receiving.fetch_add(1, Relaxed);
    }

    pub fn received(&self) {
        self.receiving.fetch_sub(1, Relaxed);
    }

    pub fn floods(&self) {
        self.flooding.store(true, Relaxed);
    }

    pub fn age(&self) -> Duration {
        self.begin.elapsed()
    }

    /// Whether the client takes back, or sends to no end, more than a client in its right mind would.
    pub fn abused(&self) -> bool {
        if self.flooding.load(Relaxed) {
            return true;
        }
        let cancelled = self.cancelled.load(Relaxed);
        cancelled > CANCELLED_MAX && cancelled - CANCELLED_MAX > self.answered.load(Relaxed) / 2
    }

    /// Counts bytes. Only the connection's own task does, so no step can be lost.
    pub fn moves(&self, bytes: usize) {
        self.moved.store(self.moved.load(Relaxed).wrapping_add(bytes as u64), Relaxed);
    }

    /// A head has begun to arrive and is not whole.
    pub fn head_waits(&self) {
        if self.head_since.load(Relaxed) == 0 {
            let millis = u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
            self.head_since.store(millis + 1, Relaxed);
        }
    }

    pub fn head_done(&self) {
        if self.head_since.load(Relaxed) != 0 {
            self.head_since.store(0, Relaxed);
        }
    }

    /// Whether a head has begun to arrive. Cheaper than [`Line::facts`].
    pub fn is_head_waiting(&self) -> bool {
        self.head_since.load(Relaxed) != 0
    }

    /// Tells the guard to give up on the head it waits for.
    pub fn head_is_late(&self) {
        self.head_late.store(true, Relaxed);
    }

    pub fn is_head_late(&self) -> bool {
        self.head_late.load(Relaxed)
    }

    /// A request of it has shown a right, as a token is.
    pub fn trust(&self) {
        if !self.trusted.load(Relaxed) && !self.trusted.swap(true, Relaxed) {
            self.room.trust();
        }
    }

    /// What it has shown; none while it is being worked for.
    pub fn standing(&self) -> Option<Standing> {
        match (self.working.load(Relaxed), self.requests.load(Relaxed)) {
            (1.., _) => None,
            (0, 0) => Some(Standing::Silent),
            (0, _) if self.trusted.load(Relaxed) => Some(Standing::Trusted),
            (0, _) => Some(Standing::Asked),
        }
    }

    pub fn facts(&self) -> Facts {
        let head_since = self.head_since.load(Relaxed).checked_sub(1);
        Facts {
            requests: self.requests.load(Relaxed),
            moved: self.moved.load(Relaxed),
            working: self.working.load(Relaxed) > 0,
            receiving: self.receiving.load(Relaxed) > 0,
            head_since: head_since.map(|millis| self.begin + Duration::from_millis(millis)),
        }
    }
}
