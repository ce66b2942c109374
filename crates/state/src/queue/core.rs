//! What a queue has in memory: a window of its oldest events, who has leased which, and its numbers.
//!
//! ```text
//!      head                        cursor                       tail
//!  gone  │ leased  ready  waiting …  │  on disk only …            │
//!        └──────── slots ────────────┘
//! ```
//! Everything below the cursor is in memory; a queue that is short is wholly so, and leasing from it reads no disk.
//! Nothing here touches the disk or the clock.

use super::clock::Clock;
use super::keys::{IdHash, Numbers};
pub use super::slot::{Slot, SlotState};
use super::{LeaseId, Part, QueueConfig, QueueTotals};
use fjall::Slice;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

/// Ready events kept in memory beside the leased ones.
pub const WINDOW_EVENTS: usize = 512;
/// Events that are out of the way of others: they wait for one of their key, have failed and keep their place, or
/// cannot be read. So many may pile up before others have to wait with them.
pub const ASIDE_EVENTS: usize = 16_384;
/// Bytes of the ready and leased events in memory, and of those out of the way. One ready event is kept even if it
/// alone has more; of what is out of the way and has more, the bytes are read again when its turn comes.
pub const WINDOW_BYTES: usize = 1 << 20;

/// How often the event ids are looked through for those whose time is over.
pub const SWEEP_PERIOD_MS: u64 = 1_000;

static LEASES: AtomicU64 = AtomicU64::new(1);

/// Events of one key.
#[derive(Debug, Default)]
struct Key {
    /// Leased or held: the others wait.
    busy: Option<u64>,
    waiting: BTreeSet<u64>,
}

/// An event that has just been leased, its bytes not yet read.
pub struct Taken {
    pub lease: u64,
    pub sequence: u64,
    pub value: Slice,
    pub lease_ends: u32,
    pub batch: u64,
}

/// What [`Core::take`] found beside what it leased.
#[derive(Default)]
pub struct AlsoFound {
    /// Leased too, but only to be moved to the dead letters.
    pub expired: Vec<Taken>,
    /// Ready, but their bytes have to be read first.
    pub unread: Vec<u64>,
    /// Nothing more in memory, and there is more on disk.
    pub is_short: bool,
}

pub struct Core {
    pub config: QueueConfig,
    pub clock: Clock,
    pub numbers: Numbers,
    /// Whether the numbers are to be written with the next batch.
    pub is_changed: bool,
    /// Takes no more pushes: it is about to go.
    pub is_closed: bool,
    pub is_removed: bool,
    pub totals: QueueTotals,
    /// Something became ready since it was last looked at.
    pub has_news: bool,
    /// Ready events from here on are on disk only.
    cursor: u64,
    slots: BTreeMap<u64, Slot>,
    /// Of all values here, and of those that are out of the way.
    bytes: usize,
    aside_bytes: usize,
    ready: BTreeSet<u64>,
    leases: HashMap<u64, u64>,
    ends: BTreeSet<(u64, u64)>,
    held: BTreeSet<(u64, u64)>,
    keys: HashMap<u64, Key>,
    /// Events in the state [`SlotState::Waiting`].
    waiting: usize,
    /// Events in the state [`SlotState::Damaged`].
    set_aside: u64,
    /// Ready events that stand in damaged places of tables: counted, and nowhere to be read.
    unreadable: u64,
    /// Ids of commits that are not in the database yet.
    pub ids: HashMap<IdHash, u64>,
    pub ids_applying: HashMap<IdHash, u64>,
    /// Ids that were noted since it was last looked which are over, until those have been forgotten.
    pub ids_since_look: Option<HashSet<IdHash>>,
    /// The oldest dead letters and their bytes, to be dropped without reading.
    pub oldest_dead: VecDeque<(u64, u64)>,
    /// Where the next look for event ids whose time is over begins, and when the last one was.
    pub swept: IdHash,
    pub swept_at: u64,
    /// The earliest time of delayed pushes since this was last reset.
    pub due_new: u64,
}

