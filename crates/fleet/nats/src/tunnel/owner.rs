//! Whose process is at the other end of a connection on loopback.
//!
//! The node's end of the tunnel is open to every user of the machine. What they would reach lets nobody in who has no
//! key; but they could take the places.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};

/// The user who has the end `theirs` of a connection to `ours`, as the system's table says. None: it does not say.
pub fn owner(theirs: SocketAddr, ours: SocketAddr) -> Option<u32> {
    owner_in(&fs::read_to_string("/proc/self/net/tcp").ok()?, theirs, ours)
}

fn owner_in(table: &str, theirs: SocketAddr, ours: SocketAddr) -> Option<u32> {
    let (local, remote) = (written(theirs)?, written(ours)?);
    let mut lines = table.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let line = lines.find(|words| words.get(1) == Some(&local.as_str()) && words.get(2) == Some(&remote.as_str()))?;
    line.get(7)?.parse().ok()
}

/// An address as the table has it: the four bytes as a number of this machine, and the port.
fn written(address: SocketAddr) -> Option<String> {
    let SocketAddr::V4(address) = address else { return None };
    let ip: &Ipv4Addr = address.ip();
    Some(format!("{:08X}:{:04X}", u32::from_ne_bytes(ip.octets()), address.port()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_table_says_whose_an_end_is() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, from) = listener.accept().unwrap();
        let own = rustix::process::geteuid().as_raw();
        assert_eq!(owner(from, far.local_addr().unwrap()), Some(own));
        assert_eq!(owner(near.peer_addr().unwrap(), near.local_addr().unwrap()), Some(own));
    }

    #[test]
    fn a_line_is_found_by_both_its_ends() {
        let ends = ["127.0.0.1:44777", "127.0.0.1:8"].map(|text| text.parse().unwrap());
        let [local, remote] = ends.map(|end| written(end).unwrap());
        let line = |local: &str, remote: &str, user: u32| {
            format!("  0: {local} {remote} 01 00000000:00000000 00:00000000 00000000 {user:>5}        0 1 1\n")
        };
        let table = [line(&remote, &local, 7), line(&local, "00000000:0000", 8), line(&local, &remote, 9)].concat();
        assert_eq!(owner_in(&table, ends[0], ends[1]), Some(9));
        assert_eq!(owner_in("", ends[0], ends[1]), None);
        assert_eq!(owner_in(&format!("0: {local} {remote} 01"), ends[0], ends[1]), None);
    }
}
