//! What a node has: its labels and what it can run. A node says it of itself.

use manifest::Label;
use problem::{Code, Problem};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Labels of one node. More are refused.
pub const LABELS_MAX: usize = 32;
/// Words of one node. More are refused.
const WORDS_MAX: usize = 64;

/// What one node has. Unknown fields are left out of account, so that a newer node may say more.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// What people call it beside its name: `site` is `harbour`.
    pub labels: BTreeMap<String, String>,
    /// Its isolation classes and its architecture: `wasm`, `aarch64`.
    pub words: BTreeSet<String>,
    /// What it may hold for units and requests together.
    pub memory_bytes: u64,
}

impl Profile {
    /// # Errors
    /// [`Code::FleetMessage`]: it would spoil a screen, or is too large.
    pub fn check(&self) -> Result<(), Problem> {
        let is_label = |(key, value): (&String, &String)| Label::read(&format!("{key}={value}")).is_ok();
        // A word is the key of a label.
        let is_word = |word: &String| Label::read(&format!("{word}=x")).is_ok();
        let is_small = self.labels.len() <= LABELS_MAX && self.words.len() <= WORDS_MAX;
        if is_small && self.labels.iter().all(is_label) && self.words.iter().all(is_word) {
            return Ok(());
        }
        Err(Problem::new(Code::FleetMessage, "what a node says that it has is not as it should be"))
    }
}
