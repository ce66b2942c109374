//! What the state should hold after each commit, and random commits to make.

use event::Event;
use random::Random;
use std::collections::{BTreeMap, BTreeSet};

pub const BUCKETS: [&str; 3] = ["a", "ab", "lives"];
pub const QUEUES: [&str; 2] = ["first", "second"];
/// Counts how often each event of the first queue was handled.
pub const EFFECTS: &str = "effects";
/// Holds the number of the last commit.
pub const SERIAL: &str = "serial";

/// One change of one commit.
#[derive(Debug, Clone)]
pub enum Change {
    Set {
        bucket: &'static str,
        key: String,
        value: Vec<u8>,
        expires_ms: Option<u64>,
    },
    Delete {
        bucket: &'static str,
        key: String,
    },
    Push {
        queue: &'static str,
        id: String,
    },
    /// Handled: acked, counted in [`EFFECTS`], and passed on to the second queue if it was in the first.
    Handled {
        queue: &'static str,
        id: String,
    },
    Died {
        queue: &'static str,
        id: String,
    },
}

/// All that can be seen of a state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Model {
    /// Values, and when they are gone.
    pub values: BTreeMap<(String, String), (Vec<u8>, Option<u64>)>,
    pub queues: BTreeMap<&'static str, Vec<String>>,
    pub dead: BTreeMap<&'static str, BTreeSet<String>>,
    pub commits: u64,
}

impl Model {
    pub fn commit(&mut self, changes: &[Change]) {
        self.commits += 1;
        self.set(SERIAL, "n", self.commits.to_string().into_bytes(), None);
        for change in changes {
            match change {
                Change::Set { bucket, key, value, expires_ms } => self.set(bucket, key, value.clone(), *expires_ms),
                Change::Delete { bucket, key } => drop(self.values.remove(&((*bucket).to_owned(), key.clone()))),
                Change::Push { queue, id } => self.queues.entry(queue).or_default().push(id.clone()),
                Change::Handled { queue, id } => {
                    self.take(queue, id);
                    let place = (EFFECTS.to_owned(), format!("{queue} {id}"));
                    let count = self.values.get(&place).map_or(0, |(value, _)| number(value));
                    self.values.insert(place, ((count + 1).to_string().into_bytes(), None));
                    if *queue == QUEUES[0] {
                        self.queues.entry(QUEUES[1]).or_default().push(id.clone());
                    }
                }
                Change::Died { queue, id } => {
                    self.take(queue, id);
                    self.dead.entry(queue).or_default().insert(id.clone());
                }
            }
        }
    }

    /// What is there at `now_ms`, the clock's time.
    pub fn at(mut self, now_ms: u64) -> Self {
        self.values.retain(|_, (_, expires_ms)| expires_ms.is_none_or(|at| at > now_ms));
        self.values.values_mut().for_each(|(_, expires_ms)| *expires_ms = None);
        self.queues.retain(|_, ids| !ids.is_empty());
        self
    }

    /// What is not as in `right`, in words.
    pub fn unlike(&self, right: &Self) -> String {
        let mut unlike = String::new();
        let all: BTreeSet<_> = self.values.keys().chain(right.values.keys()).collect();
        for place in all {
            let lengths = [self, right].map(|model| model.values.get(place).map(|(value, _)| value.len()));
            if self.values.get(place) != right.values.get(place) {
                unlike += &format!("\n{place:?} has {:?} bytes and should have {:?}", lengths[0], lengths[1]);
            }
        }
        for queue in QUEUES {
            let ready = [self, right].map(|model| model.queues.get(queue));
            let dead = [self, right].map(|model| model.dead.get(queue));
            if ready[0] != ready[1] || dead[0] != dead[1] {
                unlike += &format!(
                    "\nqueue {queue} is\n{:?} {:?} and should be\n{:?} {:?}",
                    ready[0], dead[0], ready[1], dead[1]
                );
            }
        }
        unlike
    }

    fn set(&mut self, bucket: &str, key: &str, value: Vec<u8>, expires_ms: Option<u64>) {
        self.values.insert((bucket.to_owned(), key.to_owned()), (value, expires_ms));
    }

    fn take(&mut self, queue: &'static str, id: &str) {
        let ids = self.queues.entry(queue).or_default();
        let place = ids.iter().position(|held| held == id).expect("it was leased from there");
        ids.remove(place);
    }
}

pub fn number(value: &[u8]) -> u64 {
    std::str::from_utf8(value).unwrap().parse().unwrap()
}

/// Changes of one commit that need no lease.
pub fn changes(rng: &mut Random, serial: u64, now_ms: u64) -> Vec<Change> {
    let mut changes: Vec<Change> = Vec::new();
    for index in 0..rng.below(6) {
        let (bucket, key) = (BUCKETS[rng.below(3) as usize], format!("{:02}", rng.below(40)));
        changes.push(match rng.below(8) {
            0 => Change::Delete { bucket, key },
            1 | 2 => Change::Push { queue: QUEUES[rng.below(2) as usize], id: format!("{serial}.{index}") },
            _ => {
                let large = rng.below(12) == 0;
                let length = if large { rng.below(20_000) } else { rng.below(300) };
                let value = (0..length).map(|_| rng.next() as u8).collect();
                let expires_ms = (bucket == "lives").then(|| now_ms + 1 + rng.below(400));
                Change::Set { bucket, key, value, expires_ms }
            }
        });
    }
    changes
}

pub fn event(id: &str) -> Event {
    let data = id.repeat(1 + id.len() % 7 * 20).into_bytes();
    Event { id: id.to_owned(), source: "/test".into(), kind: "k".into(), data, ..Event::default() }
}
