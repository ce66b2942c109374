//! Which events are being handled, written where it survives the node: an event that ends the node is known at the next
//! start.
//!
//! ```text
//!   DATA/running    │ magic, boot │ slot │ slot │ slot …        128 bytes each
//!   a worker's slot:  sequence, try, queue: written over with each event it takes, emptied when it ends
//!                     and, of events that are handled together, which later ones of the queue
//! ```
//! Nothing here is synced: what is written to a file outlives the process that wrote it, however that ends. No event
//! causes a power cut, so what another boot of the machine left is ignored. The cost is one write of 128 bytes for each
//! event, and no waiting.

use parking_lot::Mutex;
use state::Leased;
use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// Workers that have a slot. An event taken by one more is not counted if it ends the node.
const SLOTS_MAX: u32 = 16_384;

const SLOT_BYTES: usize = 128;
const MAGIC: &[u8] = b"lighter running 1 ";
/// Where the name of the queue stands, after its length.
const NAME_AT: usize = 13;
/// Behind the longest name: how many later events there are, and a bit for each sequence that could be one.
const COUNT_AT: usize = NAME_AT + 64;
const LATER_AT: usize = COUNT_AT + 2;
/// How far the sequences of events may lie apart that are handled together.
pub const SPAN: u64 = 8 * (SLOT_BYTES - LATER_AT) as u64;

/// Where the system says which boot this is.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// What is being handled, and what was when the node ended last.
pub struct Running {
    path: PathBuf,
    file: File,
    slots: Mutex<Slots>,
    /// Whether it has been said that the file cannot be written.
    has_failed: AtomicBool,
    /// How many of `suspects` there are, to be read without a lock.
    suspected: AtomicUsize,
    suspects: Mutex<HashMap<EventPosition, Suspect>>,
}

#[derive(Default)]
struct Slots {
    free: BTreeSet<u32>,
    /// Slots that were ever given out.
    made: u32,
}

/// A queue and the place of an event in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct EventPosition {
    queue: String,
    sequence: u64,
}

/// An event that was being handled when the node ended.
#[derive(Debug)]
pub struct Suspect {
    /// Which try it was.
    pub attempt: u32,
    /// Keeps it on the list until what became of it is written.
    pub slot: Slot,
}

impl Running {
    /// Reads what the last run left behind, and begins anew.
    ///
    /// # Errors
    /// The file cannot be read or made.
    pub fn open(data: &Path) -> io::Result<Arc<Self>> {
        let path = data.join("running");
        let boot = fs::read_to_string(BOOT_ID).unwrap_or_default();
        let left = read(&path, boot.trim())?;
        let new = data.join("running.new");
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all_at(&head(boot.trim()), 0)?;
        let running = Arc::new(Self {
            path,
            file,
            slots: Mutex::default(),
            has_failed: AtomicBool::new(false),
            suspected: AtomicUsize::new(0),
            suspects: Mutex::default(),
        });
        let suspects = left.into_iter().filter_map(|(position, attempt)| {
            let slot = running.slot()?;
            slot.write(&position.queue, position.sequence, attempt, [].into_iter());
            Some((position, Suspect { attempt, slot }))
        });
        let suspects: HashMap<EventPosition, Suspect> = suspects.collect();
        running.suspected.store(suspects.len(), Relaxed);
        *running.suspects.lock() = suspects;
        // In place of the old one only now: a node that is killed in between forgets nobody.
        fs::rename(new, &running.path)?;
        Ok(running)
    }

    /// Events that were being handled when the node ended, and of which nothing has been heard yet.
    pub fn suspected(&self) -> usize {
        self.suspected.load(Relaxed)
    }

