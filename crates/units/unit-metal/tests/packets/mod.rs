//! Ethernet frames nobody should have to see: storms, floods, fragments, lies.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// Where QEMU's own network puts its first guest, and the gateway.
const BOARD: [u8; 4] = [10, 0, 2, 15];
const GATEWAY: [u8; 4] = [10, 0, 2, 2];
const EVERYBODY: [u8; 6] = [0xff; 6];
/// What QEMU gives its first card.
const BOARD_CARD: [u8; 6] = [0x52, 0x54, 0x00, 0x12, 0x34, 0x56];

/// Sends all kinds, again and again; says how many.
pub fn flood(wire: &UdpSocket, duration: Duration) -> u64 {
    let began = Instant::now();
    let mut random = Random(1);
    let mut sent = 0;
    while began.elapsed() < duration {
        let fragments = datagram_of_65_kb(&mut random);
        let packets =
            [arp(&mut random), syn(&mut random), noise(&mut random), lie(&mut random), garbage_beacon(&mut random)];
        for packet in packets.into_iter().chain(fragments) {
            // What does not fit is lost on the way, as in any network.
            sent += u64::from(wire.send(&packet).is_ok());
        }
        // A flood that leaves this machine no time would test this machine.
        std::thread::sleep(Duration::from_millis(2));
    }
    sent
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 16
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.next() as u8)
    }

    fn many(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}

fn ethernet(to: [u8; 6], kind: u16, random: &mut Random, rest: &[u8]) -> Vec<u8> {
    let mut from = random.bytes::<6>();
    from[0] &= 0xfe;
    [&to[..], &from, &kind.to_be_bytes(), rest].concat()
}

/// Somebody new asks who has the board's address, or says it has the gateway's.
fn arp(random: &mut Random) -> Vec<u8> {
    let sender = [10, 0, 2, random.next() as u8];
    let is_reply = random.next() % 2;
    let mut rest = vec![0, 1, 8, 0, 6, 4, 0, 1 + is_reply as u8];
    rest.extend(random.bytes::<6>());
    rest.extend(sender);
    rest.extend(random.bytes::<6>());
    rest.extend(BOARD);
    ethernet(if is_reply == 0 { EVERYBODY } else { BOARD_CARD }, 0x0806, random, &rest)
}

fn ip(protocol: u8, from: [u8; 4], to: [u8; 4], id: u16, fragment: u16, data: &[u8]) -> Vec<u8> {
    let mut header = vec![0x45, 0];
    header.extend((20 + data.len() as u16).to_be_bytes());
    header.extend(id.to_be_bytes());
    header.extend(fragment.to_be_bytes());
    header.extend([64, protocol, 0, 0]);
    header.extend(from);
    header.extend(to);
    let sum = sum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header.extend(data);
    header
}

fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// The beginning of a connection from an address that is nobody's.
fn syn(random: &mut Random) -> Vec<u8> {
    let from = [10, 0, 2, 100 + (random.next() % 100) as u8];
    let mut segment = random.bytes::<2>().to_vec();
    segment.extend(7312_u16.to_be_bytes());
    segment.extend(random.bytes::<4>());
    segment.extend([0; 4]);
    segment.extend([0x50, 0x02, 0xff, 0xff, 0, 0, 0, 0]);
    let pseudo = [&from[..], &BOARD, &[0, 6, 0, segment.len() as u8], &segment].concat();
    let sum = sum(&pseudo);
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    ethernet(BOARD_CARD, 0x0800, random, &ip(6, from, BOARD, 1, 0, &segment))
}

/// A datagram as long as can be, in pieces, some of them twice, the last one missing.
fn datagram_of_65_kb(random: &mut Random) -> Vec<Vec<u8>> {
    const PIECE: usize = 1_480;
    let (id, mut pieces) = (random.next() as u16, Vec::new());
    for number in 0..43 {
        let more = 0x2000;
        let fragment = more | (number * PIECE / 8) as u16;
        let data = random.many(PIECE);
        pieces.push(ethernet(BOARD_CARD, 0x0800, random, &ip(17, GATEWAY, BOARD, id, fragment, &data)));
        if number % 5 == 0 {
            pieces.push(pieces[number].clone());
        }
    }
    pieces
}

/// Any bytes of any length, some longer than a frame may be.
fn noise(random: &mut Random) -> Vec<u8> {
    let bytes = (random.next() % 3_000) as usize;
    let rest = random.many(bytes);
    let kind = [0x0800, 0x0806, 0x86dd, random.next() as u16][(random.next() % 4) as usize];
    ethernet(BOARD_CARD, kind, random, &rest)
}

/// An IP header that says something else than what follows.
fn lie(random: &mut Random) -> Vec<u8> {
    let bytes = (random.next() % 64) as usize;
    let data = random.many(bytes);
    let mut packet = ip([1, 6, 17][(random.next() % 3) as usize], GATEWAY, BOARD, 7, 0, &data);
    let at = (random.next() % 20) as usize;
    packet[at] ^= random.next() as u8;
    ethernet(BOARD_CARD, 0x0800, random, &packet)
}

/// Something that is no beacon, where beacons go.
fn garbage_beacon(random: &mut Random) -> Vec<u8> {
    let bytes = (random.next() % 1_400) as usize;
    let mut datagram = 7311_u16.to_be_bytes().repeat(2);
    datagram.extend((8 + bytes as u16).to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend(random.many(bytes));
    ethernet(EVERYBODY, 0x0800, random, &ip(17, GATEWAY, [255; 4], 9, 0, &datagram))
}
