// Not part of the original: see ../../CHANGED.md

//! Leaves tables aside that cannot be read.
//!
//! A table with a damaged block can neither be merged, for nobody knows what its damaged part says, nor dropped, for what
//! it replaces or deletes elsewhere would come back. So it stays where it is, and nothing may pass it: what is newer than
//! it stays above it. As long as a tree has such a table, only the first level is merged, in tiers of about equal size.

use super::{Choice, Input};
use crate::{
    compaction::state::hidden_set::HiddenSet,
    version::{run::Ranged, Version},
    KeyRange, Table, TableId,
};
use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Mutex, MutexGuard},
};

/// Runs of about the same size that are merged into one
const RUNS_MERGED_MIN: usize = 4;

/// Largest table that is made
const TABLE_BYTES_MAX: u64 = 64 * 1_024 * 1_024;

/// The tables of a tree that are known to be damaged, and their files
#[derive(Default)]
pub struct Aside(Mutex<BTreeMap<TableId, PathBuf>>);

impl Aside {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<TableId, PathBuf>> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The files of all of them.
    pub fn files(&self) -> Vec<PathBuf> {
        self.lock().values().cloned().collect()
    }

    /// Looks which of these tables are damaged. Says whether any of them is.
    pub(crate) fn look_through(&self, tables: impl Iterator<Item = Table>) -> bool {
        let mut found = false;
        for table in tables {
            if let Err(e) = table.verify() {
                if e.is_damage() {
                    log::error!("Leaving {} aside: {e:?}", table.path.display());
                    self.lock().insert(table.id(), (*table.path).clone());
                    found = true;
                }
            }
        }
        found
    }

    /// What to merge while there are damaged tables; none, if there are not.
    pub(crate) fn choose(&self, version: &Version, hidden: &HiddenSet) -> Option<Choice> {
        let mut damaged = self.lock();
        damaged.retain(|id, _| version.get_table(*id).is_some());
        (!damaged.is_empty()).then(|| choose(version, |id| damaged.contains_key(&id), hidden))
    }
}

fn choose(
    version: &Version,
    is_damaged: impl Fn(TableId) -> bool,
    hidden: &HiddenSet,
) -> Choice {
    let mut barriers: Vec<&KeyRange> = vec![];
    let mut runs: Vec<(u64, Vec<TableId>)> = vec![];

    // From the newest to the oldest: what overlaps with a newer table that stays has to stay as well.
    for run in version.l0().iter() {
        let (mut size, mut ids) = (0, vec![]);
        for table in run.iter() {
            let range = table.key_range();
            if is_damaged(table.id())
                || hidden.is_hidden(table.id())
                || barriers.iter().any(|x| x.overlaps_with_key_range(range))
            {
                barriers.push(range);
            } else {
                size += table.file_size();
                ids.push(table.id());
            }
        }
        if !ids.is_empty() {
            runs.push((size, ids));
        }
    }

    let mut total = 0;
    let count = runs
        .iter()
        .take_while(|(size, _)| {
            let fits = total == 0 || *size <= 2 * total;
            total += size;
            fits
        })
        .count();
    if count < RUNS_MERGED_MIN {
        return Choice::DoNothing;
    }

    Choice::Merge(Input {
        table_ids: runs.into_iter().take(count).flat_map(|(_, ids)| ids).collect(),
        dest_level: 0,
        canonical_level: 1,
        target_size: TABLE_BYTES_MAX,
    })
}
