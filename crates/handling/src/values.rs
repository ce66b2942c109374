//! The small things a unit reads: values by name, random bytes, the time.

use std::sync::LazyLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use unit::Deployed;

/// Bytes of one call to `random`.
const RANDOM_BYTES_MAX: u32 = 65_536;

/// A value of `config`, or a granted secret.
pub fn value<'a>(deployed: &'a Deployed, name: &str) -> Option<&'a str> {
    deployed.function.config.get(name).or_else(|| deployed.secrets.get(name)).map(String::as_str)
}

/// All of them.
pub fn values(deployed: &Deployed) -> Vec<(String, String)> {
    let values = deployed.secrets.iter().chain(&deployed.function.config);
    values.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// # Errors
/// More than a call may ask for, or the operating system has none.
pub fn random(count: u32) -> Result<Vec<u8>, String> {
    if count > RANDOM_BYTES_MAX {
        return Err(format!("random.bytes: {count} bytes asked for, the limit is {RANDOM_BYTES_MAX}"));
    }
    let mut bytes = vec![0; count as usize];
    getrandom::fill(&mut bytes).map_err(|error| format!("no random bytes: {error}"))?;
    Ok(bytes)
}

/// Milliseconds since 1970-01-01 UTC.
pub fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Nanoseconds since a moment of this process.
pub fn monotonic_ns() -> u64 {
    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(ORIGIN.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
