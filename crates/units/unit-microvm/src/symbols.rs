//! Names the lines of a backtrace, from what the image says of its sources.
//!
//! The kernel tells of each function its name and how many bytes into the image its code lies. The debug information of a
//! component is that of its core modules, whose addresses count from the beginning of their code.

use addr2line::Context;
use gimli::{EndianSlice, LittleEndian, SectionId};
use std::collections::HashMap;
use std::ops::Range;
use unit_host::calls::Place;
use wasmparser::{Parser, Payload};

/// The code of one core module, and what it says of its sources.
struct Module<'i> {
    code: Range<usize>,
    sections: HashMap<&'i str, &'i [u8]>,
}

/// Whether the image says anything of its sources.
pub fn has_lines(image: &[u8]) -> bool {
    modules(image).iter().any(|module| module.sections.contains_key(".debug_line"))
}

/// A backtrace as text, the innermost function first.
pub fn text(image: &[u8], places: &[Place]) -> String {
    let modules = modules(image);
    let mut text = String::new();
    for (index, place) in places.iter().enumerate() {
        let lines = place.offset.and_then(|offset| lines(&modules, usize::try_from(offset).ok()?));
        let lines = lines.filter(|lines| !lines.is_empty());
        let named = |name: &str| format!("{:#}", rustc_demangle::demangle(name));
        match lines {
            Some(lines) => {
                for (function, line) in lines {
                    let function = function.unwrap_or_else(|| named(&place.function));
                    text += &format!("  {index}: {function}{line}\n");
                }
            }
            None => {
                let offset = place.offset.unwrap_or_default();
                let name = named(&place.function);
                text +=
                    &format!("  {index}: {name} at byte {offset:#x}; build with debug information for source lines\n");
            }
        }
    }
    text
}

fn modules(image: &[u8]) -> Vec<Module<'_>> {
    let mut modules: Vec<Module<'_>> = Vec::new();
    for payload in Parser::new(0).parse_all(image) {
        match payload {
            Ok(Payload::Version { encoding: wasmparser::Encoding::Module, .. }) => {
                modules.push(Module { code: 0..0, sections: HashMap::new() });
            }
            Ok(Payload::CodeSectionStart { range, .. }) => {
                if let Some(module) = modules.last_mut() {
                    module.code = range;
                }
            }
            Ok(Payload::CustomSection(section)) if section.name().starts_with(".debug_") => {
                if let Some(module) = modules.last_mut() {
                    module.sections.insert(section.name(), section.data());
                }
            }
            Ok(_) => {}
            Err(_) => break,
        }
    }
    modules
}

/// The functions at an offset, inlined ones first, each with ` at FILE:LINE`.
fn lines(modules: &[Module<'_>], offset: usize) -> Option<Vec<(Option<String>, String)>> {
    let module = modules.iter().find(|module| module.code.contains(&offset))?;
    let address = (offset - module.code.start) as u64;
    let section = |id: SectionId| {
        let bytes = module.sections.get(id.name()).copied().unwrap_or_default();
        Ok::<_, gimli::Error>(EndianSlice::new(bytes, LittleEndian))
    };
    let context = Context::from_dwarf(gimli::Dwarf::load(section).ok()?).ok()?;
    let mut frames = context.find_frames(address).skip_all_loads().ok()?;
    let mut found = Vec::new();
    while let Ok(Some(frame)) = frames.next() {
        let function = frame.function.and_then(|name| name.demangle().ok().map(|name| name.into_owned()));
        let line = frame
            .location
            .and_then(|location| Some(format!(" at {}:{}", location.file?, location.line.unwrap_or_default())));
        found.push((function, line.unwrap_or_default()));
    }
    Some(found)
}
