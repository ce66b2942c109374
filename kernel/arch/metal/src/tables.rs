//! Page tables of four levels, the same on both machines but for the bits of an entry.

use crate::Exclusive;
use crate::machine::entry;

pub(crate) const PAGE: usize = 4_096;
const ENTRIES: usize = 512;
/// Room for 512 MiB of memory in pages of 4 KiB, for the levels above, and for devices.
const TABLES_MAX: usize = 288;

/// What may be done with a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Run and read. Never written.
    Code,
    /// Read.
    Constants,
    /// Read and written. Never run.
    Data,
    /// A device.
    Device,
}

#[repr(C, align(4096))]
struct Table([u64; ENTRIES]);

struct Tables {
    tables: [Table; TABLES_MAX],
    /// Besides the first. All zeros takes no room in the image.
    used: usize,
}

static TABLES: Exclusive<Tables> =
    Exclusive::new(Tables { tables: [const { Table([0; ENTRIES]) }; TABLES_MAX], used: 0 });

/// Sets what may be done with some pages, which lie where they are mapped. A change of what was mapped before takes
/// effect when this returns.
///
/// # Panics
/// There are no tables left: boards map everything when they start.
pub(crate) fn set(start: usize, bytes: usize, access: Access) {
    assert!(start.is_multiple_of(PAGE) && bytes.is_multiple_of(PAGE), "{bytes:#x} bytes at {start:#x}");
    TABLES.with(|tables| {
        for page in (start..start + bytes).step_by(PAGE) {
            *tables.leaf(page) = entry::leaf(page as u64, access);
        }
    });
    crate::machine::flush(start, bytes);
}

/// Where the tables begin.
pub(crate) fn root() -> u64 {
    TABLES.with(|tables| (&raw const tables.tables[0]).addr() as u64)
}

impl Tables {
    /// The entry of the page at this address.
    fn leaf(&mut self, page: usize) -> &mut u64 {
        let mut table = 0;
        for level in (1..4).rev() {
            let index = page >> (12 + 9 * level) & (ENTRIES - 1);
            let below = self.tables[table].0[index];
            table = if below == 0 {
                self.used += 1;
                let new = self.used;
                assert!(new < TABLES_MAX, "page tables for less memory than this");
                self.tables[table].0[index] = entry::branch((&raw const self.tables[new]).addr() as u64);
                new
            } else {
                let base = (&raw const self.tables[0]).addr();
                (entry::address(below) as usize - base) / PAGE
            };
        }
        &mut self.tables[table].0[page >> 12 & (ENTRIES - 1)]
    }
}
