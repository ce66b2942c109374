//! How many connections each peer has, so that none takes all there are.
//!
//! A peer is an address of IPv4, or the half of an address of IPv6 that names a network: its owner has all of the other
//! half.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

/// Bits of an IPv6 address that name its network.
const NETWORK: u128 = !0 << 64;

/// One part of all connections that a single peer may have, where nothing else is configured.
const PART: u32 = 4;

/// The connections of each peer.
#[derive(Debug)]
pub struct Peers {
    max: u32,
    /// Whether this machine is bounded too. Behind a proxy on it, everybody comes from here.
    local: bool,
    counts: Mutex<HashMap<IpAddr, u32>>,
}

impl Peers {
    /// `max`: connections of one peer, of this machine as well. None: a quarter of `all`, and this machine as many as
    /// it likes.
    pub fn new(max: Option<u32>, all: u32) -> Self {
        Self { max: max.unwrap_or(all / PART).max(1), local: max.is_some(), counts: Mutex::default() }
    }

    /// Counts one more connection from the address; gives what [`Peers::leave`] needs. None: the peer has as many as it
    /// may.
    pub fn enter(&self, address: IpAddr) -> Option<Entered> {
        let peer = peer_of(address);
        if peer.is_loopback() && !self.local {
            return Some(Entered(None));
        }
        let mut counts = self.counts.lock();
        let count = counts.entry(peer).or_default();
        if *count >= self.max {
            return None;
        }
        *count += 1;
        Some(Entered(Some(peer)))
    }

    pub fn leave(&self, entered: &Entered) {
        let Some(peer) = entered.0 else { return };
        let mut counts = self.counts.lock();
        if let Some(count) = counts.get_mut(&peer) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&peer);
            }
        }
    }
}

/// A connection that is counted; none for one that is not.
#[derive(Debug)]
pub struct Entered(Option<IpAddr>);

fn peer_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if !v6.is_loopback() => Ipv6Addr::from(u128::from(v6) & NETWORK).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_peer_has_its_share_and_leaves_the_rest_to_others() {
        let peers = Peers::new(None, 8);
        let [one, two] = [(); 2].map(|()| peers.enter(address("192.0.2.1")).unwrap());
        assert!(peers.enter(address("192.0.2.1")).is_none());
        assert!(peers.enter(address("::ffff:192.0.2.1")).is_none(), "the same address in other words");
        assert!(peers.enter(address("192.0.2.2")).is_some());
        peers.leave(&one);
        assert!(peers.enter(address("192.0.2.1")).is_some());
        peers.leave(&two);
    }

    #[test]
    fn a_network_of_ipv6_is_one_peer() {
        let peers = Peers::new(Some(1), 8);
        let first = peers.enter(address("2001:db8::1")).unwrap();
        assert!(peers.enter(address("2001:db8::ffff:2")).is_none());
        assert!(peers.enter(address("2001:db8:0:1::1")).is_some());
        peers.leave(&first);
        assert!(peers.enter(address("2001:db8::2")).is_some());
    }

    #[test]
    fn this_machine_is_bounded_where_somebody_says_so() {
        let unbounded = Peers::new(None, 1);
        for _ in 0..10 {
            assert!(unbounded.enter(address("127.0.0.1")).is_some() && unbounded.enter(address("::1")).is_some());
        }
        let bounded = Peers::new(Some(1), 1);
        assert!(bounded.enter(address("127.0.0.1")).is_some() && bounded.enter(address("127.0.0.1")).is_none());
    }

    #[test]
    fn who_has_left_takes_no_memory() {
        let peers = Peers::new(Some(5), 8);
        for number in 0..100 {
            let entered = peers.enter(IpAddr::from([10, 0, 0, number])).unwrap();
            peers.leave(&entered);
        }
        assert!(peers.counts.lock().is_empty());
    }
}
