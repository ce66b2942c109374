//! Registers of a device: 32 bits wide, at a fixed address, looked at only within their region.

use crate::Region;
use core::ptr;

/// The registers of one device. Whoever has it can use the device; reading and writing are safe, for a region holds
/// devices alone and never memory.
#[derive(Debug)]
pub struct Registers {
    region: Region,
}

impl Registers {
    /// The registers of a region of devices, which [`begin`](crate::begin) has mapped.
    ///
    /// # Panics
    /// It is none of them.
    pub fn of(region: Region) -> Self {
        assert!(crate::memory::is_device(&region), "{region:?} is no region of devices");
        Self { region }
    }

    /// # Panics
    /// `offset` is no multiple of four within the region.
    pub fn read(&self, offset: usize) -> u32 {
        // SAFETY: `at` checks the place; devices take any read.
        unsafe { ptr::with_exposed_provenance::<u32>(self.at(offset)).read_volatile() }
    }

    /// # Panics
    /// `offset` is no multiple of four within the region.
    pub fn write(&self, offset: usize, value: u32) {
        // SAFETY: `at` checks the place. What a device does to memory goes to addresses it was told, and `Dma` alone
        // tells addresses.
        unsafe { ptr::with_exposed_provenance_mut::<u32>(self.at(offset)).write_volatile(value) }
    }

    fn at(&self, offset: usize) -> usize {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.region.bytes, "no register at {offset:#x}");
        self.region.start + offset
    }
}
