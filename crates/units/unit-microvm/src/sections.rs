//! The symbols and lines of a function's machine code, as a file for gdb.
//!
//! ```text
//!   compiled code: machine code ─▶ offset into the image   (its address map)
//!   image:         offset ─▶ function, file, line          (its debug information)     } ─▶ ELF: symbols, DWARF lines
//! ```
//! It is the very code units run, optimised as it is: lines and functions can be named, variables cannot.

use crate::processor::ELF_MACHINE;
use gimli::write::{Address, AttributeValue, Dwarf, EndianVec, LineProgram, LineString, Sections, Unit};
use gimli::{Encoding, Format, LineEncoding, LittleEndian};
use kernel_abi::layout;
use object::read::elf::ElfFile64;
use object::{Endianness, Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};
use std::collections::HashMap;
use unit_lines::Sources;

/// A function, or a part the compiler added.
struct Symbol {
    name: String,
    at: u64,
    bytes: u64,
}

/// What `file` of gdb reads; none for bytes that no compiler made.
pub fn write(image: &[u8], code: &[u8]) -> Option<Vec<u8>> {
    let elf = ElfFile64::<Endianness>::parse(code).ok()?;
    let text = elf.section_by_name(".text")?;
    let (offset, bytes) = text.file_range()?;
    let base = layout::CODE + offset;
    let map = elf.section_by_name(".wasmtime.addrmap")?.data().ok()?;
    let sources = Sources::read(image);
    let mut places: Vec<(u64, Option<u32>)> =
        wasmtime_environ::iterate_address_map(map)?.map(|(at, place)| (u64::from(at), place.file_offset())).collect();
    let mut symbols = Vec::new();
    for symbol in elf.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text) {
        let (at, bytes) = (symbol.address(), symbol.size());
        // The compiler shortens names; the image's debug information has them whole.
        let first = places.partition_point(|(place, _)| *place < at);
        let inside = places[first..].iter().take_while(|(place, _)| *place < at + bytes);
        let whole = inside.filter_map(|(_, place)| *place).find_map(|place| sources.find(place.into()).pop()?.function);
        let mangled = whole.unwrap_or_else(|| own_name(symbol.name().unwrap_or_default()).to_owned());
        // As a user writes it: gdb would have the compiler's number at its end.
        let name = format!("{:#}", rustc_demangle::demangle(&mangled));
        symbols.push(Symbol { name, at: base + at, bytes });
    }
    // Where a function ends, its last line does too.
    places.extend(symbols.iter().map(|symbol| (symbol.at + symbol.bytes - base, None)));
    places.sort_by_key(|(at, place)| (*at, place.is_some()));
    let debug = debug_sections(&sources, &places, base, bytes)?;
    Some(elf_file(base, bytes, &symbols, &debug))
}

/// `wasm[0]::function[7]::NAME`, as the compiler has it, is the name alone.
fn own_name(name: &str) -> &str {
    name.split_once("::function[").and_then(|(_, rest)| rest.split_once("]::")).map_or(name, |(_, name)| name)
}

/// One unit whose lines are those of all sources, like that of an assembler.
fn debug_sections(
    sources: &Sources<'_>,
    places: &[(u64, Option<u32>)],
    base: u64,
    bytes: u64,
) -> Option<Vec<(&'static str, Vec<u8>)>> {
    let encoding = Encoding { format: Format::Dwarf32, version: 4, address_size: 8 };
    let name = LineString::String(b"function".to_vec());
    let folder = LineString::String(b".".to_vec());
    let mut lines = LineProgram::new(encoding, LineEncoding::default(), folder.clone(), None, name, None);
    let mut files = HashMap::new();
    lines.begin_sequence(Some(Address::Constant(base)));
    for (at, place) in places {
        let line = place.and_then(|place| sources.find(place.into()).into_iter().next()?.line);
        // What the compiler added belongs to no line.
        let (file, line) = line.unwrap_or_default();
        let file = *files.entry(file).or_insert_with_key(|file| {
            let name = LineString::String(if file.is_empty() { b"added".to_vec() } else { file.clone().into_bytes() });
            let folder = lines.default_directory();
            lines.add_file(name, folder, None)
        });
        let row = lines.row();
        (row.address_offset, row.file, row.line) = (*at, file, line.into());
        lines.generate_row();
    }
    lines.end_sequence(bytes);
    let mut dwarf = Dwarf::new();
    let unit = dwarf.units.add(Unit::new(encoding, lines));
    let unit = dwarf.units.get_mut(unit);
    let root = unit.get_mut(unit.root());
    root.set(gimli::DW_AT_name, AttributeValue::String(b"function".to_vec()));
    root.set(gimli::DW_AT_language, AttributeValue::Language(gimli::DW_LANG_Mips_Assembler));
    root.set(gimli::DW_AT_low_pc, AttributeValue::Address(Address::Constant(base)));
    root.set(gimli::DW_AT_high_pc, AttributeValue::Udata(bytes));
    let mut sections = Sections::new(EndianVec::new(LittleEndian));
    dwarf.write(&mut sections).ok()?;
    let mut written = Vec::new();
    let each = |id: gimli::SectionId, data: &EndianVec<LittleEndian>| -> Result<(), gimli::Error> {
        if !data.slice().is_empty() {
            written.push((id.name(), data.slice().to_vec()));
        }
        Ok(())
    };
    sections.for_each(each).ok()?;
    Some(written)
}