    /// Whether this event was being handled when the node ended. Says so once.
    pub fn suspect(&self, leased: &Leased) -> Option<Suspect> {
        if self.suspected() == 0 {
            return None;
        }
        let position = EventPosition { queue: leased.queue.to_string(), sequence: leased.sequence };
        let mut suspects = self.suspects.lock();
        let suspect = suspects.remove(&position)?;
        self.suspected.store(suspects.len(), Relaxed);
        drop(suspects);
        // A later try of an event that keeps its place: what became of the one before has been written already.
        (leased.event.attempt <= suspect.attempt).then_some(suspect)
    }

    /// Forgets what was not found again, but for queues that wait to be resumed: what was handled to its end is gone.
    pub fn forget(&self, is_waiting: impl Fn(&str) -> bool) {
        let mut suspects = self.suspects.lock();
        let all = std::mem::take(&mut *suspects);
        let (waiting, found): (HashMap<_, _>, HashMap<_, _>) =
            all.into_iter().partition(|(position, _)| is_waiting(&position.queue));
        *suspects = waiting;
        self.suspected.store(suspects.len(), Relaxed);
        drop((suspects, found));
    }

    /// A slot for one worker; none if there are too many already.
    pub fn slot(self: &Arc<Self>) -> Option<Slot> {
        let mut slots = self.slots.lock();
        let number = match slots.free.pop_first() {
            Some(number) => number,
            None if slots.made < SLOTS_MAX => {
                slots.made += 1;
                slots.made
            }
            None => return None,
        };
        Some(Slot { running: self.clone(), number, is_written: AtomicBool::new(false) })
    }

    /// The node ends, and nothing is being handled.
    pub fn end(&self) {
        fs::remove_file(&self.path).ok();
    }

    fn write(&self, number: u32, slot: &[u8; SLOT_BYTES]) {
        let result = self.file.write_all_at(slot, u64::from(number) * SLOT_BYTES as u64);
        let Err(error) = result else { return };
        if !self.has_failed.swap(true, Relaxed) {
            tracing::warn!("what is being handled is not written down: {}: {error}", self.path.display());
        }
    }
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Running({})", self.path.display())
    }
}

/// One worker's place in the file, emptied when it is dropped.
#[derive(Debug)]
pub struct Slot {
    running: Arc<Running>,
    number: u32,
    is_written: AtomicBool,
}

impl Slot {
    /// From now on this event is being handled, in place of the one before.
    pub fn take(&self, leased: &Leased) {
        self.write(&leased.queue, leased.sequence, leased.event.attempt, [].into_iter());
    }

    /// From now on these events are being handled, in the order of their sequences, which lie within [`SPAN`], and each
    /// for the same time.
    pub fn take_together(&self, leased: &[Arc<Leased>]) {
        let Some((first, later)) = leased.split_first() else { return };
        let later = later.iter().map(|leased| leased.sequence);
        self.write(&first.queue, first.sequence, first.event.attempt, later);
    }

    fn write(&self, queue: &str, sequence: u64, attempt: u32, later: impl Iterator<Item = u64>) {
        let mut bytes = [0; SLOT_BYTES];
        let mut count = 0_u16;
        for later in later {
            let bit = (later - sequence - 1) as usize;
            bytes[LATER_AT + bit / 8] |= 1 << (bit % 8);
            count += 1;
        }
        bytes[COUNT_AT..LATER_AT].copy_from_slice(&count.to_le_bytes());
        let Some(name) = bytes[..COUNT_AT].get_mut(NAME_AT..NAME_AT + queue.len()) else { return };
        name.copy_from_slice(queue.as_bytes());
        bytes[..8].copy_from_slice(&sequence.to_le_bytes());
        bytes[8..12].copy_from_slice(&attempt.to_le_bytes());
        bytes[NAME_AT - 1] = queue.len() as u8;
        self.is_written.store(true, Relaxed);
        self.running.write(self.number, &bytes);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.is_written.load(Relaxed) {
            self.running.write(self.number, &[0; SLOT_BYTES]);
        }
        self.running.slots.lock().free.insert(self.number);
    }
}

