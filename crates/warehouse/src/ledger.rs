//! What is stored, how large it is and when it was last used; decides what to evict. Pure: touches no disk.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::SystemTime;

/// One section of the warehouse: the images, or the artefacts.
#[derive(Debug)]
pub(crate) struct Ledger<K, D> {
    entries: HashMap<K, LedgerEntry<D>>,
    /// Of all entries.
    stored_bytes: u64,
    /// Promised to writers that have not finished.
    reserved_bytes: u64,
    max_bytes: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct LedgerEntry<D> {
    pub bytes: u64,
    pub used: SystemTime,
    pub detail: D,
}

/// When an entry has to go: the lower first. Entries of one turn go in the order of their last use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Turn {
    First,
    Later,
    Never,
}

/// How room can be made.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Room<K> {
    /// What has to go, in this order.
    pub victims: Vec<K>,
    /// How much is in use, if even without the victims there is no room.
    pub held_bytes: Option<u64>,
}

impl<K: Clone + Eq + Hash + Ord, D> Ledger<K, D> {
    pub fn new(max_bytes: u64) -> Self {
        Self { entries: HashMap::new(), stored_bytes: 0, reserved_bytes: 0, max_bytes }
    }

    pub fn get(&self, key: &K) -> Option<&LedgerEntry<D>> {
        self.entries.get(key)
    }

    pub fn get_mut(&mut self, key: &K) -> Option<&mut LedgerEntry<D>> {
        self.entries.get_mut(key)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&K, &LedgerEntry<D>)> {
        self.entries.iter()
    }

    pub fn bytes(&self) -> u64 {
        self.stored_bytes
    }

    /// Replaces the entry of the same key and returns it.
    pub fn insert(&mut self, key: K, entry: LedgerEntry<D>) -> Option<LedgerEntry<D>> {
        self.stored_bytes += entry.bytes;
        let replaced = self.entries.insert(key, entry);
        self.stored_bytes -= replaced.as_ref().map_or(0, |entry| entry.bytes);
        replaced
    }

    pub fn remove(&mut self, key: &K) -> Option<LedgerEntry<D>> {
        let removed = self.entries.remove(key)?;
        self.stored_bytes -= removed.bytes;
        Some(removed)
    }

    pub fn reserve(&mut self, bytes: u64) {
        self.reserved_bytes += bytes;
    }

    pub fn release(&mut self, bytes: u64) {
        assert!(bytes <= self.reserved_bytes, "more was released than reserved");
        self.reserved_bytes -= bytes;
    }

    /// What has to go before `bytes` more fit.
    pub fn room_for(&self, bytes: u64, turn: impl Fn(&K) -> Turn) -> Room<K> {
        let mut over =
            self.stored_bytes.saturating_add(self.reserved_bytes).saturating_add(bytes).saturating_sub(self.max_bytes);
        if over == 0 {
            return Room { victims: Vec::new(), held_bytes: None };
        }
        let mut candidates: Vec<(Turn, SystemTime, &K, u64)> = self
            .entries
            .iter()
            .map(|(key, entry)| (turn(key), entry.used, key, entry.bytes))
            .filter(|(turn, ..)| *turn != Turn::Never)
            .collect();
        candidates.sort_unstable();
        let mut victims = Vec::new();
        let mut gone_bytes = 0;
        for (_, _, key, bytes) in candidates {
            victims.push(key.clone());
            gone_bytes += bytes;
            over = over.saturating_sub(bytes);
            if over == 0 {
                return Room { victims, held_bytes: None };
            }
        }
        Room { victims, held_bytes: Some(self.stored_bytes - gone_bytes + self.reserved_bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn ledger(entries: &[(&'static str, u64, u64)]) -> Ledger<&'static str, ()> {
        let mut ledger = Ledger::new(100);
        for (key, bytes, used) in entries {
            let used = SystemTime::UNIX_EPOCH + Duration::from_secs(*used);
            ledger.insert(*key, LedgerEntry { bytes: *bytes, used, detail: () });
        }
        ledger
    }

    fn room(victims: &[&'static str], held_bytes: Option<u64>) -> Room<&'static str> {
        Room { victims: victims.to_vec(), held_bytes }
    }

    fn turn(key: &&'static str) -> Turn {
        match key.as_bytes()[0] {
            b'o' => Turn::First,
            b'p' => Turn::Never,
            _ => Turn::Later,
        }
    }

    #[test]
    fn the_least_recently_used_goes_first_and_no_more_than_needed() {
        let ledger = ledger(&[("a", 40, 3), ("b", 30, 1), ("c", 30, 2)]);
        assert_eq!(ledger.room_for(0, turn), room(&[], None));
        assert_eq!(ledger.room_for(30, turn), room(&["b"], None));
        assert_eq!(ledger.room_for(31, turn), room(&["b", "c"], None));
        assert_eq!(ledger.room_for(100, turn), room(&["b", "c", "a"], None));
    }

    #[test]
    fn what_is_old_goes_before_what_was_used_long_ago_and_what_is_pinned_never() {
        let ledger = ledger(&[("a", 20, 1), ("old", 20, 9), ("pinned", 60, 0)]);
        assert_eq!(ledger.room_for(20, turn), room(&["old"], None));
        assert_eq!(ledger.room_for(40, turn), room(&["old", "a"], None));
        assert_eq!(ledger.room_for(41, turn), room(&["old", "a"], Some(60)));
        assert_eq!(ledger.room_for(u64::MAX, turn), room(&["old", "a"], Some(60)));
    }

    #[test]
    fn what_writers_reserved_counts_and_a_replaced_entry_does_not() {
        let mut ledger = ledger(&[("a", 40, 1)]);
        ledger.reserve(50);
        assert_eq!(ledger.room_for(11, turn), room(&["a"], None));
        assert_eq!(ledger.room_for(51, turn), room(&["a"], Some(50)));
        ledger.release(50);
        let replaced = ledger.insert("a", LedgerEntry { bytes: 100, used: SystemTime::UNIX_EPOCH, detail: () });
        assert_eq!((replaced.unwrap().bytes, ledger.bytes()), (40, 100));
        ledger.remove(&"a");
        assert_eq!(ledger.bytes(), 0);
    }
}
