//! The boards a node has heard, as far as beacons tell: bounded, and proof against floods and replays.

use crate::beacon::UnverifiedBeacon;
use crate::{Beacon, BeaconFault, BoardId};
use alloc::collections::BTreeMap;

/// Boards remembered at once. The one unheard for longest makes room; boards that are enrolled never do.
pub const SIGHTINGS_MAX: usize = 256;
/// A signature takes some 50 µs to check: a flood of strangers' beacons costs at most one percent of a core.
pub const VERIFICATIONS_PER_SECOND_MAX: u32 = 200;
/// The same for an enrolled board at the address it was last heard from: no flood from elsewhere makes it silent.
pub const VERIFICATIONS_OF_ENROLLED_MAX: u32 = 10;

/// A board that was heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sighting<A> {
    pub beacon: Beacon,
    pub address: A,
    pub heard_ms: u64,
}

/// What became of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// A board not in the table, or one that has started again.
    New(BoardId),
    Again(BoardId),
    /// An older beacon of the same boot: late, or replayed.
    Stale,
    NoBeacon(BeaconFault),
    /// Dropped unread: there were too many in this second, or only enrolled boards have a place left.
    Shed,
}

/// The table. `A` is an address.
#[derive(Debug)]
pub struct Sightings<A> {
    boards: BTreeMap<BoardId, Sighting<A>>,
    second: u64,
    /// Signatures checked in this second.
    verified: u32,
    /// Those of enrolled boards where they were last heard.
    verified_at_home: BTreeMap<BoardId, u32>,
}

impl<A> Default for Sightings<A> {
    fn default() -> Self {
        Self { boards: BTreeMap::new(), second: 0, verified: 0, verified_at_home: BTreeMap::new() }
    }
}

impl<A: PartialEq> Sightings<A> {
    /// Takes a datagram that came from `address` at `now_ms`. `is_enrolled` says which boards never lose their place.
    pub fn hear(&mut self, datagram: &[u8], address: A, now_ms: u64, is_enrolled: impl Fn(&BoardId) -> bool) -> Heard {
        if self.second != now_ms / 1_000 {
            (self.second, self.verified) = (now_ms / 1_000, 0);
            self.verified_at_home.clear();
        }
        // What costs nothing to refuse takes nobody's turn.
        let claimed = match UnverifiedBeacon::read(datagram) {
            Ok(claimed) => claimed,
            Err(fault) => return Heard::NoBeacon(fault),
        };
        let is_at_home = |seen: &Sighting<A>| seen.address == address && is_enrolled(claimed.board());
        let (verified, max) = match self.boards.get(claimed.board()).is_some_and(is_at_home) {
            true => (self.verified_at_home.entry(*claimed.board()).or_default(), VERIFICATIONS_OF_ENROLLED_MAX),
            false => (&mut self.verified, VERIFICATIONS_PER_SECOND_MAX),
        };
        if *verified >= max {
            return Heard::Shed;
        }
        *verified += 1;
        let beacon = match claimed.verify() {
            Ok(beacon) => beacon,
            Err(fault) => return Heard::NoBeacon(fault),
        };
        let board = beacon.board;
        let known = self.boards.get(&board).map(|known| (known.beacon.boot, known.beacon.sequence));
        match known {
            Some((boot, sequence)) if boot == beacon.boot && beacon.sequence <= sequence => return Heard::Stale,
            None if !self.make_room(is_enrolled(&board), is_enrolled) => return Heard::Shed,
            _ => {}
        }
        let again = known.is_some_and(|(boot, _)| boot == beacon.boot);
        self.boards.insert(board, Sighting { beacon, address, heard_ms: now_ms });
        if again { Heard::Again(board) } else { Heard::New(board) }
    }

    pub fn get(&self, board: &BoardId) -> Option<&Sighting<A>> {
        self.boards.get(board)
    }

    pub fn all(&self) -> impl Iterator<Item = &Sighting<A>> {
        self.boards.values()
    }

    /// Forgets a board: what it said turned out to be wrong, or it is gone.
    pub fn forget(&mut self, board: &BoardId) {
        self.boards.remove(board);
    }

    fn make_room(&mut self, newcomer_is_enrolled: bool, is_enrolled: impl Fn(&BoardId) -> bool) -> bool {
        if self.boards.len() < SIGHTINGS_MAX {
            return true;
        }
        let strangers = self.boards.iter().filter(|(board, _)| !is_enrolled(board));
        let Some(oldest) = strangers.min_by_key(|(_, seen)| seen.heard_ms).map(|(board, seen)| (*board, seen.heard_ms))
        else {
            return false;
        };
        // Strangers do not push each other out within a second: many names of one liar would do nothing else.
        if !newcomer_is_enrolled && oldest.1 / 1_000 == self.second {
            return false;
        }
        self.boards.remove(&oldest.0);
        true
    }
}