fn head(boot: &str) -> [u8; SLOT_BYTES] {
    let mut head = [0; SLOT_BYTES];
    let text = MAGIC.iter().chain(boot.as_bytes());
    head.iter_mut().zip(text).for_each(|(place, byte)| *place = *byte);
    head
}

/// What a run of this boot of the machine left. Bytes that make no sense are of no use, and harm nobody.
fn read(path: &Path, boot: &str) -> io::Result<HashMap<EventPosition, u32>> {
    let mut file = match File::open(path) {
        Ok(file) => io::Read::take(file, (u64::from(SLOTS_MAX) + 1) * SLOT_BYTES as u64),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(HashMap::new()),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut file, &mut bytes)?;
    let (slots, _) = bytes.as_chunks::<SLOT_BYTES>();
    match slots.split_first() {
        Some((first, slots)) if !boot.is_empty() && *first == head(boot) => {
            Ok(slots.iter().flat_map(positions).collect())
        }
        _ => Ok(HashMap::new()),
    }
}

fn positions(slot: &[u8; SLOT_BYTES]) -> Vec<(EventPosition, u32)> {
    let Some((queue, sequence, attempt)) = first(slot) else { return Vec::new() };
    let later = &slot[LATER_AT..];
    let is_later = |bit: &u64| later[*bit as usize / 8] & (1 << (bit % 8)) != 0;
    let later: Vec<u64> = (0..SPAN).filter(is_later).map(|bit| sequence.saturating_add(bit + 1)).collect();
    // Else the slot was only half written, and the first is what is sure.
    let is_whole = slot[COUNT_AT..LATER_AT] == (later.len() as u16).to_le_bytes();
    let all = [sequence].into_iter().chain(later.into_iter().filter(|_| is_whole));
    all.map(|sequence| (EventPosition { queue: queue.to_owned(), sequence }, attempt)).collect()
}

fn first(slot: &[u8; SLOT_BYTES]) -> Option<(&str, u64, u32)> {
    let sequence = u64::from_le_bytes(slot[..8].try_into().ok()?);
    let attempt = u32::from_le_bytes(slot[8..12].try_into().ok()?);
    let length = usize::from(slot[NAME_AT - 1]);
    let queue = std::str::from_utf8(slot[..COUNT_AT].get(NAME_AT..NAME_AT + length)?).ok()?;
    (length > 0).then_some((queue, sequence, attempt))
}

#[cfg(test)]
mod tests {
    use super::*;
    use event::Event;
    use state::{LeaseId, Ticket};

    fn leased(queue: &str, sequence: u64, attempt: u32) -> Leased {
        let event = Event { attempt, ..Event::default() };
        Leased {
            lease: LeaseId(1),
            queue: queue.into(),
            sequence,
            event,
            pushed_ms: 0,
            ticket: Ticket::NOTHING_WRITTEN,
        }
    }

    #[test]
    fn what_was_being_handled_when_the_node_ended_is_known_once_and_what_was_done_is_not() {
        let data = tempfile::tempdir().unwrap();
        let running = Running::open(data.path()).unwrap();
        let slots = [(); 3].map(|()| running.slot().unwrap());
        slots[0].take(&leased("a", 7, 1));
        slots[0].take(&leased("a", 8, 2));
        slots[1].take(&leased("b", 8, 1));
        slots[2].take(&leased("c", 9, 1));
        let [first, second, third] = slots;
        drop(third);
        // The node is killed: nothing of it is dropped.
        std::mem::forget((first, second, running));

        let running = Running::open(data.path()).unwrap();
        assert_eq!(running.suspected(), 2);
        assert!(running.suspect(&leased("a", 7, 1)).is_none() && running.suspect(&leased("c", 9, 1)).is_none());
        assert_eq!(running.suspect(&leased("a", 8, 2)).unwrap().attempt, 2);
        assert!(running.suspect(&leased("a", 8, 2)).is_none(), "it is told once");
        assert!(running.suspect(&leased("b", 8, 2)).is_none(), "its failure has been written before");
        assert_eq!(running.suspected(), 0);
    }

