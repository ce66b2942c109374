//! The node's last hour: a point each ten seconds, for a few small lines. Pure but for its lock.
//!
//! Points are taken where the node looks after itself anyway, so they cost no timer of their own.

use api_types::HourInfo;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How far points are apart.
const EVERY: Duration = Duration::from_secs(10);

/// Points that are kept; the oldest are forgotten.
const POINTS_MAX: usize = 360;

/// What is read of the node for a point: counted since its start, and as it is now.
#[derive(Debug, Clone, Copy, Default)]
pub struct Totals {
    pub calls: u64,
    pub errors: u64,
    pub acked: u64,
    pub waiting: u64,
    pub dead: u64,
    pub units: u64,
    pub memory_bytes: u64,
}

#[derive(Default)]
pub struct Hour(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    last: Option<(Instant, Totals)>,
    /// Points that were ever taken.
    taken: u64,
    points: VecDeque<Point>,
}

/// Rates a second, then counts.
#[derive(Debug, Clone, Copy)]
struct Point {
    rates: [f32; 3],
    counts: [u64; 4],
}

impl Hour {
    /// Takes a point if it is time for one; `totals` is asked for only then.
    pub fn look(&self, now: Instant, totals: impl FnOnce() -> Totals) {
        let before = self.0.lock().last;
        // The moments at which it is asked are not exact.
        let slack = EVERY / 10;
        if before.is_some_and(|(then, _)| now.saturating_duration_since(then) + slack < EVERY) {
            return;
        }
        let totals = totals();
        let mut kept = self.0.lock();
        kept.last = Some((now, totals));
        let Some((then, before)) = before else { return };
        let seconds = now.saturating_duration_since(then).as_secs_f32();
        // What was counted of a function goes with it.
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f32 / seconds;
        let rates =
            [rate(totals.calls, before.calls), rate(totals.errors, before.errors), rate(totals.acked, before.acked)];
        let counts = [totals.waiting, totals.dead, totals.units, totals.memory_bytes];
        if kept.points.len() == POINTS_MAX {
            kept.points.pop_front();
        }
        kept.points.push_back(Point { rates, counts });
        kept.taken += 1;
    }

    /// Points that were ever taken: another number means that there is a new one.
    pub fn taken(&self) -> u64 {
        self.0.lock().taken
    }

    pub fn told(&self) -> HourInfo {
        let kept = self.0.lock();
        let rates = |place: usize| kept.points.iter().map(|point| rounded(point.rates[place])).collect();
        let counts = |place: usize| kept.points.iter().map(|point| point.counts[place]).collect();
        HourInfo {
            every_ms: EVERY.as_millis() as u64,
            calls: rates(0),
            errors: rates(1),
            acked: rates(2),
            waiting: counts(0),
            dead: counts(1),
            units: counts(2),
            memory_bytes: counts(3),
        }
    }
}

/// To a tenth: it is drawn, not computed with.
fn rounded(rate: f32) -> f64 {
    (f64::from(rate) * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(calls: u64, waiting: u64) -> Totals {
        Totals { calls, waiting, ..Totals::default() }
    }

    #[test]
    fn points_are_ten_seconds_apart_and_rates_are_between_them() {
        let (hour, began) = (Hour::default(), Instant::now());
        let look = |seconds: f32, totals| hour.look(began + Duration::from_secs_f32(seconds), || totals);
        look(0.0, at(5, 0));
        assert_eq!(hour.taken(), 0, "one moment has no rate");
        hour.look(began + Duration::from_secs(5), || panic!("it is not time yet"));
        look(9.9, at(104, 7));
        look(20.0, at(104, 3));
        // A function was removed, and what it had counted.
        look(30.0, at(2, 0));
        let told = hour.told();
        assert_eq!((told.calls, told.waiting), (vec![10.0, 0.0, 0.0], vec![7, 3, 0]));
        assert_eq!((hour.taken(), told.every_ms), (3, 10_000));
    }

    #[test]
    fn an_hour_is_kept() {
        let (hour, began) = (Hour::default(), Instant::now());
        for number in 0..=2 * POINTS_MAX as u64 {
            hour.look(began + EVERY * number as u32, || at(number * 10, number));
        }
        let told = hour.told();
        assert_eq!((told.waiting.len(), told.waiting.last()), (POINTS_MAX, Some(&(2 * POINTS_MAX as u64))));
        assert!(told.calls.iter().all(|rate| *rate == 1.0));
    }
}
