//! When a member that could not be reached is tried again: pure.

use crate::limits::{REST_MAX, REST_MIN};
use std::time::{Duration, Instant};

/// The rest between two attempts. Thousands of nodes that lose one at once do not come back to it at once.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rest {
    pause: Duration,
    until: Option<Instant>,
    /// It was heard since it could not be reached, and was tried at once for that.
    was_heard: bool,
}

impl Rest {
    /// Whether it may be tried now.
    pub fn is_over(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now >= until)
    }

    /// Whether it could not be reached when it was tried last.
    pub fn has_failed(&self) -> bool {
        self.until.is_some()
    }

    /// It could not be reached. `chance` is random.
    pub fn failed(&mut self, now: Instant, chance: u8) {
        self.pause = (self.pause * 2).clamp(REST_MIN, REST_MAX);
        self.until = Some(now + self.pause + self.pause * u32::from(chance) / 512);
    }

    /// It was heard though it could not be reached: it is tried at once, because it may be back. Where that fails as
    /// well, there is a way in one direction alone, and hearing more ends no rest until it is `elsewhere`.
    pub fn heard(&mut self, now: Instant, elsewhere: bool) {
        if self.has_failed() && (elsewhere || !self.was_heard) {
            (self.until, self.was_heard) = (Some(now), true);
        }
    }

    /// It was reached.
    pub fn reached(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_double_up_to_a_bound_and_differ() {
        let begin = Instant::now();
        let mut rest = Rest::default();
        assert!(rest.is_over(begin) && !rest.has_failed());
        rest.failed(begin, 0);
        assert!(rest.has_failed());
        assert!(!rest.is_over(begin) && rest.is_over(begin + REST_MIN));
        let mut other = Rest::default();
        other.failed(begin, 255);
        assert!(!other.is_over(begin + REST_MIN) && other.is_over(begin + REST_MIN * 3 / 2));
        (0..40).for_each(|_| rest.failed(begin, 255));
        assert!(rest.is_over(begin + REST_MAX * 3 / 2));
        rest.reached();
        assert!(rest.is_over(begin) && !rest.has_failed());
    }

    #[test]
    fn who_is_heard_and_cannot_be_reached_rests_all_the_same() {
        let begin = Instant::now();
        let mut rest = Rest::default();
        rest.heard(begin, true);
        assert!(!rest.has_failed(), "nobody has tried it");
        rest.failed(begin, 0);
        rest.heard(begin, false);
        assert!(rest.is_over(begin) && rest.has_failed(), "it may be back");
        rest.failed(begin, 0);
        rest.heard(begin, false);
        assert!(!rest.is_over(begin + REST_MIN) && rest.is_over(begin + REST_MIN * 2));
        rest.heard(begin, true);
        assert!(rest.is_over(begin), "nobody has tried it there");
        rest.reached();
        rest.failed(begin, 0);
        rest.heard(begin, false);
        assert!(rest.is_over(begin), "it was reached since");
    }
}
