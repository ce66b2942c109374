//! When functions rest: a moment after their last call. Nobody looks for them while no call has come.
//!
//! ```text
//!   call ──called──▶ wakes the round ──▶ after a while: who had no call since? ──▶ rests
//!                         ▲                     └─ some had ─▶ once more
//!                         └──────── sleeps ◀─ none had
//! ```

use super::loader::{Loader, blocking};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::time::sleep;

/// A function without a call for so long rests. A sensor that reports every few seconds is not to pay for pages that
/// come back each time.
pub const REST_AFTER: Duration = Duration::from_secs(10);

/// Time between two rounds.
const ROUND_EVERY: Duration = Duration::from_secs(1);

/// When a function last rested that has not yet.
pub const NEVER: u64 = u64::MAX;

/// Whether a function rests.
#[derive(Debug, PartialEq, Eq)]
pub enum Resting {
    NotYet,
    Begins,
    Already,
}

impl Resting {
    /// By the milliseconds of its last call and of the last one after which it rested: does it, if calls until then
    /// were long enough ago?
    pub fn of(used_ms: u64, rested_ms: u64, until_ms: u64) -> Self {
        match (rested_ms == used_ms, used_ms > until_ms) {
            (true, _) => Self::Already,
            (false, true) => Self::NotYet,
            (false, false) => Self::Begins,
        }
    }
}

/// Whether rounds are made now.
#[derive(Default)]
pub struct Rest {
    is_awake: AtomicBool,
    wake: Notify,
}

impl Rest {
    /// A function is called. Costs next to nothing while rounds are made.
    pub fn called(&self) {
        if !self.is_awake.load(SeqCst) && !self.is_awake.swap(true, SeqCst) {
            self.wake.notify_one();
        }
    }

    /// Makes rounds until it is dropped.
    pub async fn rounds(loader: Arc<Loader>) {
        loop {
            loader.rest.wake.notified().await;
            sleep(ROUND_EVERY).await;
            // First, so that a call during the round is not missed.
            loader.rest.is_awake.store(false, SeqCst);
            let round = loader.clone();
            let are_left = blocking(move || Ok(round.let_rest(Instant::now()))).await;
            if are_left.unwrap_or(true) {
                loader.rest.called();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_rests_once_after_its_last_call() {
        assert_eq!(Resting::of(500, NEVER, 499), Resting::NotYet);
        assert_eq!(Resting::of(500, NEVER, 500), Resting::Begins);
        assert_eq!(Resting::of(500, 500, 900), Resting::Already);
        assert_eq!(Resting::of(901, 500, 900), Resting::NotYet, "it was called again");
        assert_eq!(Resting::of(0, NEVER, 0), Resting::Begins, "one that was loaded and never called");
    }

    #[tokio::test]
    async fn the_first_call_wakes_the_rounds_and_others_need_not() {
        let rest = Rest::default();
        rest.called();
        rest.called();
        rest.wake.notified().await;
        assert!(rest.is_awake.load(SeqCst));
        rest.is_awake.store(false, SeqCst);
        rest.called();
        rest.wake.notified().await;
    }
}
