//! Copies what can be read out of a damaged state, and changes nothing in it.
//!
//! ```text
//! tables, block by block ─┐
//! tables                 ─┼─▶ merged by key, the newest of each ─▶ keys of buckets, events of queues, records
//! journals, batch by batch┘         │
//!                                   └─ behind a damaged block: doubtful, for what replaced or deleted it may be lost
//! ```
//! It does not open the database, which would tidy up and needs all of its files; it reads each block and each batch by
//! itself. In the same part as a damaged place, only the keys from the block before to the block after it are in doubt.

mod merge;

use crate::clock::Moment;
use crate::envelope;
use crate::keys::{self, BucketId};
use crate::lock::DataLock;
use crate::names::Holding;
use crate::queue::keys::{Numbers, due_of, name_of, place_of, sequence_of};
use crate::queue::{Part, record};
use crate::transfer;
use event::Event;
use merge::{Entry, Losses, Merged};
use problem::{Code, Problem};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// The numbers of the parts, as the database gave them at the first start.
const BUCKETS: u64 = 1;
const NODE: u64 = 2;
const QUEUES: u64 = 3;

/// Something that could be read.
#[derive(Debug)]
pub struct Found {
    pub what: What,
    /// A newer state of it may have stood in a damaged place: it may be old, or deleted.
    pub is_doubtful: bool,
}

/// What it is.
#[derive(Debug)]
pub enum What {
    /// A key of a bucket, as a line of an export with its newline. The name of a bucket whose record is lost is
    /// `bucket-` and a number.
    Key { bucket: String, line: Vec<u8> },
    /// An event. The name of a queue whose numbers are lost is `queue-` and a number.
    Event { queue: String, part: Part, event: Box<Event> },
    /// A record of the node.
    Record { table: String, key: String, value: Vec<u8> },
}

/// Reads all that can be read in the data folder `data`, which no node may use meanwhile, and gives it to `take` in the
/// order of keys. Says what could not be read.
///
/// # Errors
/// `DataLocked` while a node uses the folder; `DataUnusable` when there is no state in it; those of `take`.
pub fn salvage(data: &Path, mut take: impl FnMut(Found) -> io::Result<()>) -> Result<Vec<String>, Problem> {
    let folder = data.join("state");
    if !folder.is_dir() {
        return Err(Problem::new(Code::DataUnusable, format!("{} holds no state", data.display())));
    }
    let _lock = DataLock::hold(data)?;
    let damage = Losses::default();
    let mut journals = merge::journals(&folder, &damage);
    let failed = |error: io::Error| crate::error::from_io("write what was read", &error);

    let mut books = Books::default();
    let entries = Merged::new(&folder, BUCKETS, journals.remove(&BUCKETS).unwrap_or_default(), &damage);
    for entry in entries {
        if entry.key == keys::CLOCK {
            books.moment = Moment::decode(&entry.value);
        } else if let Some((name, Holding { id, .. })) = keys::named(&entry.key).zip(Holding::decode(&entry.value)) {
            books.names.insert(id, name.to_owned());
        } else if let Some(found) = key(&entry, &books, &damage) {
            take(found).map_err(failed)?;
        }
    }
    let entries = Merged::new(&folder, NODE, journals.remove(&NODE).unwrap_or_default(), &damage);
    for Entry { key, value, is_doubtful } in entries {
        let Some((table, name)) = keys::of_record(&key) else { continue };
        let what = What::Record { table: table.to_owned(), key: name.to_owned(), value };
        take(Found { what, is_doubtful }).map_err(failed)?;
    }
    let mut names = BTreeMap::new();
    let entries = Merged::new(&folder, QUEUES, journals.remove(&QUEUES).unwrap_or_default(), &damage);
    for entry in entries {
        if let Some((name, numbers)) = name_of(&entry.key).zip(Numbers::decode(&entry.value)) {
            names.insert(numbers.id, name.to_owned());
        } else if let Some(found) = event(entry, &names, &damage) {
            take(found).map_err(failed)?;
        }
    }
    Ok(damage.into_inner())
}

/// What comes before the entries of buckets.
#[derive(Default)]
struct Books {
    moment: Option<Moment>,
    names: BTreeMap<BucketId, String>,
}

impl Books {
    /// Bucket and key of an entry, in the present format or in format 1, where they stood as in a record of the node.
    fn place<'a>(&self, key: &'a [u8]) -> Option<(String, &'a str)> {
        let Some((id, _)) = keys::parts(key) else {
            let (bucket, key) = keys::of_record(key).filter(|(bucket, _)| keys::is_name(bucket))?;
            return Some((bucket.to_owned(), key));
        };
        let name = self.names.get(&id).cloned().unwrap_or_else(|| format!("bucket-{id}"));
        Some((name, keys::decode(keys::bucket_of(key), key)?))
    }
}

fn key(entry: &Entry, books: &Books, damage: &Losses) -> Option<Found> {
    let (bucket, key) = books.place(&entry.key)?;
    let Ok((header, value)) = envelope::open(&entry.value) else {
        damage.note(format!("bucket {bucket:?}: the value of {key:?} is of no kind that is known"));
        return None;
    };
    let wall =
        |at: u64| books.moment.map_or(at, |moment| moment.wall_ms.saturating_add(at.saturating_sub(moment.own_ms)));
    let line = transfer::line(key, value, header.expires_ms.map(wall));
    Some(Found { what: What::Key { bucket, line }, is_doubtful: entry.is_doubtful })
}

fn event(entry: Entry, names: &BTreeMap<u32, String>, damage: &Losses) -> Option<Found> {
    let (id, part) = place_of(&entry.key)?;
    match part {
        Part::Delayed => drop(due_of(&entry.key)?),
        Part::Ready | Part::Dead => drop(sequence_of(&entry.key)?),
    }
    let queue = names.get(&id).cloned().unwrap_or_else(|| format!("queue-{id}"));
    let Some((_, event)) = record::decode(&entry.value) else {
        damage.note(format!("queue {queue:?}: an event cannot be read"));
        return None;
    };
    Some(Found { what: What::Event { queue, part, event: Box::new(event) }, is_doubtful: entry.is_doubtful })
}
