//! How many strangers an anchor listens to: cheap decisions, before anything dear is done for anybody.
//!
//! ```text
//!   TCP ─▶ pace of connections ─▶ a seat ─▶ ClientHello ─▶ pace of joining ─▶ TLS ─▶ what they ask
//!             too fast: closed       full: the address with most seats loses its oldest
//! ```
//! An address is what one customer of a network has: an IPv4 address, or the first 64 bits of an IPv6 one. Who opens
//! thousands of connections and says nothing pushes out only its own.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Connections whose other side has not proved anything yet. For a new one, the address with most of them loses its
/// oldest.
pub const SEATS_MAX: usize = 128;
/// New nodes that wait until a person has compared their digits. For another, the address with most loses its oldest.
pub const KNOCKS_MAX: usize = 8;
/// Addresses, or nodes, whose pace is remembered. For another one, that which was heard of longest ago is forgotten.
pub const SOURCES_MAX: usize = 1_024;

/// TLS handshakes a second: some hundred cost a small machine a tenth of a core.
pub const CONNECTIONS: DoorRate =
    DoorRate { burst: 256.0, a_second: 256.0, source_burst: 128.0, source_a_second: 64.0 };
/// Requests of strangers. A class of 50 behind one address joins at once.
pub const JOINS: DoorRate = DoorRate { burst: 128.0, a_second: 32.0, source_burst: 64.0, source_a_second: 8.0 };

/// Nodes that knock without an invitation. Whoever stands between a new node and its anchor knows the digits that the
/// node shows, and may knock at the anchor until it happens to have the same ones: in the five minutes that digits hold
/// it has 42 tries, at odds of a million to one each.
pub const KNOCKS: DoorRate = DoorRate { burst: 12.0, a_second: 0.1, source_burst: 12.0, source_a_second: 0.1 };

/// Hellos of one node that an anchor has to write down. A start makes two of them; a node that begins a new life with
/// each hello waits, and nobody else does.
pub const LIVES: DoorRate = DoorRate { burst: 1e9, a_second: 1e9, source_burst: 16.0, source_a_second: 0.2 };

/// How much comes through at once, and how fast more may follow: of all together, and of one address or node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DoorRate {
    pub burst: f64,
    pub a_second: f64,
    pub source_burst: f64,
    pub source_a_second: f64,
}

/// Who comes too fast: addresses, or nodes.
#[derive(Debug)]
pub struct Pace<S = Source> {
    rate: DoorRate,
    all: Bucket,
    sources: BTreeMap<S, Bucket>,
}

/// Whose connection it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    V4([u8; 4]),
    V6([u8; 8]),
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: f64,
    at: Instant,
    /// A member has connected from there.
    is_known: bool,
}

impl Source {
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address.octets()),
            IpAddr::V6(address) => {
                let octets = address.octets();
                Self::V6(std::array::from_fn(|at| octets[at]))
            }
        }
    }
}

impl<S: Copy + Ord> Pace<S> {
    pub fn new(rate: DoorRate, now: Instant) -> Self {
        Self { rate, all: Bucket { left: rate.burst, at: now, is_known: false }, sources: BTreeMap::new() }
    }

    /// Whether one more may come now. What one address has used up costs the others nothing.
    pub fn admits(&mut self, source: S, now: Instant) -> bool {
        let DoorRate { burst, a_second, source_burst, source_a_second } = self.rate;
        if !self.sources.contains_key(&source) && self.sources.len() >= SOURCES_MAX {
            let oldest = self.sources.iter().min_by_key(|(_, bucket)| (bucket.is_known, bucket.at));
            let oldest = oldest.map(|(source, _)| *source);
            oldest.map(|source| self.sources.remove(&source));
        }
        let own = self.sources.entry(source).or_insert(Bucket { left: source_burst, at: now, is_known: false });
        own.fill(source_burst, source_a_second, now);
        self.all.fill(burst, a_second, now);
        let is_admitted = own.left >= 1.0 && (own.is_known || self.all.left >= 1.0);
        if is_admitted {
            own.left -= 1.0;
            self.all.left = (self.all.left - 1.0).max(0.0);
        }
        is_admitted
    }

    /// A member has connected from there: strangers at other addresses, however many, do not keep it out.
    pub fn knows(&mut self, source: S) {
        if let Some(bucket) = self.sources.get_mut(&source) {
            bucket.is_known = true;
        }
    }
}

impl Bucket {
    fn fill(&mut self, burst: f64, a_second: f64, now: Instant) {
        let passed: Duration = now.saturating_duration_since(self.at);
        self.left = (self.left + passed.as_secs_f64() * a_second).min(burst);
        self.at = now;
    }
}

/// A bounded number of seats, each with what is to be dropped when it is taken away.
#[derive(Debug)]
pub struct Seats<T> {
    most: usize,
    next: u64,
    /// By age.
    taken: BTreeMap<u64, (Source, T)>,
}

