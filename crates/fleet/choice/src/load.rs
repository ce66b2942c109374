//! How busy another node is thought to be.

use crate::truth::Truth;

/// Seconds after which what a node said is forgotten by two thirds: it goes back to what is usual there.
const RELAXES: f64 = 1.0;
/// Weight of what was said last in what is usual.
const USUAL_GAIN: f64 = 0.1;

/// What is believed of a node, whatever it says: speeds between these, and an hour of waiting at the most.
const SPEED_MIN: f64 = 0.01;
const SPEED_MAX: f64 = 100.0;
const BACKLOG_MAX: f64 = 3_600.0;

/// What a node says of itself every few seconds, and once when it is first heard.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Report {
    pub truth: Truth,
    /// Calls that run at once.
    pub places: u32,
    /// How fast it runs, beside a machine that all nodes were measured against.
    pub speed: f64,
}

impl Report {
    /// The same with numbers that can be counted with: it comes from another node.
    pub fn believed(self) -> Self {
        let speed = if self.speed.is_nan() { SPEED_MIN } else { self.speed.clamp(SPEED_MIN, SPEED_MAX) };
        Self { speed, ..self }
    }
}

/// What was said, and what is known to have happened since.
#[derive(Debug, Clone)]
pub struct Load {
    said: f64,
    at: f64,
    usual: f64,
    /// Seconds of waiting that our own calls have added since.
    mine: f64,
}

impl Load {
    pub fn new(truth: Truth, now: f64) -> Self {
        let said = believed(truth);
        Self { said, at: now, usual: said, mine: 0.0 }
    }

    /// An answer, a refusal or a report says how busy it was a moment ago. That has our calls in it.
    pub fn told(&mut self, truth: Truth, now: f64) {
        let said = believed(truth);
        self.usual += USUAL_GAIN * (said - self.usual);
        (self.said, self.at, self.mine) = (said, now, 0.0);
    }

    /// A call of ours is on its way there, which will take this many seconds of one of its places.
    pub fn sent(&mut self, run: f64, places: u32) {
        self.mine += run / f64::from(places.max(1));
    }

    /// Seconds that a call is expected to wait; below zero, the room there is.
    pub fn backlog(&self, now: f64) -> f64 {
        let left = (-(now - self.at).max(0.0) / RELAXES).exp();
        self.usual + (self.said + self.mine - self.usual) * left
    }
}

fn believed(truth: Truth) -> f64 {
    if truth.backlog.is_nan() { BACKLOG_MAX } else { truth.backlog.clamp(-BACKLOG_MAX, BACKLOG_MAX) }
}
