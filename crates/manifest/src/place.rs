//! Where the copies of a function are in a fleet: what their nodes must have, whom they are near, how many there are.
//!
//! ```toml
//! [function.plate.place]
//! where = ["site=harbour|bridge", "microvm", "memory>=512MiB", "!battery"]
//! near = "pi-7"
//! copies = 2
//! ```
//! A node alone reads `warm` of it, and nothing else. What a node has is compared with it in `fleet-deploy`.

use crate::{Copies, Name, Near, Rollout, Span};
use problem::{Code, Problem};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Units of one function that are ready on a node. More are refused: each has memory that nobody uses.
const WARM_MAX: u32 = 32;
/// Terms of one function. More are refused.
const TERMS_MAX: usize = 32;
/// Values of one term. More are refused.
const VALUES_MAX: usize = 32;
/// Bytes of the key or the value of a label. A longer one is refused.
const LABEL_BYTES_MAX: usize = 63;
/// The longest and the shortest way that can be demanded.
const WITHIN_MIN: Span = Span::from_ms(1);
const WITHIN_MAX: Span = Span::from_ms(60_000);
/// How long a copy may at least and at most be not needed before it goes; and where nothing is said.
const QUIET_MIN: Span = Span::from_ms(1_000);
const QUIET_MAX: Span = Span::from_ms(86_400_000);
const QUIET: Span = Span::from_ms(60_000);

/// The units of memory, the largest first.
const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// Where a function is in a fleet. A single node reads only `warm`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Place {
    /// What a node must have, all of it: a label (`site=harbour|bridge`), a word (`microvm`, `aarch64`, or the key of a
    /// label), or memory (`memory>=512MiB`). `!` before a term negates it.
    #[serde(rename = "where", skip_serializing_if = "Vec::is_empty")]
    pub terms: Vec<Term>,
    /// The nodes that it should be near: one by its name or id, or all with a label (`site=harbour|bridge`). It goes to
    /// those fitting nodes that have the shortest measured way to one of them and back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub near: Option<Near>,
    /// How long the way to one of them and back may take, `"1ms"` to `"1m"`: a node farther away does not fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<Span>,
    /// How many nodes have the function: a number; or the fewest and the most (`"1..8"`), between which it follows
    /// load. Without it, all that fit. A function with state is on one node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copies: Option<Copies>,
    /// If the number of copies follows load: how long one of them must have been unneeded before it goes, `"1s"` to
    /// `"1d"`. The default is a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quiet: Option<Span>,
    /// How many units each node that has the function keeps ready for calls. They are made again after they were used.
    /// A class that makes no units ahead (`wasm`, `metal`) keeps the function loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 32))]
    pub warm: Option<u32>,
    /// The steps in which a new form of the deployment reaches its nodes; it goes back if it fails. This counts for the
    /// whole deployment. Without it all nodes take a new form at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,
}

/// One thing that a node must have, or must not have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Term {
    pub is_negated: bool,
    pub wanted: TermWanted,
}

/// What a term asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TermWanted {
    /// A capability, or a label whatever its value is.
    Word(String),
    /// A label with one of these values.
    Label { key: String, values: Vec<String> },
    /// So many bytes that the node may hold for units and requests.
    Memory { least_bytes: u64 },
}

/// What a node is called beside its name: `site=harbour`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// 1 to 63 of a-z, 0-9, `.`, `_` and `-`, beginning with a letter.
    pub key: String,
    /// 1 to 63 of A-Z, a-z, 0-9, `.`, `_` and `-`.
    pub value: String,
}

impl Place {
    /// `concurrency`: how many calls of the function run at once on a node.
    pub(crate) fn check(&self, name: &Name, concurrency: u32) -> Result<(), Problem> {
        let bad = |what: String| {
            Err(Problem::new(Code::ManifestValue, format!("function {:?}: place.{what}", name.as_str())))
        };
        if self.terms.len() > TERMS_MAX {
            return bad(format!("where has {} terms, {TERMS_MAX} at most", self.terms.len()));
        }
        self.rollout.as_ref().map_or(Ok(()), |rollout| rollout.check(name))?;
        let warm = self.warm.unwrap_or_default();
        if warm > WARM_MAX {
            return bad(format!("warm is {warm}, it must be between 0 and {WARM_MAX}"));
        }
        if warm > concurrency {
            let name = name.as_str();
            let detail = format!("function {name:?}: place.warm keeps {warm} units ready, and limits.concurrency lets");
            return Err(Problem::new(Code::ManifestConflict, format!("{detail} {concurrency} run")));
        }
        match self.within {
            Some(within) if !(WITHIN_MIN..=WITHIN_MAX).contains(&within) => {
                return bad(format!("within is {within}, it must be between {WITHIN_MIN} and {WITHIN_MAX}"));
            }
            Some(within) if self.near.is_none() => {
                let hint = "say from which node it is measured: near = \"pi-7\", or near = \"site=harbour\"";
                let problem = bad(format!("within is {within}, and place.near names no node"));
                return problem.map_err(|problem: Problem| problem.with_hint(hint));
            }
            _ => {}
        }
        let follows_load = self.copies.is_some_and(|copies| copies.follow_load());
        match self.quiet {
            Some(quiet) if !(QUIET_MIN..=QUIET_MAX).contains(&quiet) => {
                bad(format!("quiet is {quiet}, it must be between {QUIET_MIN} and {QUIET_MAX}"))
            }
            Some(quiet) if !follows_load => {
                let problem = bad(format!("quiet is {quiet}, and the number of copies does not follow load"));
                problem.map_err(|problem: Problem| problem.with_hint("say between which numbers: copies = \"1..8\""))
            }
            _ => Ok(()),
        }
    }
}

