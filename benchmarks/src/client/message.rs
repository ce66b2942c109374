//! What every event of these benchmarks says: a sensor's message of about a hundred bytes, with its number and the time
//! it was due.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the monotonic clock, which all processes of this machine share.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

const NUMBER: std::ops::Range<usize> = 11..21;
const DUE: std::ops::Range<usize> = 33..51;

/// The message of event `number`, due at `due_ns`. One in four readings is high.
pub fn message(number: u64, due_ns: u64) -> Vec<u8> {
    let co2 = 400 + number % 4 * 250;
    format!(
        r#"{{"number":"{number:010}","due_ns":"{due_ns:018}","sensor":"kit-7","co2":{co2}.5,"temperature":21.4,"battery":97}}"#
    )
    .into_bytes()
}

/// Number and due time of a message.
pub fn read(message: &[u8]) -> Option<(u64, u64)> {
    let digits = |range| std::str::from_utf8(message.get(range)?).ok()?.parse().ok();
    Some((digits(NUMBER)?, digits(DUE)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::is_high;

    #[test]
    fn a_message_is_read_back_and_one_in_four_is_high() {
        for number in [0, 1, 2, 9_999_999_999] {
            assert_eq!(read(&message(number, 123_456_789_012)), Some((number, 123_456_789_012)));
        }
        let high = (0..400).filter(|&number| is_high(&message(number, 0)) == Some(true)).count();
        assert_eq!(high, 100);
        assert_eq!(read(b"{}"), None);
    }
}
