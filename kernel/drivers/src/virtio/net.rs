//! The network card.

use super::queue::Queue;
use super::{CONFIGURATION, agree, begin};
use alloc::vec;
use alloc::vec::Vec;
use arch_metal::Registers;
use network::{Nic, PACKET_BYTES_MAX};

const RECEIVE: u32 = 0;
const SEND: u32 = 1;
/// Packets that wait. More are dropped by the device, which is what a flood does.
const RECEIVE_ENTRIES: u16 = 64;
const SEND_ENTRIES: u16 = 32;
const BUFFER_BYTES: usize = 2_048;
/// In front of every packet; all of it zeros for us.
const HEADER_BYTES: usize = 12;

#[derive(Debug)]
pub struct VirtioNet {
    registers: Registers,
    address: [u8; 6],
    receive: Queue,
    send: Queue,
    /// Buffers of `send` that nobody uses.
    free: Vec<u16>,
}

impl VirtioNet {
    pub const KIND: u32 = 1;

    /// None: the device wants something else than this driver.
    pub fn new(registers: Registers) -> Option<Self> {
        const HAS_ADDRESS: u32 = 1 << 5;
        agree(&registers, HAS_ADDRESS).filter(|taken| *taken == HAS_ADDRESS)?;
        let mut receive = Queue::new(&registers, RECEIVE, RECEIVE_ENTRIES, BUFFER_BYTES, true)?;
        let send = Queue::new(&registers, SEND, SEND_ENTRIES, BUFFER_BYTES, false)?;
        begin(&registers);
        for entry in 0..RECEIVE_ENTRIES {
            receive.give(&registers, entry, BUFFER_BYTES);
        }
        let words = [registers.read(CONFIGURATION), registers.read(CONFIGURATION + 4)];
        let [a, b] = words.map(u32::to_le_bytes);
        let address = [a[0], a[1], a[2], a[3], b[0], b[1]];
        Some(Self { registers, address, receive, send, free: (0..SEND_ENTRIES).collect() })
    }
}

impl Nic for VirtioNet {
    fn ethernet_address(&self) -> Option<[u8; 6]> {
        Some(self.address)
    }

    fn receive(&mut self) -> Option<Vec<u8>> {
        let (entry, bytes) = self.receive.take()?;
        let mut packet = vec![0; bytes.saturating_sub(HEADER_BYTES).min(PACKET_BYTES_MAX)];
        self.receive.read(entry, HEADER_BYTES, &mut packet);
        self.receive.give(&self.registers, entry, BUFFER_BYTES);
        Some(packet)
    }

    fn has_room(&mut self) -> bool {
        while let Some((entry, _)) = self.send.take() {
            // A device that names a buffer twice gets it once.
            if !self.free.contains(&entry) {
                self.free.push(entry);
            }
        }
        !self.free.is_empty()
    }

    fn send(&mut self, packet: &[u8]) {
        if packet.len() > PACKET_BYTES_MAX || !self.has_room() {
            return;
        }
        let Some(entry) = self.free.pop() else { return };
        self.send.write(entry, 0, &[0; HEADER_BYTES]);
        self.send.write(entry, HEADER_BYTES, packet);
        self.send.give(&self.registers, entry, HEADER_BYTES + packet.len());
    }
}
