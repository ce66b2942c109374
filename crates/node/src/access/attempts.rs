//! Wrong tokens, counted: beyond a few a second the answer says so, and the log has one line a second at most.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Wrong tokens a second that are answered as such. Guessing 256 bits is hopeless anyway: this keeps the log readable
/// and tells a misconfigured client apart from a broken one.
const WRONG_A_SECOND_MAX: u64 = 20;

const COUNT_BITS: u32 = 24;

/// The current second and how many wrong tokens it has seen, in one word.
#[derive(Default)]
pub struct Attempts {
    window: AtomicU64,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The first of its second: worth a line in the log.
    First,
    Wrong,
    TooMany,
}

impl Attempts {
    pub fn wrong(&self, second: u64) -> Verdict {
        let mask = (1 << COUNT_BITS) - 1;
        let next = |window: u64| {
            let count = if window >> COUNT_BITS == second { window & mask } else { 0 };
            second << COUNT_BITS | (count + 1).min(mask)
        };
        let before =
            self.window.fetch_update(Relaxed, Relaxed, |window| Some(next(window))).unwrap_or_else(|window| window);
        match next(before) & mask {
            1 => Verdict::First,
            count if count <= WRONG_A_SECOND_MAX => Verdict::Wrong,
            _ => Verdict::TooMany,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_allows_a_few_and_the_next_starts_anew() {
        let attempts = Attempts::default();
        assert_eq!(attempts.wrong(7), Verdict::First);
        for _ in 1..WRONG_A_SECOND_MAX {
            assert_eq!(attempts.wrong(7), Verdict::Wrong);
        }
        assert_eq!(attempts.wrong(7), Verdict::TooMany);
        assert_eq!(attempts.wrong(8), Verdict::First);
    }
}
