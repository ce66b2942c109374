//! Since when an anchor is the one that watches. Pure: the time is a parameter.

use std::time::{Duration, Instant};

/// How often a node that does not stand still says so.
pub const BEAT: Duration = Duration::from_secs(1);
/// After so long without a beat it stood still. Others speak every five seconds and count as away after ten, so it
/// would take some of them for away.
const STILL_AFTER: Duration = Duration::from_secs(5);

/// See the top of this file.
#[derive(Debug, Default)]
pub struct Leading {
    since: Option<Instant>,
    beat: Option<Instant>,
}

impl Leading {
    /// The node is at work. If it was not for a while (it was stopped, or its machine was), it begins anew to lead:
    /// that it has not heard of others is its own fault, and no absence of theirs.
    pub fn beat(&mut self, now: Instant) {
        let before = self.beat.replace(now);
        if before.is_some_and(|before| now.saturating_duration_since(before) > STILL_AFTER) {
            self.since = None;
        }
    }

    /// For how long it has led; none if it does not.
    pub fn look(&mut self, leads: bool, now: Instant) -> Option<Duration> {
        self.beat(now);
        if !leads {
            self.since = None;
            return None;
        }
        Some(now.saturating_duration_since(*self.since.get_or_insert(now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An anchor that was stopped for a while used to take all other nodes for away, and so gave their copies to
    /// others and took back what was going out in steps.
    #[test]
    fn an_anchor_that_stood_still_or_led_no_more_begins_anew() {
        let (mut leading, begin) = (Leading::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!(leading.look(true, at(0)), Some(Duration::ZERO));
        (1..=30).for_each(|second| leading.beat(at(second)));
        assert_eq!(leading.look(true, at(30)), Some(Duration::from_secs(30)));
        assert_eq!(leading.look(true, at(36)), Some(Duration::ZERO), "nobody heard of it for six seconds");
        assert_eq!(leading.look(true, at(41)), Some(Duration::from_secs(5)));
        // Whoever runs first then.
        leading.beat(at(47));
        assert_eq!(leading.look(true, at(47)), Some(Duration::ZERO));
        assert_eq!(leading.look(false, at(48)), None);
        assert_eq!(leading.look(true, at(49)), Some(Duration::ZERO));
    }
}
