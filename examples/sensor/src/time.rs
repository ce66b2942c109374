//! Times as kits write them.

/// `2026-11-21T08:00:00Z` of milliseconds since 1970; what is left of a second is cut off.
pub fn iso(time_ms: u64) -> String {
    let (seconds, days) = (time_ms / 1_000 % 86_400, time_ms / 86_400_000);
    let (year, month, day) = date(days);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// Year, month and day in the Gregorian calendar. Counted in eras of 400 years that begin in March, so that the leap day
/// is the last of its year.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, late) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + late, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (time_ms, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_825_600_999, "2000-02-29T12:00:00Z"),
            (1_795_248_000_000, "2026-11-21T08:00:00Z"),
            (4_107_542_399_000, "2100-02-28T23:59:59Z"),
        ] {
            assert_eq!(iso(time_ms), text);
        }
    }
}
