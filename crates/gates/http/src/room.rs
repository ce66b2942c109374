//! The memory one connection may take, counted in the node's budget before it is taken.
//!
//! ```text
//!  accepted ─▶ IDLE ─ first byte ─▶ HTTP/1 or HTTP/2 buffers ─ a body comes ─▶ + what may wait of it   (connections)
//!                                                            └ a large head ─▶ + the head              (heads)
//! ```
//! hyper and h2 allocate as they like within their limits; what is counted here is the most they can.
//!
//! At the API everybody is a stranger until a token was shown. Strangers there may have a connection of HTTP/1 each;
//! what takes more, as HTTP/2 and large heads do, leaves a quarter of the administration's part to those who have shown
//! one.

use crate::config::Config;
use crate::http1::guard::Version;
use budget::{Full, Purpose, Share};
use parking_lot::Mutex;

/// A connection that has said nothing: its task, its timer, what the node knows of it.
const IDLE_BYTES: u64 = 8 << 10;

/// The two buffers of a TLS connection.
const TLS_BYTES: u64 = 32 << 10;

/// A connection of HTTP/1 with its buffers for small requests and replies.
const HTTP1_BYTES: u64 = 16 << 10;

/// A connection of HTTP/2: tables of names in both directions, and one head that is not whole.
const HTTP2_BYTES: u64 = 96 << 10;

/// Bytes of bodies that may wait on one connection.
const HTTP1_BODY_BYTES_MAX: u64 = 72 << 10;
pub const HTTP2_BODY_BYTES_MAX: u64 = 1 << 20;

/// Bytes of a request in HTTP/1, head or body, that its connection counts already.
pub const SMALL_BYTES: u64 = 4 << 10;

/// Bytes of the heads of requests that one connection may have at work. The next one is refused (L3013).
pub const HEADS_BYTES_MAX: u64 = 1 << 20;

/// What one connection holds.
#[derive(Debug)]
pub struct Room(Mutex<Held>);

#[derive(Debug)]
struct Held {
    /// What the connection takes with no request.
    base: u64,
    /// The most that may wait of all bodies that are coming.
    bodies: u64,
    bodies_max: u64,
    /// What a connection that speaks HTTP/1 takes more, if it was not taken when it came.
    http1: u64,
    /// Of the API, and without a token so far.
    is_stranger: bool,
    buffers: Share,
    heads: Share,
}

impl Room {
    /// Room for a connection that has just been accepted.
    ///
    /// # Errors
    /// The budget has none.
    pub fn take(config: &Config, tls: bool) -> Result<Self, Full> {
        let is_stranger = config.is_administration;
        let (connections, heads, early, http1) = match is_stranger {
            // Taken at once: who has got in must not be turned away before a token could be shown.
            true => (Purpose::Administration, Purpose::Administration, HTTP1_BYTES, 0),
            false => (Purpose::Connections, Purpose::Heads, 0, HTTP1_BYTES),
        };
        let base = IDLE_BYTES + early + if tls { TLS_BYTES } else { 0 };
        let buffers = config.budget.take(connections, base)?;
        let heads = config.budget.share(heads);
        let bodies_max = HTTP1_BODY_BYTES_MAX;
        Ok(Self(Mutex::new(Held { base, bodies: 0, bodies_max, http1, is_stranger, buffers, heads })))
    }

    /// A request has shown a right, as a token is.
    pub fn trust(&self) {
        self.0.lock().is_stranger = false;
    }

    /// The connection has begun to speak.
    ///
    /// # Errors
    /// The budget has no room for a connection that does.
    pub fn speaks(&self, version: Version) -> Result<(), Full> {
        let held = &mut *self.0.lock();
        let (bytes, bodies_max) = match version {
            Version::Http1 => (held.http1, HTTP1_BODY_BYTES_MAX),
            Version::Http2 => (HTTP2_BYTES, HTTP2_BODY_BYTES_MAX),
        };
        grow(&mut held.buffers, bytes, held.is_stranger)?;
        held.base += bytes;
        held.bodies_max = bodies_max;
        Ok(())
    }

    /// A head of so many bytes is kept, until [`Room::drop_head`].
    ///
    /// # Errors
    /// The connection has as many as it may, or the budget has no room.
    pub fn take_head(&self, bytes: u64) -> Result<(), Full> {
        let held = &mut *self.0.lock();
        let used_bytes = held.heads.bytes();
        if used_bytes + bytes > HEADS_BYTES_MAX {
            return Err(Full { purpose: Purpose::Heads, asked_bytes: bytes, used_bytes, bytes_max: HEADS_BYTES_MAX });
        }
        grow(&mut held.heads, bytes, held.is_stranger)
    }

    pub fn drop_head(&self, bytes: u64) {
        self.0.lock().heads.shrink(bytes);
    }

