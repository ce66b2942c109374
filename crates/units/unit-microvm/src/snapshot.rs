//! A linked function, ready for its first event: memory, registers, and where what lies. Kept as bytes by the
//! warehouse, laid out in a file without a name when the function is loaded; each unit is a copy-on-write map of that.
//! A machine that goes on with a fresh unit of the same function has only those pages rewritten that the one before
//! wrote; and in a new machine those pages are made ahead, for a guest that meets a missing page leaves its processor.
//!
//! ```text
//!   magic, version │ code, heap, tables │ registers │ runs: start, bytes │ the pages of each │ the image, for its lines
//! ```

use crate::memory::{Memory, Outside};
use crate::processor::Registers;
use crate::tables::{Access, Tables};
use crate::written;
use kernel_abi::boot::Boot;
use kernel_abi::layout::{self, LARGE_PAGE, PAGE};
use parking_lot::Mutex;
use std::fs::File;
use std::io;
use std::ops::{ControlFlow, Range};
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;

const MAGIC: &[u8; 8] = b"lghtvm\0\x01";

/// Runs of pages one snapshot may have.
const RUNS_MAX: u64 = 1 << 16;

/// Pages that a machine keeps from one unit to the next: what the runtime of Go writes when it starts, and more than
/// most units write. What is more is given back, and faulted in again by the next unit, page by page.
const KEPT_BYTES_MAX: u64 = 4 << 20;

/// Runs of written pages that are remembered; the others are made when they are met.
const WRITTEN_RUNS_MAX: usize = 1_024;

/// No page lies beyond this.
const MEMORY_BYTES_MAX: u64 = 16 << 30;

/// What is needed beside the pages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct About {
    pub code_bytes: u64,
    pub heap: u64,
    /// Where the tables end, so that more can be made.
    pub tables_end: u64,
    pub registers: Registers,
}

/// A snapshot in memory.
pub struct Snapshot {
    pub about: About,
    file: File,
    /// The same, mapped; nobody writes to it.
    first: Memory,
    /// Bytes up to the last page that is not empty.
    bytes: u64,
    /// Of the memory of each unit.
    memory_bytes: u64,
    /// Where there is anything that a unit may read.
    contents: Vec<Range<u64>>,
    /// What units of it have written so far, up to what a machine keeps.
    written: Mutex<Vec<Range<u64>>>,
}

/// What an artefact says, its pages not yet looked at.
pub struct Parts<'a> {
    pub about: About,
    runs: Vec<(u64, &'a [u8])>,
    /// The component, if it says something of its sources.
    pub image: &'a [u8],
}

/// Why bytes are no snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

/// Writes what a machine has in its memory as an artefact.
pub fn write(memory: &Memory, about: &About, image: &[u8]) -> io::Result<Vec<u8>> {
    let runs = memory.used_and_swapped()?;
    let mut bytes = MAGIC.to_vec();
    let mut word = |word: u64| bytes.extend_from_slice(&word.to_le_bytes());
    word(u64::from(kernel_abi::VERSION));
    [about.code_bytes, about.heap, about.tables_end].into_iter().for_each(&mut word);
    about.registers.words().into_iter().for_each(&mut word);
    word(runs.len() as u64);
    for (start, bytes) in &runs {
        word(*start);
        word(*bytes);
    }
    let length = runs.iter().map(|(_, length)| length).sum::<u64>() + image.len() as u64;
    bytes.reserve_exact(usize::try_from(length).map_err(io::Error::other)?);
    for (start, length) in runs {
        let length = usize::try_from(length).map_err(io::Error::other)?;
        bytes.extend(memory.copy(start, length).map_err(|Outside| io::Error::other("a run beyond the memory"))?);
    }
    bytes.extend_from_slice(image);
    Ok(bytes)
}

