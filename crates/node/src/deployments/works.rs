//! Which deployments are worked on now, and when one that failed is tried again. Pure: the time is a parameter.

use manifest::Name;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Deployments that are worked on at once. The others wait.
const AT_ONCE_MAX: usize = 4;
/// The rest after one that failed, doubled each time.
const REST_MIN: Duration = Duration::from_secs(2);
const REST_MAX: Duration = Duration::from_secs(300);

/// See the top of this file.
#[derive(Default)]
pub struct Works {
    at_work: BTreeSet<Name>,
    rests: BTreeMap<Name, Rest>,
}

/// When a record that failed is tried again.
struct Rest {
    serial: u64,
    pause: Duration,
    until: Instant,
}

impl Works {
    /// Whether work on a record may begin. Then it has begun. Of one name there is one work at a time.
    pub fn begin(&mut self, name: &Name, serial: u64, now: Instant) -> bool {
        let rest = self.rests.get(name).filter(|rest| rest.serial == serial);
        let may = self.at_work.len() < AT_ONCE_MAX && rest.is_none_or(|rest| rest.until <= now);
        may && self.at_work.insert(name.clone())
    }

    /// Work has ended. One that failed rests.
    pub fn end(&mut self, name: &Name, serial: u64, is_done: bool, now: Instant) {
        self.at_work.remove(name);
        let before = self.rests.remove(name).filter(|rest| rest.serial == serial);
        if !is_done {
            let pause = before.map_or(REST_MIN, |rest| (rest.pause * 2).min(REST_MAX));
            self.rests.insert(name.clone(), Rest { serial, pause, until: now + pause });
        }
    }

    /// How long until one that rests may begin. None: nothing rests, or there is no place for it before a work ends.
    pub fn rest(&self, now: Instant) -> Option<Duration> {
        if self.at_work.len() >= AT_ONCE_MAX {
            return None;
        }
        let rests = self.rests.iter().filter(|(name, _)| !self.at_work.contains(*name));
        rests.map(|(_, rest)| rest.until.saturating_duration_since(now)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> Name {
        format!("d{number}").parse().unwrap()
    }

    /// All used to wait for the slowest of a round.
    #[test]
    fn one_that_takes_long_holds_up_no_other() {
        let (mut works, now) = (Works::default(), Instant::now());
        assert!((0..AT_ONCE_MAX).all(|number| works.begin(&name(number), 1, now)));
        // All but one never end.
        let mut quick = 1;
        for number in AT_ONCE_MAX..AT_ONCE_MAX * 10 {
            assert!(!works.begin(&name(number), 1, now), "all places are taken");
            works.end(&name(quick), 1, true, now);
            assert!(works.begin(&name(number), 1, now));
            quick = number;
        }
        assert!(!works.begin(&name(0), 2, now), "it is at work already");
    }

    #[test]
    fn one_that_failed_rests_longer_each_time_and_the_next_serial_does_not() {
        let (mut works, mut now, one) = (Works::default(), Instant::now(), name(1));
        for seconds in [2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
            assert!(works.begin(&one, 1, now));
            assert_eq!(works.rest(now), None);
            works.end(&one, 1, false, now);
            assert_eq!(works.rest(now), Some(Duration::from_secs(seconds)));
            assert!(!works.begin(&one, 1, now));
            now += Duration::from_secs(seconds);
        }
        works.end(&one, 1, false, now);
        assert!(works.begin(&one, 2, now));
        works.end(&one, 2, false, now);
        assert_eq!(works.rest(now), Some(REST_MIN));
        // Without a place nobody waits for its rest: that would be in vain at once.
        (2..).take(AT_ONCE_MAX).for_each(|number| assert!(works.begin(&name(number), 1, now)));
        assert_eq!(works.rest(now + REST_MAX), None);
    }
}
