//! What a node keeps on disk of the fleet's deployments, in the folder of the fleet.
//!
//! ```text
//!   fleet/deployments/NAME.SERIAL    records as they were signed: the newest, and earlier revisions
//!         deployed.json              what this node runs of each: what goes when it is no longer for this node
//! ```

use crate::functions::Leaving;
use fleet_deploy::record::DOCUMENT_BYTES_MAX;
use fleet_deploy::{Records, SignedRecord};
use fleet_trust::PublicKey;
use manifest::{Manifest, Name};
use parking_lot::Mutex;
use problem::{Code, Problem};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use whole_file::write_new;

/// In the folder of the fleet.
pub const DEPLOYED: &str = "deployed.json";

/// What of one deployment is on this node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Owned {
    pub functions: BTreeSet<Name>,
    pub sinks: BTreeSet<Name>,
}

/// The two. Clones write one after the other, and so do those who learn.
#[derive(Clone)]
pub struct Shelf {
    folder: PathBuf,
    records: PathBuf,
    owned: Arc<Mutex<BTreeMap<Name, Owned>>>,
    writing: Arc<Mutex<()>>,
}

impl Owned {
    pub fn of(manifest: &Manifest) -> Self {
        Self { functions: manifest.function.keys().cloned().collect(), sinks: manifest.sink.keys().cloned().collect() }
    }

    /// What of it is not in the other one.
    pub fn without(&self, other: &Self) -> Leaving {
        Leaving {
            functions: self.functions.difference(&other.functions).cloned().collect(),
            sinks: self.sinks.difference(&other.sinks).cloned().collect(),
        }
    }
}

