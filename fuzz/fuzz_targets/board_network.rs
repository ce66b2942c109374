//! Whatever arrives at a board's network, on Ethernet or on a serial line, is answered or dropped: no panic, no more
//! packets out than there is reason for, and connections stay usable.
#![no_main]

use board_link::{Network, Settings};
use lighter_fuzz::fuzz_target;
use network::{CONNECTIONS_MAX, Net, Nic, PACKET_BYTES_MAX, SerialLine, Slip, tcp};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

const BOARD: [u8; 4] = [10, 0, 2, 15];
const TURNS_MAX: usize = 64;

static NOW_NS: AtomicU64 = AtomicU64::new(0);

fuzz_target!(|data: &[u8]| {
    let Some((how, bytes)) = data.split_first() else { return };
    NOW_NS.store(1, Relaxed);
    let wire = Wire::default();
    let nic: Box<dyn Nic> = if how & 1 == 0 {
        wire.0.lock().unwrap().arriving = packets(bytes);
        Box::new(Card(wire.clone()))
    } else {
        wire.0.lock().unwrap().bytes = bytes.iter().copied().collect();
        Box::new(Slip::new(Serial(wire.clone())))
    };
    let network = match how & 2 {
        0 => Network::Dhcp,
        _ => Network::Static { address: BOARD, prefix: 24, gateway: Some([10, 0, 2, 2]) },
    };
    let settings = Settings { network, echo_port: 7, ..Settings::default() };
    let mut net = Net::new(nic, &settings, 1, || NOW_NS.load(Relaxed));
    for number in 0..CONNECTIONS_MAX {
        net.listen(number);
    }
    for _ in 0..TURNS_MAX {
        let is_busy = net.turn();
        NOW_NS.fetch_add(50_000_000, Relaxed);
        for number in 0..CONNECTIONS_MAX {
            let socket = net.connection(number);
            let _ = socket.recv(|bytes| (bytes.len(), ()));
            if socket.state() == tcp::State::Closed {
                net.listen(number);
            }
        }
        if !is_busy && wire.is_empty() {
            break;
        }
    }
    let left = wire.0.lock().unwrap().left;
    // A few for each packet, and what time alone brings: DHCP, retries.
    assert!(left <= 4 * data.len() + 8 * TURNS_MAX, "{left} packets for {} bytes", data.len());
});

/// Each packet behind two bytes of its length, as far as they go. Every other one gets what chance would not find: the
/// way to the board, and sums that are right.
fn packets(mut bytes: &[u8]) -> VecDeque<Vec<u8>> {
    let mut packets = VecDeque::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<2>() {
        let count = usize::from(u16::from_le_bytes(*head) & 0x7ff).min(rest.len());
        let mut packet = rest[..count].to_vec();
        if head[1] & 0x80 != 0 {
            mend(&mut packet);
        }
        packets.push_back(packet);
        bytes = &rest[count..];
    }
    packets
}

fn mend(packet: &mut [u8]) {
    const IP: usize = 14;
    if packet.len() < IP + 20 {
        return;
    }
    let (bytes, protocol) = (packet.len() - IP, packet[IP + 9]);
    packet[..6].fill(0xff);
    packet[12..14].copy_from_slice(&[8, 0]);
    packet[IP] = 0x45;
    packet[IP + 2..IP + 4].copy_from_slice(&(bytes as u16).to_be_bytes());
    packet[IP + 6..IP + 8].fill(0);
    packet[IP + 16..IP + 20].copy_from_slice(&BOARD);
    set_sum(packet, IP..IP + 20, IP + 10, &[]);
    let count = ((bytes - 20) as u16).to_be_bytes();
    let pseudo = [&packet[IP + 12..IP + 20], &[0, protocol], &count].concat();
    let (at, pseudo) = match protocol {
        1 => (IP + 22, &[][..]),
        6 => (IP + 36, &pseudo[..]),
        17 => (IP + 26, &pseudo[..]),
        _ => return,
    };
    if packet.len() >= at + 2 {
        set_sum(packet, IP + 20..IP + bytes, at, pseudo);
    }
}

/// Writes at `at` the sum of these bytes and `pseudo`.
fn set_sum(packet: &mut [u8], covered: Range<usize>, at: usize, pseudo: &[u8]) {
    packet[at..at + 2].fill(0);
    let words = |bytes: &[u8]| -> u32 {
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum()
    };
    let mut sum = words(&packet[covered]) + words(pseudo);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    packet[at..at + 2].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

#[derive(Clone, Default)]
struct Wire(Arc<Mutex<Ends>>);

#[derive(Default)]
struct Ends {
    arriving: VecDeque<Vec<u8>>,
    bytes: VecDeque<u8>,
    left: usize,
}

impl Wire {
    fn is_empty(&self) -> bool {
        let ends = self.0.lock().unwrap();
        ends.arriving.is_empty() && ends.bytes.is_empty()
    }
}

struct Card(Wire);

impl Nic for Card {
    fn ethernet_address(&self) -> Option<[u8; 6]> {
        Some([2, 0, 0, 0, 0, 1])
    }

    fn receive(&mut self) -> Option<Vec<u8>> {
        self.0.0.lock().unwrap().arriving.pop_front()
    }

    fn has_room(&mut self) -> bool {
        true
    }

    fn send(&mut self, packet: &[u8]) {
        assert!(packet.len() <= PACKET_BYTES_MAX);
        self.0.0.lock().unwrap().left += 1;
    }
}

struct Serial(Wire);

impl SerialLine for Serial {
    fn get(&mut self) -> Option<u8> {
        self.0.0.lock().unwrap().bytes.pop_front()
    }

    fn put(&mut self, byte: u8) {
        const END: u8 = 0xc0;
        self.0.0.lock().unwrap().left += usize::from(byte == END);
    }
}
