//! Randomness of the host.

use super::queue::Queue;
use super::{agree, begin};
use crate::Randomness;
use arch_metal::Registers;

const BUFFER_BYTES: usize = 64;
/// Looks at the queue before it goes without.
const TRIES_MAX: u32 = 1_000_000;

#[derive(Debug)]
pub struct VirtioRng {
    registers: Registers,
    queue: Queue,
}

impl VirtioRng {
    pub const KIND: u32 = 4;

    /// None: the device wants something else than this driver.
    pub fn new(registers: Registers) -> Option<Self> {
        agree(&registers, 0)?;
        let queue = Queue::new(&registers, 0, 1, BUFFER_BYTES, true)?;
        begin(&registers);
        Some(Self { registers, queue })
    }
}

impl Randomness for VirtioRng {
    fn fill(&mut self, into: &mut [u8]) -> usize {
        let wanted = into.len().min(BUFFER_BYTES);
        self.queue.give(&self.registers, 0, wanted);
        let taken = (0..TRIES_MAX).find_map(|_| self.queue.take());
        let bytes = taken.map_or(0, |(_, bytes)| bytes.min(wanted));
        self.queue.read(0, 0, &mut into[..bytes]);
        bytes
    }
}