impl Core {
    pub fn new(config: QueueConfig, numbers: Numbers) -> Self {
        Self {
            config,
            clock: Clock::at(numbers.time),
            cursor: numbers.head,
            numbers,
            is_changed: false,
            is_closed: false,
            is_removed: false,
            totals: QueueTotals::default(),
            has_news: false,
            slots: BTreeMap::new(),
            bytes: 0,
            aside_bytes: 0,
            ready: BTreeSet::new(),
            leases: HashMap::new(),
            ends: BTreeSet::new(),
            held: BTreeSet::new(),
            keys: HashMap::new(),
            waiting: 0,
            set_aside: 0,
            unreadable: 0,
            ids: HashMap::new(),
            ids_applying: HashMap::new(),
            ids_since_look: None,
            oldest_dead: VecDeque::new(),
            swept: [0; 16],
            swept_at: 0,
            due_new: u64::MAX,
        }
    }

    pub fn configure(&mut self, config: QueueConfig, key_of: impl Fn(&Slice) -> u64) {
        let order_changed = self.config.order_by_key != config.order_by_key;
        self.config = config;
        if !order_changed {
            return;
        }
        self.keys.clear();
        let sequences: Vec<u64> = self.slots.keys().copied().collect();
        for sequence in sequences {
            let slot = self.slots.get_mut(&sequence).expect("just seen");
            slot.key = slot.value.as_ref().filter(|_| self.config.order_by_key).map_or(0, &key_of);
            match slot.state {
                SlotState::Leased { .. } | SlotState::Held { .. } => self.occupy(sequence),
                SlotState::Waiting => {
                    self.detach(sequence);
                    self.make_ready(sequence);
                }
                SlotState::Ready | SlotState::Damaged => {}
            }
        }
    }

    /// Ready events that are not in memory.
    pub fn on_disk_only(&self) -> u64 {
        self.numbers.ready.saturating_sub(self.slots.len() as u64 + self.unreadable)
    }

    /// So many events were looked for on disk up to the end, and not found.
    pub fn miss(&mut self, events: u64) {
        self.unreadable += events;
    }

    /// Ready events that cannot be read.
    pub fn damaged_count(&self) -> u64 {
        self.set_aside + self.unreadable
    }

    /// Events and bytes of this part that are counted and not in memory.
    pub fn unseen(&self, part: Part) -> (u64, u64) {
        let numbers = &self.numbers;
        match part {
            Part::Ready => {
                let bytes: u64 = self.slots.values().map(|slot| slot.length).sum();
                (numbers.ready.saturating_sub(self.slots.len() as u64), numbers.ready_bytes.saturating_sub(bytes))
            }
            Part::Delayed => (numbers.delayed, numbers.delayed_bytes),
            Part::Dead => (numbers.dead, numbers.dead_bytes),
        }
    }

    /// Counts events no more that cannot be found.
    pub fn forget_unseen(&mut self, part: Part, events: u64, bytes: u64) {
        let numbers = &mut self.numbers;
        let (count, sum) = match part {
            Part::Ready => (&mut numbers.ready, &mut numbers.ready_bytes),
            Part::Delayed => (&mut numbers.delayed, &mut numbers.delayed_bytes),
            Part::Dead => (&mut numbers.dead, &mut numbers.dead_bytes),
        };
        (*count, *sum) = (count.saturating_sub(events), sum.saturating_sub(bytes));
        match part {
            Part::Ready => {
                self.unreadable = 0;
                self.set_cursor(0);
            }
            Part::Dead => numbers.dead_head = numbers.tail,
            Part::Delayed => {}
        }
    }

    pub fn has_room(&self) -> bool {
        let (window, bytes) = (self.ready.len(), self.bytes - self.aside_bytes);
        let has_room = window == 0 || (window < WINDOW_EVENTS && bytes < WINDOW_BYTES);
        has_room && self.may_look_further()
    }

    /// Whether others may still pass those that are out of the way.
    fn may_look_further(&self) -> bool {
        self.waiting + self.held.len() + (self.set_aside as usize) < ASIDE_EVENTS
    }

    /// Where to read on, if that is of use.
    pub fn refill_from(&self) -> Option<u64> {
        (self.on_disk_only() > 0 && self.has_room()).then_some(self.cursor)
    }

