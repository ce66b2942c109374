//! Tables and memories of the pool, shared so that no function takes what others need.
//!
//! ```text
//!   pool of tables:    │ a few for every unit there can be │ spare ones, for components that need more │
//! ```
//! A component that needs only these few is not concerned. A component that needs more takes spare ones for each of its
//! units, and a function never has more of them than it leaves for the others. So only functions with large components
//! wait for each other.

use parking_lot::Mutex;
use problem::{Code, Problem};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use wasmtime::component::Component;

/// Tables every unit can have.
pub const TABLES_OWN: u32 = 4;
/// Memories every unit can have.
pub const MEMORIES_OWN: u32 = 1;

/// What a component needs beyond what every unit can have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Slots {
    pub tables: u32,
    pub memories: u32,
}

impl Slots {
    /// None where every unit has enough.
    pub fn of(component: &Component) -> Option<Self> {
        // One that takes modules by import cannot be instantiated here anyway.
        let needed = component.resources_required()?;
        let slots = Self {
            tables: needed.num_tables.saturating_sub(TABLES_OWN),
            memories: needed.num_memories.saturating_sub(MEMORIES_OWN),
        };
        (slots != Self::default()).then_some(slots)
    }
}

/// The spare ones that nobody has.
pub struct Spare {
    free: Mutex<Slots>,
}

/// What the units of one function have of them.
#[derive(Default)]
pub struct Own {
    tables: AtomicU32,
    memories: AtomicU32,
}

/// What one unit has of them; given back when it is dropped.
pub struct Taken {
    spare: Arc<Spare>,
    own: Arc<Own>,
    slots: Slots,
}

impl Spare {
    pub fn new(all: Slots) -> Arc<Self> {
        Arc::new(Self { free: Mutex::new(all) })
    }

    /// # Errors
    /// [`Code::NodeFull`]: there are too few, or the function would leave too few.
    pub fn take(self: &Arc<Self>, own: &Arc<Own>, slots: Slots) -> Result<Taken, Problem> {
        let mut free = self.free.lock();
        let (has_tables, has_memories) = (own.tables.load(Relaxed), own.memories.load(Relaxed));
        let fits = fits(slots.tables, has_tables, free.tables) && fits(slots.memories, has_memories, free.memories);
        if !fits {
            let Slots { tables, memories } = slots;
            let detail = format!(
                "no room for another unit: it needs {tables} tables and {memories} memories more than most, the function \
                 has {has_tables} and {has_memories} of them, {} and {} are free",
                free.tables, free.memories
            );
            return Err(Problem::new(Code::NodeFull, detail));
        }
        free.tables -= slots.tables;
        free.memories -= slots.memories;
        own.tables.fetch_add(slots.tables, Relaxed);
        own.memories.fetch_add(slots.memories, Relaxed);
        Ok(Taken { spare: self.clone(), own: own.clone(), slots })
    }
}

/// The first unit needs what it needs; another one must leave as many free as the function then has.
fn fits(needed: u32, has: u32, free: u32) -> bool {
    needed <= free && (needed == 0 || has == 0 || has + needed <= free - needed)
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut free = self.spare.free.lock();
        free.tables += self.slots.tables;
        free.memories += self.slots.memories;
        self.own.tables.fetch_sub(self.slots.tables, Relaxed);
        self.own.memories.fetch_sub(self.slots.memories, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_function_leaves_room_for_the_others() {
        let spare = Spare::new(Slots { tables: 4_000, memories: 250 });
        let greedy = Slots { tables: 195, memories: 0 };
        let mut held = Vec::new();
        // Twenty of them were all the tables there were.
        for _ in 0..3 {
            let own = Arc::new(Own::default());
            let before = held.len();
            while let Ok(taken) = spare.take(&own, greedy) {
                held.push(taken);
            }
            assert!(held.len() > before, "each function gets some");
            assert!(own.tables.load(Relaxed) <= spare.free.lock().tables);
        }
        let own = Arc::new(Own::default());
        assert!(spare.take(&own, Slots { tables: 100, memories: 7 }).is_ok());
        drop(held);
        assert_eq!(*spare.free.lock(), Slots { tables: 4_000, memories: 250 });
    }

    #[test]
    fn what_is_not_there_is_refused() {
        let spare = Spare::new(Slots { tables: 10, memories: 2 });
        let own = Arc::new(Own::default());
        for slots in [Slots { tables: 11, memories: 0 }, Slots { tables: 0, memories: 3 }] {
            assert_eq!(spare.take(&own, slots).err().unwrap().code, Code::NodeFull);
        }
        assert_eq!(*spare.free.lock(), Slots { tables: 10, memories: 2 });
    }
}