impl Shelf {
    /// # Errors
    /// [`Code::DataUnusable`], as of all here.
    pub fn open(folder: &Path) -> Result<Self, Problem> {
        let records = folder.join("deployments");
        DirBuilder::new().recursive(true).mode(0o700).create(&records).map_err(|error| unusable(&records, &error))?;
        let owned = match fs::read(folder.join(DEPLOYED)) {
            Ok(bytes) => {
                serde_json::from_slice(&bytes).map_err(|error| unusable(&folder.join(DEPLOYED), &error.into()))?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(unusable(&folder.join(DEPLOYED), &error)),
        };
        let (owned, writing) = (Arc::new(Mutex::new(owned)), Arc::default());
        Ok(Self { folder: folder.to_owned(), records, owned, writing })
    }

    /// All records. One that is damaged is named and left out: other nodes have it too.
    pub fn records(&self, fleet: &str, ca: &PublicKey) -> Result<Records, Problem> {
        let mut records = Records::default();
        for entry in fs::read_dir(&self.records).map_err(|error| unusable(&self.records, &error))? {
            let path = entry.map_err(|error| unusable(&self.records, &error))?.path();
            let mut bytes = Vec::new();
            // One byte more is enough to see that it is too long.
            let read =
                File::open(&path).and_then(|file| file.take(DOCUMENT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes));
            let record = read.map_err(|error| unusable(&path, &error));
            let put =
                record.and_then(|_| SignedRecord::read(&bytes, fleet, ca)).and_then(|one| records.put(Arc::new(one)));
            if let Err(problem) = put {
                let (path, code) = (path.display(), problem.code);
                tracing::warn!("{path}: {code} {}; other nodes are asked for it", problem.detail);
            }
        }
        Ok(records)
    }

    /// Takes a record: durable first, and only then among those that are known. Says whether it is newer. Whoever
    /// changes `records` does it here, so what is written was made from what holds.
    ///
    /// # Errors
    /// What [`Records::put`] says, and those of the disk: it is not known, and may come again.
    pub fn learn(&self, records: &Mutex<Records>, record: SignedRecord) -> Result<bool, Problem> {
        let _one_at_a_time = self.writing.lock();
        let name = record.record().name.clone();
        let (before, mut changed) = {
            let records = records.lock();
            (records.all(name.as_str()), records.clone())
        };
        let is_news = changed.put(Arc::new(record))?;
        let kept = changed.all(name.as_str());
        let is_same =
            before.len() == kept.len() && before.iter().zip(&kept).all(|(one, other)| Arc::ptr_eq(one, other));
        if !is_same {
            self.keep(&name, &kept)?;
            *records.lock() = changed;
        }
        Ok(is_news)
    }

    /// Keeps these records of a name and no others. Durable once `Ok`.
    fn keep(&self, name: &Name, records: &[Arc<SignedRecord>]) -> Result<(), Problem> {
        let file = |record: &SignedRecord| format!("{name}.{}", record.record().serial);
        let kept: BTreeSet<String> = records.iter().map(|record| file(record)).collect();
        // The newest last: until it is there, what it replaces holds.
        for record in records.iter().rev() {
            let path = self.records.join(file(record));
            // Another one of this serial was never known: writing it had failed half-way.
            if fs::read(&path).ok().as_deref() != Some(record.bytes()) {
                write_new(&self.records, &file(record), record.bytes()).map_err(|error| unusable(&path, &error))?;
            }
        }
        // What is left over does no harm, and goes the next time.
        let others = fs::read_dir(&self.records).into_iter().flatten().flatten();
        for entry in others {
            let other = entry.file_name().to_string_lossy().into_owned();
            if other.rsplit_once('.').is_some_and(|(owner, _)| owner == name.as_str())
                && !kept.contains(&other)
                && let Err(error) = fs::remove_file(entry.path())
            {
                tracing::warn!("{}: {error}; it stays for now", entry.path().display());
            }
        }
        Ok(())
    }

    /// What of a deployment is on this node.
    pub fn owned(&self, name: &Name) -> Owned {
        self.owned.lock().get(name).cloned().unwrap_or_default()
    }

    /// The deployment that a function or a sink on this node belongs to.
    pub fn owner(&self, part: &str) -> Option<Name> {
        let owned = self.owned.lock();
        let found = owned.iter().find(|(_, owned)| owned.functions.contains(part) || owned.sinks.contains(part));
        found.map(|(name, _)| name.clone())
    }

    /// Notes what of a deployment is about to be on this node, beside what is. Other deployments have it no more, so
    /// none removes it. Durable once `Ok`.
    pub fn take(&self, name: &Name, parts: &Owned) -> Result<(), Problem> {
        self.change(|all| {
            for (other, owned) in all.iter_mut() {
                owned.functions.retain(|function| other == name || !parts.functions.contains(function));
                owned.sinks.retain(|sink| other == name || !parts.sinks.contains(sink));
            }
            let owned = all.entry(name.clone()).or_default();
            owned.functions.extend(parts.functions.iter().cloned());
            owned.sinks.extend(parts.sinks.iter().cloned());
        })
    }

    /// Notes that this is gone. Durable once `Ok`.
    pub fn give_up(&self, name: &Name, parts: &Leaving) -> Result<(), Problem> {
        self.change(|all| {
            let Some(owned) = all.get_mut(name) else { return };
            owned.functions.retain(|function| !parts.functions.contains(function));
            owned.sinks.retain(|sink| !parts.sinks.contains(sink));
        })
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<Name, Owned>)) -> Result<(), Problem> {
        let _one_at_a_time = self.writing.lock();
        let mut all = self.owned.lock().clone();
        change(&mut all);
        all.retain(|_, owned| *owned != Owned::default());
        if *self.owned.lock() == all {
            return Ok(());
        }
        let bytes = serde_json::to_vec(&all).map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
        write_new(&self.folder, DEPLOYED, &bytes).map_err(|error| unusable(&self.folder.join(DEPLOYED), &error))?;
        *self.owned.lock() = all;
        Ok(())
    }
}

pub fn unusable(path: &Path, error: &io::Error) -> Problem {
    Problem::new(Code::DataUnusable, format!("{}: {error}", path.display()))
}
