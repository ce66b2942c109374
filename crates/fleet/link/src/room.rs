//! The memory of one connection of the link, counted in the node's budget before it is taken.

use crate::limits::{CONNECTION_WINDOW_BYTES, STREAM_WINDOW_BYTES};
use budget::{Budget, Full, Purpose, Share};
use http::HeaderMap;
use parking_lot::Mutex;
use std::sync::Arc;

/// A connection with its task, the buffers of TLS, and HTTP/2's tables: what the HTTP gate counts for one.
const CONNECTION_BYTES: u64 = 136 << 10;
/// What a field takes in memory beside its name and value.
const FIELD_BYTES: u64 = 64;

/// What one connection holds.
#[derive(Debug)]
pub struct WireRoom(Mutex<Held>);

#[derive(Debug)]
struct Held {
    /// Bodies that may come.
    bodies: u64,
    buffers: Share,
    heads: Share,
}

/// The room of one call; given back when dropped.
#[derive(Debug)]
pub struct CallRoom {
    room: Arc<WireRoom>,
    has_body: bool,
    head_bytes: u64,
}

impl WireRoom {
    /// # Errors
    /// The budget has no room for another connection.
    pub fn take(budget: &Arc<Budget>) -> Result<Arc<Self>, Full> {
        let buffers = budget.take(Purpose::Connections, CONNECTION_BYTES)?;
        Ok(Arc::new(Self(Mutex::new(Held { bodies: 0, buffers, heads: budget.share(Purpose::Heads) }))))
    }

    /// Room for a head, and for what may wait of a body.
    ///
    /// # Errors
    /// The budget has none.
    pub fn call(self: &Arc<Self>, head: &HeaderMap, has_body: bool) -> Result<CallRoom, Full> {
        let head_bytes =
            head.iter().fold(0, |sum, (name, value)| sum + (name.as_str().len() + value.len()) as u64 + FIELD_BYTES);
        let held = &mut *self.0.lock();
        held.heads.grow(head_bytes)?;
        let bodies = held.bodies + u64::from(has_body);
        if let Err(full) = held.buffers.hold(bytes_of(bodies)) {
            held.heads.shrink(head_bytes);
            return Err(full);
        }
        held.bodies = bodies;
        Ok(CallRoom { room: self.clone(), has_body, head_bytes })
    }
}

impl Drop for CallRoom {
    fn drop(&mut self) {
        let held = &mut *self.room.0.lock();
        held.heads.shrink(self.head_bytes);
        held.bodies -= u64::from(self.has_body);
        let less = held.buffers.hold(bytes_of(held.bodies));
        debug_assert!(less.is_ok(), "fewer bytes are never refused");
    }
}

/// What waits of all bodies is bounded by the window of the connection.
fn bytes_of(bodies: u64) -> u64 {
    CONNECTION_BYTES + (bodies * u64::from(STREAM_WINDOW_BYTES)).min(u64::from(CONNECTION_WINDOW_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_count_up_to_what_the_window_lets_in() {
        let budget = Budget::new(64 << 20);
        let room = WireRoom::take(&budget).unwrap();
        let window = u64::from(CONNECTION_WINDOW_BYTES);
        let calls: Vec<_> = (0..9).map(|_| room.call(&HeaderMap::new(), true).unwrap()).collect();
        assert_eq!(budget.used_bytes(Purpose::Connections), CONNECTION_BYTES + window);
        drop(calls);
        assert_eq!(budget.used_bytes(Purpose::Connections), CONNECTION_BYTES);
        drop(room);
        assert_eq!(budget.total_bytes(), 0);
    }

    #[test]
    fn a_call_that_finds_no_room_takes_none() {
        let budget = Budget::new(800 << 10);
        let room = WireRoom::take(&budget).unwrap();
        let before = budget.total_bytes();
        let head = HeaderMap::from_iter([(http::header::ACCEPT, "x".parse().unwrap())]);
        assert!(room.call(&head, true).is_err());
        assert_eq!(budget.total_bytes(), before);
        drop(room.call(&head, false).unwrap());
        assert_eq!(budget.total_bytes(), before);
    }
}