const FILE_HEADER: u64 = 64;
const SECTION_HEADER: u64 = 64;
const PROGBITS: u32 = 1;
const SYMTAB: u32 = 2;
const STRTAB: u32 = 3;
const NOBITS: u32 = 8;

struct Section {
    name: &'static str,
    kind: u32,
    flags: u64,
    at: u64,
    bytes: u64,
    data: Vec<u8>,
    /// Index of the section its names are in, and of the first symbol that is not local.
    link: u32,
    info: u32,
    entry_bytes: u64,
}

impl Section {
    fn new(name: &'static str, kind: u32, data: Vec<u8>) -> Self {
        let bytes = data.len() as u64;
        Self { name, kind, flags: 0, at: 0, bytes, data, link: 0, info: 0, entry_bytes: 0 }
    }
}

/// A program of which only the names are there.
fn elf_file(base: u64, bytes: u64, symbols: &[Symbol], debug: &[(&'static str, Vec<u8>)]) -> Vec<u8> {
    let (mut table, mut names) = (vec![0; 24], vec![0]);
    for Symbol { name, at, bytes } in symbols {
        let offset = u32::try_from(names.len()).unwrap_or(0);
        // A global function, in the first section.
        table.extend(offset.to_le_bytes());
        table.extend([0x12, 0, 1, 0]);
        table.extend(at.to_le_bytes());
        table.extend(bytes.to_le_bytes());
        names.extend(name.bytes().filter(|byte| *byte != 0).chain([0]));
    }
    let mut sections = vec![
        Section { flags: 6, at: base, bytes, ..Section::new(".text", NOBITS, Vec::new()) },
        Section { link: 3, info: 1, entry_bytes: 24, ..Section::new(".symtab", SYMTAB, table) },
        Section::new(".strtab", STRTAB, names),
    ];
    sections.extend(debug.iter().map(|(name, data)| Section::new(name, PROGBITS, data.clone())));
    let mut words = vec![0];
    let mut starts: Vec<u32> = Vec::new();
    for name in sections.iter().map(|section| section.name).chain([".shstrtab"]) {
        starts.push(u32::try_from(words.len()).unwrap_or(0));
        words.extend(name.bytes().chain([0]));
    }
    sections.push(Section::new(".shstrtab", STRTAB, words));

    let (mut headers, mut content) = (vec![0; SECTION_HEADER as usize], Vec::new());
    let first = FILE_HEADER + SECTION_HEADER * (sections.len() as u64 + 1);
    for (section, start) in sections.iter().zip(starts) {
        headers.extend(start.to_le_bytes());
        headers.extend(section.kind.to_le_bytes());
        for word in [section.flags, section.at, first + content.len() as u64, section.bytes] {
            headers.extend(word.to_le_bytes());
        }
        headers.extend(section.link.to_le_bytes());
        headers.extend(section.info.to_le_bytes());
        headers.extend(1_u64.to_le_bytes());
        headers.extend(section.entry_bytes.to_le_bytes());
        content.extend_from_slice(&section.data);
    }
    let count = u16::try_from(sections.len() + 1).unwrap_or(u16::MAX);
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    // An executable for the processor; no program headers; sections follow at once, the last has their names.
    file.extend(2_u16.to_le_bytes());
    file.extend(ELF_MACHINE.to_le_bytes());
    file.extend(1_u32.to_le_bytes());
    for word in [base, 0, FILE_HEADER] {
        file.extend(word.to_le_bytes());
    }
    file.extend(0_u32.to_le_bytes());
    for word in [FILE_HEADER as u16, 0, 0, SECTION_HEADER as u16, count, count - 1] {
        file.extend(word.to_le_bytes());
    }
    file.extend(headers);
    file.extend(content);
    file
}
