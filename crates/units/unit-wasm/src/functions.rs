//! The functions of one engine that keep idle units in its pool of slots: which of them goes when a call finds none.
//!
//! A unit that is kept for its function's next call holds a slot and memory, for as long as the manifest says. Were
//! it never to give way, a few functions that keep their units could leave none to all others on an idle node.

use crate::engine::Series;
use crate::prepared::PreparedWasm;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};

#[derive(Default)]
pub struct Functions(Mutex<Vec<Weak<PreparedWasm>>>);

impl Functions {
    pub fn add(&self, function: &Arc<PreparedWasm>) {
        let mut all = self.0.lock();
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(function));
    }

    /// Ends the unit that has waited longest for its next call, of whichever function; one of this series where its
    /// slot is what is needed. False if none waits.
    pub fn make_room(&self, series: Option<Series>) -> bool {
        let all: Vec<_> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        let idle = || {
            let fit = all.iter().filter(|one| series.is_none_or(|series| one.series == series));
            fit.filter_map(|one| Some((one.pool.idle_since()?, one))).min_by_key(|(since, _)| *since)
        };
        // A call of its own function may have taken it meanwhile.
        std::iter::from_fn(idle).any(|(_, one)| one.pool.end_idle())
    }
}
