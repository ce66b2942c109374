//! Packets over a serial line, as RFC 1055 has it: each between two bytes that occur nowhere else.

use crate::Nic;
use alloc::vec::Vec;
use core::mem;

const END: u8 = 0xc0;
const ESCAPE: u8 = 0xdb;
const ESCAPED_END: u8 = 0xdc;
const ESCAPED_ESCAPE: u8 = 0xdd;
/// Longer ones are dropped whole.
pub(crate) const IP_BYTES_MAX: usize = 1_500;

/// A line for bytes.
pub trait SerialLine: Send {
    fn get(&mut self) -> Option<u8>;
    /// Waits until there is room.
    fn put(&mut self, byte: u8);
}

/// The network on a line.
#[derive(Debug)]
pub struct Slip<L> {
    line: L,
    packet: Vec<u8>,
    is_escaped: bool,
    /// What arrives until the next end is too long, or makes no sense.
    is_lost: bool,
}

impl<L: SerialLine> Slip<L> {
    pub fn new(line: L) -> Self {
        Self { line, packet: Vec::new(), is_escaped: false, is_lost: false }
    }

    pub fn line(&mut self) -> &mut L {
        &mut self.line
    }

    fn take(&mut self, byte: u8) -> Option<Vec<u8>> {
        if byte == END {
            let (packet, is_lost) = (mem::take(&mut self.packet), mem::take(&mut self.is_lost));
            self.is_escaped = false;
            return (!is_lost && !packet.is_empty()).then_some(packet);
        }
        let plain = match (mem::take(&mut self.is_escaped), byte) {
            (false, ESCAPE) => {
                self.is_escaped = true;
                return None;
            }
            (true, ESCAPED_END) => END,
            (true, ESCAPED_ESCAPE) => ESCAPE,
            (true, _) => {
                self.is_lost = true;
                return None;
            }
            (false, byte) => byte,
        };
        if self.packet.len() == IP_BYTES_MAX {
            self.is_lost = true;
        } else {
            self.packet.push(plain);
        }
        None
    }
}

impl<L: SerialLine> Nic for Slip<L> {
    fn ethernet_address(&self) -> Option<[u8; 6]> {
        None
    }

    fn receive(&mut self) -> Option<Vec<u8>> {
        while let Some(byte) = self.line.get() {
            if let Some(packet) = self.take(byte) {
                return Some(packet);
            }
        }
        None
    }

    fn is_receiving(&self) -> bool {
        !self.packet.is_empty()
    }

    fn has_room(&mut self) -> bool {
        true
    }

    fn send(&mut self, packet: &[u8]) {
        self.line.put(END);
        for byte in packet {
            match *byte {
                END => [ESCAPE, ESCAPED_END].into_iter().for_each(|byte| self.line.put(byte)),
                ESCAPE => [ESCAPE, ESCAPED_ESCAPE].into_iter().for_each(|byte| self.line.put(byte)),
                byte => self.line.put(byte),
            }
        }
        self.line.put(END);
    }
}
