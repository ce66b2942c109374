//! Names the lines of a backtrace, or of all code, from what the image says of its sources.
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
    let sources = Sources::read(image);
    let named = |name: &str| format!("{:#}", rustc_demangle::demangle(name));
    let mut text = String::new();
    for (index, place) in places.iter().enumerate() {
        let found = place.offset.map(|offset| sources.find(offset)).unwrap_or_default();
        if found.is_empty() {
            let (name, offset) = (named(&place.function), place.offset.unwrap_or_default());
            text += &format!("  {index}: {name} at byte {offset:#x}; build with debug information for source lines\n");
        }
        for Found { function, line } in found {
            let function = named(function.as_ref().unwrap_or(&place.function));
            let line = line.map(|(file, line)| format!(" at {file}:{line}")).unwrap_or_default();
            text += &format!("  {index}: {function}{line}\n");
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

/// What an image says of its sources.
pub struct Sources<'i>(Vec<(Range<usize>, Context<EndianSlice<'i, LittleEndian>>)>);

/// A function at some place in the code.
pub struct Found {
    /// As the compiler calls it, its name still mangled.
    pub function: Option<String>,
    /// File and line.
    pub line: Option<(String, u32)>,
}

impl<'i> Sources<'i> {
    pub fn read(image: &'i [u8]) -> Self {
        let context = |module: &Module<'i>| {
            let section = |id: SectionId| {
                let bytes = module.sections.get(id.name()).copied().unwrap_or_default();
                Ok::<_, gimli::Error>(EndianSlice::new(bytes, LittleEndian))
            };
            Context::from_dwarf(gimli::Dwarf::load(section).ok()?).ok()
        };
        let known = |module: Module<'i>| Some((module.code.clone(), context(&module)?));
        Self(modules(image).into_iter().filter_map(known).collect())
    }

    /// The functions at an offset into the image, inlined ones first.
    pub fn find(&self, offset: u64) -> Vec<Found> {
        let Ok(offset) = usize::try_from(offset) else { return Vec::new() };
        let Some((code, context)) = self.0.iter().find(|(code, _)| code.contains(&offset)) else { return Vec::new() };
        let Ok(mut frames) = context.find_frames((offset - code.start) as u64).skip_all_loads() else {
            return Vec::new();
        };
        let mut found = Vec::new();
        while let Ok(Some(frame)) = frames.next() {
            let function = frame.function.and_then(|name| name.raw_name().ok().map(|name| name.into_owned()));
            let line = frame
                .location
                .and_then(|location| Some((location.file?.to_owned(), location.line.unwrap_or_default())));
            found.push(Found { function, line });
        }
        found
    }
}