    /// Everything below is in memory from now on.
    pub fn set_cursor(&mut self, cursor: u64) {
        self.cursor = self.cursor.max(cursor);
        if self.on_disk_only() == 0 {
            self.cursor = self.cursor.max(self.numbers.tail);
        }
    }

    /// Everything below is in memory.
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// No ready event has a lower sequence.
    pub fn head(&self) -> u64 {
        self.slots.keys().next().copied().unwrap_or(self.cursor)
    }

    /// Takes in an event that has just been given this sequence, the highest so far, if all before it is in memory.
    pub fn insert_new(&mut self, sequence: u64, slot: Slot) {
        // The event itself is counted already.
        if self.on_disk_only() == 1 {
            self.cursor = sequence;
        }
        if self.cursor == sequence && self.has_room() {
            self.cursor = sequence + 1;
            self.insert(sequence, slot);
        }
        self.has_news = true;
    }

    /// Takes in the bytes of an event that waited for its turn.
    pub fn fill(&mut self, sequence: u64, value: Slice) {
        if let Some(slot) = self.slots.get_mut(&sequence).filter(|slot| slot.value.is_none() && !slot.is_aside()) {
            self.bytes += value.len();
            slot.value = Some(value);
        }
    }

    /// Takes in an event that was read from disk.
    pub fn insert(&mut self, sequence: u64, slot: Slot) {
        self.bytes += slot.held_bytes();
        let state = slot.state;
        self.slots.insert(sequence, slot);
        match state {
            SlotState::Held { until } => {
                self.held.insert((until, sequence));
                self.occupy(sequence);
                self.put_aside(sequence);
            }
            SlotState::Ready => {
                self.ready.insert(sequence);
            }
            SlotState::Waiting | SlotState::Leased { .. } | SlotState::Damaged => {}
        }
    }

    pub fn slot(&self, sequence: u64) -> Option<&Slot> {
        self.slots.get(&sequence)
    }

    /// The slot this lease is on.
    pub fn leased(&self, sequence: u64, lease: LeaseId) -> Option<&Slot> {
        let slot = self.slots.get(&sequence)?;
        matches!(slot.state, SlotState::Leased { lease: held, .. } if held == lease.0).then_some(slot)
    }

    /// Leases ready events: as many at `most`, and no more once they have as many bytes.
    pub fn take(&mut self, now_ms: u64, until_ms: u64, most: (usize, usize), taken: &mut Vec<Taken>) -> AlsoFound {
        let (count, bytes_max) = most;
        let time = self.clock.observe(now_ms);
        self.pass(time);
        let until = time.saturating_add(until_ms.saturating_sub(now_ms));
        let mut found = AlsoFound::default();
        let mut bytes: usize = taken.iter().map(|taken| taken.value.len()).sum();
        while taken.len() < count && bytes < bytes_max {
            let Some(sequence) = self.ready.pop_first() else {
                found.is_short = self.refill_from().is_some();
                break;
            };
            let slot = &self.slots[&sequence];
            if self.is_busy(slot.key) {
                self.wait(sequence);
                continue;
            }
            let Some(value) = slot.value.clone() else {
                // It keeps its place, and what comes after it is not taken before it.
                self.ready.insert(sequence);
                found.unread.push(sequence);
                break;
            };
            let is_over = slot.expires <= time;
            bytes += if is_over { 0 } else { value.len() };
            let out = if is_over { &mut found.expired } else { &mut *taken };
            let lease = LEASES.fetch_add(1, Ordering::Relaxed);
            out.push(Taken { lease, sequence, value, lease_ends: slot.lease_ends, batch: slot.batch });
            self.lend(sequence, lease, until);
            if found.expired.len() == WINDOW_EVENTS {
                break;
            }
        }
        found
    }

    /// Leases those events in memory that wait for a handler and whose life is over.
    pub fn take_expired(&mut self, time: u64) -> Vec<Taken> {
        let over = self.slots.iter().filter(|(_, slot)| slot.expires <= time && slot.can_expire());
        let over: Vec<u64> = over.map(|(sequence, _)| *sequence).collect();
        let lend = |sequence: u64| {
            let lease = LEASES.fetch_add(1, Ordering::Relaxed);
            self.detach(sequence);
            let slot = &self.slots[&sequence];
            let value = slot.value.clone().expect("only such can expire here");
            let taken = Taken { lease, sequence, value, lease_ends: slot.lease_ends, batch: slot.batch };
            self.lend(sequence, lease, u64::MAX);
            taken
        };
        over.into_iter().map(lend).collect()
    }

