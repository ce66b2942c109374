//! Which queues are paused: their events wait, pushes go on. Kept in the state, so that a restart resumes nothing.

use api_types::Paused;
use parking_lot::RwLock;
use problem::{Code, Problem};
use serde::{Deserialize, Serialize};
use state::{Records, State};
use std::collections::BTreeSet;

/// Table of the state, and the one record in it.
const TABLE: &str = "pauses";
const KEY: &str = "queues";

/// Queues with a pause of their own.
const NAMES_MAX: usize = 10_000;

pub struct Pauses {
    records: Records,
    now: RwLock<Record>,
    /// Why all queues are paused, if nobody asked for it.
    reason: RwLock<String>,
    /// Held while it changes.
    changing: tokio::sync::Mutex<()>,
}

/// All queues or none, but for those named.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    all: bool,
    but: BTreeSet<String>,
}

impl Pauses {
    /// `reason`: why the node starts with all its queues paused, if it does.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn open(state: &State, reason: Option<&str>) -> Result<Self, Problem> {
        let records = state.records(TABLE);
        let damaged = |_| Problem::new(Code::StateCorrupt, "which queues are paused cannot be read");
        let mut now: Record = match records.get(KEY)? {
            Some(kept) => serde_json::from_slice(&kept).map_err(damaged)?,
            None => Record::default(),
        };
        if reason.is_some() && !now.all {
            now = Record { all: true, but: BTreeSet::new() };
        }
        let reason = RwLock::new(reason.unwrap_or("they were paused").to_owned());
        Ok(Self { records, now: RwLock::new(now), reason, changing: tokio::sync::Mutex::default() })
    }

    pub fn is_paused(&self, queue: &str) -> bool {
        let now = self.now.read();
        now.all != now.but.contains(queue)
    }

    /// Why all queues but some are paused; none if they are not.
    pub fn reason(&self) -> Option<String> {
        self.now.read().all.then(|| self.reason.read().clone())
    }

    pub fn get(&self) -> Paused {
        let now = self.now.read();
        Paused { all: now.all, but: now.but.iter().cloned().collect() }
    }

    /// Pauses or resumes these queues, or all if none are named. Durable when it returns.
    ///
    /// # Errors
    /// [`Code::ApiRequest`]: too many; those of the state.
    pub async fn set(&self, paused: bool, queues: &[String]) -> Result<(), Problem> {
        let _changing = self.changing.lock().await;
        let next = self.now.read().clone().with(paused, queues);
        if next.but.len() > NAMES_MAX {
            return Err(Problem::new(Code::ApiRequest, format!("more than {NAMES_MAX} queues differ from the others")));
        }
        let record = serde_json::to_vec(&next).expect("a record has only strings");
        self.records.put(&[(KEY, &record)]).await?;
        if paused && queues.is_empty() {
            "they were paused".clone_into(&mut self.reason.write());
        }
        *self.now.write() = next;
        Ok(())
    }
}

impl Record {
    fn with(mut self, paused: bool, queues: &[String]) -> Self {
        if queues.is_empty() {
            return Self { all: paused, but: BTreeSet::new() };
        }
        for queue in queues {
            match paused == self.all {
                true => drop(self.but.remove(queue)),
                false => drop(self.but.insert(queue.clone())),
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[tokio::test]
    async fn queues_are_paused_one_by_one_or_all_but_some_across_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open(folder.path(), state::Options::default()).unwrap();
        let pauses = Pauses::open(&state, None).unwrap();
        let paused = |pauses: &Pauses| ["a", "b", "c"].map(|queue| pauses.is_paused(queue));
        pauses.set(true, &names(&["a", "b"])).await.unwrap();
        pauses.set(false, &names(&["b"])).await.unwrap();
        assert_eq!((paused(&pauses), pauses.reason()), ([true, false, false], None));
        pauses.set(true, &[]).await.unwrap();
        assert_eq!(paused(&pauses), [true; 3]);
        pauses.set(false, &names(&["a", "b"])).await.unwrap();
        pauses.set(true, &names(&["a"])).await.unwrap();
        drop(pauses);
        let pauses = Pauses::open(&state, None).unwrap();
        assert_eq!((paused(&pauses), pauses.reason().as_deref()), ([true, false, true], Some("they were paused")));
        pauses.set(false, &[]).await.unwrap();
        assert_eq!((paused(&pauses), pauses.reason()), ([false; 3], None));
    }

    #[tokio::test]
    async fn a_node_that_starts_paused_says_why_and_the_next_one_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open(folder.path(), state::Options::default()).unwrap();
        let pauses = Pauses::open(&state, Some("six runs")).unwrap();
        assert_eq!((pauses.is_paused("a"), pauses.reason().as_deref()), (true, Some("six runs")));
        drop(pauses);
        assert!(!Pauses::open(&state, None).unwrap().is_paused("a"));
    }
}
