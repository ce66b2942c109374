//! How fast a client or another node must move large data: a slow one makes room for others.
//!
//! While images and imports move they hold something scarce: a turn, a thread, a share of the room for bodies. So after
//! a minute a transfer must have moved a modest number of bytes for each second since it began.

use problem::{Code, Problem};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// So long nothing is asked of it.
const SLOW_AFTER: Duration = Duration::from_secs(60);
/// What a transfer must have moved after that, for each second since it began.
const BYTES_PER_SECOND_MIN: u64 = 8 << 10;

/// One transfer, as fast as it is.
pub struct Pace {
    what: &'static str,
    began: Instant,
    bytes: u64,
}

impl Pace {
    /// Begins now. `what` is moved, as an error names it.
    pub fn begin(what: &'static str) -> Self {
        Self { what, began: Instant::now(), bytes: 0 }
    }

    pub fn moved(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// Waits for the other side's next step, for as long as what has been moved is enough.
    ///
    /// # Errors
    /// [`Code::RequestTimeout`]: it is too slow.
    pub async fn wait<T>(&self, step: impl Future<Output = T>) -> Result<T, Problem> {
        let enough = SLOW_AFTER.max(Duration::from_secs(self.bytes / BYTES_PER_SECOND_MIN));
        timeout_at(self.began + enough, step).await.map_err(|_| {
            let (bytes, seconds) = (self.bytes, self.began.elapsed().as_secs());
            let detail = format!(
                "{bytes} bytes of {} were moved in {seconds} s, {BYTES_PER_SECOND_MIN} a second are the least",
                self.what
            );
            Problem::new(Code::RequestTimeout, detail)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::sleep;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_minute_is_everybodys_and_then_bytes_buy_time() {
        let mut pace = Pace::begin("the image");
        pace.wait(sleep(59 * SECOND)).await.unwrap();
        pace.moved(100 * 8_192);
        pace.wait(sleep(40 * SECOND)).await.unwrap();
        let problem = pace.wait(sleep(2 * SECOND)).await.unwrap_err();
        assert_eq!(problem.code, Code::RequestTimeout);
        assert!(problem.detail.contains("819200 bytes of the image were moved in 100 s"), "{problem}");
        assert_eq!(pace.wait(async { "there" }).await, Ok("there"), "what has come is not late");
    }
}
