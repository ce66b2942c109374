//! How many copies of a function there are in a fleet: a fixed number, or as many as the load asks for.
//!
//! ```toml
//! [function.plate.place]
//! copies = "1..8"
//! quiet = "1m"
//! ```

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Nodes of one function.
const COPIES_MAX: u32 = 10_000;

/// `2`, or `"1..8"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Written", into = "Written")]
#[schemars(with = "Written")]
pub struct Copies {
    pub least: u32,
    pub most: u32,
}

/// As it is written.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "copies must be how many, like 2, or the fewest and the most, like \"1..8\"")]
enum Written {
    Number(#[schemars(range(min = 1, max = 10_000))] u32),
    Range(#[schemars(regex(pattern = r"^[0-9]{1,5}\.\.[0-9]{1,5}$"))] String),
}

impl Copies {
    /// Whether their number follows load.
    pub fn follow_load(&self) -> bool {
        self.least < self.most
    }
}

impl TryFrom<Written> for Copies {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let is_number = |text: &str| (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = |text: &str| text.parse().ok().filter(|_| is_number(text));
        let read = match &written {
            Written::Number(copies) => Some((*copies, *copies)),
            Written::Range(text) => {
                text.split_once("..").and_then(|(least, most)| Some((number(least)?, number(most)?)))
            }
        };
        let copies = read.map(|(least, most)| Self { least, most });
        let good =
            copies.filter(|copies| 1 <= copies.least && copies.least <= copies.most && copies.most <= COPIES_MAX);
        good.ok_or_else(|| {
            let found = match written {
                Written::Number(copies) => copies.to_string(),
                Written::Range(text) => format!("{text:?}"),
            };
            format!("copies is {found}: write how many (1 to {COPIES_MAX}), or the fewest and the most (\"1..8\")")
        })
    }
}

impl From<Copies> for Written {
    fn from(copies: Copies) -> Self {
        if copies.follow_load() { Self::Range(copies.to_string()) } else { Self::Number(copies.most) }
    }
}

impl fmt::Display for Copies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.follow_load() {
            true => write!(f, "{}..{}", self.least, self.most),
            false => write!(f, "{}", self.most),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Copies, serde_json::Error> {
        serde_json::from_str(json)
    }

    #[test]
    fn a_number_and_a_range_read_back_as_they_are_written() {
        for (json, least, most) in
            [("2", 2, 2), ("10000", 10_000, 10_000), ("\"1..8\"", 1, 8), ("\"3..10000\"", 3, 10_000)]
        {
            let copies = read(json).unwrap();
            assert_eq!(copies, Copies { least, most });
            assert_eq!((serde_json::to_string(&copies).unwrap().as_str(), copies.follow_load()), (json, least < most));
        }
        assert_eq!(serde_json::to_string(&read("\"2..2\"").unwrap()).unwrap(), "2");
    }

    #[test]
    fn what_is_no_number_of_copies_is_refused() {
        for json in [
            "0",
            "10001",
            "-1",
            "1.5",
            "\"\"",
            "\"2\"",
            "\"0..2\"",
            "\"3..2\"",
            "\"1..\"",
            "\"..8\"",
            "\"1..10001\"",
            "\"+1..8\"",
            "\"1..8..9\"",
            "\"1 .. 8\"",
            "[1,8]",
            "true",
        ] {
            assert!(read(json).is_err(), "{json}");
        }
    }
}
