//! What a deployment puts on the node besides its functions: queues, sinks, bounds of buckets and of workflows; and
//! which workflows have ended.
//!
//! Each is a record of its own in the state, written in the batch of the functions it was deployed with. They have no
//! versions: a queue holds events and a bucket holds values whatever became of the functions, so rolling a function
//! back leaves them as they are.

use crate::records;
use manifest::{Bucket, Manifest, Name, Queue, Sink, Workflow};
use problem::{Code, Problem};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use state::{Batch, State};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

const QUEUES: &str = "queues";
const SINKS: &str = "sinks";
const BUCKETS: &str = "buckets";
const WORKFLOWS: &str = "workflows";
const ENDED: &str = "ended";

/// Functions and sinks remembered as those a queue or bucket was deployed with.
const WITH_MAX: usize = 32;

/// All parts by name.
#[derive(Debug, Clone, Default)]
pub struct Parts {
    pub queues: BTreeMap<Name, Arc<Part<Queue>>>,
    pub sinks: BTreeMap<Name, Arc<Part<Sink>>>,
    pub buckets: BTreeMap<String, Arc<Part<Bucket>>>,
    /// With all their functions named.
    pub workflows: BTreeMap<Name, Arc<Part<Workflow>>>,
    /// Functions and sinks that handle nothing until they are deployed again.
    pub ended: BTreeMap<Name, Arc<Ended>>,
}

/// A queue, sink, bucket or workflow as deployed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part<T> {
    pub what: Arc<T>,
    /// Functions and sinks of the manifest it was deployed with, those that use it first. A manifest with one of them
    /// may change it; another one may not.
    pub with: BTreeSet<Name>,
    pub deployed_ms: u64,
}

/// Why a workflow has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ended {
    pub reason: String,
    pub at_ms: u64,
}

/// One change; without a value the part goes.
#[derive(Debug, Clone)]
pub enum PartChange {
    Queue(Name, Option<Arc<Part<Queue>>>),
    Sink(Name, Option<Arc<Part<Sink>>>),
    Bucket(String, Option<Arc<Part<Bucket>>>),
    Workflow(Name, Option<Arc<Part<Workflow>>>),
    Ended(Name, Option<Arc<Ended>>),
}

impl Parts {
    /// # Errors
    /// [`Code::StateCorrupt`] names the record that cannot be read.
    pub fn restore(state: &State) -> Result<Self, Problem> {
        Ok(Self {
            queues: read(state, QUEUES)?,
            sinks: read(state, SINKS)?,
            buckets: read(state, BUCKETS)?,
            workflows: read(state, WORKFLOWS)?,
            ended: read(state, ENDED)?,
        })
    }

    pub fn apply(&mut self, change: &PartChange) {
        match change {
            PartChange::Queue(name, part) => put(&mut self.queues, name, part),
            PartChange::Sink(name, part) => put(&mut self.sinks, name, part),
            PartChange::Bucket(name, part) => put(&mut self.buckets, name, part),
            PartChange::Workflow(name, part) => put(&mut self.workflows, name, part),
            PartChange::Ended(name, ended) => put(&mut self.ended, name, ended),
        }
    }