    #[test]
    fn a_suspect_stays_one_until_what_became_of_it_is_written() {
        let data = tempfile::tempdir().unwrap();
        let running = Running::open(data.path()).unwrap();
        let slot = running.slot().unwrap();
        slot.take(&leased("a", 1, 1));
        std::mem::forget((slot, running));
        let running = Running::open(data.path()).unwrap();
        let suspect = running.suspect(&leased("a", 1, 1)).unwrap();
        std::mem::forget((suspect, running));
        let running = Running::open(data.path()).unwrap();
        drop(running.suspect(&leased("a", 1, 1)).unwrap());
        std::mem::forget(running);
        assert_eq!(Running::open(data.path()).unwrap().suspected(), 0);
    }

    #[test]
    fn what_was_not_found_again_is_forgotten_but_for_queues_that_wait() {
        let data = tempfile::tempdir().unwrap();
        let running = Running::open(data.path()).unwrap();
        let slots = [("a", 1), ("b", 2)].map(|(queue, sequence)| {
            let slot = running.slot().unwrap();
            slot.take(&leased(queue, sequence, 1));
            slot
        });
        std::mem::forget((slots, running));
        let running = Running::open(data.path()).unwrap();
        running.forget(|queue| queue == "b");
        assert!(running.suspect(&leased("a", 1, 1)).is_none());
        assert!(running.suspect(&leased("b", 2, 1)).is_some());
    }

    #[test]
    fn events_that_were_handled_together_are_all_known() {
        let data = tempfile::tempdir().unwrap();
        let running = Running::open(data.path()).unwrap();
        let slot = running.slot().unwrap();
        let name = "q".repeat(64);
        let together = [7, 8, 70, 7 + SPAN].map(|sequence| Arc::new(leased(&name, sequence, 1)));
        slot.take_together(&together);
        std::mem::forget((slot, running));
        let running = Running::open(data.path()).unwrap();
        assert_eq!(running.suspected(), 4);
        for leased in together {
            assert!(running.suspect(&leased).is_some(), "{}", leased.sequence);
        }
        let slot = running.slot().unwrap();
        slot.take_together(&[leased("a", 1, 1), leased("a", 2, 1)].map(Arc::new));
        slot.take(&leased("a", 3, 1));
        std::mem::forget((slot, running));
        let running = Running::open(data.path()).unwrap();
        assert_eq!((running.suspected(), running.suspect(&leased("a", 3, 1)).is_some()), (1, true));
    }

    #[test]
    fn another_boot_and_bytes_without_sense_leave_nothing() {
        let data = tempfile::tempdir().unwrap();
        let path = data.path().join("running");
        let running = Running::open(data.path()).unwrap();
        let slot = running.slot().unwrap();
        slot.take(&leased("a", 1, 1));
        let whole = fs::read(&path).unwrap();
        assert_eq!(read(&path, "another-boot").unwrap().len(), 0);
        let boot = fs::read_to_string(BOOT_ID).unwrap();
        assert_eq!(read(&path, boot.trim()).unwrap().len(), 1);
        for cut in [0, 1, SLOT_BYTES, whole.len() - 1] {
            fs::write(&path, &whole[..cut]).unwrap();
            assert_eq!(read(&path, boot.trim()).unwrap().len(), 0, "{cut}");
        }
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] = !bytes[at];
            fs::write(&path, &bytes).unwrap();
            assert!(read(&path, boot.trim()).unwrap().len() <= 1, "{at}");
        }
    }

    #[test]
    fn a_clean_end_leaves_nothing() {
        let data = tempfile::tempdir().unwrap();
        let running = Running::open(data.path()).unwrap();
        let slot = running.slot().unwrap();
        slot.take(&leased("a", 1, 1));
        running.end();
        assert!(!data.path().join("running").exists());
        drop(slot);
        assert_eq!(Running::open(data.path()).unwrap().suspected(), 0);
    }
}
