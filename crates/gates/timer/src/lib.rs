//! The timer gate: when `every` and `cron` make events, and which ticks they catch up on after a pause.
//!
//! ```text
//!  manifest ─▶ Timer ─┐
//!  state ─▶ Progress ─┼─▶ due ─▶ ticks ─▶ events ─┐
//!  clock ─▶ now ──────┘      └─▶ Progress ────────┴─▶ one transaction: pushed and remembered, or neither
//! ```
//! Everything here is pure: [`Timer::due`] takes the last tick and the time, and says what to fire and when to ask
//! again. The node asks, pushes the events, and keeps the [`Progress`] in the transaction of the push; so a crash loses
//! no tick and doubles none.
//!
//! ```
//! # use gate_timer::{Progress, Timer};
//! let function: manifest::Function = serde_json::from_str(r#"{ "image": "x", "every": "10s" }"#).unwrap();
//! let timer = &Timer::all(&function).unwrap()[0];
//! let due = timer.due(Progress::begun(25_000), 31_000);
//! assert_eq!((due.ticks[0].scheduled_ms, due.next_ms), (30_000, Some(40_000)));
//! ```
#![forbid(unsafe_code)]

mod due;
mod progress;
mod schedule;
mod tick;

pub use due::{Due, LATE_MAX, MISSED_MAX, TICKS_MAX};
pub use progress::Progress;
pub use tick::Tick;

use manifest::{CatchUp, CronTrigger, EveryTrigger, Function};
use problem::Problem;
use schedule::Schedule;

/// One trigger of a function.
#[derive(Debug, Clone)]
pub struct Timer {
    name: String,
    schedule: Schedule,
    catch_up: CatchUp,
}

impl Timer {
    /// The timers of a function, each once.
    ///
    /// # Errors
    /// `ManifestValue`: a schedule or zone that cannot be read, or a schedule that no day ever meets.
    pub fn all(function: &Function) -> Result<Vec<Self>, Problem> {
        let every = function.every.iter().map(|trigger| Ok(Self::every(trigger)));
        let mut timers: Vec<Self> = every.chain(function.cron.iter().map(Self::cron)).collect::<Result<_, _>>()?;
        timers.sort_by(|a, b| a.name.cmp(&b.name));
        timers.dedup_by(|a, b| a.name == b.name);
        Ok(timers)
    }

    pub fn every(trigger: &EveryTrigger) -> Self {
        Self {
            name: format!("every {}", trigger.period),
            schedule: Schedule::every(trigger.period.ms()),
            catch_up: trigger.catch_up,
        }
    }

    /// # Errors
    /// As [`Self::all`].
    pub fn cron(trigger: &CronTrigger) -> Result<Self, Problem> {
        let schedule = Schedule::cron(&trigger.schedule, &trigger.zone)?;
        let words: Vec<&str> = trigger.schedule.split_whitespace().collect();
        Ok(Self { name: format!("cron {} {}", words.join(" "), trigger.zone), schedule, catch_up: trigger.catch_up })
    }

    /// `every 10s`, `cron 0 7 * * mon-fri Europe/Berlin`: names the timer among those of its function.
    pub fn name(&self) -> &str {
        &self.name
    }
}