    /// What this manifest changes of them. `exists` says whether a function of this name is deployed.
    ///
    /// # Errors
    /// [`Code::ManifestConflict`]: a queue, bucket or workflow belongs to another manifest and is something else there.
    pub fn changes(
        &self,
        manifest: &Manifest,
        now_ms: u64,
        exists: impl Fn(&Name) -> bool,
    ) -> Result<Vec<PartChange>, Problem> {
        let exists = |name: &Name| self.sinks.contains_key(name) || exists(name);
        let mut changes = Vec::new();
        for (name, queue) in &manifest.queue {
            let with = with(manifest, |pushes, handles| pushes.contains(name) || handles == Some(name));
            let part = part(("queue", name), queue, self.queues.get(name), manifest, with, now_ms, exists)?;
            changes.extend(part.map(|part| PartChange::Queue(name.clone(), Some(part))));
        }
        for (name, bucket) in &manifest.bucket {
            let with = with(manifest, |_, _| false);
            let part = part(("bucket", name), bucket, self.buckets.get(name), manifest, with, now_ms, exists)?;
            changes.extend(part.map(|part| PartChange::Bucket(name.clone(), Some(part))));
        }
        for (name, sink) in &manifest.sink {
            // A sink is replaced by its name, as a function is.
            if self.sinks.get(name).is_none_or(|part| *part.what != *sink) {
                let part = Part { what: Arc::new(sink.clone()), with: BTreeSet::new(), deployed_ms: now_ms };
                changes.push(PartChange::Sink(name.clone(), Some(Arc::new(part))));
            }
        }
        self.workflow_changes(manifest, now_ms, exists, &mut changes)?;
        let deployed = manifest.function.keys().chain(manifest.sink.keys());
        let ended = deployed.filter(|name| self.ended.contains_key(*name));
        changes.extend(ended.map(|name| PartChange::Ended(name.clone(), None)));
        Ok(changes)
    }

    /// A workflow goes when the manifest has all its functions and no longer says anything of it.
    fn workflow_changes(
        &self,
        manifest: &Manifest,
        now_ms: u64,
        exists: impl Fn(&Name) -> bool + Copy,
        changes: &mut Vec<PartChange>,
    ) -> Result<(), Problem> {
        for (name, workflow) in &manifest.workflow {
            let wanted = workflow.resolved(manifest);
            let with = wanted.functions.iter().cloned().take(WITH_MAX).collect();
            let part = part(("workflow", name), &wanted, self.workflows.get(name), manifest, with, now_ms, exists)?;
            changes.extend(part.map(|part| PartChange::Workflow(name.clone(), Some(part))));
        }
        for (name, part) in self.workflows.iter().filter(|(name, _)| !manifest.workflow.contains_key(*name)) {
            let (ours, others): (Vec<&Name>, Vec<&Name>) =
                part.what.functions.iter().partition(|step| manifest.function.contains_key(*step));
            if !ours.is_empty() && !others.iter().any(|step| exists(step)) {
                changes.push(PartChange::Workflow(name.clone(), None));
                continue;
            }
            let mut wanted = manifest.workflow.values().flat_map(|workflow| workflow.resolved(manifest).functions);
            if let Some(step) = wanted.find(|step| part.what.functions.contains(step)) {
                let detail = format!("function {:?} belongs to workflow {:?} already", step.as_str(), name.as_str());
                let hint = "deploy the manifest of that workflow without it first";
                return Err(Problem::new(Code::ManifestConflict, detail).with_hint(hint));
            }
        }
        Ok(())
    }
}

impl PartChange {
    /// The word for what it is, and its name.
    pub fn subject(&self) -> (&'static str, &str) {
        match self {
            Self::Queue(name, _) => ("queue", name.as_str()),
            Self::Sink(name, _) => ("sink", name.as_str()),
            Self::Bucket(name, _) => ("bucket", name.as_str()),
            Self::Workflow(name, _) => ("bounds of workflow", name.as_str()),
            Self::Ended(name, _) => ("workflow", name.as_str()),
        }
    }

    /// Writes it; says how many bytes.
    pub fn write(&self, batch: &mut Batch) -> Result<usize, Problem> {
        match self {
            Self::Queue(name, part) => write(batch, QUEUES, name.as_str(), part.as_ref()),
            Self::Sink(name, part) => write(batch, SINKS, name.as_str(), part.as_ref()),
            Self::Bucket(name, part) => write(batch, BUCKETS, name.as_str(), part.as_ref()),
            Self::Workflow(name, part) => write(batch, WORKFLOWS, name.as_str(), part.as_ref()),
            Self::Ended(name, ended) => write(batch, ENDED, name.as_str(), ended.as_ref()),
        }
    }
}

