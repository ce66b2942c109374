//! Page tables of a microvm: made by the tender in memory the guest cannot reach, so that W^X is for good.

use crate::memory::{Memory, Outside};
use crate::processor::entry::{self, address, branch};
use kernel_abi::layout::{LARGE_PAGE, PAGE, PAGE_TABLES, PAGE_TABLES_END};
use std::ops::Range;

/// What a guest may do with a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
    Execute,
}

/// The tables in a memory. The top one is the first page, which the processor is told of.
pub struct Tables<'m> {
    memory: &'m Memory,
    /// Where the next table will be.
    pub end: u64,
}

impl<'m> Tables<'m> {
    pub fn new(memory: &'m Memory) -> Self {
        Self { memory, end: PAGE_TABLES + PAGE }
    }

    /// Goes on where tables were made before.
    pub fn at(memory: &'m Memory, end: u64) -> Self {
        Self { memory, end }
    }

    /// Maps pages to themselves.
    pub fn map(&mut self, range: Range<u64>, access: Access) -> Result<(), Outside> {
        debug_assert!(range.start.is_multiple_of(PAGE));
        range.step_by(PAGE as usize).try_for_each(|page| self.set(page, 1, entry::leaf(page, access)))
    }

    /// Maps large pages to themselves.
    pub fn map_large(&mut self, range: Range<u64>, access: Access) -> Result<(), Outside> {
        debug_assert!(range.start.is_multiple_of(LARGE_PAGE));
        range.step_by(LARGE_PAGE as usize).try_for_each(|page| self.set(page, 2, entry::large(page, access)))
    }

    /// Maps a page by an entry of the processor's own.
    pub fn map_own(&mut self, page: u64, entry: u64) -> Result<(), Outside> {
        self.set(page, 1, entry)
    }

    fn set(&mut self, page: u64, level: u32, entry: u64) -> Result<(), Outside> {
        let at = self.entry(page, level)?;
        self.memory.write_words(at, &[entry])
    }

    /// Where the entry for `page` stands in the table of this level; tables above it are made as they are needed.
    fn entry(&mut self, page: u64, level: u32) -> Result<u64, Outside> {
        let mut table = PAGE_TABLES;
        for above in (level + 1..=4).rev() {
            let entry = table + 8 * index(page, above);
            table = match address(self.memory.read_word(entry)?) {
                Some(below) => below,
                None => {
                    let new = self.end;
                    if new >= PAGE_TABLES_END {
                        return Err(Outside);
                    }
                    self.end += PAGE;
                    self.memory.write_words(entry, &[branch(new)])?;
                    new
                }
            };
        }
        Ok(table + 8 * index(page, level))
    }
}

/// Which entry of a table of this level stands for the address.
const fn index(address: u64, level: u32) -> u64 {
    address >> (12 + 9 * (level - 1)) & 511
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processor::entry::{large, leaf};

    #[test]
    fn pages_are_mapped_to_themselves_and_others_are_not() {
        let memory = Memory::reserve(PAGE_TABLES_END).unwrap();
        let mut tables = Tables::new(&memory);
        tables.map(0x40_0000..0x40_2000, Access::Execute).unwrap();
        tables.map_large(0x4000_0000..0x4040_0000, Access::Write).unwrap();
        let entry = |page, level| {
            let mut tables = Tables::new(&memory);
            let at = tables.entry(page, level).unwrap();
            memory.read_word(at).unwrap()
        };
        assert_eq!(entry(0x40_1000, 1), leaf(0x40_1000, Access::Execute));
        assert_eq!(entry(0x4020_0000, 2), large(0x4020_0000, Access::Write));
        assert_eq!(entry(0x40_2000, 1), 0);
    }

    #[test]
    fn there_is_only_so_much_room_for_tables() {
        let memory = Memory::reserve(PAGE_TABLES_END).unwrap();
        let mut tables = Tables::new(&memory);
        let ends = (0..1_000_u64).map(|index| tables.map(index << 30..(index << 30) + PAGE, Access::Read));
        assert!(ends.last().unwrap().is_err());
    }
}
