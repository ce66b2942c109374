//! Errors a user can see: a stable code, a sentence that says what happened, and a hint.
//!
//! ```text
//! error[L1103]: function "hello": limits.memory_bytes is 1, the least is 65536
//!   hint: leave it out for the default of 64 MiB
//! ```
//! The codes are in [`codes`]; `contracts/errors.toml` is written from them, and a test keeps the two the same. Over
//! HTTP a problem is an RFC 9457 `application/problem+json` document with `code` and `hint` beside the standard
//! members.
#![forbid(unsafe_code)]

mod codes;

pub use codes::Code;

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

/// Media type of a problem sent over HTTP (RFC 9457).
pub const MEDIA_TYPE: &str = "application/problem+json";

/// One error as the user sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub code: Code,
    /// What was tried, with which value, against which limit. One sentence, no full stop.
    pub detail: Cow<'static, str>,
    /// What to do about it. Defaults to the hint of the code.
    pub hint: Cow<'static, str>,
}

impl Problem {
    pub fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { code, detail: detail.into(), hint: Cow::Borrowed(code.hint()) }
    }

    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.hint = hint.into();
        self
    }

    /// What may be told to anybody: the code and its title, and all of it where it speaks of nothing but the request
    /// itself.
    #[must_use]
    pub fn for_strangers(&self) -> Self {
        if self.code.speaks_of_the_request() {
            return self.clone();
        }
        Self::new(self.code, self.code.title())
    }

    /// The RFC 9457 document.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(&Document::from(self)).expect("a problem has only strings and numbers")
    }

    /// Reads what [`Problem::to_json`] wrote, perhaps by a newer node: an unknown code becomes
    /// [`Code::Unknown`] with its number kept in the detail.
    pub fn from_json(bytes: &[u8]) -> Option<Self> {
        let document: Document = serde_json::from_slice(bytes).ok()?;
        Some(match Code::from_name(&document.code) {
            Some(code) => Self { code, detail: document.detail.into(), hint: document.hint.unwrap_or_default().into() },
            None => Self {
                code: Code::Unknown,
                detail: format!("{} ({})", document.detail, document.code).into(),
                hint: document.hint.unwrap_or_default().into(),
            },
        })
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: {}", self.code, self.detail)?;
        if !self.hint.is_empty() {
            write!(f, "\n  hint: {}", self.hint)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problem {}

/// A problem on the wire.
#[derive(Debug, Serialize, Deserialize)]
pub struct Document {
    #[serde(rename = "type", default)]
    pub kind: String,
    pub title: String,
    pub status: u16,
    pub detail: String,
    pub code: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl From<&Problem> for Document {
    fn from(problem: &Problem) -> Self {
        Self {
            kind: format!("urn:lighter:error:{}", problem.code),
            title: problem.code.title().to_owned(),
            status: problem.code.status(),
            detail: problem.detail.to_string(),
            code: problem.code.to_string(),
            hint: (!problem.hint.is_empty()).then(|| problem.hint.to_string()),
        }
    }
}
