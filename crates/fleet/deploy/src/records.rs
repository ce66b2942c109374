//! All records that a node knows: of each name the newest, and some before it, to go back to.

use crate::record::{Record, SignedRecord};
use manifest::Name;
use problem::{Code, Problem};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Deployments of one fleet, with those that were removed. Another one is refused.
pub const DEPLOYMENTS_MAX: usize = 1_000;
/// Bytes of all records that are kept. Where a new one would make more of them, earlier revisions of its deployment go;
/// beyond that it is refused. One that removes a deployment never is, and does not count.
pub const RECORDS_BYTES_MAX: usize = 16 << 20;
/// Revisions of one deployment that are kept, the newest record included. The oldest goes.
pub const REVISIONS_MAX: usize = 5;

/// See the top of this file.
#[derive(Debug, Clone, Default)]
pub struct Records(BTreeMap<Name, Known>);

#[derive(Debug, Clone)]
struct Known {
    newest: Arc<SignedRecord>,
    /// One of each other revision, the last one first.
    earlier: Vec<Arc<SignedRecord>>,
}

impl Records {
    /// Takes a record. Says whether it is newer than what was known; an older one is kept if its revision is not.
    /// Nothing has changed after an error.
    ///
    /// # Errors
    /// [`Code::DeploymentFull`]: there are [`DEPLOYMENTS_MAX`] others, or [`RECORDS_BYTES_MAX`] of all of them.
    pub fn put(&mut self, record: Arc<SignedRecord>) -> Result<bool, Problem> {
        let name = record.record().name.clone();
        if self.0.len() >= DEPLOYMENTS_MAX && !self.0.contains_key(&name) {
            let detail = format!("the fleet has {DEPLOYMENTS_MAX} deployments, which is the limit");
            return Err(Problem::new(Code::DeploymentFull, detail));
        }
        let before = self.0.get(&name);
        let is_newer = before.is_none_or(|known| record.record().serial > known.newest.record().serial);
        let others: usize = self.0.iter().filter(|(other, _)| **other != name).map(|(_, known)| known.bytes()).sum();
        let mut after = match before {
            Some(known) => known.with(record, is_newer),
            None => Known { newest: record, earlier: Vec::new() },
        };
        while others + after.bytes() > RECORDS_BYTES_MAX && after.earlier.pop().is_some() {}
        let bytes = others + after.bytes();
        // Older ones and removals make nothing larger: what is there may stay.
        if is_newer && after.newest.record().manifest.is_some() && bytes > RECORDS_BYTES_MAX {
            let detail = format!("all deployments would have {bytes} bytes, the limit is {RECORDS_BYTES_MAX}");
            let hint = "remove a deployment with `lighter fleet undeploy`, or make one smaller";
            return Err(Problem::new(Code::DeploymentFull, detail).with_hint(hint));
        }
        self.0.insert(name, after);
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
    /// What is kept when one more is known. Of a deployment that was removed nothing can be gone back to.
    fn with(&self, record: Arc<SignedRecord>, is_newer: bool) -> Self {
        let (newest, other) = if is_newer { (record, &self.newest) } else { (self.newest.clone(), &record) };
        let mut earlier = self.earlier.clone();
        let is_known = earlier.iter().any(|one| one.record().revision == other.record().revision);
        if other.record().manifest.is_some() && !is_known {
            earlier.push(other.clone());
        }
        earlier.retain(|one| newest.record().manifest.is_some() && one.record().revision != newest.record().revision);
        earlier.sort_by_key(|one| std::cmp::Reverse(one.record().revision));
        earlier.truncate(REVISIONS_MAX - 1);
        Self { newest, earlier }
    }

    /// Of the records that run something.
    fn bytes(&self) -> usize {
        let all = std::iter::once(&self.newest).chain(&self.earlier);
        all.filter(|record| record.record().manifest.is_some()).map(|record| record.bytes().len()).sum()
    }
}
