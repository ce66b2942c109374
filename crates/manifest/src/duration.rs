//! Spans of time as people write them: `500ms`, `10s`, `5m`, `1h`, `7d`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// The units, the largest first, in milliseconds.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// A whole number and its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Span(Duration);

impl Span {
    pub const fn from_ms(ms: u64) -> Self {
        Self(Duration::from_millis(ms))
    }

    pub const fn duration(self) -> Duration {
        self.0
    }

    pub fn ms(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }
}

impl TryFrom<String> for Span {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let bad = || format!("{text:?} is not a span of time: write a number and ms, s, m, h or d, like \"10s\"");
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| bad())?;
        let (_, unit_ms) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(bad)?;
        number.checked_mul(*unit_ms).map(Self::from_ms).ok_or_else(bad)
    }
}

impl From<Span> for String {
    fn from(span: Span) -> Self {
        span.to_string()
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.ms();
        let (name, unit_ms) =
            UNITS.iter().find(|(_, unit_ms)| ms >= *unit_ms && ms.is_multiple_of(*unit_ms)).unwrap_or(&("ms", 1));
        write!(f, "{}{name}", ms / unit_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_reads_back_as_it_is_written() {
        for (text, ms) in
            [("0ms", 0), ("1500ms", 1_500), ("10s", 10_000), ("5m", 300_000), ("1h", 3_600_000), ("7d", 604_800_000)]
        {
            let span = Span::try_from(text.to_owned()).unwrap();
            assert_eq!((span.ms(), span.to_string().as_str()), (ms, text));
        }
        assert_eq!(Span::from_ms(60_000).to_string(), "1m");
    }

    #[test]
    fn what_is_no_span_is_refused() {
        for text in ["", "10", "s", "1.5s", "-1s", "10 s", "10sec", "99999999999999999999s", "999999999999999999d"] {
            assert!(Span::try_from(text.to_owned()).is_err(), "{text:?}");
        }
    }
}
