//! A split queue whose buffers are part of it: one for each entry, all of one length, given and taken by number.
//!
//! ```text
//!   descriptors │ available ring │ used ring │ buffer 0 │ buffer 1 │ …      one piece of shared memory
//! ```
//! What the device writes is taken for what it may be: numbers are checked, lengths are cut.

use super::{
    QUEUE, QUEUE_AVAILABLE, QUEUE_DESCRIPTORS, QUEUE_ENTRIES, QUEUE_ENTRIES_MAX, QUEUE_NOTIFY, QUEUE_READY, QUEUE_USED,
};
use arch_metal::{Dma, Registers};

const DESCRIPTOR_BYTES: usize = 16;
const DEVICE_WRITES: u16 = 2;

#[derive(Debug)]
pub struct Queue {
    number: u32,
    entries: u16,
    buffer_bytes: usize,
    device_writes: bool,
    memory: Dma,
    given: u16,
    taken: u16,
}

impl Queue {
    /// Queue `number` of the device, with `entries` buffers that the device writes or reads. None: it has no such queue.
    pub fn new(
        registers: &Registers,
        number: u32,
        entries: u16,
        buffer_bytes: usize,
        device_writes: bool,
    ) -> Option<Self> {
        registers.write(QUEUE, number);
        if registers.read(QUEUE_READY) != 0 || registers.read(QUEUE_ENTRIES_MAX) < u32::from(entries) {
            return None;
        }
        let mut queue = Self { number, entries, buffer_bytes, device_writes, memory: Dma::new(1), given: 0, taken: 0 };
        queue.memory = Dma::new(queue.buffer(entries));
        registers.write(QUEUE_ENTRIES, entries.into());
        for (register, offset) in
            [(QUEUE_DESCRIPTORS, 0), (QUEUE_AVAILABLE, queue.available()), (QUEUE_USED, queue.used())]
        {
            let address = queue.memory.address(offset);
            registers.write(register, address as u32);
            registers.write(register + 4, (address >> 32) as u32);
        }
        for entry in 0..entries {
            let address = queue.memory.address(queue.buffer(entry));
            queue.memory.write_u64(usize::from(entry) * DESCRIPTOR_BYTES, address);
        }
        registers.write(QUEUE_READY, 1);
        Some(queue)
    }

    /// Gives the device a buffer, of which it is to use the first `bytes`.
    pub fn give(&mut self, registers: &Registers, entry: u16, bytes: usize) {
        assert!(entry < self.entries && bytes <= self.buffer_bytes, "{bytes} bytes of buffer {entry}");
        let descriptor = usize::from(entry) * DESCRIPTOR_BYTES;
        // At most a few KiB.
        self.memory.write_u32(descriptor + 8, bytes as u32);
        self.memory.write_u16(descriptor + 12, if self.device_writes { DEVICE_WRITES } else { 0 });
        self.memory.write_u16(self.available() + 4 + 2 * usize::from(self.given % self.entries), entry);
        Dma::order();
        self.given = self.given.wrapping_add(1);
        self.memory.write_u16(self.available() + 2, self.given);
        Dma::order();
        registers.write(QUEUE_NOTIFY, self.number);
    }

    /// A buffer the device is done with, and how many bytes it wrote.
    pub fn take(&mut self) -> Option<(u16, usize)> {
        if self.memory.read_u16(self.used() + 2) == self.taken {
            return None;
        }
        Dma::order();
        let element = self.used() + 4 + 8 * usize::from(self.taken % self.entries);
        self.taken = self.taken.wrapping_add(1);
        let entry = u16::try_from(self.memory.read_u32(element)).ok().filter(|entry| *entry < self.entries)?;
        Some((entry, (self.memory.read_u32(element + 4) as usize).min(self.buffer_bytes)))
    }

    pub fn read(&self, entry: u16, offset: usize, into: &mut [u8]) {
        assert!(offset + into.len() <= self.buffer_bytes, "within its buffer");
        self.memory.read(self.buffer(entry) + offset, into);
    }

    pub fn write(&mut self, entry: u16, offset: usize, from: &[u8]) {
        assert!(offset + from.len() <= self.buffer_bytes, "within its buffer");
        self.memory.write(self.buffer(entry) + offset, from);
    }

    fn available(&self) -> usize {
        usize::from(self.entries) * DESCRIPTOR_BYTES
    }

    fn used(&self) -> usize {
        (self.available() + 6 + 2 * usize::from(self.entries)).next_multiple_of(4)
    }

    fn buffer(&self, entry: u16) -> usize {
        let first = (self.used() + 6 + 8 * usize::from(self.entries)).next_multiple_of(64);
        first + usize::from(entry) * self.buffer_bytes
    }
}
