//! The clock of the node, in milliseconds. `state` and `handling`, which lie below, have one of their own each.

use std::time::{Duration, SystemTime};

/// Now, in milliseconds since 1970-01-01 UTC.
pub fn now_ms() -> u64 {
    unix_ms(SystemTime::now())
}

/// Milliseconds since 1970-01-01 UTC; 0 for a clock set before that.
pub fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
