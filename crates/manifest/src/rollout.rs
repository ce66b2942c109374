//! How a new form of a fleet's deployment reaches its nodes: in steps, each of them watched.
//!
//! ```toml
//! [function.plate.place.rollout]
//! steps = ["1", "25%"]
//! watch = "5m"
//! ```

use crate::{Name, Span};
use problem::{Code, Problem};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Steps of one rollout. More are refused.
const STEPS_MAX: usize = 10;
/// Nodes of one step.
const NODES_MAX: u32 = 10_000;
const WATCH_MIN: Span = Span::from_ms(1_000);
const WATCH_MAX: Span = Span::from_ms(86_400_000);

/// Steps in which a new form reaches its nodes. All of them have it after the last one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rollout {
    /// How many nodes have the new form, step by step: a number, or a share of all its nodes (`"25%"`).
    pub steps: Vec<StepSize>,
    /// How long each step is watched, from when its nodes are ready.
    #[serde(default = "watch_default")]
    pub watch: Span,
}

/// How many nodes one step has: `1` or `25%`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub enum StepSize {
    Nodes(u32),
    Percent(u32),
}

fn watch_default() -> Span {
    Span::from_ms(60_000)
}

impl Rollout {
    pub(crate) fn check(&self, name: &Name) -> Result<(), Problem> {
        let bad = |what: String| {
            let detail = format!("function {:?}: place.rollout.{what}", name.as_str());
            Err(Problem::new(Code::ManifestValue, detail))
        };
        if !(1..=STEPS_MAX).contains(&self.steps.len()) {
            return bad(format!("steps has {} steps, it must have 1 to {STEPS_MAX}", self.steps.len()));
        }
        if !(WATCH_MIN..=WATCH_MAX).contains(&self.watch) {
            return bad(format!("watch is {}, it must be between {WATCH_MIN} and {WATCH_MAX}", self.watch));
        }
        Ok(())
    }
}

impl StepSize {
    /// Of so many nodes: at least one, and not more than there are.
    pub fn of(self, nodes: usize) -> usize {
        let wanted = match self {
            Self::Nodes(count) => count as usize,
            Self::Percent(percent) => (nodes * percent as usize).div_ceil(100),
        };
        wanted.max(1).min(nodes)
    }
}

impl TryFrom<String> for StepSize {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (digits, of, most): (&str, fn(u32) -> Self, u32) = match text.strip_suffix('%') {
            Some(digits) => (digits, Self::Percent, 99),
            None => (text.as_str(), Self::Nodes, NODES_MAX),
        };
        let is_number = digits.len() <= 5 && !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.parse().ok().filter(|number| is_number && (1..=most).contains(number));
        number.map(of).ok_or_else(|| {
            format!(
                "{text:?} is not a step: write how many nodes (\"1\" to \"{NODES_MAX}\") or a share (\"1%\" to \"99%\")"
            )
        })
    }
}

impl From<StepSize> for String {
    fn from(size: StepSize) -> Self {
        size.to_string()
    }
}

impl fmt::Display for StepSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodes(count) => write!(f, "{count}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<StepSize, String> {
        StepSize::try_from(text.to_owned())
    }

    #[test]
    fn a_step_reads_back_as_it_is_written_and_has_a_node_at_least() {
        for (text, of_10, of_1) in [("1", 1, 1), ("3", 3, 1), ("10000", 10, 1), ("1%", 1, 1), ("25%", 3, 1)] {
            let size = read(text).unwrap();
            assert_eq!((size.to_string().as_str(), size.of(10), size.of(1), size.of(0)), (text, of_10, of_1, 0));
        }
    }

    #[test]
    fn what_is_no_step_is_refused() {
        for text in ["", "0", "0%", "100%", "%", "+1", "1.5", "10001", "99999999999", "a", "1 %"] {
            assert!(read(text).is_err(), "{text:?}");
        }
    }
}