/// Functions and sinks of the manifest, those that use the part first.
fn with(manifest: &Manifest, uses: impl Fn(&[Name], Option<&Name>) -> bool) -> BTreeSet<Name> {
    let functions =
        manifest.function.iter().map(|(name, function)| (name, &*function.grants.push, function.handles(name)));
    let sinks = manifest.sink.iter().map(|(name, sink)| (name, &[][..], Some(&sink.queue)));
    let (users, others): (Vec<_>, Vec<_>) =
        functions.chain(sinks).partition(|(_, pushes, handles)| uses(pushes, *handles));
    users.into_iter().chain(others).map(|(name, ..)| name.clone()).take(WITH_MAX).collect()
}

/// The part as it should be, if it is not so already.
fn part<T: Clone + PartialEq>(
    (kind, name): (&str, &dyn Display),
    wanted: &T,
    deployed: Option<&Arc<Part<T>>>,
    manifest: &Manifest,
    with: BTreeSet<Name>,
    now_ms: u64,
    exists: impl Fn(&Name) -> bool,
) -> Result<Option<Arc<Part<T>>>, Problem> {
    if let Some(deployed) = deployed {
        if *deployed.what == *wanted {
            return Ok(None);
        }
        let is_ours = |name: &Name| manifest.function.contains_key(name) || manifest.sink.contains_key(name);
        let mut owners = deployed.with.iter().filter(|name| exists(name)).peekable();
        if let Some(owner) = owners.peek().map(|owner| owner.to_string())
            && !owners.any(is_ours)
        {
            let detail = format!("{kind} \"{name}\" was deployed with {owner:?}, and is something else there");
            let hint = "configure it in one manifest, and only name it in the others";
            return Err(Problem::new(Code::ManifestConflict, detail).with_hint(hint));
        }
    }
    Ok(Some(Arc::new(Part { what: Arc::new(wanted.clone()), with, deployed_ms: now_ms })))
}

fn put<K: Ord + Clone, T>(parts: &mut BTreeMap<K, Arc<T>>, name: &K, part: &Option<Arc<T>>) {
    match part {
        Some(part) => _ = parts.insert(name.clone(), part.clone()),
        None => _ = parts.remove(name),
    }
}

fn write<T: Serialize>(batch: &mut Batch, table: &str, name: &str, part: Option<&Arc<T>>) -> Result<usize, Problem> {
    let Some(part) = part else {
        batch.delete(table, name)?;
        return Ok(0);
    };
    let record = serde_json::to_vec(part).expect("a part has only strings, numbers and lists");
    let bytes = record.len();
    if bytes > state::VALUE_BYTES_MAX {
        let detail = format!("{name:?} takes {bytes} bytes as JSON, the limit is {}", state::VALUE_BYTES_MAX);
        return Err(Problem::new(Code::ManifestValue, detail));
    }
    batch.put(table, name, record)?;
    Ok(bytes)
}