impl<T> Seats<T> {
    pub fn new(most: usize) -> Self {
        Self { most, next: 0, taken: BTreeMap::new() }
    }

    /// Takes a seat. If there was none, also says what lost its own.
    pub fn enter(&mut self, source: Source, held: T) -> (u64, Option<T>) {
        let evicted = if self.taken.len() < self.most { None } else { self.evict() };
        self.next += 1;
        self.taken.insert(self.next, (source, held));
        (self.next, evicted)
    }

    /// Gives a seat back. `None`: it was lost already.
    pub fn leave(&mut self, seat: u64) -> Option<T> {
        self.taken.remove(&seat).map(|(_, held)| held)
    }

    pub fn len(&self) -> usize {
        self.taken.len()
    }

    pub fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }

    /// What holds the seats, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.taken.iter().map(|(seat, (_, held))| (*seat, held))
    }

    /// The oldest of the address that has most; of several such, the oldest of all.
    fn evict(&mut self) -> Option<T> {
        let mut counts: BTreeMap<Source, usize> = BTreeMap::new();
        for (source, _) in self.taken.values() {
            *counts.entry(*source).or_default() += 1;
        }
        let most = counts.values().copied().max()?;
        let oldest = self.taken.iter().find(|(_, (source, _))| counts[source] == most).map(|(seat, _)| *seat)?;
        self.leave(oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(number: u32) -> Source {
        Source::V4(number.to_be_bytes())
    }

    #[test]
    fn ten_thousand_in_a_second_from_one_address_leave_room_for_others() {
        let begin = Instant::now();
        let mut pace = Pace::new(CONNECTIONS, begin);
        let at = |number: u64| begin + Duration::from_micros(100 * number);
        let admitted = (0..10_000).filter(|number| pace.admits(source(1), at(*number))).count();
        assert!((190..=193).contains(&admitted), "{admitted}");
        assert!((0..60).all(|_| pace.admits(source(2), at(10_000))));
    }

    #[test]
    fn from_many_addresses_there_is_a_bound_for_all() {
        let begin = Instant::now();
        let mut pace = Pace::new(JOINS, begin);
        let at = |number: u32| begin + Duration::from_micros(u64::from(100 * number));
        let admitted = (0..10_000).filter(|number| pace.admits(source(*number), at(*number))).count();
        assert!((158..=161).contains(&admitted), "{admitted}");
        assert!(pace.sources.len() <= SOURCES_MAX);
    }

    /// Tries to have the digits of another node, in the time that these hold, from as many addresses as one likes.
    #[test]
    fn who_knocks_for_the_digits_of_another_has_few_tries() {
        let begin = Instant::now();
        for addresses in [1, 1_000_000] {
            let mut pace = Pace::new(KNOCKS, begin);
            let at = |number: u32| begin + crate::link::KNOCK_TIMEOUT * number / 100_000;
            let tries = (0..100_000).filter(|number| pace.admits(source(number % addresses), at(*number))).count();
            assert!((38..=42).contains(&tries), "{tries}");
        }
    }

    #[test]
    fn strangers_at_many_addresses_do_not_keep_a_member_out() {
        let begin = Instant::now();
        let mut pace = Pace::new(CONNECTIONS, begin);
        assert!(pace.admits(source(7), begin));
        pace.knows(source(7));
        assert!((10_000..20_000).filter(|number| pace.admits(source(*number), begin)).count() < 256);
        assert!(pace.admits(source(7), begin));
    }

    #[test]
    fn a_node_that_begins_life_after_life_waits_alone() {
        let begin = Instant::now();
        let mut pace = Pace::new(LIVES, begin);
        let at = |number: u32| begin + Duration::from_millis(u64::from(10 * number));
        assert_eq!((0..1_000).filter(|number| pace.admits(7, at(*number))).count(), 17);
        assert!((100..1_100).all(|node| pace.admits(node, at(1_000))), "a whole fleet starts");
    }

    #[test]
    fn a_flood_pushes_out_its_own() {
        let mut seats = Seats::new(SEATS_MAX);
        let (joiner, _) = seats.enter(source(2), "joiner");
        for _ in 0..10_000 {
            seats.enter(source(1), "silent");
        }
        assert_eq!(seats.len(), SEATS_MAX);
        assert_eq!(seats.leave(joiner), Some("joiner"));
    }

    #[test]
    fn among_equals_the_oldest_gives_way() {
        let mut seats = Seats::new(2);
        seats.enter(source(1), 1);
        seats.enter(source(2), 2);
        assert_eq!(seats.enter(source(3), 3).1, Some(1));
        assert_eq!(seats.iter().map(|(_, held)| *held).collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn an_address_is_what_one_customer_has() {
        let of = |text: &str| Source::of(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:192.0.2.7"), of("192.0.2.7"));
    }
}
