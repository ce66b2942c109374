//! What watchdogs in hardware count in: each has units of its own, and no room for long times.

/// A time in such units, of which the watchdog counts at most `units_max`. None: it would not wait for so long.
pub fn units(us: u64, unit_us: u64, units_max: u32) -> Option<u32> {
    let units = us.div_ceil(unit_us).max(1);
    u32::try_from(units).ok().filter(|units| *units <= units_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_a_watchdog_does_not_wait_for_is_none_and_not_a_shorter_one() {
        for (us, expected) in [(0, Some(1)), (1, Some(1)), (2, Some(1)), (3, Some(2)), (20, Some(10)), (21, None)] {
            assert_eq!(units(us, 2, 10), expected, "{us} us");
        }
        assert_eq!(units(u64::MAX, 16, u32::MAX), None);
    }
}