impl<'a> Parts<'a> {
    /// Reads an artefact. The warehouse has verified that it is what was written; here it is checked to make sense.
    ///
    /// # Errors
    /// It does not.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let Some(rest) = bytes.strip_prefix(MAGIC) else { return Err(Malformed("no snapshot")) };
        let mut reader = Reader(rest);
        if reader.word()? != u64::from(kernel_abi::VERSION) {
            return Err(Malformed("a snapshot of another version"));
        }
        let [code_bytes, heap, tables_end] = [reader.word()?, reader.word()?, reader.word()?];
        let mut registers = [0; Registers::WORDS];
        for register in &mut registers {
            *register = reader.word()?;
        }
        let has_place = code_bytes <= layout::CODE_BYTES_MAX && heap == layout::heap(code_bytes);
        let has_tables =
            (layout::PAGE_TABLES..=layout::PAGE_TABLES_END).contains(&tables_end) && tables_end % PAGE == 0;
        if !has_place || !has_tables {
            return Err(Malformed("places that are not those of a snapshot"));
        }
        let count = reader.word()?;
        if count > RUNS_MAX {
            return Err(Malformed("runs too many"));
        }
        let mut places: Vec<Range<u64>> = Vec::new();
        for _ in 0..count {
            let (start, bytes) = (reader.word()?, reader.word()?);
            let end = start.checked_add(bytes).filter(|end| start % PAGE == 0 && end % PAGE == 0);
            let after = places.last().map_or(0, |last| last.end);
            match end {
                Some(end) if start >= after && end > start && end <= MEMORY_BYTES_MAX => places.push(start..end),
                _ => return Err(Malformed("runs that overlap, or are no pages")),
            }
        }
        let runs = places.into_iter().map(|place| Ok((place.start, reader.bytes(place.end - place.start)?)));
        let runs = runs.collect::<Result<_, Malformed>>()?;
        let registers = Registers::from_words(registers);
        Ok(Self { about: About { code_bytes, heap, tables_end, registers }, runs, image: reader.0 })
    }

    /// Where in the bytes of the artefact what lies at an address stands.
    pub fn place_of(&self, address: u64) -> Option<usize> {
        let before = |count: usize| self.runs[..count].iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
        let all = MAGIC.len() + 8 * (5 + Registers::WORDS + 2 * self.runs.len());
        let index =
            self.runs.iter().position(|(start, bytes)| (*start..*start + bytes.len() as u64).contains(&address))?;
        Some(all + before(index) + usize::try_from(address - self.runs[index].0).ok()?)
    }

    fn end(&self) -> u64 {
        self.runs.last().map_or(0, |(start, bytes)| start + bytes.len() as u64)
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: u64) -> Result<&'a [u8], Malformed> {
        let count = usize::try_from(count).map_err(|_| Malformed("longer than memory"))?;
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(Malformed("it ends too soon"))?;
        self.0 = rest;
        Ok(bytes)
    }

    fn word(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.bytes(8)?.try_into().expect("8 bytes")))
    }
}

impl Snapshot {
    /// Lays it out for units that may have `memory_bytes` of linear memory.
    pub fn lay_out(parts: &Parts<'_>, memory_bytes: u64) -> io::Result<Self> {
        let about = parts.about;
        // What was there when it was linked stays there, be it more than the unit will be allowed: the kernel's tables
        // of a large component, its memory as it begins. Beside that there is room for all that is allowed.
        let begun = about.heap.max(parts.end());
        let wanted = begun.saturating_add(memory_bytes).saturating_add(layout::HEAP_OVERHEAD);
        let memory_bytes = wanted.next_multiple_of(LARGE_PAGE);
        let outside = |Outside| io::Error::other("a snapshot with pages beyond its memory");
        let tables = Memory::reserve(layout::PAGE_TABLES_END)?;
        for (start, bytes) in parts.runs.iter().filter(|(start, _)| *start < layout::PAGE_TABLES_END) {
            let inside = (layout::PAGE_TABLES_END - start).min(bytes.len() as u64);
            tables.write(*start, &bytes[..usize::try_from(inside).unwrap_or(0)]).map_err(outside)?;
        }
        Tables::at(&tables, about.tables_end).map_large(about.heap..memory_bytes, Access::Write).map_err(outside)?;
        let file = nameless()?;
        file.set_len(parts.end().max(layout::PAGE_TABLES_END))?;
        for (start, bytes) in &parts.runs {
            file.write_all_at(bytes, *start)?;
        }
        for (start, bytes) in tables.used_and_swapped()? {
            let length = usize::try_from(bytes).map_err(io::Error::other)?;
            file.write_all_at(&tables.copy(start, length).map_err(outside)?, start)?;
        }
        seal(&file)?;
        let first = Memory::reserve(parts.end())?;
        first.lay(&file, parts.end())?;
        let contents = parts.runs.iter().map(|(start, bytes)| *start..*start + bytes.len() as u64);
        // The guest cannot read its tables.
        let contents = contents.map(|run| run.start.max(layout::BOOT)..run.end).filter(|run| !run.is_empty()).collect();
        Ok(Self { about, file, first, bytes: parts.end(), memory_bytes, contents, written: Mutex::default() })
    }

