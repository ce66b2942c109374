//! Whether threads of the idle class get anything at all.
//!
//! On a machine that is busy with other things a thread of the idle class may wait for seconds, each time it wants a core
//! anew. So what one unit has found out is remembered for a while, and the others do not even try.

use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// A wait of less is nothing unusual.
pub const STALL_MIN: Duration = Duration::from_millis(50);

/// It is remembered for this part of the time it took to find out, so that of all time it is mostly the idle class that is
/// tried, and for so long at most.
const PART: u32 = 2;
const REMEMBERED_MAX: Duration = Duration::from_secs(2);

#[derive(Default)]
pub struct Stall(Mutex<Option<Instant>>);

impl Stall {
    /// A thread of the idle class wanted a core for `lasted`, and got next to nothing.
    pub fn note(&self, lasted: Duration, now: Instant) {
        let until = now + (lasted / PART).min(REMEMBERED_MAX);
        let mut remembered = self.0.lock();
        *remembered = Some(remembered.map_or(until, |before| before.max(until)));
    }

    pub fn is_on(&self, now: Instant) -> bool {
        self.0.lock().is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_remembered_for_a_part_of_the_time_it_took() {
        let (stall, now) = (Stall::default(), Instant::now());
        assert!(!stall.is_on(now));
        stall.note(Duration::from_millis(100), now);
        assert!(stall.is_on(now + Duration::from_millis(49)));
        assert!(!stall.is_on(now + Duration::from_millis(50)));
    }

    #[test]
    fn the_longest_counts_and_none_counts_for_ever() {
        let (stall, now) = (Stall::default(), Instant::now());
        stall.note(Duration::from_secs(3_600), now);
        stall.note(Duration::from_millis(60), now);
        assert!(stall.is_on(now + Duration::from_millis(1_999)));
        assert!(!stall.is_on(now + Duration::from_secs(2)));
    }
}
