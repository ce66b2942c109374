//! The one place that turns the system's clock into the numbers of the API.

use std::time::{Duration, SystemTime};

/// Milliseconds since 1970-01-01 UTC; 0 for a clock set before that.
pub fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
