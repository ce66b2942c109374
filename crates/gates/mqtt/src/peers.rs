//! Where connections come from, and how many each address may have.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// An address as it is counted: of IPv6 the first 64 bits, which is what one customer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Peer(IpAddr);

impl Peer {
    pub fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) if !address.is_loopback() => {
                IpAddr::from((u128::from(address) >> 64 << 64).to_be_bytes())
            }
            other => other,
        })
    }
}

/// Connections by address. No address has an entry that has no connection, so there are no more entries than
/// connections.
pub(crate) struct Peers {
    each_max: usize,
    open: Mutex<HashMap<Peer, usize>>,
}

/// The right of one address to one connection.
pub(crate) struct PeerPermit {
    peers: Arc<Peers>,
    peer: Peer,
}

impl Peers {
    pub fn new(each_max: usize) -> Arc<Self> {
        Arc::new(Self { each_max, open: Mutex::default() })
    }

    /// None if the address has as many as it may.
    pub fn enter(self: &Arc<Self>, peer: Peer) -> Option<PeerPermit> {
        let mut open = self.open.lock();
        let count = open.entry(peer).or_default();
        if *count >= self.each_max {
            return None;
        }
        *count += 1;
        Some(PeerPermit { peers: self.clone(), peer })
    }
}

impl Drop for PeerPermit {
    fn drop(&mut self) {
        let mut open = self.peers.open.lock();
        if let Some(count) = open.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> Peer {
        Peer::of(text.parse().unwrap())
    }

    #[test]
    fn an_address_is_counted_as_what_one_customer_has() {
        assert_eq!(peer("2001:db8:1:2::7"), peer("2001:db8:1:2:ffff::1"));
        assert_ne!(peer("2001:db8:1:2::7"), peer("2001:db8:1:3::7"));
        assert_eq!(peer("::ffff:10.0.0.1"), peer("10.0.0.1"));
        assert_ne!(peer("10.0.0.1"), peer("10.0.0.2"));
        assert_ne!(peer("::1"), peer("::2"));
    }

    #[test]
    fn each_address_has_its_places_and_gives_them_back() {
        let peers = Peers::new(2);
        let permits = [peers.enter(peer("10.0.0.1")).unwrap(), peers.enter(peer("10.0.0.1")).unwrap()];
        assert!(peers.enter(peer("10.0.0.1")).is_none() && peers.enter(peer("10.0.0.2")).is_some());
        drop(permits);
        assert!(peers.enter(peer("10.0.0.1")).is_some());
        assert!(peers.open.lock().is_empty());
    }
}
