//! What was pushed and what became of it, and whether that keeps the promises.

use crate::node::{Node, arrivals};
use mail::Notice;
use std::collections::BTreeMap;

/// What became of a push at its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// In its sender's durable history, or about to be.
    Kept,
    /// Its commit did not survive a power cut: it must never arrive.
    Gone,
    /// Its sender was restored from a backup of the time before: it may have arrived.
    Forgotten,
    /// Made by a home whose epoch is over: it must never arrive.
    Stale,
}

#[derive(Debug, Clone)]
pub struct Push {
    pub from: usize,
    pub to: usize,
    pub fate: Fate,
    /// The commit on the disk of its sender.
    pub commit: u64,
}

#[derive(Default)]
pub struct History {
    pub pushes: Vec<Push>,
    /// By sender and receiver.
    pub rolled_back: BTreeMap<(usize, usize), u64>,
    pub lost: BTreeMap<(usize, usize), u64>,
    /// The first push that must be in order: after the last restore of its sender.
    pub ordered_from: BTreeMap<usize, usize>,
}

impl History {
    /// The commits of `from` after `commit` are no more.
    pub fn undo(&mut self, from: usize, commit: u64, fate: Fate) {
        for push in self.pushes.iter_mut().filter(|push| push.from == from && push.commit > commit) {
            if push.fate == Fate::Kept {
                push.fate = fate;
            }
        }
    }

    pub fn note(&mut self, from: usize, to: usize, notice: Option<Notice>) -> Result<(), String> {
        match notice {
            Some(Notice::RolledBack { .. }) => *self.rolled_back.entry((from, to)).or_default() += 1,
            Some(Notice::Missing { number, .. }) => return Err(format!("{from} misses its letter {number}")),
            Some(Notice::Over { .. }) | None => {}
        }
        Ok(())
    }

    /// Looks at what is on the receivers' disks at the end.
    pub fn check(&self, homes: &[&Node]) -> Result<(), String> {
        let mut copies = vec![0_u64; self.pushes.len()];
        let mut missing: BTreeMap<(usize, usize), u64> = BTreeMap::new();
        for (to, node) in homes.iter().enumerate() {
            let mut last: BTreeMap<usize, usize> = BTreeMap::new();
            for (from, id) in arrivals(&node.disk)? {
                let push = self.pushes.get(id).filter(|push| push.from == from && push.to == to);
                let push = push.ok_or_else(|| format!("{to} got {id}, which {from} did not push to it"))?;
                if matches!(push.fate, Fate::Gone | Fate::Stale) {
                    return Err(format!("{to} got {id} of {from}, which is {:?}", push.fate));
                }
                copies[id] += 1;
                let is_fresh = id >= self.ordered_from.get(&from).copied().unwrap_or_default();
                if is_fresh && last.insert(from, id).is_some_and(|before| before >= id) && copies[id] == 1 {
                    return Err(format!("{to} got {id} of {from} out of order"));
                }
            }
        }
        for (id, push) in self.pushes.iter().enumerate().filter(|(_, push)| push.fate == Fate::Kept) {
            let way = (push.from, push.to);
            let copies_max = 1 + self.rolled_back.get(&way).copied().unwrap_or_default();
            if copies[id] > copies_max {
                return Err(format!("{id} arrived {} times, {copies_max} at most: {push:?}", copies[id]));
            }
            if copies[id] == 0 {
                *missing.entry(way).or_default() += 1;
            }
        }
        for (way, missing) in missing {
            let told = self.lost.get(&way).copied().unwrap_or_default();
            // With both ends restored, an old parcel can stand where a lost letter stood, and nobody is told: seed
            // 396029. contracts/fleet.md says so.
            let are_both_restored = [way.0, way.1].iter().all(|end| self.ordered_from.contains_key(end));
            if missing > told && !are_both_restored {
                return Err(format!("{missing} letters of {way:?} did not arrive, {told} were told to be lost"));
            }
        }
        Ok(())
    }
}
