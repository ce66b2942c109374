//! All tables and journals of one part as one row of keys, the newest state of each.

use crate::journal::{self, items};
use crate::whole;
use lsm_tree::salvage::{Piece, Pieces};
use lsm_tree::{InternalValue, ValueType};
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What is stored under a key.
pub struct Entry {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    pub is_doubtful: bool,
}

/// The newest of a key: its sequence number, and what is stored; none when it was deleted.
type Newest = (u64, Option<Vec<u8>>);

/// What could not be read, in words.
#[derive(Default)]
pub struct Losses(RefCell<Vec<String>>);

impl Losses {
    pub fn note(&self, what: String) {
        self.0.borrow_mut().push(what);
    }

    pub fn into_inner(self) -> Vec<String> {
        self.0.into_inner()
    }
}

/// Of each part its keys.
pub type Journals = BTreeMap<u64, BTreeMap<Vec<u8>, Newest>>;

/// Reads all sound batches of all journals.
pub fn journals(folder: &Path, damage: &Losses) -> Journals {
    let mut all = Journals::new();
    let numbers = journal::numbers(folder).unwrap_or_default();
    if numbers.is_empty() {
        damage.note(format!("{}: there is no journal", folder.display()));
    }
    for number in numbers {
        let path = journal::path_of(folder, number);
        let bytes = fs::read(&path).unwrap_or_else(|error| {
            damage.note(format!("{}: {error}", path.display()));
            Vec::new()
        });
        for offset in items(&bytes, |sequence, part, kind, key, value| {
            let newest = all.entry(part).or_default().entry(key.to_vec()).or_insert((0, None));
            if sequence >= newest.0 {
                *newest = (sequence, (kind == 0).then(|| value.to_vec()));
            }
        }) {
            damage.note(format!("{} is damaged at byte {offset}", path.display()));
        }
    }
    all
}

/// One table on its way through.
struct Source {
    path: PathBuf,
    pieces: Pieces,
    items: VecDeque<InternalValue>,
    /// Whether its last key has been read.
    is_complete: bool,
}

impl Source {
    /// The next item, and whether there is a hole before it. None at the end, with a hole or without.
    fn next(&mut self, damage: &Losses) -> (Option<InternalValue>, bool) {
        let mut has_hole = false;
        loop {
            if let Some(item) = self.items.pop_front() {
                self.is_complete |= self.pieces.last_key() == Some(&item.key.user_key);
                return (Some(item), has_hole);
            }
            match self.pieces.next() {
                Some(Piece::Items(items)) => self.items = items.into(),
                Some(Piece::Hole { offset }) => {
                    has_hole = true;
                    damage.note(format!("{} is damaged at byte {offset}", self.path.display()));
                }
                // Damage behind the data costs nothing.
                None => return (None, has_hole && !self.is_complete),
            }
        }
    }
}

/// The keys of a part in order.
pub struct Merged<'a> {
    sources: Vec<Source>,
    /// The next item of each table, by key.
    heap: BinaryHeap<Reverse<(Vec<u8>, usize)>>,
    heads: Vec<Option<InternalValue>>,
    /// Tables that have a hole before their next item, or before their end.
    gaps: BTreeSet<usize>,
    /// A whole table is missing: everything is in doubt.
    is_lacking: bool,
    journal: BTreeMap<Vec<u8>, Newest>,
    damage: &'a Losses,
}

impl<'a> Merged<'a> {
    pub fn new(folder: &Path, part: u64, journal: BTreeMap<Vec<u8>, Newest>, damage: &'a Losses) -> Self {
        let folder = folder.join(whole::PARTS).join(part.to_string());
        let (mut sources, mut is_lacking) = (Vec::new(), false);
        for path in tables(&folder, damage) {
            match Pieces::open(&path) {
                Ok(pieces) => sources.push(Source { path, pieces, items: VecDeque::new(), is_complete: false }),
                Err(error) => {
                    is_lacking = true;
                    damage.note(format!("{}: {error}", path.display()));
                }
            }
        }
        let heads = sources.iter().map(|_| None).collect();
        let mut merged =
            Self { sources, heap: BinaryHeap::new(), heads, gaps: BTreeSet::new(), is_lacking, journal, damage };
        (0..merged.sources.len()).for_each(|at| merged.advance(at));
        merged
    }

    fn advance(&mut self, at: usize) {
        let (item, has_hole) = self.sources[at].next(self.damage);
        if has_hole {
            self.gaps.insert(at);
        } else {
            self.gaps.remove(&at);
        }
        if let Some(item) = &item {
            self.heap.push(Reverse((item.key.user_key.to_vec(), at)));
        }
        self.heads[at] = item;
    }
}

impl Iterator for Merged<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        loop {
            let in_tables = self.heap.peek().map(|Reverse((key, _))| key);
            let in_journal = self.journal.first_key_value().map(|(key, _)| key);
            let key = match (in_tables, in_journal) {
                (Some(table), Some(journal)) => table.min(journal).clone(),
                (one, other) => one.or(other)?.clone(),
            };
            let mut newest: Newest = self.journal.remove(&key).unwrap_or((0, None));
            let is_in_journal = newest.0 > 0;
            while let Some(Reverse((_, at))) = self.heap.peek().filter(|Reverse((next, _))| *next == key).cloned() {
                self.heap.pop();
                let item = self.heads[at].take().expect("its key is in the heap");
                let is_value = item.key.value_type == ValueType::Value;
                if item.key.seqno >= newest.0 {
                    newest = (item.key.seqno, is_value.then(|| item.value.to_vec()));
                }
                // The hole, if there was one, ended with this item.
                self.gaps.remove(&at);
                self.advance(at);
            }
            // What is in a journal is newer than what is in any table, or the same.
            let is_doubtful = !is_in_journal && (self.is_lacking || !self.gaps.is_empty());
            if let Some(value) = newest.1 {
                return Some(Entry { key, value, is_doubtful });
            }
        }
    }
}

/// The tables of a part: those that its list names, or, where that cannot be read, all that are there.
fn tables(part: &Path, damage: &Losses) -> Vec<PathBuf> {
    let folder = part.join(whole::TABLES);
    let listed = std::panic::catch_unwind(|| lsm_tree::salvage::table_ids(part));
    match listed {
        Ok(Ok(ids)) => return ids.into_iter().map(|id| folder.join(id.to_string())).collect(),
        Ok(Err(error)) => damage.note(format!("{}: the list of its tables cannot be read: {error}", part.display())),
        Err(_) => damage.note(format!("{}: the list of its tables cannot be read", part.display())),
    }
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) => {
            if error.kind() != io::ErrorKind::NotFound {
                damage.note(format!("{}: {error}", folder.display()));
            }
            return Vec::new();
        }
    };
    entries.flatten().map(|entry| entry.path()).collect()
}