    fn lend(&mut self, sequence: u64, lease: u64, until: u64) {
        self.slots.get_mut(&sequence).expect("it was ready").state = SlotState::Leased { lease, until };
        self.leases.insert(lease, sequence);
        self.ends.insert((until, sequence));
        self.occupy(sequence);
    }

    /// Ends leases that are over, and frees what was held until now.
    pub fn pass(&mut self, time: u64) {
        while let Some((until, sequence)) = self.ends.first().copied().filter(|(until, _)| *until <= time) {
            let slot = self.slots.get_mut(&sequence).expect("leased events are in memory");
            slot.lease_ends = slot.lease_ends.saturating_add(1);
            self.totals.leases_ended += 1;
            debug_assert!(matches!(slot.state, SlotState::Leased { until: end, .. } if end == until));
            self.free(sequence);
        }
        while let Some((_, sequence)) = self.held.first().copied().filter(|(until, _)| *until <= time) {
            self.free(sequence);
        }
    }

    /// Gives an event back; says whether the lease was still on.
    pub fn release(&mut self, lease: LeaseId) -> bool {
        let Some(sequence) = self.leases.get(&lease.0).copied() else {
            return false;
        };
        self.free(sequence);
        true
    }

    /// Has a lease end at another time; says whether it was still on.
    pub fn renew(&mut self, lease: LeaseId, now_ms: u64, until_ms: u64) -> bool {
        let time = self.clock.observe(now_ms);
        self.pass(time);
        let Some(sequence) = self.leases.get(&lease.0).copied() else { return false };
        let renewed = time.saturating_add(until_ms.saturating_sub(now_ms));
        let slot = self.slots.get_mut(&sequence).expect("leased events are in memory");
        let SlotState::Leased { until, .. } = &mut slot.state else { return false };
        self.ends.remove(&(*until, sequence));
        self.ends.insert((renewed, sequence));
        *until = renewed;
        true
    }

    pub fn has_lease(&self, lease: LeaseId) -> bool {
        self.leases.contains_key(&lease.0)
    }

    /// Ends all leases; nothing is ready again by that.
    pub fn drop_leases(&mut self) {
        let leased: Vec<u64> = self.leases.values().copied().collect();
        leased.into_iter().for_each(|sequence| self.free(sequence));
    }

    /// Leased or held becomes ready.
    fn free(&mut self, sequence: u64) {
        self.detach(sequence);
        self.make_ready(sequence);
        self.settle(self.slots[&sequence].key);
    }

    /// Takes it out of every list its state has put it in.
    fn detach(&mut self, sequence: u64) {
        let slot = &self.slots[&sequence];
        match slot.state {
            SlotState::Ready => drop(self.ready.remove(&sequence)),
            SlotState::Held { until } => drop(self.held.remove(&(until, sequence))),
            SlotState::Leased { lease, until } => {
                self.leases.remove(&lease);
                self.ends.remove(&(until, sequence));
            }
            SlotState::Waiting => self.waiting -= 1,
            SlotState::Damaged => self.set_aside -= 1,
        }
        if slot.is_aside() {
            self.aside_bytes -= slot.held_bytes();
        }
        if let Some(key) = self.keys.get_mut(&slot.key) {
            key.waiting.remove(&sequence);
            key.busy = key.busy.filter(|busy| *busy != sequence);
        }
    }

    fn make_ready(&mut self, sequence: u64) {
        self.slots.get_mut(&sequence).expect("it is in memory").state = SlotState::Ready;
        self.ready.insert(sequence);
        self.has_news = true;
    }

    /// An event that left: acked, dead, delayed or purged.
    pub fn remove(&mut self, sequence: u64) -> Option<Slot> {
        if !self.slots.contains_key(&sequence) {
            return None;
        }
        self.detach(sequence);
        let slot = self.slots.remove(&sequence)?;
        self.bytes -= slot.held_bytes();
        self.settle(slot.key);
        Some(slot)
    }

