//! Closes connections that are quiet or too slow, and ends them when the gate drains: one timer a connection.
//!
//! A connection is looked at four times in an idle timeout. It is quiet when since the last look the node did no work
//! for it, it brought no request and it moved next to nothing; four quiet looks in a row end it. So a client that
//! stops reading its reply is closed like one that stops asking, and a request costs no timer.

use crate::gate::GateInner;
use crate::line::{Facts, Line};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::time::sleep_until;

/// Looks in one idle timeout.
const LOOKS: u32 = 4;

/// A connection that moves fewer bytes between two looks counts as quiet. Keep-alive pings stay below it.
const MOVED_BYTES_MIN: u64 = 256;

/// Where others wait for a place, a connection whose request is still arriving must move so much between two looks: a
/// kilobyte a second.
const DRIP_BYTES_MIN: u64 = 15 << 10;

/// A late head has this long to read its refusal.
const FAREWELL: Duration = Duration::from_secs(1);

/// What a look at a connection decides.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// Look again then.
    Fine(Instant),
    /// A head takes too long: refuse it.
    HeadLate,
    /// Nothing happens here: close when nothing is under way.
    Quiet,
    /// It was to close, and did not.
    Stuck,
}

#[derive(Debug)]
struct Looks {
    head_timeout: Duration,
    idle_timeout: Duration,
    next: Instant,
    seen: Facts,
    quiet: u32,
    /// When a connection that is to close must have closed.
    closing: Option<Instant>,
}

impl Looks {
    fn new(head_timeout: Duration, idle_timeout: Duration, now: Instant, seen: Facts) -> Self {
        Self { head_timeout, idle_timeout, next: now + idle_timeout / LOOKS, seen, quiet: 0, closing: None }
    }

    /// `full`: others wait for a place, so one quiet look is enough, and a request that drips in is none.
    fn look(&mut self, now: Instant, facts: Facts, full: bool) -> Verdict {
        if let Some(closing) = self.closing
            && now >= closing
            && !facts.working
        {
            return Verdict::Stuck;
        }
        let head_end = facts.head_since.map(|since| since + self.head_timeout);
        if self.closing.is_none() && head_end.is_some_and(|end| now >= end) {
            self.closing = Some(now + FAREWELL);
            self.next = now + FAREWELL;
            return Verdict::HeadLate;
        }
        if now >= self.next {
            self.next = now + self.idle_timeout / LOOKS;
            let moved_bytes = facts.moved.wrapping_sub(self.seen.moved);
            if full && facts.receiving && moved_bytes < DRIP_BYTES_MIN {
                return Verdict::Stuck;
            }
            let moved = moved_bytes >= MOVED_BYTES_MIN;
            let alive = facts.working || facts.requests != self.seen.requests || moved;
            self.seen = facts;
            self.quiet = if alive { 0 } else { self.quiet + 1 };
            if self.quiet >= LOOKS || (full && self.quiet >= 1) {
                self.closing.get_or_insert(self.next);
                return Verdict::Quiet;
            }
        }
        Verdict::Fine(match head_end {
            Some(end) if self.closing.is_none() => end.min(self.next),
            _ => self.next,
        })
    }
}