    /// What a unit's memory has at least.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    pub fn heap(&self) -> Range<u64> {
        self.about.heap..self.memory_bytes
    }

    /// Where there is anything that a unit may read.
    pub fn contents(&self) -> Vec<Range<u64>> {
        self.contents.clone()
    }

    /// Gives a memory its first contents.
    pub fn lay(&self, memory: &Memory, boot: &Boot) -> io::Result<()> {
        memory.lay(&self.file, self.bytes)?;
        for run in &*self.written.lock() {
            // Where the system cannot, they are made when they are met.
            let _ = memory.make(run.clone());
        }
        self.lay_boot(memory, boot)
    }

    /// Gives a memory that was laid out before its first contents again: what was written since is rewritten, or given
    /// back where it is much. Where the system does not say what was written all of it is laid out anew.
    pub fn renew(&self, memory: &Memory, boot: &Boot) -> io::Result<()> {
        let (mut kept, mut written) = (0, Vec::new());
        let much = written::runs(memory, |run| {
            kept += run.end - run.start;
            if kept > KEPT_BYTES_MAX {
                return Ok(ControlFlow::Break(run.start));
            }
            if written.len() < WRITTEN_RUNS_MAX {
                written.push(run.clone());
            }
            memory.rewrite(&self.first, run).map_err(|Outside| io::Error::other("a page beyond the memory"))?;
            Ok(ControlFlow::Continue(()))
        });
        match much {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(from)) => memory.forget(from)?,
            Err(_) => return self.lay(memory, boot),
        }
        self.remember(written);
        self.lay_boot(memory, boot)
    }

    fn remember(&self, written: Vec<Range<u64>>) {
        let bytes = |runs: &[Range<u64>]| runs.iter().map(|run| run.end - run.start).sum::<u64>();
        let mut known = self.written.lock();
        if bytes(&written) > bytes(&known) {
            *known = written;
        }
    }

    fn lay_boot(&self, memory: &Memory, boot: &Boot) -> io::Result<()> {
        let boot =
            Boot { code_bytes: self.about.code_bytes, heap: self.about.heap, heap_end: self.memory_bytes, ..*boot };
        memory.write_words(layout::BOOT, &boot.words()).map_err(|Outside| io::Error::other("no boot page"))
    }
}

