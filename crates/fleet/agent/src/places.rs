//! Where this machine can be reached, and what it is called, as far as it can tell by itself.

use fleet_trust::{Address, NAME_BYTES_MAX, NodeId};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

/// What other nodes are told: where the listener is, with the address of this machine if it listens everywhere.
pub fn told(listening: SocketAddr) -> Address {
    let ip = if listening.ip().is_unspecified() { outward() } else { listening.ip() };
    Address::Ip(SocketAddr::new(ip, listening.port()))
}

/// The address from which this machine would send to others. Nothing is sent: the socket is only given its route.
fn outward() -> IpAddr {
    let local = |from: SocketAddr, to: SocketAddr| {
        let socket = UdpSocket::bind(from)?;
        socket.connect(to)?;
        socket.local_addr()
    };
    // Addresses for documentation (RFC 5737, RFC 3849): any address beyond this machine does.
    let v4 = local(([0; 4], 0).into(), ([192, 0, 2, 1], 9).into());
    let v6 = || local(([0_u16; 8], 0).into(), ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], 9).into());
    v4.or_else(|_| v6()).map_or(Ipv4Addr::LOCALHOST.into(), |address| address.ip())
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
    fn a_listener_everywhere_is_reached_at_one_address() {
        let Address::Ip(address) = told(([0, 0, 0, 0], 8_702).into()) else { panic!("it is an address") };
        assert!(!address.ip().is_unspecified() && address.port() == 8_702);
        assert_eq!(told(([127, 0, 0, 1], 5).into()).to_string(), "127.0.0.1:5");
    }
}
