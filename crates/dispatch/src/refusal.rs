//! Why a call may not run.

use crate::bucket::Rate;
use problem::{Code, Problem};
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    LineFull { running_max: u32, waiting_max: u32 },
    WaitedTooLong { wait_max: Duration },
    TooFast { rate: Rate, retry_after: Duration },
    NodeFull { units_max: u32 },
    Draining,
}

impl Refusal {
    pub const fn code(&self) -> Code {
        match self {
            Refusal::LineFull { .. } => Code::ConcurrencyExceeded,
            Refusal::WaitedTooLong { .. } => Code::WaitExceeded,
            Refusal::TooFast { .. } => Code::RateExceeded,
            Refusal::NodeFull { .. } => Code::NodeFull,
            Refusal::Draining => Code::Draining,
        }
    }

    /// Whole seconds for the header `retry-after`, where waiting so long is known to help.
    pub fn retry_after_s(&self) -> Option<u64> {
        match self {
            Refusal::TooFast { retry_after, .. } => {
                Some(retry_after.as_secs().saturating_add(u64::from(retry_after.subsec_nanos() > 0)).max(1))
            }
            _ => None,
        }
    }

    /// What the user reads about the function of this name.
    pub fn problem(&self, function: &str) -> Problem {
        let detail = match self {
            Refusal::LineFull { running_max, waiting_max } => format!(
                "function {function:?} has as many calls running and waiting as it may, {running_max} and {waiting_max}"
            ),
            Refusal::WaitedTooLong { wait_max } => {
                format!("a call of function {function:?} waited {} ms, the limit", wait_max.as_millis())
            }
            Refusal::TooFast { rate, retry_after } => format!(
                "function {function:?} is called more than {} times a second, the next call may come in {} ms",
                rate.per_second,
                retry_after.as_nanos().div_ceil(1_000_000)
            ),
            Refusal::NodeFull { units_max } => {
                format!("function {function:?} needs a unit and the node runs {units_max}, the limit")
            }
            Refusal::Draining => format!("function {function:?} takes no more calls"),
        };
        Problem::new(self.code(), detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seconds_to_wait_are_never_too_few() {
        let rate = Rate { per_second: 1, burst: 1 };
        let seconds = |ms| Refusal::TooFast { rate, retry_after: Duration::from_millis(ms) }.retry_after_s();
        assert_eq!([0, 1, 1_000, 1_001].map(seconds), [1, 1, 1, 2].map(Some));
        assert_eq!(Refusal::Draining.retry_after_s(), None);
    }

    #[test]
    fn a_problem_names_the_function_the_value_and_the_limit() {
        let rate = Rate { per_second: 5, burst: 1 };
        let refusal = Refusal::TooFast { rate, retry_after: Duration::from_micros(1_500) };
        let problem = refusal.problem("hello");
        assert_eq!(problem.code, Code::RateExceeded);
        assert_eq!(
            problem.detail,
            "function \"hello\" is called more than 5 times a second, the next call may come in 2 ms"
        );
    }
}
