//! The shell around the lines: a lock, wakers and timers.
//!
//! A place belongs to the holder of the [`Slot`], or to the [`Waiting`] it was handed to; each gives it back when it is
//! dropped. So a caller may go away at any moment without losing a place.

use crate::line::{Arrival, Counts, Limits, Ticket, WaitingLine};
use crate::refusal::Refusal;
use parking_lot::Mutex;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout_at};

/// Nobody waits longer. The node has no limit of its own: a call waits for it within the time it may wait for its
/// function.
const WAIT_CEILING: Duration = Duration::from_secs(86_400);

/// Admits the calls of one function. Clones share it.
#[derive(Clone)]
pub struct Admission {
    function: Arc<Turns>,
    node: Arc<Turns>,
}

/// How many units the whole node runs. Clones share it.
#[derive(Clone)]
pub struct NodeTurns {
    turns: Arc<Turns>,
}

/// Leave to run one call. Dropping it lets the next one run.
#[derive(Debug)]
#[must_use = "dropping the permit ends the leave to run"]
pub struct Permit {
    // The node's place first: whoever gets the function's place looks for one on the node.
    _node: Slot,
    _function: Slot,
    waited: Duration,
}

#[derive(Debug)]
struct Turns {
    line: Mutex<WaitingLine<oneshot::Sender<()>>>,
    /// Time in the line starts here.
    start: Instant,
    emptied: Notify,
}

/// A place among those who run.
#[derive(Debug)]
struct Slot {
    turns: Arc<Turns>,
}

/// A place among those who wait.
struct Waiting {
    turns: Arc<Turns>,
    ticket: Ticket,
    woken: oneshot::Receiver<()>,
    /// Whether the turn was taken or given back.
    is_settled: bool,
}

/// An [`Arrival`], with what gives its place back.
enum Arrived {
    Runs(Slot),
    Waits(Waiting),
    Refused(Refusal),
}

impl NodeTurns {
    /// A node for `units_max` units, where at most `waiting_max` calls of all functions wait for one. They are served
    /// in the order in which they got a place in their own function.
    pub fn new(units_max: u32, waiting_max: u32) -> Self {
        Self { turns: Turns::new(Self::limits(units_max, waiting_max)) }
    }

    pub fn set_units_max(&self, units_max: u32, waiting_max: u32, now: Instant) {
        self.turns.set_limits(Self::limits(units_max, waiting_max), now);
    }

    /// Of all functions together. What the node refuses for want of a place counts as `refused_line_full` or
    /// `refused_wait` here, and as `refused_node_full` in its function.
    pub fn counts(&self) -> Counts {
        self.turns.line.lock().counts()
    }

    fn limits(units_max: u32, waiting_max: u32) -> Limits {
        Limits { running_max: units_max, waiting_max, wait_max: WAIT_CEILING, rate: None }
    }
}

impl Admission {
    pub fn new(limits: Limits, node: &NodeTurns) -> Self {
        Self { function: Turns::new(limits), node: node.turns.clone() }
    }

    /// Waits until a call that arrived at `now` may run. At once if there is a place.
    ///
    /// Dropping the future gives back the place or the turn; nothing gets lost but the token of the rate.
    ///
    /// # Errors
    /// Why it may not run. It never waits longer than [`Limits::wait_max`], for function and node together.
    pub async fn admit(&self, now: Instant) -> Result<Permit, Refusal> {
        let (arrived, wait_max) = self.function.arrive(now);
        let deadline = now + wait_max.min(WAIT_CEILING);
        let mut has_waited = false;
        let function = match arrived {
            Arrived::Runs(slot) => slot,
            Arrived::Refused(refusal) => return Err(refusal),
            Arrived::Waits(waiting) => {
                has_waited = true;
                let slot = waiting.slot(deadline).await;
                slot.ok_or_else(|| self.refuse(Refusal::WaitedTooLong { wait_max }))?
            }
        };
        let node = match self.node.arrive(now).0 {
            Arrived::Runs(slot) => Some(slot),
            Arrived::Refused(_) => None,
            Arrived::Waits(waiting) => {
                has_waited = true;
                waiting.slot(deadline).await
            }
        };
        let node = node.ok_or_else(|| {
            let units_max = self.node.line.lock().limits().running_max;
            self.refuse(Refusal::NodeFull { units_max })
        })?;
        // Reading the clock costs as much as all the rest: only who waited pays for it.
        let waited = if has_waited { Instant::now().saturating_duration_since(now) } else { Duration::ZERO };
        Ok(Permit { _node: node, _function: function, waited })
    }

