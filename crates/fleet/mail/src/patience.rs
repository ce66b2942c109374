//! How long to wait before something is tried again: longer each time, and not all at the same moment.

use random::Random;
use std::time::Duration;

/// The longest rest between two tries.
pub const REST_MAX: Duration = Duration::from_secs(30);
/// How long a receipt is waited for, the first time.
const RECEIPT: Duration = Duration::from_secs(1);
/// How long a stream rests when the queue of a letter is full, the first time.
const FULL: Duration = Duration::from_millis(200);

const RECONNECT_MIN: Duration = Duration::from_millis(200);
const RECONNECT_FIRST: Duration = Duration::from_secs(5);

/// How long a node waits before it connects again: 0.2 to 5 s at random after the first loss, then up to twice as long
/// each time, 30 s at most. So a thousand nodes do not come back in the same moment.
pub fn reconnect_after(tries: u32, random: u64) -> Duration {
    let longest = doubled(RECONNECT_FIRST, tries);
    RECONNECT_MIN + spread(longest - RECONNECT_MIN, random)
}

pub fn receipt(tries: u32, random: u64) -> Duration {
    jittered(doubled(RECEIPT, tries), random)
}

pub fn full(tries: u32, random: u64) -> Duration {
    jittered(doubled(FULL, tries), random)
}

fn doubled(first: Duration, times: u32) -> Duration {
    first.saturating_mul(1 << times.min(16)).min(REST_MAX)
}

/// Three quarters of `time`, or more.
fn jittered(time: Duration, random: u64) -> Duration {
    let least = time / 4 * 3;
    least + spread(time - least, random)
}

/// A share of `time`.
fn spread(time: Duration, random: u64) -> Duration {
    let share = random >> 32;
    Duration::from_nanos((time.as_nanos() * u128::from(share) >> 32) as u64)
}

/// Random numbers from a seed that came from outside.
pub fn dice(nonce: &[u8; 16]) -> Random {
    Random(nonce.iter().fold(0, |seed, byte| seed.rotate_left(7) ^ u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_come_back_at_different_times_and_wait_longer_each_time() {
        for (tries, longest) in [(0, 5), (1, 10), (2, 20), (3, 30), (40, 30)] {
            assert_eq!(reconnect_after(tries, 0), RECONNECT_MIN);
            let last = reconnect_after(tries, u64::MAX);
            assert!(last <= Duration::from_secs(longest) && last > Duration::from_secs(longest) * 99 / 100, "{last:?}");
        }
    }

    #[test]
    fn rests_are_doubled_up_to_their_bound() {
        assert!(receipt(0, 0) >= RECEIPT / 4 * 3 && receipt(0, u64::MAX) <= RECEIPT);
        assert!(full(3, u64::MAX) <= FULL * 8 && full(3, 0) >= FULL * 6);
        assert!(receipt(u32::MAX, u64::MAX) <= REST_MAX && full(u32::MAX, 0) >= REST_MAX / 4 * 3);
    }
}
