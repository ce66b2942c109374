//! Versions as releases have them, and which of two is older.

use std::cmp::Ordering;
use std::fmt;

/// Bytes of a version as text; a longer text is none.
const TEXT_BYTES_MAX: usize = 64;

/// `1.4.0` or `1.4.0-rc.1`. One with a word behind it comes before the one without.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseVersion {
    numbers: [u32; 3],
    before: Vec<String>,
}

impl ReleaseVersion {
    /// None of a text that is no version.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let (numbers, before) = text.split_once('-').map_or((text, None), |(numbers, before)| (numbers, Some(before)));
        let mut parts = numbers.split('.');
        let mut next = || parts.next().filter(|part| is_number(part)).and_then(|part| part.parse().ok());
        let numbers = [next()?, next()?, next()?];
        if parts.next().is_some() {
            return None;
        }
        let before: Vec<String> = before.into_iter().flat_map(|text| text.split('.')).map(str::to_owned).collect();
        let is_word = |part: &String| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric());
        before.iter().all(is_word).then_some(Self { numbers, before })
    }
}

fn is_number(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()) && (part == "0" || !part.starts_with('0'))
}

impl fmt::Display for ReleaseVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.numbers;
        write!(f, "{major}.{minor}.{patch}")?;
        match self.before.is_empty() {
            true => Ok(()),
            false => write!(f, "-{}", self.before.join(".")),
        }
    }
}

impl PartialOrd for ReleaseVersion {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ReleaseVersion {
    fn cmp(&self, other: &Self) -> Ordering {
        let words = || match (self.before.is_empty(), other.before.is_empty()) {
            (false, false) => of_words(&self.before, &other.before),
            (whole, other_is_whole) => whole.cmp(&other_is_whole),
        };
        self.numbers.cmp(&other.numbers).then_with(words)
    }
}

/// Numbers by what they count and before words, as SemVer has it.
fn of_words(one: &[String], other: &[String]) -> Ordering {
    let rank = |word: &String| match word.parse::<u64>() {
        Ok(number) => (0, number, String::new()),
        Err(_) => (1, 0, word.clone()),
    };
    one.iter().map(rank).cmp(other.iter().map(rank))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_stand_in_their_order() {
        let order = ["0.1.0-rc.1", "0.1.0-rc.2", "0.1.0-rc.10", "0.1.0-rc.10.1", "0.1.0", "0.1.9", "0.1.10", "1.0.0"];
        let versions: Vec<ReleaseVersion> = order.iter().map(|text| ReleaseVersion::parse(text).unwrap()).collect();
        for (at, version) in versions.iter().enumerate() {
            assert_eq!(version.to_string(), order[at]);
            for (other_at, other) in versions.iter().enumerate() {
                assert_eq!(version.cmp(other), at.cmp(&other_at), "{version} and {other}");
            }
        }
    }

    #[test]
    fn what_is_no_version_is_none() {
        let long = format!("1.0.0-{}", "a".repeat(64));
        for text in
            ["", "1", "1.2", "1.2.3.4", "01.2.3", "1.2.+3", "1.2.3-", "1.2.3-a..b", "1.2.3-../x", "a.b.c", &long]
        {
            assert_eq!(ReleaseVersion::parse(text), None, "{text}");
        }
        assert_eq!(ReleaseVersion::parse("4294967296.0.0"), None);
    }
}