    /// A body is coming of which so many bytes may wait, until [`Room::drop_body`].
    ///
    /// # Errors
    /// The budget has no room.
    pub fn take_body(&self, bytes: u64) -> Result<(), Full> {
        let held = &mut *self.0.lock();
        // It only grows: what waited of other bodies is counted already.
        let more = (held.base + (held.bodies + bytes).min(held.bodies_max)).saturating_sub(held.buffers.bytes());
        grow(&mut held.buffers, more, held.is_stranger)?;
        held.bodies += bytes;
        Ok(())
    }

    pub fn drop_body(&self, bytes: u64) {
        let held = &mut *self.0.lock();
        held.bodies -= bytes;
        let less = held.buffers.hold(held.base + held.bodies.min(held.bodies_max));
        debug_assert!(less.is_ok(), "fewer bytes are never refused");
    }
}

/// Holds `bytes` more; a stranger leaves room for who is none.
fn grow(share: &mut Share, bytes: u64, is_stranger: bool) -> Result<(), Full> {
    match is_stranger && bytes > 0 {
        true => share.grow_aside(bytes),
        false => share.grow(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use budget::Budget;
    use std::sync::Arc;

    fn take(budget: &Arc<Budget>, tls: bool) -> Result<Room, Full> {
        Room::take(&Config { budget: budget.clone(), ..Config::default() }, tls)
    }

    #[test]
    fn the_administrator_finds_room_when_strangers_have_theirs() {
        let budget = Budget::new(1 << 20);
        let strangers: Vec<Room> = std::iter::from_fn(|| take(&budget, false).ok()).collect();
        assert!(!strangers.is_empty() && take(&budget, false).is_err());
        let config = Config { budget: budget.clone(), is_administration: true, ..Config::default() };
        let room = Room::take(&config, false).unwrap();
        room.speaks(Version::Http1).unwrap();
        room.take_head(8 << 10).unwrap();
        assert_eq!(budget.used_bytes(Purpose::Administration), IDLE_BYTES + HTTP1_BYTES + (8 << 10));
    }

    /// At the API connections of HTTP/2 that had shown nothing could fill what is kept for the administrator.
    #[test]
    fn strangers_at_the_api_leave_room_for_who_shows_a_token() {
        let budget = Budget::new(64 << 20);
        let part = budget.part_bytes(Purpose::Administration);
        let config = Config { budget: budget.clone(), is_administration: true, ..Config::default() };
        let strangers: Vec<Room> = (0..128).map(|_| Room::take(&config, false).unwrap()).collect();
        let speak = |room: &Room| room.speaks(Version::Http2).and_then(|()| room.take_body(1 << 20));
        strangers.iter().for_each(|room| _ = speak(room));
        strangers.iter().for_each(|room| while room.take_head(64 << 10).is_ok() {});
        assert!(budget.used_bytes(Purpose::Administration) <= part / 4 * 3);
        assert!(strangers[127].take_body(64 << 10).is_err());
        let administrator = Room::take(&config, true).unwrap();
        administrator.speaks(Version::Http1).unwrap();
        administrator.trust();
        administrator.take_body(72 << 10).unwrap();
        let second = Room::take(&config, false).unwrap();
        second.trust();
        speak(&second).unwrap();
        drop((strangers, administrator, second));
        assert_eq!(budget.total_bytes(), 0);
    }

    #[test]
    fn bodies_of_one_connection_count_up_to_what_its_window_lets_in() {
        let budget = Budget::new(64 << 20);
        let room = take(&budget, false).unwrap();
        room.speaks(Version::Http2).unwrap();
        let base = IDLE_BYTES + HTTP2_BYTES;
        let used = || budget.used_bytes(Purpose::Connections) - base;
        for (taken, counted) in [(1, 256 << 10), (3, 768 << 10), (9, HTTP2_BODY_BYTES_MAX)] {
            (0..taken).for_each(|_| room.take_body(256 << 10).unwrap());
            assert_eq!(used(), counted);
            (0..taken).for_each(|_| room.drop_body(256 << 10));
            assert_eq!(used(), 0);
        }
        drop(room);
        assert_eq!(budget.total_bytes(), 0);
    }

    #[test]
    fn heads_are_bounded_for_a_connection_and_for_all() {
        let budget = Budget::new(16 << 20);
        let rooms: Vec<Room> = (0..8).map(|_| take(&budget, false).unwrap()).collect();
        let mut taken = 0;
        for room in &rooms {
            while room.take_head(64 << 10).is_ok() {
                taken += 64 << 10;
            }
        }
        assert_eq!(taken, budget.part_bytes(Purpose::Heads), "four connections have all there is");
        rooms[0].drop_head(64 << 10);
        assert!(rooms[7].take_head(64 << 10).is_ok());
    }

    #[test]
    fn a_connection_that_finds_no_room_takes_none() {
        let budget = Budget::new(256 << 10);
        let rooms: Vec<Room> = std::iter::from_fn(|| take(&budget, true).ok()).collect();
        assert_eq!(rooms.len(), 1);
        assert!(rooms[0].speaks(Version::Http2).is_err());
        drop(rooms);
        assert_eq!(budget.total_bytes(), 0);
    }
}
