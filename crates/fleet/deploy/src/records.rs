//! All records that a node knows: of each name the newest, and some before it, to go back to.

use crate::record::{Record, SignedRecord};
use manifest::Name;
use problem::{Code, Problem};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Deployments of one fleet, with those that were removed. Another one is refused.
pub const DEPLOYMENTS_MAX: usize = 1_000;
/// Bytes of all records that are kept. A deployment beyond them is refused.
pub const RECORDS_BYTES_MAX: usize = 16 << 20;
/// Revisions of one deployment that are kept, the newest record included. The oldest goes.
pub const REVISIONS_MAX: usize = 5;

/// See the top of this file.
#[derive(Debug, Default)]
pub struct Records(BTreeMap<Name, Known>);

#[derive(Debug)]
struct Known {
    newest: Arc<SignedRecord>,
    /// One of each other revision, the last one first.
    earlier: Vec<Arc<SignedRecord>>,
}

impl Records {
    /// Takes a record. Says whether it is newer than what was known; an older one is kept if its revision is not.
    ///
    /// # Errors
    /// [`Code::DeploymentFull`]: there are [`DEPLOYMENTS_MAX`] others, or [`RECORDS_BYTES_MAX`] of all of them.
    pub fn put(&mut self, record: Arc<SignedRecord>) -> Result<bool, Problem> {
        let name = record.record().name.clone();
        if self.0.len() >= DEPLOYMENTS_MAX && !self.0.contains_key(&name) {
            let detail = format!("the fleet has {DEPLOYMENTS_MAX} deployments, which is the limit");
            return Err(Problem::new(Code::DeploymentFull, detail));
        }
        let bytes = self.bytes() + record.bytes().len();
        if bytes > RECORDS_BYTES_MAX {
            let detail =
                format!("all deployments with their revisions have {bytes} bytes, the limit is {RECORDS_BYTES_MAX}");
            return Err(Problem::new(Code::DeploymentFull, detail));
        }
        let Some(known) = self.0.get_mut(&name) else {
            self.0.insert(name, Known { newest: record, earlier: Vec::new() });
            return Ok(true);
        };
        let is_newer = record.record().serial > known.newest.record().serial;
        let other = if is_newer { std::mem::replace(&mut known.newest, record) } else { record };
        known.keep(other);
        Ok(is_newer)
    }

    /// The record that holds.
    pub fn get(&self, name: &str) -> Option<&Arc<SignedRecord>> {
        self.0.get(name).map(|known| &known.newest)
    }

    /// The records that hold, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<SignedRecord>> {
        self.0.values().map(|known| &known.newest)
    }

    /// The revisions of a name that can be gone back to, the last one first.
    pub fn earlier(&self, name: &str) -> impl Iterator<Item = &Record> {
        self.0.get(name).into_iter().flat_map(|known| known.earlier.iter().map(|record| record.record()))
    }

    /// All that is kept of a name: what is to be on disk.
    pub fn all(&self, name: &str) -> Vec<Arc<SignedRecord>> {
        let known = self.0.get(name).into_iter();
        known.flat_map(|known| std::iter::once(&known.newest).chain(&known.earlier)).cloned().collect()
    }

    /// The images of all revisions that are kept: what must not go from an anchor.
    pub fn images(&self) -> BTreeSet<String> {
        let all = self.0.values().flat_map(|known| std::iter::once(&known.newest).chain(&known.earlier));
        all.flat_map(|record| record.record().images()).collect()
    }

    fn bytes(&self) -> usize {
        let all = self.0.values().flat_map(|known| std::iter::once(&known.newest).chain(&known.earlier));
        all.map(|record| record.bytes().len()).sum()
    }

    /// The serials that hold.
    pub fn serials(&self) -> BTreeMap<Name, u64> {
        self.0.iter().map(|(name, known)| (name.clone(), known.newest.record().serial)).collect()
    }

    /// Nodes of one version that know the same have the same number here. For finding out, not for proof.
    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for (name, known) in &self.0 {
            (name.as_str(), known.newest.record().serial).hash(&mut hasher);
        }
        hasher.finish()
    }
}

impl Known {
    fn keep(&mut self, record: Arc<SignedRecord>) {
        let revision = record.record().revision;
        let has_manifest = record.record().manifest.is_some();
        self.earlier.retain(|one| one.record().revision != self.newest.record().revision);
        let is_known = self.earlier.iter().any(|one| one.record().revision == revision);
        if has_manifest && !is_known && revision != self.newest.record().revision {
            self.earlier.push(record);
        }
        self.earlier.sort_by_key(|one| std::cmp::Reverse(one.record().revision));
        self.earlier.truncate(REVISIONS_MAX - 1);
    }
}