/// Runs a connection to its end. `close` asks it to close once nothing is under way; returning true ends it at once.
/// `None`: the gate ended it.
pub async fn watch<F: Future>(
    mut connection: Pin<&mut F>,
    line: &Line,
    shared: &GateInner,
    mut close: impl FnMut(Pin<&mut F>) -> bool,
) -> Option<F::Output> {
    let config = &shared.config;
    let mut looks = Looks::new(config.head_timeout, config.idle_timeout, Instant::now(), line.facts());
    let mut timer_end = looks.next;
    let mut timer = pin!(sleep_until(timer_end.into()));
    // Made before the phase is read: a change in between wakes it.
    let mut changed = pin!(shared.changed.notified());
    let (mut drained, mut first) = (false, true);
    poll_fn(|cx| {
        if shared.is_aborting() || line.abused() {
            return Poll::Ready(None);
        }
        if shared.is_draining() && !drained {
            drained = true;
            if close(connection.as_mut()) {
                return Poll::Ready(None);
            }
            changed.set(shared.changed.notified());
            first = true;
            if shared.is_aborting() {
                return Poll::Ready(None);
            }
        }
        if let Poll::Ready(output) = connection.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        if first {
            // Registers this task once; a task has one waker for life.
            first = false;
            let _ = changed.as_mut().poll(cx);
            if timer.as_mut().poll(cx).is_pending() && !line.is_head_waiting() {
                return Poll::Pending;
            }
        }
        // A head that has just begun to wait may end sooner than the timer.
        let sooner =
            line.is_head_waiting() && looks.closing.is_none() && timer_end > Instant::now() + config.head_timeout;
        if !timer.is_elapsed() && !sooner {
            return Poll::Pending;
        }
        loop {
            match looks.look(Instant::now(), line.facts(), shared.is_full()) {
                Verdict::Stuck => return Poll::Ready(None),
                Verdict::HeadLate => line.head_is_late(),
                Verdict::Quiet => {
                    if close(connection.as_mut()) {
                        return Poll::Ready(None);
                    }
                }
                Verdict::Fine(next) => {
                    timer_end = next;
                    timer.as_mut().reset(next.into());
                    if timer.as_mut().poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                    continue;
                }
            }
            if let Poll::Ready(output) = connection.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Facts = Facts { requests: 0, moved: 0, working: false, receiving: false, head_since: None };

    fn looks(begin: Instant) -> Looks {
        Looks::new(Duration::from_secs(10), Duration::from_secs(60), begin, QUIET)
    }

    fn after(begin: Instant, seconds: u64) -> Instant {
        begin + Duration::from_secs(seconds)
    }

    #[test]
    fn a_quiet_connection_ends_after_the_idle_timeout() {
        let begin = Instant::now();
        let mut looks = looks(begin);
        for seconds in [15, 30, 45] {
            assert_eq!(looks.look(after(begin, seconds), QUIET, false), Verdict::Fine(after(begin, seconds + 15)));
        }
        assert_eq!(looks.look(after(begin, 60), QUIET, false), Verdict::Quiet);
        assert_eq!(looks.look(after(begin, 61), QUIET, false), Verdict::Fine(after(begin, 75)));
        assert_eq!(looks.look(after(begin, 75), QUIET, false), Verdict::Stuck);
    }

    #[test]
    fn a_quiet_connection_makes_room_when_others_wait() {
        let begin = Instant::now();
        assert_eq!(looks(begin).look(after(begin, 15), QUIET, true), Verdict::Quiet);
    }

    #[test]
    fn work_requests_and_bytes_keep_a_connection() {
        for facts in [
            Facts { working: true, ..QUIET },
            Facts { requests: 1, ..QUIET },
            Facts { moved: MOVED_BYTES_MIN, ..QUIET },
        ] {
            let begin = Instant::now();
            let mut looks = looks(begin);
            looks.look(after(begin, 15), QUIET, false);
            assert_eq!(looks.look(after(begin, 30), facts, false), Verdict::Fine(after(begin, 45)));
            assert_eq!(looks.quiet, 0, "{facts:?}");
        }
    }

    #[test]
    fn a_request_that_drips_in_makes_room_when_others_wait() {
        let begin = Instant::now();
        let drips = Facts { working: true, receiving: true, moved: 1_000, ..QUIET };
        assert_eq!(looks(begin).look(after(begin, 15), drips, true), Verdict::Stuck);
        for (facts, full) in [
            (drips, false),
            (Facts { receiving: false, ..drips }, true),
            (Facts { moved: DRIP_BYTES_MIN, ..drips }, true),
        ] {
            assert_eq!(looks(begin).look(after(begin, 15), facts, full), Verdict::Fine(after(begin, 30)), "{facts:?}");
        }
    }

    #[test]
    fn pings_alone_do_not_keep_a_connection() {
        let begin = Instant::now();
        let mut looks = looks(begin);
        for look in 1..4 {
            looks.look(after(begin, look * 15), Facts { moved: look * 68, ..QUIET }, false);
        }
        assert_eq!(looks.look(after(begin, 60), Facts { moved: 4 * 68, ..QUIET }, false), Verdict::Quiet);
    }

    #[test]
    fn a_late_head_is_refused_once_and_then_cut_off() {
        let begin = Instant::now();
        let mut looks = looks(begin);
        let facts = Facts { head_since: Some(after(begin, 20)), ..QUIET };
        assert_eq!(looks.look(after(begin, 20), facts, false), Verdict::Fine(after(begin, 30)));
        assert_eq!(looks.look(after(begin, 30), facts, false), Verdict::HeadLate);
        assert_eq!(looks.look(after(begin, 30), facts, false), Verdict::Fine(after(begin, 31)));
        assert_eq!(looks.look(after(begin, 31), facts, false), Verdict::Stuck);
    }

    #[test]
    fn a_closing_connection_may_finish_its_work() {
        let begin = Instant::now();
        let mut looks = looks(begin);
        looks.closing = Some(begin);
        assert!(matches!(looks.look(after(begin, 1), Facts { working: true, ..QUIET }, false), Verdict::Fine(_)));
    }
}
