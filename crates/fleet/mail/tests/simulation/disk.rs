//! A disk of one household: commits in order, of which some first ones are durable.

use mail::{Records, Write};
use std::collections::{BTreeMap, VecDeque};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Default)]
pub struct Disk {
    now: Map,
    durable: Map,
    /// Commits that are not durable.
    unsynced: VecDeque<Vec<Write>>,
    /// The number of the last commit.
    pub number: u64,
}

/// A backup: what was durable, and the last commit in it.
#[derive(Clone)]
pub struct Backup {
    map: Map,
    pub number: u64,
}

impl Disk {
    pub fn commit(&mut self, writes: Vec<Write>) -> u64 {
        apply(&mut self.now, &writes);
        self.unsynced.push_back(writes);
        self.number += 1;
        self.number
    }

    /// All commits are durable now. The last of them.
    pub fn sync(&mut self) -> u64 {
        for writes in self.unsynced.drain(..) {
            apply(&mut self.durable, &writes);
        }
        self.number
    }

    pub fn unsynced(&self) -> u64 {
        self.unsynced.len() as u64
    }

    /// The power fails: some first ones of the unsynced commits survive. Returns the number of the last that does.
    pub fn cut(&mut self, survivors: u64) -> u64 {
        self.number -= self.unsynced.len() as u64 - survivors;
        self.unsynced.truncate(survivors as usize);
        self.sync();
        self.now = self.durable.clone();
        self.number
    }

    pub fn backup(&self) -> Backup {
        Backup { map: self.durable.clone(), number: self.number - self.unsynced() }
    }

    /// The content of `backup`. Numbers of commits go on.
    pub fn restore(&mut self, backup: &Backup) {
        self.unsynced.clear();
        self.now = backup.map.clone();
        self.durable = backup.map.clone();
    }

    pub fn all(&self) -> impl Iterator<Item = (&Vec<u8>, &Vec<u8>)> {
        self.now.iter()
    }

    pub fn with(&self, is_wanted: fn(&[u8]) -> bool) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.all().filter(|(key, _)| is_wanted(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}

impl Records for Disk {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.now.get(key).cloned()
    }
}

fn apply(map: &mut Map, writes: &[Write]) {
    for Write { key, value } in writes {
        match value {
            Some(value) => drop(map.insert(key.clone(), value.clone())),
            None => drop(map.remove(key)),
        }
    }
}