/// A file in memory, without a name.
#[expect(unsafe_code, reason = "no safe call makes such a file")]
fn nameless() -> io::Result<File> {
    // SAFETY: a literal with its NUL, and plain flags.
    let file = unsafe { libc::memfd_create(c"lighter-snapshot".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor that was just made, and is nobody else's.
    Ok(unsafe { File::from_raw_fd(file) })
}

/// Nobody writes to it any more, not even this process.
#[expect(unsafe_code, reason = "no safe call seals a file")]
fn seal(file: &File) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE | libc::F_SEAL_SEAL;
    // SAFETY: our descriptor, and plain numbers.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artefact() -> Vec<u8> {
        let memory = Memory::reserve(32 << 20).unwrap();
        memory.write(0x40_0000, &[7; 100]).unwrap();
        memory.write(0x40_1000, &[8; 100]).unwrap();
        memory.write(0x100_0000, &[9; 100]).unwrap();
        let registers = Registers::at(0x40_0000, 0x20_0000);
        let about = About { code_bytes: 4_096, heap: layout::heap(4_096), tables_end: 0x3000, registers };
        write(&memory, &about, b"image").unwrap()
    }

    #[test]
    fn what_is_written_is_laid_out_again() {
        let bytes = artefact();
        let parts = Parts::read(&bytes).unwrap();
        assert_eq!(parts.image, b"image");
        assert_eq!(parts.runs.len(), 2, "pages side by side are one run");
        let snapshot = Snapshot::lay_out(&parts, 1 << 20).unwrap();
        let memory = Memory::reserve(snapshot.memory_bytes()).unwrap();
        snapshot.lay(&memory, &Boot::new()).unwrap();
        for _ in 0..3 {
            assert_eq!(memory.copy(0x40_1000, 100).unwrap(), [8; 100]);
            assert_eq!(memory.copy(0x100_0000, 101).unwrap()[99..], [9, 0]);
            assert_eq!(memory.copy(snapshot.memory_bytes() - 1, 1).unwrap(), [0]);
            memory.write(0x40_1000, &[1; 100]).unwrap();
            memory.write(snapshot.memory_bytes() - 1, &[1]).unwrap();
            snapshot.renew(&memory, &Boot::new()).unwrap();
        }
    }

    #[test]
    fn what_one_unit_wrote_is_made_ahead_for_the_next_with_its_first_contents() {
        let bytes = artefact();
        let snapshot = Snapshot::lay_out(&Parts::read(&bytes).unwrap(), 1 << 20).unwrap();
        let laid = || {
            let memory = Memory::reserve(snapshot.memory_bytes()).unwrap();
            snapshot.lay(&memory, &Boot::new()).unwrap();
            memory
        };
        let memory = laid();
        for at in [0x40_1000, 0x100_0000, snapshot.memory_bytes() - 8] {
            memory.write(at, &[1; 8]).unwrap();
        }
        snapshot.renew(&memory, &Boot::new()).unwrap();
        let known = snapshot.written.lock().clone();
        let next = laid();
        assert_eq!(next.copy(0x40_1000, 8).unwrap(), [8; 8]);
        assert_eq!(next.copy(snapshot.memory_bytes() - 8, 8).unwrap(), [0; 8]);
        let mut found = Vec::new();
        let asked = written::runs::<()>(&next, |run| {
            found.push(run);
            Ok(ControlFlow::Continue(()))
        });
        // Where the system does not say what was written, nothing is known.
        assert!(asked.is_err() && known.is_empty() || found == known && known.len() >= 3, "{found:?} {known:?}");
    }

    #[test]
    fn of_what_a_unit_wrote_nothing_is_left_however_much_it_was() {
        let bytes = artefact();
        let snapshot = Snapshot::lay_out(&Parts::read(&bytes).unwrap(), 16 << 20).unwrap();
        let all = |memory: &Memory| memory.copy(0, usize::try_from(memory.bytes()).unwrap()).unwrap();
        // A machine may have more memory than the snapshot asks for.
        let bytes = snapshot.memory_bytes() + (8 << 20);
        let (memory, fresh) = (Memory::reserve(bytes).unwrap(), Memory::reserve(bytes).unwrap());
        snapshot.lay(&memory, &Boot::new()).unwrap();
        snapshot.lay(&fresh, &Boot::new()).unwrap();
        let fresh = all(&fresh);
        // Every so many pages, from one to more runs than are kept, and all of it at last.
        for step in [4_001, 97, 13, 3, 1] {
            for page in (0..bytes / PAGE).step_by(step) {
                memory.write(page * PAGE + page % PAGE, &[0xaa]).unwrap();
            }
            snapshot.renew(&memory, &Boot::new()).unwrap();
            assert!(all(&memory) == fresh, "every {step} pages");
        }
    }

    #[test]
    fn no_cut_and_no_lie_is_laid_out_elsewhere() {
        let bytes = artefact();
        for end in 0..500 {
            assert!(Parts::read(&bytes[..end]).is_err());
        }
        for at in 0..260 {
            for value in [0, 0x7f, 0xff] {
                let mut bytes = bytes.clone();
                bytes[at] = value;
                // Whatever it says: it is refused, or laid out within bounds.
                if let Ok(parts) = Parts::read(&bytes) {
                    assert!(parts.end() <= MEMORY_BYTES_MAX);
                    let _ = Snapshot::lay_out(&parts, 1 << 20);
                }
            }
        }
    }
}
