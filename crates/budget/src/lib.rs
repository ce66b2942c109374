//! The memory a node holds for others: counted by purpose, and bounded in all.
//!
//! ```text
//!  unit ── grows ──▶ Share(units) ─┐
//!  request ─ head ─▶ Share(heads) ─┼─▶ Budget: each purpose ≤ its part, all together ≤ bytes_max, or Full (L3013)
//!  device ─ keeps ─▶ Share(mqtt) ──┘        the last sixteenth is for the administrator alone
//! ```
//!
//! Code that keeps bytes on behalf of a unit, a function, a connection or a peer takes a [`Share`] *before* it keeps
//! them, and drops the share with them. Nothing here allocates; a share costs two atomic additions to take and two to
//! give back.

#![forbid(unsafe_code)]

mod purpose;

pub use purpose::Purpose;

use problem::{Code, Problem};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What is kept for [`Purpose::Administration`] when everything else is used: one part in so many.
const RESERVE_PART: u64 = 16;

/// The node's memory for others. One instance serves the whole node.
#[derive(Debug)]
pub struct Budget {
    bytes_max: u64,
    total: AtomicU64,
    accounts: [Account; Purpose::ALL.len()],
}

#[derive(Debug, Default)]
struct Account {
    used: AtomicU64,
    refused: AtomicU64,
}

/// Bytes of the budget that somebody holds; given back when dropped.
#[derive(Debug)]
pub struct Share {
    budget: Arc<Budget>,
    purpose: Purpose,
    bytes: u64,
}

/// The budget has no room for what was asked. Nothing was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full {
    pub purpose: Purpose,
    pub asked_bytes: u64,
    /// What the purpose or, if that is what ran out, the whole node holds already.
    pub used_bytes: u64,
    /// The bound that was met.
    pub bytes_max: u64,
}

impl Budget {
    /// A budget of `bytes_max` bytes for everything together.
    pub fn new(bytes_max: u64) -> Arc<Self> {
        Arc::new(Self { bytes_max, total: AtomicU64::new(0), accounts: Default::default() })
    }

    /// A budget that refuses nothing, for tests and tools that hold nothing for strangers.
    pub fn unbounded() -> Arc<Self> {
        Self::new(u64::MAX)
    }

    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Bytes that all purposes hold together.
    pub fn total_bytes(&self) -> u64 {
        self.total.load(Relaxed)
    }

    /// Bytes that `purpose` holds.
    pub fn used_bytes(&self, purpose: Purpose) -> u64 {
        self.account(purpose).used.load(Relaxed)
    }

    /// How often `purpose` was refused since the start.
    pub fn refused_count(&self, purpose: Purpose) -> u64 {
        self.account(purpose).refused.load(Relaxed)
    }

    /// The most that `purpose` may hold, however much is free.
    pub fn part_bytes(&self, purpose: Purpose) -> u64 {
        purpose.part_of(self.bytes_max)
    }

    /// A share of nothing yet.
    pub fn share(self: &Arc<Self>, purpose: Purpose) -> Share {
        Share { budget: self.clone(), purpose, bytes: 0 }
    }

    /// A share of `bytes`.
    ///
    /// # Errors
    /// [`Full`]: nothing was taken.
    pub fn take(self: &Arc<Self>, purpose: Purpose, bytes: u64) -> Result<Share, Full> {
        let mut share = self.share(purpose);
        share.grow(bytes)?;
        Ok(share)
    }

    fn account(&self, purpose: Purpose) -> &Account {
        &self.accounts[purpose as usize]
    }

    fn add(&self, purpose: Purpose, bytes: u64) -> Result<(), Full> {
        let account = self.account(purpose);
        let all_max = match purpose {
            Purpose::Administration => self.bytes_max,
            _ => self.bytes_max - self.bytes_max / RESERVE_PART,
        };
        add_below(&account.used, bytes, self.part_bytes(purpose))
            .and_then(|()| {
                add_below(&self.total, bytes, all_max).inspect_err(|_| _ = account.used.fetch_sub(bytes, Relaxed))
            })
            .map_err(|(used_bytes, bytes_max)| {
                account.refused.fetch_add(1, Relaxed);
                Full { purpose, asked_bytes: bytes, used_bytes, bytes_max }
            })
    }

