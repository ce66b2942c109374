//! How much of the thread that reads debug information one function may use, and what it need not read again.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};
use unit::StackFrame;

/// CPU time a function may take at once.
const ALLOWANCE: Duration = Duration::from_millis(200);
/// It gets back this part of the time that passes.
const PART: u32 = 10;
/// Traps of one function whose lines are waited for at once.
const WAITING_MAX: u32 = 4;
/// Bytes of a text that is kept for the next trap.
const KEPT_BYTES_MAX: usize = 8 << 10;

/// One for each function. Over its share a trap is told without lines.
#[derive(Default)]
pub struct Share(Mutex<Taken>);

#[derive(Default)]
struct Taken {
    /// CPU time taken and not yet given back.
    spent: Duration,
    /// When `spent` was right.
    since: Option<Instant>,
    waiting: u32,
    /// The last trap that was told with lines, and how.
    last: Option<(Vec<StackFrame>, Arc<str>)>,
}

impl Share {
    /// Whether one more trap may be told with lines. If so, [`Self::ends`] is to be called.
    pub fn may_begin(&self, now: Instant) -> bool {
        let mut taken = self.0.lock();
        let since = taken.since.replace(now).unwrap_or(now);
        taken.spent = taken.spent.saturating_sub(now.saturating_duration_since(since) / PART);
        let may = taken.spent < ALLOWANCE && taken.waiting < WAITING_MAX;
        taken.waiting += u32::from(may);
        may
    }

    pub fn ends(&self, cpu: Duration) {
        let mut taken = self.0.lock();
        taken.spent += cpu;
        taken.waiting -= 1;
    }

    /// What was told of a trap with these frames, if it was the last one: what traps mostly traps where it did before.
    pub fn told_before(&self, frames: &[StackFrame]) -> Option<Arc<str>> {
        self.0.lock().last.as_ref().filter(|(before, _)| before == frames).map(|(_, text)| text.clone())
    }

    /// The trap was told so.
    pub fn told(&self, frames: Vec<StackFrame>, text: &str) {
        self.0.lock().last = (text.len() <= KEPT_BYTES_MAX).then(|| (frames, text.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traps_in_a_row_have_lines_until_the_allowance_is_used_up() {
        let (share, now) = (Share::default(), Instant::now());
        for _ in 0..2 {
            assert!(share.may_begin(now));
            share.ends(ALLOWANCE / 2);
        }
        assert!(!share.may_begin(now), "used up");
        assert!(!share.may_begin(now + Duration::from_millis(0)));
        assert!(share.may_begin(now + Duration::from_millis(1) * PART), "a part of what passed is given back");
    }

    #[test]
    fn the_last_trap_is_known_and_no_other() {
        let at = |offset| vec![StackFrame { function: "f".to_owned(), offset: Some(offset) }];
        let share = Share::default();
        assert_eq!(share.told_before(&at(1)), None);
        share.told(at(1), "in f");
        assert_eq!(share.told_before(&at(1)).as_deref(), Some("in f"));
        assert_eq!(share.told_before(&at(2)), None);
        share.told(at(2), &"x".repeat(KEPT_BYTES_MAX + 1));
        assert_eq!((share.told_before(&at(1)), share.told_before(&at(2))), (None, None), "too long to be kept");
    }

    #[test]
    fn few_traps_wait_at_once() {
        let (share, now) = (Share::default(), Instant::now());
        for _ in 0..WAITING_MAX {
            assert!(share.may_begin(now));
        }
        assert!(!share.may_begin(now));
        share.ends(Duration::ZERO);
        assert!(share.may_begin(now));
    }

    #[test]
    fn one_that_is_dear_to_read_takes_a_part_of_the_thread_in_the_long_run() {
        let (share, began) = (Share::default(), Instant::now());
        let (mut now, mut took) = (began, Duration::ZERO);
        while now < began + Duration::from_secs(1_000) {
            match share.may_begin(now) {
                true => {
                    let cpu = Duration::from_millis(700);
                    share.ends(cpu);
                    (now, took) = (now + cpu, took + cpu);
                }
                false => now += Duration::from_millis(10),
            }
        }
        assert!(took < Duration::from_secs(1_000) / PART + Duration::from_secs(2), "{took:?}");
    }
}