    /// A leased event failed and keeps its place, with other bytes.
    pub fn hold(&mut self, sequence: u64, value: Slice, until: u64) {
        self.detach(sequence);
        let since_ms = self.clock.node_time(until);
        let slot = self.slots.get_mut(&sequence).expect("leased events are in memory");
        self.bytes = self.bytes - slot.held_bytes() + value.len();
        (slot.length, slot.value) = (value.len() as u64, Some(value));
        (slot.lease_ends, slot.rewritten, slot.since_ms) = (0, true, since_ms);
        slot.state = SlotState::Held { until };
        self.held.insert((until, sequence));
        self.occupy(sequence);
        self.put_aside(sequence);
    }

    /// Its bytes cannot be read: it stays where it is, out of the way of the others.
    pub fn set_aside(&mut self, sequence: u64) {
        if self.slots.contains_key(&sequence) {
            self.detach(sequence);
            self.slots.get_mut(&sequence).expect("just seen").state = SlotState::Damaged;
            self.set_aside += 1;
            self.put_aside(sequence);
            self.settle(self.slots[&sequence].key);
        }
    }

    fn is_busy(&self, key: u64) -> bool {
        key != 0 && self.keys.get(&key).is_some_and(|key| key.busy.is_some())
    }

    fn occupy(&mut self, sequence: u64) {
        let key = self.slots[&sequence].key;
        if key != 0 {
            self.keys.entry(key).or_default().busy.get_or_insert(sequence);
        }
    }

    fn wait(&mut self, sequence: u64) {
        let slot = self.slots.get_mut(&sequence).expect("it was ready");
        slot.state = SlotState::Waiting;
        self.waiting += 1;
        self.keys.entry(slot.key).or_default().waiting.insert(sequence);
        self.put_aside(sequence);
    }

    /// Keeps the bytes of what is out of the way only as long as there are few.
    fn put_aside(&mut self, sequence: u64) {
        let slot = self.slots.get_mut(&sequence).expect("it is in memory");
        let bytes = slot.held_bytes();
        if self.aside_bytes + bytes > WINDOW_BYTES || self.waiting + self.held.len() > WINDOW_EVENTS {
            self.bytes -= bytes;
            slot.value = None;
        } else {
            self.aside_bytes += bytes;
        }
    }

    /// If nothing of this key is in hand, the next one is ready.
    fn settle(&mut self, key: u64) {
        let Some(entry) = self.keys.get_mut(&key).filter(|entry| entry.busy.is_none()) else { return };
        match entry.waiting.pop_first() {
            Some(next) => {
                self.waiting -= 1;
                self.aside_bytes -= self.slots[&next].held_bytes();
                self.make_ready(next);
            }
            None => drop(self.keys.remove(&key)),
        }
    }

    /// Ready events of whose keys none is in hand, as far as that is known.
    pub fn leasable(&self) -> u64 {
        let on_disk = if self.may_look_further() { self.on_disk_only() } else { 0 };
        self.ready.len() as u64 + on_disk
    }

    pub fn leased_count(&self) -> u64 {
        self.leases.len() as u64
    }

    pub fn held_count(&self) -> u64 {
        self.held.len() as u64
    }

    /// Since when the oldest ready event is ready.
    pub fn oldest_ms(&self) -> Option<u64> {
        self.ready.first().map(|sequence| self.slots[sequence].since_ms)
    }

    /// When something changes by itself, in the queue's own time.
    pub fn next_change(&self) -> Option<u64> {
        let ends = self.ends.first().map(|(until, _)| *until);
        let held = self.held.first().map(|(until, _)| *until);
        let due = (self.numbers.delayed > 0).then_some(self.numbers.due_floor);
        let waiting = self.slots.values().filter(|slot| slot.can_expire());
        let over = waiting.map(|slot| slot.expires).min().filter(|at| *at != u64::MAX);
        let sweep = (self.numbers.ids > 0).then_some(self.swept_at.saturating_add(SWEEP_PERIOD_MS));
        [ends, held, due, over, sweep].into_iter().flatten().min()
    }
}
