//! A quantity that follows a size by a power: `log y = a + b log x`, both learned (recursive least squares).
//!
//! Where a size was seen before, what was seen there counts too: few functions follow one power at all sizes, and most
//! are called with the same few sizes again and again. It is the curve of the Python client's run times, number for
//! number (`contracts/conformance/estimate`), but that a node sees bytes and never numbers.

use crate::guess::{Guess, log};
use crate::level::{NOISE_GAIN, NOISE_MAX, NOISE_MIN, STEP_SIGMAS, is_step};
use std::collections::VecDeque;

/// Sizes this close to each other, in the logarithm, share a spot; and the most spots that a curve keeps.
const SPOT_WIDTH: f64 = 0.1;
const SPOTS_MAX: usize = 64;
/// A spot is never surer of its middle than this, so that it goes with what changes slowly.
const SPOT_VARIANCE_MIN: f64 = 1e-3;
/// A measurement this unsure says how much it may be, not how much it is.
const VAGUE: f64 = 0.5;
/// How much a curve may bend between sizes that were seen, and the most variance that this makes.
const BEND: f64 = 0.3;
const BEND_MAX: f64 = 0.5;
const NOISE_FIRST: f64 = 0.01;
/// A function's work may change slowly: nothing is ever quite sure.
const HEIGHT_DRIFT: f64 = 2e-4;
const SLOPE_VARIANCE_MIN: f64 = 1e-5;

/// What was seen at nearly one size.
#[derive(Debug, Clone)]
struct Spot {
    key: i64,
    x: f64,
    log: f64,
    variance: f64,
}

/// Sizes count from the first one that is seen, which keeps height and slope apart.
#[derive(Debug, Clone)]
pub struct Curve {
    a: f64,
    b: f64,
    paa: f64,
    pab: f64,
    pbb: f64,
    noise: f64,
    suspect: f64,
    center: Option<f64>,
    spots: VecDeque<Spot>,
    spot_noise: f64,
    count: u64,
}

impl Curve {
    /// The height is what is seen first. The variances are of the logarithm of the height, and of the slope.
    pub fn new(slope: f64, variance: f64, slope_variance: f64) -> Self {
        Self {
            a: 0.0,
            b: slope,
            paa: variance,
            pab: 0.0,
            pbb: slope_variance,
            noise: NOISE_FIRST,
            suspect: 0.0,
            center: None,
            spots: VecDeque::new(),
            spot_noise: NOISE_FIRST,
            count: 0,
        }
    }

    /// How often it was measured well.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// What is expected at a size.
    pub fn guess(&self, size: f64) -> Guess {
        let x = self.x(size);
        let line = self.a + self.b * x;
        let variance = (self.paa + 2.0 * x * self.pab + x * x * self.pbb).max(0.0) + self.noise;
        let Some(spot) = self.spot(x) else {
            return Guess { log: line, variance: variance + self.bend(x), noise: self.noise };
        };
        let weight = variance / (variance + spot.variance);
        let seen = spot.log + self.b * (x - spot.x);
        let log = line + weight * (seen - line);
        Guess { log, variance: weight * spot.variance + self.spot_noise, noise: self.spot_noise }
    }

    /// `noise` is what the measurement itself is unsure by, as a variance of the logarithm.
    pub fn observe(&mut self, size: f64, value: f64, noise: f64) {
        let value = log(value);
        if self.center.is_none() {
            self.center = Some(size.max(1.0).ln());
            self.a = value;
        }
        let x = self.x(size);
        let error = value - (self.a + self.b * x);
        let (mut to_a, to_b) = (self.paa + x * self.pab, self.pab + x * self.pbb);
        let mut variance = to_a + x * to_b;
        let mut total = variance + self.noise + noise;
        if self.count >= 2 && error * error > STEP_SIGMAS.powi(2) * total && !self.is_as_seen(x, error) {
            // The work itself has changed, or grows otherwise than was thought: what was known of the height goes, the
            // slope stays likely.
            if self.spot(x).is_some() {
                self.spots.clear();
            }
            self.paa += error * error;
            to_a += error * error;
            variance += error * error;
            total = variance + self.noise + noise;
            if !is_step(error, self.suspect) {
                total *= 2.0;
            }
            self.suspect = error;
        } else if self.count >= 2 {
            self.suspect = 0.0;
            let left = (error * error - variance - noise).clamp(NOISE_MIN, NOISE_MAX);
            self.noise += NOISE_GAIN * (left - self.noise);
        }
        let (gain_a, gain_b) = (to_a / total, to_b / total);
        self.a += gain_a * error;
        self.b += gain_b * error;
        self.paa -= gain_a * to_a;
        self.pab -= gain_a * to_b;
        self.pbb -= gain_b * to_b;
        self.observe_spot(x, value, noise);
        self.paa += HEIGHT_DRIFT;
        self.pbb = self.pbb.max(SLOPE_VARIANCE_MIN);
        if noise < VAGUE || self.count == 0 {
            // Only what was measured well counts as seen.
            self.count += 1;
        }
    }

    /// The variance of what lies between or beyond the sizes that were seen.
    fn bend(&self, x: f64) -> f64 {
        let away = self.spots.iter().map(|spot| (spot.x - x).abs()).fold(f64::INFINITY, f64::min);
        if away.is_finite() { (BEND * away).powi(2).min(BEND_MAX) } else { 0.0 }
    }

    /// Whether what is off the line by `error` is what was seen at this size before.
    fn is_as_seen(&self, x: f64, error: f64) -> bool {
        self.spot(x).is_some_and(|spot| {
            let off = self.a + self.b * spot.x + error - spot.log;
            off * off <= STEP_SIGMAS.powi(2) * (spot.variance + self.spot_noise)
        })
    }

    fn observe_spot(&mut self, x: f64, log: f64, doubt: f64) {
        let (key, slope, noise) = (key(x), self.b, self.spot_noise);
        let Some(spot) = self.spots.iter_mut().find(|spot| spot.key == key) else {
            if self.spots.len() >= SPOTS_MAX {
                self.spots.pop_front();
            }
            self.spots.push_back(Spot { key, x, log, variance: noise + doubt });
            return;
        };
        let error = log - (spot.log + slope * (x - spot.x));
        let mut total = spot.variance + noise + doubt;
        if error * error > STEP_SIGMAS.powi(2) * total {
            // As if it were seen for the second time.
            spot.variance = noise;
            total = 2.0 * noise + doubt;
        }
        let left = (error * error - spot.variance - doubt).clamp(NOISE_MIN, NOISE_MAX);
        let gain = spot.variance / total;
        self.spot_noise += NOISE_GAIN * (left - noise);
        (spot.x, spot.log) = (x, log - (1.0 - gain) * error);
        spot.variance = ((1.0 - gain) * spot.variance).max(SPOT_VARIANCE_MIN);
    }

    fn spot(&self, x: f64) -> Option<&Spot> {
        let key = key(x);
        self.spots.iter().find(|spot| spot.key == key)
    }

    fn x(&self, size: f64) -> f64 {
        self.center.map_or(0.0, |center| size.max(1.0).ln() - center)
    }
}

/// Half a spot's width is rounded to the even neighbour, as in Python.
fn key(x: f64) -> i64 {
    (x / SPOT_WIDTH).round_ties_even() as i64
}
