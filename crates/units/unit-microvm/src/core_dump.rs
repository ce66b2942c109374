//! The memory and registers of a unit that crashed, as a core file that gdb reads.
//!
//! `gdb KERNEL-WITH-SYMBOLS NAME.coredump` shows where the kernel was; what the component kept is in its memory.

use crate::memory::{Memory, Outside};
use crate::processor::{ELF_MACHINE, Registers};
use kernel_abi::layout::PAGE_TABLES_END;
use std::io;

const FILE_HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
/// The note with the registers: `struct elf_prstatus` of Linux, where they stand before a last word.
const STATUS_REGISTERS: usize = 112;
const SIGSEGV: u16 = 11;

/// Everything the guest could see; its page tables are left out.
pub fn write(memory: &Memory, registers: &Registers) -> io::Result<Vec<u8>> {
    let runs = memory.used()?;
    let runs: Vec<(u64, u64)> = runs.into_iter().filter(|(start, _)| *start >= PAGE_TABLES_END).collect();
    let note = note(registers);
    let headers = FILE_HEADER + PROGRAM_HEADER * (runs.len() + 1);
    let mut file = file_header(runs.len() + 1);
    let mut at = (headers + note.len()) as u64;
    file.extend(program_header(4, 0, headers as u64, 0, note.len() as u64));
    for (start, bytes) in &runs {
        file.extend(program_header(1, 7, at, *start, *bytes));
        at += bytes;
    }
    file.extend(note);
    for (start, bytes) in runs {
        let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
        file.extend(memory.copy(start, bytes).map_err(|Outside| io::Error::other("a run beyond the memory"))?);
    }
    Ok(file)
}

fn file_header(segments: usize) -> Vec<u8> {
    let mut header = b"\x7fELF\x02\x01\x01".to_vec();
    header.resize(16, 0);
    let mut put = |bytes: &[u8]| header.extend_from_slice(bytes);
    // A core file, the processor, version 1; no entry; program headers follow at once; no sections.
    put(&4_u16.to_le_bytes());
    put(&ELF_MACHINE.to_le_bytes());
    put(&1_u32.to_le_bytes());
    put(&0_u64.to_le_bytes());
    put(&(FILE_HEADER as u64).to_le_bytes());
    put(&0_u64.to_le_bytes());
    put(&0_u32.to_le_bytes());
    put(&(FILE_HEADER as u16).to_le_bytes());
    put(&(PROGRAM_HEADER as u16).to_le_bytes());
    put(&u16::try_from(segments).unwrap_or(u16::MAX).to_le_bytes());
    put(&[0; 6]);
    header
}

fn program_header(kind: u32, flags: u32, offset: u64, at: u64, bytes: u64) -> Vec<u8> {
    let mut header = kind.to_le_bytes().to_vec();
    header.extend(flags.to_le_bytes());
    for word in [offset, at, at, bytes, if kind == 1 { bytes } else { 0 }, 1] {
        header.extend(word.to_le_bytes());
    }
    header
}

fn note(registers: &Registers) -> Vec<u8> {
    let registers = registers.of_linux();
    let mut status = vec![0; STATUS_REGISTERS + 8 * registers.len() + 8];
    status[12..14].copy_from_slice(&SIGSEGV.to_le_bytes());
    // The one thread has the number 1.
    status[32..36].copy_from_slice(&1_u32.to_le_bytes());
    for (index, word) in registers.into_iter().enumerate() {
        let at = STATUS_REGISTERS + 8 * index;
        status[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
    let mut note = Vec::new();
    for word in [5, u32::try_from(status.len()).unwrap_or(0), 1] {
        note.extend(word.to_le_bytes());
    }
    note.extend(*b"CORE\0\0\0\0");
    note.extend(status);
    note
}
