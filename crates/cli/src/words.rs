//! Numbers, times and strange text as people read them.

use std::borrow::Cow;
use std::path::Path;
use std::time::Duration;

/// `15.2 kB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
    if count < 1_000 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1_000.0;
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1_000.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// `12 µs`, `1.2 ms`, `3.4 s`; `-` for nothing measured.
pub fn microseconds(us: f64) -> String {
    match us {
        us if us <= 0.0 => "-".to_owned(),
        us if us < 9.95 => format!("{us:.1} µs"),
        us if us < 999.5 => format!("{us:.0} µs"),
        us if us < 999_500.0 => format!("{:.1} ms", us / 1e3),
        us => format!("{:.1} s", us / 1e6),
    }
}

/// `250 ms`, `3.2 s`, `4 min 10 s`, `3 h 7 min`, `2 d 4 h`.
pub fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{} ms", duration.as_millis()),
        1..60 => format!("{:.1} s", duration.as_secs_f64()),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// `2026-11-21 03:54:19.123`, UTC.
pub fn time(unix_ms: u64) -> String {
    let (days, ms) = (unix_ms / 86_400_000, unix_ms % 86_400_000);
    let (year, month, day) = date(days);
    let (hour, minute) = (ms / 3_600_000, ms / 60_000 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02}.{:03}", ms / 1_000 % 60, ms % 1_000)
}

/// Year, month and day of a day counted from 1970-01-01 (Howard Hinnant's `civil_from_days`).
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

/// A path as it is typed in a shell: in quotes, unless nothing in it could mean something there.
pub fn typed(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '/' | '-');
    match text.chars().all(is_plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// `s` unless there is exactly one.
pub fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// Whether a character drives a terminal instead of standing on it: control characters, and those that turn the order
/// of the letters around them or begin a line, by which a text shows as another than it is.
fn is_harmful(c: char) -> bool {
    let turns = matches!(c, '\u{061C}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}');
    (c.is_control() && c != '\n' && c != '\t') || turns || matches!(c, '\u{2028}' | '\u{2029}')
}

/// What JSON leaves as it is and a terminal does not: the same text, with escapes that every reader of JSON
/// understands.
pub fn harmless_json(json: Vec<u8>) -> Vec<u8> {
    match String::from_utf8(json) {
        Ok(text) if text.contains(is_harmful) => {
            let mut safe = String::with_capacity(text.len() + 16);
            for c in text.chars() {
                // All of them are below U+10000, and stand in texts alone.
                match is_harmful(c) {
                    true => safe.push_str(&format!("\\u{:04x}", u32::from(c))),
                    false => safe.push(c),
                }
            }
            safe.into_bytes()
        }
        Ok(text) => text.into_bytes(),
        Err(error) => error.into_bytes(),
    }
}

/// Such characters made visible, so that what a function writes cannot drive the terminal it is shown on.
pub fn harmless(text: &str) -> Cow<'_, str> {
    let harmful = is_harmful;
    if !text.contains(harmful) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if harmful(c) {
            safe.extend(c.escape_default());
        } else {
            safe.push(c);
        }
    }
    Cow::Owned(safe)
}

/// Base64 with padding (RFC 4648), for bytes inside a JSON document.
pub fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let word = group.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for place in 0..4 {
            let sextet = (word >> (18 - 6 * place)) & 63;
            text.push(if place <= group.len() { char::from(ALPHABET[sextet as usize]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits_at_most() {
        assert_eq!(
            ["0 B", "999 B", "1.0 kB", "1.0 MB", "13.0 MB", "2.1 GB"],
            [0, 999, 1_000, 999_990, 13_000_000, 2_147_483_648].map(bytes).each_ref().map(String::as_str)
        );
        assert_eq!(
            ["-", "2.1 µs", "29 µs", "1.0 ms", "3.4 s"],
            [0.0, 2.1, 29.4, 999.6, 3.4e6].map(microseconds).each_ref().map(String::as_str)
        );
        assert_eq!(duration(Duration::from_millis(250)), "250 ms");
        assert_eq!(duration(Duration::from_secs(250)), "4 min 10 s");
        assert_eq!(duration(Duration::from_secs(187_200)), "2 d 4 h");
    }

    #[test]
    fn a_time_is_shown_in_utc() {
        assert_eq!(time(0), "1970-01-01 00:00:00.000");
        assert_eq!(time(951_782_400_001), "2000-02-29 00:00:00.001");
        assert_eq!(time(1_795_233_259_123), "2026-11-21 03:54:19.123");
    }

    #[test]
    fn a_path_can_be_typed_as_it_is_shown() {
        for (path, shown) in [
            ("shapes/my-fn_2.x", "shapes/my-fn_2.x"),
            ("my fn", "'my fn'"),
            ("$(x); y", "'$(x); y'"),
            ("it's", r"'it'\''s'"),
        ] {
            assert_eq!(typed(Path::new(path)), shown);
        }
    }

    #[test]
    fn control_characters_cannot_reach_the_terminal() {
        assert_eq!(harmless("plain\n\ttext é"), "plain\n\ttext é");
        assert_eq!(harmless("a\x1b[2Jb\r\u{9b}"), "a\\u{1b}[2Jb\\r\\u{9b}");
        assert_eq!(harmless("exe.\u{202e}fdp \u{2066}a\u{2028}"), "exe.\\u{202e}fdp \\u{2066}a\\u{2028}");
        let json = serde_json::to_vec(&["\u{9b}2J\u{202e}é"]).unwrap();
        assert_eq!(harmless_json(json.clone()), "[\"\\u009b2J\\u202eé\"]".as_bytes());
        let again: Vec<String> = serde_json::from_slice(&harmless_json(json)).unwrap();
        assert_eq!(again, ["\u{9b}2J\u{202e}é"]);
    }

    #[test]
    fn base64_has_the_vectors_of_its_rfc() {
        let vectors =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("fooba", "Zm9vYmE=")];
        for (plain, encoded) in vectors {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }
}
