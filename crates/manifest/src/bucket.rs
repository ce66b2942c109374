//! A bucket of the store: how much it holds and how long.

use crate::Span;
use problem::{Code, Problem};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bounds of a bucket. One that the manifest does not name has no bounds of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Bucket {
    /// Keys it holds. A write of another one is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub keys_max: Option<u64>,
    /// Bytes of keys and values it holds. A write that would go beyond is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1_024, max = 1_099_511_627_776_u64))]
    pub bytes_max: Option<u64>,
    /// How long a key lives after it was last set, if the write does not say. Without it, for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Span>,
}

impl Bucket {
    pub(crate) fn check(&self, name: &str) -> Result<(), Problem> {
        let bad = |what: String| Err(Problem::new(Code::ManifestValue, format!("bucket {name:?}: {what}")));
        if name.starts_with('.') {
            return bad("names that begin with '.' are the node's own".to_owned());
        }
        if self.keys_max.is_some_and(|keys| !(1..=1_000_000_000).contains(&keys)) {
            return bad("keys_max must be between 1 and 1000000000".to_owned());
        }
        if self.bytes_max.is_some_and(|bytes| !(1_024..=1 << 40).contains(&bytes)) {
            return bad(format!("bytes_max must be between 1024 and {}", 1_u64 << 40));
        }
        if self.ttl.is_some_and(|ttl| ttl < Span::from_ms(1_000)) {
            return bad("ttl must be at least 1s".to_owned());
        }
        Ok(())
    }
}