    fn give_back(&self, purpose: Purpose, bytes: u64) {
        self.account(purpose).used.fetch_sub(bytes, Relaxed);
        self.total.fetch_sub(bytes, Relaxed);
    }
}

/// Adds, unless the sum would pass `bytes_max`. Two who ask at once may both be refused where one would have fitted,
/// and never both be served where one does not fit.
fn add_below(used: &AtomicU64, bytes: u64, bytes_max: u64) -> Result<(), (u64, u64)> {
    let before = used.fetch_add(bytes, Relaxed);
    if before.checked_add(bytes).is_some_and(|sum| sum <= bytes_max) {
        return Ok(());
    }
    used.fetch_sub(bytes, Relaxed);
    Err((before, bytes_max))
}

impl Share {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Holds `bytes` more.
    ///
    /// # Errors
    /// [`Full`]: the share is what it was.
    pub fn grow(&mut self, bytes: u64) -> Result<(), Full> {
        self.budget.add(self.purpose, bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Holds `bytes` more, if a quarter of the purpose's part is free afterwards: what is there may grow as long as
    /// what is new finds room.
    ///
    /// # Errors
    /// [`Full`]: the share is what it was.
    pub fn grow_aside(&mut self, bytes: u64) -> Result<(), Full> {
        let (budget, purpose) = (&self.budget, self.purpose);
        let bytes_max = budget.part_bytes(purpose) / 4 * 3;
        let used_bytes = budget.used_bytes(purpose);
        if used_bytes.checked_add(bytes).is_none_or(|sum| sum > bytes_max) {
            budget.account(purpose).refused.fetch_add(1, Relaxed);
            return Err(Full { purpose, asked_bytes: bytes, used_bytes, bytes_max });
        }
        self.grow(bytes)
    }

    /// Holds so many bytes from now on, more or fewer than before.
    ///
    /// # Errors
    /// [`Full`]: the share is what it was. Fewer bytes are never refused.
    pub fn hold(&mut self, bytes: u64) -> Result<(), Full> {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.grow(more),
            None => {
                self.shrink(self.bytes - bytes);
                Ok(())
            }
        }
    }

    /// Gives back `bytes` of what is held, at most all of it.
    pub fn shrink(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.budget.give_back(self.purpose, bytes);
        self.bytes -= bytes;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.give_back(self.purpose, self.bytes);
    }
}

impl Full {
    /// Why a unit that holds `held_bytes` already cannot start. What might fit later says nothing about the call.
    pub fn for_unit(self, held_bytes: u64) -> Problem {
        let may_fit = self.asked_bytes.saturating_add(held_bytes) <= self.bytes_max;
        let Problem { code, detail, .. } = self.into();
        match may_fit {
            true => Problem::new(Code::NodeFull, format!("no room for another unit: {detail}")),
            false => Problem::new(code, detail),
        }
    }
}

impl From<Full> for Problem {
    fn from(full: Full) -> Self {
        let Full { purpose, asked_bytes, used_bytes, bytes_max } = full;
        let detail =
            format!("{asked_bytes} more bytes for {purpose} do not fit: {used_bytes} of {bytes_max} bytes are in use");
        Problem::new(Code::MemoryFull, detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_counted_and_given_back() {
        let budget = Budget::new(1_600);
        let mut share = budget.take(Purpose::Bodies, 100).unwrap();
        for bytes in [50, 500, 0, 7] {
            share.hold(bytes).unwrap();
            assert_eq!((budget.used_bytes(Purpose::Bodies), budget.total_bytes()), (bytes, bytes));
        }
        share.shrink(u64::MAX);
        assert_eq!(share.bytes(), 0);
        share.grow(3).unwrap();
        drop(share);
        assert_eq!(budget.total_bytes(), 0);
    }

    #[test]
    fn a_purpose_that_has_its_part_leaves_room_for_the_others() {
        let budget = Budget::new(1_600);
        let part = budget.part_bytes(Purpose::Mqtt);
        let _held = budget.take(Purpose::Mqtt, part).unwrap();
        let full = budget.take(Purpose::Mqtt, 1).unwrap_err();
        assert_eq!(full, Full { purpose: Purpose::Mqtt, asked_bytes: 1, used_bytes: part, bytes_max: part });
        assert_eq!(budget.refused_count(Purpose::Mqtt), 1);
        assert!(budget.take(Purpose::Bodies, 1).is_ok());
    }

    #[test]
    fn the_last_sixteenth_is_for_the_administrator() {
        let budget = Budget::new(1_600);
        let mut held = Vec::new();
        for purpose in Purpose::ALL.iter().filter(|one| **one != Purpose::Administration) {
            let mut share = budget.share(*purpose);
            while share.grow(10).is_ok() {}
            held.push(share);
        }
        assert_eq!(budget.total_bytes(), 1_500);
        let administration = budget.take(Purpose::Administration, 100).unwrap();
        assert_eq!(budget.total_bytes(), 1_600);
        assert!(budget.take(Purpose::Administration, 1).is_err());
        drop((held, administration));
        assert_eq!(budget.total_bytes(), 0);
    }

    #[test]
    fn a_refused_share_holds_what_it_held() {
        let budget = Budget::new(1_600);
        let mut share = budget.take(Purpose::Units, 10).unwrap();
        for impossible in [u64::MAX, 1_600] {
            assert!(share.grow(impossible).is_err());
            assert_eq!((share.bytes(), budget.total_bytes()), (10, 10));
        }
        let problem = Problem::from(share.hold(5_000).unwrap_err());
        assert_eq!(problem.code, Code::MemoryFull);
        assert!(problem.detail.contains("for units"), "{problem}");
    }

    #[test]
    fn a_unit_that_may_fit_later_finds_the_node_full_and_one_that_never_fits_does_not() {
        let budget = Budget::new(1_600);
        let others = budget.take(Purpose::Units, 700).unwrap();
        let code = |bytes, held| budget.take(Purpose::Units, bytes).unwrap_err().for_unit(held).code;
        assert_eq!((code(600, 0), code(1_200, 0)), (Code::NodeFull, Code::NodeFull));
        assert_eq!((code(1_201, 0), code(600, 601)), (Code::MemoryFull, Code::MemoryFull));
        drop(others);
        assert!(budget.take(Purpose::Units, 1_200).is_ok());
    }

    #[test]
    fn what_grows_leaves_room_for_what_is_new() {
        let budget = Budget::new(1_600);
        let mut greedy = budget.take(Purpose::Units, 100).unwrap();
        while greedy.grow_aside(10).is_ok() {}
        assert_eq!(greedy.bytes(), 900, "three quarters of 1,200");
        assert!(budget.take(Purpose::Units, 300).is_ok());
        assert!(greedy.grow_aside(u64::MAX).is_err());
        assert_eq!((greedy.bytes(), budget.refused_count(Purpose::Units)), (900, 2));
    }

    #[test]
    fn many_at_once_never_hold_more_than_there_is() {
        let budget = Budget::new(1_600);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let share = budget.take(Purpose::Bodies, 300);
                        // A neighbour's attempt that is about to be undone may be in the sum for a moment.
                        assert!(share.is_err() || budget.total_bytes() <= 1_600 + 8 * 300);
                    }
                });
            }
        });
        assert_eq!((budget.total_bytes(), budget.used_bytes(Purpose::Bodies)), (0, 0));
    }
}
