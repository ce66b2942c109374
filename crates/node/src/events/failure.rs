//! What becomes of an event whose handling failed. Pure: the time and the randomness are parameters.

use super::consumer::Outcome;
use manifest::Retry;
use problem::{Code, Problem};
use state::Failed;
use std::time::Duration;

/// A queue whose events could not even be begun rests this long, then twice as long each time.
const REST_MIN: Duration = Duration::from_millis(50);
const REST_MAX: Duration = Duration::from_secs(30);

/// What a problem of a function means for the event it was given.
///
/// `began`: the function had a unit, so the event has been tried. `in_cycle`: what the function pushes may come back to
/// it.
pub fn outcome(problem: Problem, began: bool, in_cycle: bool) -> Outcome {
    match problem.code {
        Code::LeaseLost => Outcome::Lost,
        Code::UnitInvalid | Code::UnitFatal => Outcome::Dead(problem),
        // The queue it pushes to is full: whoever empties that gets the time for it. In a circle nobody would.
        Code::QueueFull if !in_cycle => Outcome::Postponed { problem, after: None },
        // It pushes to a queue that takes no events until somebody deploys what handles it.
        Code::WorkflowEnded => Outcome::Postponed { problem, after: None },
        _ if !began || is_of_the_node(problem.code) => Outcome::Postponed { problem, after: None },
        _ => Outcome::Retry { problem, after: None },
    }
}

/// Conditions that say nothing about the event: it is not to blame, and another try is not counted.
fn is_of_the_node(code: Code) -> bool {
    matches!(
        code,
        Code::NodeFull
            | Code::Draining
            | Code::DiskFull
            | Code::DiskFailed
            | Code::DataUnusable
            | Code::StateBusy
            | Code::StateCorrupt
            | Code::ArtefactCorrupt
            | Code::ImageUnknown
            | Code::CompileFailed
            | Code::SecretUnknown
    )
}

/// Where an event goes after try number `attempt` (from 1) failed. `random` is any number.
pub fn next_step(
    retry: &Retry,
    attempt: u32,
    problem: &Problem,
    after: Option<Duration>,
    now_ms: u64,
    random: u64,
) -> Failed {
    let reason = format!("{}: {}", problem.code, problem.detail);
    if attempt >= retry.attempts {
        return Failed::Dead { reason: format!("{reason} (try {attempt} of {})", retry.attempts) };
    }
    let pause = pause(retry, attempt, random).max(after.unwrap_or_default());
    Failed::Retry { at_ms: now_ms.saturating_add(ms(pause)), reason }
}

/// The pause after try number `attempt`: doubled each time, give or take a quarter, never above the longest.
fn pause(retry: &Retry, attempt: u32, random: u64) -> Duration {
    let longest = retry.pause_max.duration();
    let doubled =
        retry.pause.duration().saturating_mul(1_u32.checked_shl(attempt.saturating_sub(1)).unwrap_or(u32::MAX));
    // Events that failed together are not tried together again.
    let factor = 0.75 + 0.5 * (random as f64 / u64::MAX as f64);
    doubled.min(longest).mul_f64(factor).min(longest)
}

/// How long the queue rests after so many events in a row (from 1) that could not be begun.
pub fn rest(in_a_row: u32) -> Duration {
    let doublings = in_a_row.saturating_sub(1).min(16);
    REST_MIN.saturating_mul(1 << doublings).min(REST_MAX)
}

pub fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use manifest::Span;

    fn retry(attempts: u32) -> Retry {
        Retry { attempts, pause: Span::from_ms(1_000), pause_max: Span::from_ms(10_000) }
    }

    fn outcome_of(code: Code, began: bool, in_cycle: bool) -> &'static str {
        match outcome(Problem::new(code, "x"), began, in_cycle) {
            Outcome::Acked | Outcome::Done => "done",
            Outcome::Retry { .. } => "retry",
            Outcome::Dead(_) => "dead",
            Outcome::Postponed { .. } => "postponed",
            Outcome::Lost => "lost",
        }
    }

    #[test]
    fn an_event_is_blamed_for_what_its_handling_did_and_for_nothing_else() {
        for (code, became) in [
            (Code::UnitInvalid, "dead"),
            (Code::UnitFatal, "dead"),
            (Code::UnitRetry, "retry"),
            (Code::UnitTrapped, "retry"),
            (Code::TimeExceeded, "retry"),
            (Code::CpuExceeded, "retry"),
            (Code::MemoryExceeded, "retry"),
            (Code::Conflict, "retry"),
            (Code::Internal, "retry"),
            (Code::BucketFull, "retry"),
            (Code::QueueFull, "postponed"),
            (Code::WorkflowEnded, "postponed"),
            (Code::NodeFull, "postponed"),
            (Code::DiskFull, "postponed"),
            (Code::StateBusy, "postponed"),
            (Code::LeaseLost, "lost"),
        ] {
            assert_eq!(outcome_of(code, true, false), became, "{code:?}");
        }
        for code in [Code::TimeExceeded, Code::ConcurrencyExceeded, Code::RateExceeded, Code::CompileFailed] {
            assert_eq!(outcome_of(code, false, false), "postponed", "{code:?}");
        }
        assert_eq!(outcome_of(Code::QueueFull, true, true), "retry", "a circle of full queues would wait for ever");
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_differ_by_a_quarter() {
        let at = |attempt, random| match next_step(
            &retry(20),
            attempt,
            &Problem::new(Code::UnitRetry, "x"),
            None,
            0,
            random,
        ) {
            Failed::Retry { at_ms, .. } => at_ms,
            Failed::Dead { .. } => panic!("it has tries left"),
        };
        assert_eq!([1, 2, 3, 4].map(|attempt| at(attempt, 0)), [750, 1_500, 3_000, 6_000]);
        assert_eq!([1, 2, 3, 4].map(|attempt| at(attempt, u64::MAX)), [1_250, 2_500, 5_000, 10_000]);
        assert_eq!(at(5, u64::MAX), 10_000);
        assert_eq!(at(19, 0), 7_500);
    }

    #[test]
    fn the_last_try_makes_a_dead_letter_that_says_why() {
        let step = next_step(&retry(3), 3, &Problem::new(Code::UnitTrapped, "unreachable"), None, 0, 0);
        assert_eq!(step, Failed::Dead { reason: "L6001: unreachable (try 3 of 3)".to_owned() });
    }

    #[test]
    fn who_asks_for_a_longer_pause_gets_it() {
        let problem = Problem::new(Code::UnitRetry, "x");
        let at = |seconds| next_step(&retry(3), 1, &problem, Some(Duration::from_secs(seconds)), 5, 0);
        assert!(matches!(at(60), Failed::Retry { at_ms: 60_005, .. }));
        assert!(matches!(at(0), Failed::Retry { at_ms: 755, .. }));
    }

    #[test]
    fn a_queue_rests_longer_each_time_but_not_for_ever() {
        assert_eq!([1, 2, 3].map(rest), [50, 100, 200].map(Duration::from_millis));
        assert_eq!(rest(u32::MAX), REST_MAX);
    }
}
