//! Where this machine can be reached, and what it is called, as far as it can tell by itself.

use fleet_trust::{Address, NAME_BYTES_MAX, NodeId};
use parking_lot::RwLock;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

/// Where this node is reached. Networks give machines other addresses, and are not always there when a node starts:
/// so it looks again while it runs.
#[derive(Debug)]
pub(crate) struct Reach {
    listening: SocketAddr,
    /// What a person has said that others are told.
    said: Option<Address>,
    outward: fn() -> Option<IpAddr>,
    /// This machine's address, as it was seen last.
    machine: RwLock<IpAddr>,
}

impl Reach {
    pub fn new(listening: SocketAddr, said: Option<Address>, outward: fn() -> Option<IpAddr>) -> Self {
        let machine = RwLock::new(outward().unwrap_or(Ipv4Addr::LOCALHOST.into()));
        Self { listening, said, outward, machine }
    }

    /// What other nodes are told.
    pub fn address(&self) -> Address {
        self.said.clone().unwrap_or_else(|| self.of(self.listening))
    }

    /// Where others reach a listener: with the address of this machine if it listens everywhere.
    pub fn of(&self, listening: SocketAddr) -> Address {
        let ip = if listening.ip().is_unspecified() { *self.machine.read() } else { listening.ip() };
        Address::Ip(SocketAddr::new(ip, listening.port()))
    }

    /// Looks again, and says whether others are told another address now. Without a network the machine keeps the one
    /// that it had.
    pub fn look(&self) -> bool {
        let Some(seen) = (self.outward)() else { return false };
        let before = std::mem::replace(&mut *self.machine.write(), seen);
        before != seen && self.said.is_none() && self.listening.ip().is_unspecified()
    }
}

/// The address from which this machine would send to others. None: it has no network. Nothing is sent: the socket is
/// only given its route.
pub fn outward() -> Option<IpAddr> {
    let local = |from: SocketAddr, to: SocketAddr| {
        let socket = UdpSocket::bind(from)?;
        socket.connect(to)?;
        socket.local_addr()
    };
    // Addresses for documentation (RFC 5737, RFC 3849): any address beyond this machine does.
    let v4 = local(([0; 4], 0).into(), ([192, 0, 2, 1], 9).into());
    let v6 = || local(([0_u16; 8], 0).into(), ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], 9).into());
    let found = v4.or_else(|_| v6()).ok().map(|address| address.ip());
    found.filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
}

/// The machine's name, made one that a node may have.
pub fn machine_name() -> String {
    as_name(&std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default())
}

fn as_name(text: &str) -> String {
    let first = text.trim().split('.').next().unwrap_or_default().to_ascii_lowercase();
    let plain: String = first.chars().map(|one| if one.is_ascii_alphanumeric() { one } else { '-' }).collect();
    let name: String = plain.trim_matches('-').chars().take(NAME_BYTES_MAX - SUFFIX_BYTES).collect();
    if name.is_empty() { "node".to_owned() } else { name }
}

/// The name of a machine whose own name another node has.
pub fn with_id(name: &str, node: &NodeId) -> String {
    let id = node.to_string();
    format!("{name}-{}", &id[..SUFFIX_BYTES - 1])
}

/// Room for `-3fa2`, which keeps machines of one name apart.
const SUFFIX_BYTES: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use fleet_trust::check_name;

    #[test]
    fn a_machines_name_becomes_a_nodes_name() {
        for (text, name) in [
            ("pi-7\n", "pi-7"),
            ("Server_1.campus.example", "server-1"),
            ("", "node"),
            ("…", "node"),
            ("-a-", "a"),
            (&"x".repeat(64), &"x".repeat(27)),
        ] {
            assert_eq!(as_name(text), name);
            check_name(&as_name(text)).unwrap();
        }
    }

    #[test]
    fn a_listener_everywhere_is_reached_at_the_machines_address() {
        let everywhere = SocketAddr::from(([0, 0, 0, 0], 8_702));
        assert!(outward().is_none_or(|ip| !ip.is_unspecified() && !ip.is_loopback()));
        let told = |reach: &Reach| reach.address().to_string();
        let reach = Reach::new(everywhere, None, || Some([192, 0, 2, 7].into()));
        assert_eq!(told(&reach), "192.0.2.7:8702");
        assert_eq!(reach.of(([127, 0, 0, 1], 5).into()).to_string(), "127.0.0.1:5");
        assert!(!reach.look());
        // It had another one.
        *reach.machine.write() = [192, 0, 2, 8].into();
        assert!(reach.look() && !reach.look());
        assert_eq!(told(&reach), "192.0.2.7:8702");
        let without = Reach::new(everywhere, None, || None);
        assert_eq!((told(&without), without.look()), ("127.0.0.1:8702".to_owned(), false));
        let said = Reach::new(everywhere, Address::read("pi.example.org:1"), || None);
        assert_eq!(told(&said), "pi.example.org:1");
        let said = Reach::new(everywhere, Address::read("pi.example.org:1"), || Some([192, 0, 2, 7].into()));
        *said.machine.write() = [192, 0, 2, 8].into();
        assert!(!said.look(), "others are told the same as before");
        assert_eq!(said.of(everywhere).to_string(), "192.0.2.7:8702", "but the API is there now");
    }
}
