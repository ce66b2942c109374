//! `Server-Timing` of a reply: how long the call waited for its turn, for its unit, and for its answer.

use super::metrics::Times;
use http::HeaderValue;
use std::time::Duration;

pub const SERVER_TIMING: http::HeaderName = http::HeaderName::from_static("server-timing");

/// Digits of the largest number of microseconds that is told apart: longer times say this.
const MICROSECONDS_MAX: u128 = 999_999_999_999;

/// Bytes of the longest header.
const BYTES_MAX: usize = 5 * ("encode;dur=".len() + 13 + ", ".len());

/// `queue;dur=0.000, start;dur=0.021, run;dur=0.105`, in milliseconds; with `decode` and `encode` around `run` where
/// the unit says what it spent on them. On every reply, so written without the formatting machinery.
pub fn server_timing(times: &Times) -> HeaderValue {
    let mut text = Text { bytes: [0; BYTES_MAX], length: 0 };
    let mut add = |name: &str, duration| {
        text.add(name.as_bytes());
        milliseconds(&mut text, duration);
    };
    add("queue;dur=", times.queue);
    add(", start;dur=", times.start);
    match times.stages {
        None => add(", run;dur=", times.run),
        Some(stages) => {
            add(", decode;dur=", stages.decode);
            add(", run;dur=", stages.run);
            add(", encode;dur=", stages.encode);
        }
    }
    HeaderValue::from_bytes(&text.bytes[..text.length]).expect("digits and letters make a header")
}

/// Becomes a header with one allocation of its size.
struct Text {
    bytes: [u8; BYTES_MAX],
    length: usize,
}

impl Text {
    fn add(&mut self, bytes: &[u8]) {
        self.bytes[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }
}

/// Three decimals.
fn milliseconds(text: &mut Text, duration: Duration) {
    let mut rest = duration.as_micros().min(MICROSECONDS_MAX) as u64;
    let mut digits = [b'0'; 13];
    let mut place = digits.len();
    // At least one digit before the point and three behind it.
    for count in 0.. {
        if rest == 0 && count >= 4 {
            break;
        }
        if count == 3 {
            place -= 1;
            digits[place] = b'.';
        }
        place -= 1;
        digits[place] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    text.add(&digits[place..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use unit::Stages;

    #[test]
    fn times_are_milliseconds_with_three_decimals() {
        let [queue, start, run] = [0, 21, 1_234_567].map(Duration::from_micros);
        let header = server_timing(&Times { queue, start, run, ..Times::default() });
        assert_eq!(header, "queue;dur=0.000, start;dur=0.021, run;dur=1234.567");
        let stages = Some(Stages { decode: start, run: start, encode: queue });
        let header = server_timing(&Times { queue, start, run, stages, total: Duration::ZERO });
        assert_eq!(header, "queue;dur=0.000, start;dur=0.021, decode;dur=0.021, run;dur=0.021, encode;dur=0.000");
    }

    #[test]
    fn the_longest_time_still_fits() {
        let times =
            Times { queue: Duration::MAX, start: Duration::MAX, run: Duration::from_micros(1_000), ..Times::default() };
        assert_eq!(server_timing(&times), "queue;dur=999999999.999, start;dur=999999999.999, run;dur=1.000");
    }
}
