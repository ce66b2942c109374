//! An entry of a page table.

use crate::tables::Access;

const PRESENT: u64 = 1;
const WRITABLE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
/// Set from the start, so that no processor ever has to write to a table: a page of it would be copied for each unit.
const TOUCHED: u64 = 1 << 5 | 1 << 6;
const LARGE: u64 = 1 << 7;
const NOT_EXECUTABLE: u64 = 1 << 63;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

pub const fn leaf(page: u64, access: Access) -> u64 {
    let bits = page | PRESENT | USER | TOUCHED;
    match access {
        Access::Read => bits | NOT_EXECUTABLE,
        Access::Write => bits | WRITABLE | NOT_EXECUTABLE,
        Access::Execute => bits,
    }
}

pub const fn large(page: u64, access: Access) -> u64 {
    leaf(page, access) | LARGE
}

pub const fn branch(table: u64) -> u64 {
    table | PRESENT | WRITABLE | USER | TOUCHED
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
        let bits = |access| leaf(0x1000, access) & (WRITABLE | NOT_EXECUTABLE);
        assert_eq!(
            [Access::Read, Access::Write, Access::Execute].map(bits),
            [NOT_EXECUTABLE, WRITABLE | NOT_EXECUTABLE, 0]
        );
        assert_eq!(address(large(0x4020_0000, Access::Write)), Some(0x4020_0000));
        assert_eq!(address(0), None);
    }
}