fn read<K, T>(state: &State, table: &str) -> Result<BTreeMap<K, Arc<T>>, Problem>
where
    K: FromStr<Err: Display> + Ord,
    T: DeserializeOwned,
{
    let mut parts = BTreeMap::new();
    records::each(&state.records(table), |key, record| {
        let corrupt = |why: &dyn Display| {
            Problem::new(Code::StateCorrupt, format!("the record {key:?} in the table {table}: {why}"))
        };
        let name = key.parse::<K>().map_err(|error| corrupt(&error))?;
        let part = serde_json::from_slice::<T>(record).map_err(|error| corrupt(&error))?;
        parts.insert(name, Arc::new(part));
        Ok(())
    })?;
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(text: &str) -> Manifest {
        manifest::parse(text).unwrap()
    }

    fn deployed(parts: &mut Parts, text: &str, functions: &[&str]) -> Result<usize, Problem> {
        let changes = parts.changes(&manifest(text), 1, |name| functions.contains(&name.as_str()))?;
        changes.iter().for_each(|change| parts.apply(change));
        Ok(changes.len())
    }

    const A: &str = "[function.a]\nimage = \"x\"\nqueue = \"readings\"\n[queue.readings]\nevents_max = 5\n";

    #[test]
    fn a_queue_is_changed_by_its_own_manifest_and_by_no_other() {
        let mut parts = Parts::default();
        assert_eq!(deployed(&mut parts, A, &[]), Ok(1));
        assert_eq!(deployed(&mut parts, A, &["a"]), Ok(0));
        assert_eq!(deployed(&mut parts, &A.replace('5', "6"), &["a"]), Ok(1));

        let b = "[function.b]\nimage = \"x\"\ngrants.push = [\"readings\"]\n[queue.readings]\nevents_max = 7\n";
        let problem = deployed(&mut parts, b, &["a"]).unwrap_err();
        assert_eq!(problem.code, Code::ManifestConflict);
        assert!(problem.detail.contains("deployed with \"a\""), "{}", problem.detail);
        assert_eq!(deployed(&mut parts, &b.replace('7', "6"), &["a"]), Ok(0), "it may say the same");
        assert_eq!(deployed(&mut parts, b, &[]), Ok(1), "once a is gone it belongs to nobody");
    }

    #[test]
    fn a_workflow_that_has_ended_goes_on_when_it_is_deployed_again() {
        let mut parts = Parts::default();
        deployed(&mut parts, A, &[]).unwrap();
        let ended = Ended { reason: "full".to_owned(), at_ms: 1 };
        parts.apply(&PartChange::Ended("a".parse().unwrap(), Some(Arc::new(ended))));
        assert_eq!(deployed(&mut parts, A, &["a"]), Ok(1));
        assert!(parts.ended.is_empty());
    }

    #[test]
    fn bounds_of_a_workflow_go_with_the_manifest_that_no_longer_has_them() {
        let mut parts = Parts::default();
        let bounds = "units.maximum = 2\n[workflow.w]\nunits_max = 2\n";
        let [plain, bounded] = ["", bounds].map(|lines| A.replace("[queue", &format!("{lines}[queue")));
        assert_eq!(deployed(&mut parts, &bounded, &[]), Ok(2));
        assert_eq!(parts.workflows["w"].what.functions[0].as_str(), "a");
        assert_eq!(deployed(&mut parts, &bounded, &["a"]), Ok(0));
        let other = bounded.replace("function.a", "function.b").replace("[workflow.w]", "[workflow.v]");
        let takes = other.replace("units_max", "functions = [\"b\"]\nunits_max");
        assert_eq!(deployed(&mut parts, &takes, &["a"]), Ok(1), "another workflow beside it");
        assert_eq!(deployed(&mut parts, &plain, &["a", "b"]), Ok(1));
        assert_eq!(parts.workflows.keys().map(Name::as_str).collect::<Vec<_>>(), ["v"]);
    }

    #[test]
    fn parts_are_read_back_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let state = State::open(folder.path(), state::Options::default()).unwrap();
        let text =
            format!("{A}[bucket.\"b.c\"]\nkeys_max = 3\n[sink.s]\nqueue = \"out\"\nwebhook.url = \"http://x/\"\n");
        let changes = Parts::default().changes(&manifest(&text), 7, |_| false).unwrap();
        let mut batch = Batch::default();
        changes.iter().for_each(|change| _ = change.write(&mut batch).unwrap());
        runtime.block_on(state.write_records(batch)).unwrap();
        let parts = Parts::restore(&state).unwrap();
        assert_eq!((parts.queues.len(), parts.sinks.len(), parts.buckets.len()), (1, 1, 1));
        assert_eq!(parts.queues["readings"].what.events_max, 5);
        assert_eq!(parts.buckets["b.c"].what.keys_max, Some(3));
        assert!(parts.queues["readings"].with.contains("a"));
    }
}
