//! Whether the node's last runs ended soon and badly: then it starts with its queues paused.
//!
//! A run that ends in good order removes its `node.json`. If the file is still there, the last run crashed; the file
//! tells whether that was soon, and `running` whether events were being handled. After several such runs in a row a
//! waiting event is likely to blame, and a node that stays up can be examined.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

/// A run that has lasted so long did not end by what it found at its start.
pub const LASTING_AFTER: Duration = Duration::from_secs(60);

/// What a run says of itself in `node.json`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Starts {
    /// Runs before this one, one after the other, that ended badly within [`LASTING_AFTER`] while events were handled.
    pub short_runs: u32,
    /// Whether this one has lasted longer.
    pub is_lasting: bool,
}

impl Starts {
    /// What the run before says, if it ended without a word.
    pub fn left(data: &Path) -> Option<Self> {
        let text = fs::read(data.join("node.json")).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Short runs before a run that begins now. `was_handling`: events were being handled at the last one's end.
    pub fn short_runs(left: Option<Self>, was_handling: bool) -> u32 {
        match left {
            None | Some(Self { is_lasting: true, .. }) => 0,
            Some(Self { short_runs, .. }) => short_runs.saturating_add(was_handling.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_end_soon_and_badly_are_counted_until_one_lasts_or_ends_in_good_order() {
        let run = |short_runs, is_lasting| Some(Starts { short_runs, is_lasting });
        for (left, was_handling, counted) in [
            (None, true, 0),
            (run(0, false), true, 1),
            (run(4, false), true, 5),
            (run(4, false), false, 4),
            (run(4, true), true, 0),
        ] {
            assert_eq!(Starts::short_runs(left, was_handling), counted, "{left:?} {was_handling}");
        }
    }

    #[test]
    fn what_an_older_version_left_counts_as_a_first_short_run() {
        let data = tempfile::tempdir().unwrap();
        assert_eq!(Starts::left(data.path()), None);
        fs::write(data.path().join("node.json"), r#"{"api":"http://127.0.0.1:8701","pid":7}"#).unwrap();
        assert_eq!(Starts::left(data.path()), Some(Starts::default()));
    }
}
