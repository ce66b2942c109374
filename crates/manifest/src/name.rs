//! The name of a function: what stands in URLs, logs and metrics, so kept plain.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Borrow;
use std::fmt;

/// Bytes of a name.
pub const NAME_BYTES_MAX: usize = 63;

/// 1 to 63 of `a-z`, `0-9` and `-`, beginning with a letter and not ending with `-`: a DNS label.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Name(String);

impl Name {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Name {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let good = text.len() <= NAME_BYTES_MAX
            && text.starts_with(|c: char| c.is_ascii_lowercase())
            && text.chars().all(plain)
            && !text.ends_with('-');
        if good {
            Ok(Self(text))
        } else {
            Err(format!(
                "{text:?} is not a name: 1 to {NAME_BYTES_MAX} of a-z, 0-9 and -, beginning with a letter, not ending with -"
            ))
        }
    }
}

impl std::str::FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::try_from(text.to_owned())
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
