//! Places for what is done for other nodes at once: so many for each of them, so many in all.

use fleet_trust::NodeId;
use parking_lot::Mutex;
use problem::{Code, Problem};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The places for one kind of work.
pub struct Seats {
    /// As it is said to a node that finds none.
    full: &'static str,
    each_max: usize,
    all_max: usize,
    taken: Mutex<BTreeMap<NodeId, usize>>,
}

/// A place of one node; given back when dropped.
pub struct Seat {
    seats: Arc<Seats>,
    node: NodeId,
}

impl Seats {
    pub fn new(full: &'static str, each_max: usize, all_max: usize) -> Arc<Self> {
        Arc::new(Self { full, each_max, all_max, taken: Mutex::default() })
    }

    /// # Errors
    /// [`Code::NodeFull`]: the node has as many as it may, or all are taken.
    pub fn take(self: &Arc<Self>, node: NodeId) -> Result<Seat, Problem> {
        let mut taken = self.taken.lock();
        let all: usize = taken.values().sum();
        if all >= self.all_max || taken.get(&node).is_some_and(|count| *count >= self.each_max) {
            let hint = "ask another node, or again in a moment";
            return Err(Problem::new(Code::NodeFull, self.full).with_hint(hint));
        }
        *taken.entry(node).or_default() += 1;
        Ok(Seat { seats: self.clone(), node })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.taken.lock();
        if let Some(count) = taken.get_mut(&self.node) {
            *count -= 1;
        }
        taken.retain(|_, count| *count > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_has_all_it_may_leaves_places_for_others() {
        let seats = Seats::new("full", 2, 3);
        let [one, other, third] = [1, 2, 3].map(|number| NodeId([number; 16]));
        let held = [seats.take(one).unwrap(), seats.take(one).unwrap()];
        assert_eq!(seats.take(one).err().unwrap().code, Code::NodeFull);
        let last = seats.take(other).unwrap();
        assert_eq!(seats.take(third).err().unwrap().code, Code::NodeFull);
        drop(last);
        drop(seats.take(third).unwrap());
        drop(held);
        assert!(seats.taken.lock().is_empty());
        drop(seats.take(one).unwrap());
    }
}