    /// Changes the limits for those who come, and lets in those who wait as far as the new limits allow.
    pub fn set_limits(&self, limits: Limits, now: Instant) {
        self.function.set_limits(limits, now);
    }

    pub fn limits(&self) -> Limits {
        self.function.line.lock().limits()
    }

    /// Refuses every new call, for good, and waits until those that run or wait are done. Dropping the future stops
    /// the waiting, not the refusing.
    pub async fn drain(&self) {
        self.function.line.lock().drain();
        loop {
            let mut emptied = pin!(self.function.emptied.notified());
            // Listen first, then look: what is done in between wakes us.
            emptied.as_mut().enable();
            if self.function.line.lock().is_empty() {
                return;
            }
            emptied.await;
        }
    }

    pub fn counts(&self) -> Counts {
        self.function.line.lock().counts()
    }

    fn refuse(&self, refusal: Refusal) -> Refusal {
        self.function.line.lock().count_refusal(refusal);
        refusal
    }
}

impl Permit {
    /// How long the call stood in line, for `Server-Timing`.
    pub fn waited(&self) -> Duration {
        self.waited
    }
}

impl Turns {
    fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { line: Mutex::new(WaitingLine::new(limits)), start: Instant::now(), emptied: Notify::new() })
    }

    /// Also says how long one may wait here at this moment.
    fn arrive(self: &Arc<Self>, now: Instant) -> (Arrived, Duration) {
        let mut woken = None;
        let mut line = self.line.lock();
        let wait_max = line.limits().wait_max;
        let arrival = line.arrive(self.time(now), || {
            let (waker, receiver) = oneshot::channel();
            woken = Some(receiver);
            waker
        });
        drop(line);
        let arrived = match (arrival, woken) {
            (Arrival::Waits(ticket), Some(woken)) => {
                Arrived::Waits(Waiting { turns: self.clone(), ticket, woken, is_settled: false })
            }
            (Arrival::Refused(refusal), _) => Arrived::Refused(refusal),
            (Arrival::Runs, _) => Arrived::Runs(Slot { turns: self.clone() }),
            (Arrival::Waits(_), None) => unreachable!("who waits has a waker"),
        };
        (arrived, wait_max)
    }

    /// Gives a place back, to the next in line if there is one.
    fn leave(&self) {
        let mut line = self.line.lock();
        let next = line.leave();
        let is_emptied = line.is_draining() && line.is_empty();
        drop(line);
        if let Some(waker) = next {
            // Whoever goes away at this moment finds that the place was handed over, and gives it back.
            let _ = waker.send(());
        }
        if is_emptied {
            self.emptied.notify_waiters();
        }
    }

    /// Gives a turn back. `false`: it has come; the place is the caller's.
    fn withdraw(&self, ticket: Ticket, is_cancelled: bool) -> bool {
        let mut line = self.line.lock();
        if !line.withdraw(ticket) {
            return false;
        }
        if is_cancelled {
            line.count_cancelled();
        }
        let is_emptied = line.is_draining() && line.is_empty();
        drop(line);
        if is_emptied {
            self.emptied.notify_waiters();
        }
        true
    }

    fn set_limits(&self, limits: Limits, now: Instant) {
        let promoted = self.line.lock().set_limits(limits, self.time(now));
        for waker in promoted {
            let _ = waker.send(());
        }
    }

    fn time(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.start)
    }
}

impl Waiting {
    /// The place, once it is this one's turn; none if that is not before `deadline`.
    async fn slot(mut self, deadline: Instant) -> Option<Slot> {
        let turn = timeout_at(deadline, &mut self.woken).await;
        // The turn may have come between the end of the time and here.
        let has_place = turn.is_ok() || !self.turns.withdraw(self.ticket, false);
        self.is_settled = true;
        has_place.then(|| Slot { turns: self.turns.clone() })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.is_settled && !self.turns.withdraw(self.ticket, true) {
            self.turns.leave();
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.turns.leave();
    }
}
