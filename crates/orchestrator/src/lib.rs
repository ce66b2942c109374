//! How many workers handle a queue: a policy looks at the queue and says how many to start or stop.
//!
//! ```text
//!   shell: what is ready, how old, who works ──▶ Observation ──▶ Policy ──▶ Decision ──▶ shell: starts, stops
//! ```
//! A worker takes one event after the other and ends by itself once the queue is empty, so an idle function holds no
//! unit, whatever the policy. Policies are pure: the time is a parameter, and there is no clock, no I/O and no
//! randomness here, so that one seed replays what happened.
//!
//! ```
//! use orchestrator::{Latency, LatencyConfig, Observation, Policy};
//! use std::time::Duration;
//!
//! let mut policy = Latency::new(LatencyConfig { maximum: 10, target: Duration::from_millis(100), ends_workflow: false });
//! let seen = Observation { ready: 1, ..Observation::default() };
//! assert_eq!(policy.decide(Duration::ZERO, &seen).start, 1);
//! ```
#![forbid(unsafe_code)]

mod latency;
mod measure;
mod overload;
mod triggers;

pub use latency::{Latency, LatencyConfig};
pub use measure::{Mean, Rate};
pub use overload::Overload;
pub use triggers::{Triggers, TriggersConfig};

use std::time::Duration;

/// What the shell knows about a queue and its workers at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Observation {
    /// Events that could be leased now.
    pub ready: u64,
    /// By the wall clock, which may jump: for how long the oldest ready event has waited.
    pub oldest_age: Duration,
    /// When a worker last took an event, in the time of `now`.
    pub last_lease: Duration,
    /// Workers that exist, those that are about to end among them.
    pub workers: u32,
    /// Workers that handle an event.
    pub busy: u32,
    /// Workers that have ended since the shell began to count.
    pub ended: u64,
    /// Workers that may be started before the workflow has its maximum at work; none if it has no maximum.
    pub workflow_room: Option<u32>,
    /// Pushes refused for want of room since the shell began to count.
    pub refused: u64,
    /// Mean time of a handling; none before the first has ended.
    pub service_time: Option<Duration>,
    /// Events pushed a second.
    pub arrival_rate: f64,
}

/// What to do now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Decision {
    /// Workers to start.
    pub start: u32,
    /// Workers to end, each after the event it handles.
    pub stop: u32,
    /// Why the workflow ends: nothing of it is handled until it is deployed again.
    pub ends_workflow: Option<Overload>,
    /// Ask again after this time even if nothing happens meanwhile. None: only when something happens.
    pub look_after: Option<Duration>,
}

/// Decides for one queue. Kept from one decision to the next.
pub trait Policy: Send {
    /// Called whenever events became ready, workers ended, and when [`Decision::look_after`] is over; `now` is the time
    /// since a start of the shell's choice and never goes back. The shell does what is said at once: the next
    /// observation counts the workers started.
    fn decide(&mut self, now: Duration, seen: &Observation) -> Decision;
}

impl Observation {
    /// Workers there can be now, of a step with this maximum: those there are and what the workflow leaves it.
    fn reachable(&self, maximum: u32) -> u32 {
        self.workflow_room.map_or(maximum, |room| maximum.min(self.workers.saturating_add(room)))
    }
}

/// Ends what is above the maximum, which may have become lower.
fn excess(workers: u32, maximum: u32) -> u32 {
    workers.saturating_sub(maximum)
}