impl Place {
    /// How long a copy is not needed before it goes.
    pub fn quiet(&self) -> Span {
        self.quiet.unwrap_or(QUIET)
    }

    /// What counts on a node where the function has been put. None: nothing of it.
    pub fn on_node(&self) -> Option<Self> {
        let warm = self.warm.filter(|warm| *warm > 0);
        warm.map(|_| Self { warm, ..Self::default() })
    }
}

impl Label {
    /// Reads `KEY=VALUE`.
    ///
    /// # Errors
    /// What it should be.
    pub fn read(text: &str) -> Result<Self, String> {
        let parts = text.split_once('=').filter(|(key, value)| is_key(key) && is_value(value));
        let (key, value) = parts.ok_or_else(|| {
            format!("{text:?} is not a label: write site=harbour, with at most {LABEL_BYTES_MAX} bytes on either side")
        })?;
        Ok(Self { key: key.to_owned(), value: value.to_owned() })
    }
}

impl TryFrom<String> for Term {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (is_negated, rest) = text.strip_prefix('!').map_or((false, text.as_str()), |rest| (true, rest));
        let wanted = wanted(rest).ok_or_else(|| {
            format!("{text:?} is not a term: write a label (site=harbour|bridge), a word (microvm) or memory>=512MiB")
        })?;
        Ok(Self { is_negated, wanted })
    }
}

impl From<Term> for String {
    fn from(term: Term) -> Self {
        term.to_string()
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_negated {
            f.write_str("!")?;
        }
        match &self.wanted {
            TermWanted::Word(word) => f.write_str(word),
            TermWanted::Label { key, values } => write!(f, "{key}={}", values.join("|")),
            TermWanted::Memory { least_bytes } => write!(f, "memory>={}", bytes_as_text(*least_bytes)),
        }
    }
}

/// So many bytes in the largest unit that has no fraction: `512MiB`.
pub fn bytes_as_text(bytes: u64) -> String {
    match UNITS.iter().find(|(_, unit)| bytes >= *unit && bytes.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{}{name}", bytes / unit),
        None => bytes.to_string(),
    }
}

fn wanted(text: &str) -> Option<TermWanted> {
    if let Some(bytes) = text.strip_prefix("memory>=") {
        return read_bytes(bytes).map(|least_bytes| TermWanted::Memory { least_bytes });
    }
    if !text.contains('=') {
        return is_key(text).then(|| TermWanted::Word(text.to_owned()));
    }
    let (key, values) = label_with_values(text)?;
    Some(TermWanted::Label { key, values })
}

/// Reads `KEY=VALUE|VALUE`.
pub(crate) fn label_with_values(text: &str) -> Option<(String, Vec<String>)> {
    let (key, values) = text.split_once('=')?;
    let values: Vec<String> = values.split('|').map(str::to_owned).collect();
    let is_good = is_key(key) && values.len() <= VALUES_MAX && values.iter().all(|value| is_value(value));
    is_good.then(|| (key.to_owned(), values))
}

fn read_bytes(text: &str) -> Option<u64> {
    let unit = UNITS.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)));
    let (digits, unit) = unit.unwrap_or((text, 1));
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse::<u64>().ok().filter(|_| is_number)?.checked_mul(unit)
}

fn is_key(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
    text.len() <= LABEL_BYTES_MAX && text.starts_with(|c: char| c.is_ascii_lowercase()) && text.bytes().all(plain)
}

fn is_value(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=LABEL_BYTES_MAX).contains(&text.len()) && text.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Term, String> {
        Term::try_from(text.to_owned())
    }

    #[test]
    fn a_term_reads_back_as_it_is_written() {
        for text in ["microvm", "!x86_64", "site=harbour|bridge", "!site=A.1", "memory>=512MiB", "memory>=7"] {
            assert_eq!(read(text).unwrap().to_string(), text);
        }
        let halves = read("memory>=1024MiB").unwrap();
        assert_eq!(
            (halves.to_string().as_str(), halves.wanted),
            ("memory>=1GiB", TermWanted::Memory { least_bytes: 1 << 30 })
        );
    }

    #[test]
    fn what_is_no_term_is_refused() {
        let long = "a".repeat(LABEL_BYTES_MAX + 1);
        let many = format!("site={}", vec!["a"; VALUES_MAX + 1].join("|"));
        for text in [
            "",
            "!",
            "!!a",
            "Site=a",
            "site=",
            "site=a|",
            "a b",
            "memory>=",
            "memory>=1.5GiB",
            "memory>=+1",
            "memory>=99999999999GiB",
            &long,
            &many,
        ] {
            assert!(read(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_label_is_a_key_and_one_value() {
        let label = Label::read("site=harbour").unwrap();
        assert_eq!((label.key.as_str(), label.value.as_str()), ("site", "harbour"));
        for text in ["", "site", "site=", "=harbour", "site=a|b", "Site=a", "site=a b"] {
            assert!(Label::read(text).is_err(), "{text:?}");
        }
    }
}
