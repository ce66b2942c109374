//! A quantity that drifts and steps: a round trip, a rate, how fast a node runs a function.
//!
//! A small Kalman filter on the logarithm. An estimate that is not renewed grows less sure with time, and one that is
//! contradicted clearly jumps instead of creeping. It is the filter of the Python client, number for number
//! (`contracts/conformance/estimate`).

use crate::guess::{Guess, log};

/// A measurement this many standard deviations off is a step, not noise.
pub const STEP_SIGMAS: f64 = 3.0;
/// One measurement that is off by this factor is a step; a smaller one may be chance until the next one agrees.
const STEP_FACTOR: f64 = 3.0;
/// Measured noise is believed only within these bounds (about 2 % and 65 %).
pub const NOISE_MIN: f64 = 4e-4;
pub const NOISE_MAX: f64 = 0.25;
/// Weight of the newest measurement in the noise.
pub const NOISE_GAIN: f64 = 0.1;
/// Before anything was measured, as a variance.
const NOISE_FIRST: f64 = 0.02;
const VARIANCE_MAX: f64 = 4.0;

/// Times are seconds on any steady clock.
#[derive(Debug, Clone)]
pub struct Level {
    log: f64,
    variance: f64,
    noise: f64,
    suspect: f64,
    drift: f64,
    at: Option<f64>,
    count: u64,
}

impl Level {
    /// `prior` is what it is taken to be, `variance` how unsure that is, and `drift` how much less sure it is after a
    /// second without a measurement; both are variances of the logarithm.
    pub fn new(prior: f64, variance: f64, drift: f64) -> Self {
        Self { log: log(prior), variance, noise: NOISE_FIRST, suspect: 0.0, drift, at: None, count: 0 }
    }

    /// Whether anything was observed; else it is what was given first.
    pub fn is_observed(&self) -> bool {
        self.at.is_some()
    }

    /// What a measurement would say now, its own noise included.
    pub fn guess(&self, now: f64) -> Guess {
        Guess { log: self.log, variance: self.aged(now) + self.noise, noise: self.noise }
    }

    /// `noise` is what the measurement itself is unsure by, as a variance of the logarithm.
    pub fn observe(&mut self, value: f64, now: f64, noise: f64) {
        let mut variance = self.aged(now);
        let error = log(value) - self.log;
        let mut total = variance + self.noise + noise;
        if self.count >= 2 && error * error > STEP_SIGMAS.powi(2) * total {
            variance = error * error;
            total = variance + self.noise + noise;
            if !is_step(error, self.suspect) {
                total *= 2.0;
            }
            self.suspect = error;
        } else if self.count > 0 {
            self.suspect = 0.0;
            // What is left after the level's own doubt is noise.
            let left = (error * error - variance - noise).clamp(NOISE_MIN, NOISE_MAX);
            self.noise += NOISE_GAIN * (left - self.noise);
        }
        let gain = variance / total;
        self.log += gain * error;
        self.variance = (1.0 - gain) * variance;
        self.at = Some(now);
        self.count += 1;
    }

    fn aged(&self, now: f64) -> f64 {
        match self.at {
            None => self.variance,
            Some(at) => (self.variance + self.drift * (now - at).max(0.0)).min(VARIANCE_MAX),
        }
    }
}

/// Whether a measurement that is clearly off is believed at once.
pub fn is_step(error: f64, suspect: f64) -> bool {
    error.abs() > STEP_FACTOR.ln() || error * suspect > 0.0
}
