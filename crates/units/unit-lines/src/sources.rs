//! Names places in the code of an image, from the image's own debug information.
//!
//! A class tells of each function its name and how many bytes into the image its code lies. The debug information of a
//! component is that of its core modules, whose addresses count from the beginning of their code.

use addr2line::Context;
use gimli::{EndianSlice, LittleEndian, SectionId};
use std::cell::OnceCell;
use std::collections::HashMap;
use std::ops::Range;
use unit::{StackFrame, cut};
use wasmparser::{Parser, Payload};

/// Debug information of one core module that is read for a trap.
const DEBUG_BYTES_MAX: usize = 16 << 20;
/// Of it, the bytes that say which code is which line: each may become 24 bytes in memory.
const LINES_BYTES_MAX: usize = 4 << 20;
/// Functions in a backtrace, those the compiler has put into others included.
const FRAMES_MAX: usize = 30;
/// Bytes of a name: what is longer is nothing to read.
const NAME_BYTES_MAX: usize = 2 << 10;

/// The code of one core module, and what it says of its sources.
struct Module<'i> {
    code: Range<usize>,
    sections: HashMap<&'i str, &'i [u8]>,
}

impl Module<'_> {
    fn has_lines(&self) -> bool {
        self.sections.contains_key(".debug_line")
    }

    fn is_too_large(&self) -> bool {
        let total: usize = self.sections.values().map(|section| section.len()).sum();
        let lines = self.sections.get(".debug_line").map_or(0, |section| section.len());
        total > DEBUG_BYTES_MAX || lines > LINES_BYTES_MAX
    }
}

/// What of an image is to be kept beside its artefact, to tell of traps: all of it, or nothing when it says nothing of
/// its sources or too much.
pub fn worth_keeping(image: &[u8]) -> &[u8] {
    let modules = modules(image);
    match modules.iter().any(Module::has_lines) && !modules.iter().any(Module::is_too_large) {
        true => image,
        false => &[],
    }
}

/// A backtrace as text, the innermost function first; `without` says why a frame has no line.
pub(crate) fn text(image: &[u8], frames: &[StackFrame], without: &str) -> String {
    let sources = Sources::read(image);
    let named = |name: &str| format!("{:#}", rustc_demangle::demangle(cut(name, NAME_BYTES_MAX)));
    let mut lines = Vec::new();
    for (index, frame) in frames.iter().enumerate() {
        let found = frame.offset.map(|offset| sources.find(offset)).unwrap_or_default();
        if found.is_empty() {
            let (name, offset) = (named(&frame.function), frame.offset.unwrap_or_default());
            lines.push(format!("  {index}: {name} at byte {offset:#x}; {without}"));
        }
        for SourceLine { function, line } in found {
            let function = named(function.as_ref().unwrap_or(&frame.function));
            let line = line.map(|(file, line)| format!(" at {file}:{line}")).unwrap_or_default();
            lines.push(format!("  {index}: {function}{line}"));
        }
        if lines.len() > FRAMES_MAX {
            lines.truncate(FRAMES_MAX);
            lines.push("  … and more".to_owned());
            break;
        }
    }
    lines.join("\n")
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
pub struct Sources<'i>(Vec<Known<'i>>);

struct Known<'i> {
    module: Module<'i>,
    /// Read when it is first asked; none if it is not as it should be.
    context: OnceCell<Option<Context<EndianSlice<'i, LittleEndian>>>>,
}

impl<'i> Known<'i> {
    fn context(&self) -> Option<&Context<EndianSlice<'i, LittleEndian>>> {
        let section = |id: SectionId| {
            let bytes = self.module.sections.get(id.name()).copied().unwrap_or_default();
            Ok::<_, gimli::Error>(EndianSlice::new(bytes, LittleEndian))
        };
        let read = || Context::from_dwarf(gimli::Dwarf::load(section).ok()?).ok();
        self.context.get_or_init(read).as_ref()
    }
}

/// A function at some place in the code.
pub struct SourceLine {
    /// As the compiler calls it, its name still mangled.
    pub function: Option<String>,
    /// File and line.
    pub line: Option<(String, u32)>,
}

impl<'i> Sources<'i> {
    pub fn read(image: &'i [u8]) -> Self {
        let known = |module| Known { module, context: OnceCell::new() };
        Self(modules(image).into_iter().map(known).collect())
    }

    /// The functions at an offset into the image, inlined ones first.
    pub fn find(&self, offset: u64) -> Vec<SourceLine> {
        let Ok(offset) = usize::try_from(offset) else { return Vec::new() };
        let Some(known) = self.0.iter().find(|known| known.module.code.contains(&offset)) else { return Vec::new() };
        let Some(context) = known.context() else { return Vec::new() };
        let Ok(mut frames) = context.find_frames((offset - known.module.code.start) as u64).skip_all_loads() else {
            return Vec::new();
        };
        let mut found = Vec::new();
        while found.len() <= FRAMES_MAX
            && let Ok(Some(frame)) = frames.next()
        {
            let short = |name: &str| cut(name, NAME_BYTES_MAX).to_owned();
            let function = frame.function.and_then(|name| name.raw_name().ok().map(|name| short(&name)));
            let line =
                frame.location.and_then(|location| Some((short(location.file?), location.line.unwrap_or_default())));
            found.push(SourceLine { function, line });
        }
        found
    }
}
