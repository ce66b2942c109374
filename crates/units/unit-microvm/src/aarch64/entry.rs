//! An entry of a page table.

use crate::tables::Access;

const PRESENT: u64 = 1;
/// On the lowest level a page, above it a table; without it a large page.
const PAGE_OR_TABLE: u64 = 1 << 1;
/// Memory that is written back; without it a device.
const MEMORY: u64 = 1 << 2 | 0b11 << 8;
/// Of EL0 too.
const USER: u64 = 1 << 6;
const READ_ONLY: u64 = 1 << 7;
/// Set from the start, so that no processor ever has to write to a table: a page of it would be copied for each unit.
const TOUCHED: u64 = 1 << 10;
const NEVER_RUN_AT_EL1: u64 = 1 << 53;
const NEVER_RUN_AT_EL0: u64 = 1 << 54;
const ADDRESS: u64 = 0x0000_ffff_ffff_f000;

pub const fn leaf(page: u64, access: Access) -> u64 {
    large(page, access) | PAGE_OR_TABLE
}

pub const fn large(page: u64, access: Access) -> u64 {
    let bits = page | PRESENT | MEMORY | USER | TOUCHED | NEVER_RUN_AT_EL1;
    match access {
        Access::Read => bits | READ_ONLY | NEVER_RUN_AT_EL0,
        Access::Write => bits | NEVER_RUN_AT_EL0,
        Access::Execute => bits | READ_ONLY,
    }
}

/// The page of vectors: code of EL1, which EL0 can neither read nor run.
pub const fn vectors(page: u64) -> u64 {
    page | PRESENT | PAGE_OR_TABLE | MEMORY | READ_ONLY | TOUCHED | NEVER_RUN_AT_EL0
}

/// A page without memory, whose stores leave the machine.
pub const fn exit(page: u64) -> u64 {
    page | PRESENT | PAGE_OR_TABLE | USER | TOUCHED | NEVER_RUN_AT_EL1 | NEVER_RUN_AT_EL0
}

pub const fn branch(table: u64) -> u64 {
    table | PRESENT | PAGE_OR_TABLE
}

/// The page or table it leads to; none if it leads nowhere.
pub const fn address(entry: u64) -> Option<u64> {
    if entry & PRESENT == 0 { None } else { Some(entry & ADDRESS) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_code_is_not_written_and_what_is_written_is_no_code() {
        let bits = |access| leaf(0x1000, access) & (READ_ONLY | NEVER_RUN_AT_EL0 | NEVER_RUN_AT_EL1);
        assert_eq!(bits(Access::Read), READ_ONLY | NEVER_RUN_AT_EL0 | NEVER_RUN_AT_EL1);
        assert_eq!(bits(Access::Write), NEVER_RUN_AT_EL0 | NEVER_RUN_AT_EL1);
        assert_eq!(bits(Access::Execute), READ_ONLY | NEVER_RUN_AT_EL1);
        assert_eq!(vectors(0) & (USER | READ_ONLY | NEVER_RUN_AT_EL0), READ_ONLY | NEVER_RUN_AT_EL0);
        assert_eq!(address(large(0x4020_0000, Access::Write)), Some(0x4020_0000));
        assert_eq!(address(0), None);
    }
}
