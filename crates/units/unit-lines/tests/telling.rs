//! Traps of images whose debug information is right, wrong, too large or costly to read.

use gimli::write::{Address, AttributeValue, Dwarf, EndianVec, LineProgram, LineString, Sections, Unit};
use gimli::{Encoding, Format, LineEncoding, LittleEndian};
use std::sync::{Arc, Mutex};
use unit::{LogLine, LogWriter, Output, StackFrame};
use unit_lines::{Image, Share, Teller, worth_keeping};

#[derive(Default)]
struct Lines(Mutex<Vec<String>>);

impl LogWriter for Lines {
    fn write(&self, line: LogLine<'_>) {
        self.0.lock().unwrap().push(line.message.to_owned());
    }
}

struct Stage {
    teller: Teller,
    share: Arc<Share>,
    log: Arc<Lines>,
}

impl Stage {
    fn new() -> Self {
        Self { teller: Teller::start().unwrap(), share: Arc::default(), log: Arc::default() }
    }

    /// Tells of a trap, and what the log then has of it.
    async fn told(&self, image: Option<&Arc<Vec<u8>>>, frames: &[(&str, usize)]) -> String {
        let output = Arc::new(Output::new(self.log.clone(), 1, "r".into(), 1 << 20));
        let frame =
            |(name, offset): &(&str, usize)| StackFrame { function: (*name).into(), offset: Some(*offset as u64) };
        let image = image.cloned().map(|image| Box::new(move || image.to_vec()) as Image);
        let told = self.teller.tell(image, frames.iter().map(frame).collect(), &self.share, &output);
        told.wait().await;
        // Late is not lost.
        loop {
            let lines = std::mem::take(&mut *self.log.0.lock().unwrap());
            if !lines.is_empty() {
                return lines.join("\n");
            }
            tokio::task::yield_now().await;
        }
    }
}

fn number(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = (value & 0x7f) as u8;
        value >>= 7;
        bytes.push(if value > 0 { low | 0x80 } else { low });
        if value == 0 {
            return bytes;
        }
    }
}

fn section(id: u8, content: &[u8]) -> Vec<u8> {
    [vec![id], number(content.len()), content.to_vec()].concat()
}

/// A core module with one function of so many bytes, and these sections; where its code begins.
fn module(code_bytes: usize, debug: &[(&str, Vec<u8>)]) -> (Arc<Vec<u8>>, usize) {
    let mut image = b"\0asm\x01\0\0\0".to_vec();
    image.extend(section(1, &[1, 0x60, 0, 0]));
    image.extend(section(3, &[1, 0]));
    let code = [number(1), number(code_bytes), vec![0; code_bytes]].concat();
    image.extend(section(10, &code));
    let begins = image.len() - code.len();
    for (name, bytes) in debug {
        image.extend(section(0, &[number(name.len()), name.as_bytes().to_vec(), bytes.clone()].concat()));
    }
    (Arc::new(image), begins)
}

/// Each byte of code is a line of its own, from 1.
fn lines(code_bytes: usize) -> Vec<(&'static str, Vec<u8>)> {
    let encoding = Encoding { format: Format::Dwarf32, version: 4, address_size: 4 };
    let text = |text: &str| LineString::String(text.as_bytes().to_vec());
    let mut program = LineProgram::new(encoding, LineEncoding::default(), text("src"), None, text("lib.rs"), None);
    let file = program.add_file(text("lib.rs"), program.default_directory(), None);
    program.begin_sequence(Some(Address::Constant(0)));
    for at in 0..code_bytes {
        program.row().address_offset = at as u64;
        program.row().file = file;
        program.row().line = at as u64 + 1;
        program.generate_row();
    }
    program.end_sequence(code_bytes as u64);
    let mut dwarf = Dwarf::new();
    let unit = dwarf.units.add(Unit::new(encoding, program));
    let root = dwarf.units.get(unit).root();
    let root = dwarf.units.get_mut(unit).get_mut(root);
    root.set(gimli::DW_AT_name, AttributeValue::String(b"lib.rs".to_vec()));
    root.set(gimli::DW_AT_low_pc, AttributeValue::Address(Address::Constant(0)));
    root.set(gimli::DW_AT_high_pc, AttributeValue::Udata(code_bytes as u64));
    let mut sections = Sections::new(EndianVec::new(LittleEndian));
    dwarf.write(&mut sections).unwrap();
    let mut written = Vec::new();
    let each = |id: gimli::SectionId, data: &EndianVec<LittleEndian>| -> Result<(), gimli::Error> {
        written.push((id.name(), data.slice().to_vec()));
        Ok(())
    };
    sections.for_each(each).unwrap();
    written
}

#[tokio::test]
async fn a_trap_is_told_with_the_lines_of_its_functions() {
    let (image, code) = module(100, &lines(100));
    assert_eq!(worth_keeping(&image).len(), image.len());
    let told = Stage::new().told(Some(&image), &[("inner", code + 41), ("outer", code + 7)]).await;
    assert!(told.contains("0: inner at ") && told.contains("lib.rs:42\n"), "{told}");
    assert!(told.contains("1: outer at ") && told.ends_with("lib.rs:8"), "{told}");
}

#[tokio::test]
async fn without_an_image_the_log_says_how_to_get_lines() {
    let told = Stage::new().told(None, &[("inner", 41)]).await;
    assert_eq!(told, "  0: inner at byte 0x29; build with debug information for source lines");
}

#[test]
fn an_image_that_says_nothing_or_too_much_of_its_sources_is_not_kept() {
    let (silent, _) = module(10, &[]);
    assert!(worth_keeping(&silent).is_empty());
    for (name, bytes) in [(".debug_line", (4 << 20) + 1), (".debug_info", 16 << 20)] {
        let (large, _) = module(10, &[(".debug_line", vec![0; 8]), (name, vec![0; bytes])]);
        assert!(worth_keeping(&large).is_empty(), "{name}");
    }
    assert!(worth_keeping(b"no module").is_empty());
}

#[tokio::test]
async fn what_makes_no_sense_is_told_without_lines() {
    let mut stage = Stage::new();
    for (name, bytes) in lines(100) {
        for end in 0..bytes.len() {
            let mut broken = lines(100);
            broken.iter_mut().find(|(other, _)| *other == name).unwrap().1.truncate(end);
            let (image, code) = module(100, &broken);
            stage.share = Arc::default();
            assert!(stage.told(Some(&image), &[("inner", code + 41)]).await.contains("0: inner"));
        }
    }
}

#[tokio::test]
async fn many_frames_are_cut_and_that_is_said() {
    let (image, code) = module(100, &lines(100));
    let frames: Vec<_> = (0..100).map(|at| ("deeper", code + at)).collect();
    let told = Stage::new().told(Some(&image), &frames).await;
    assert_eq!(told.lines().count(), 31);
    assert!(told.ends_with("… and more"), "{told}");
}

#[tokio::test]
async fn the_same_trap_again_is_told_alike_and_nothing_is_read_for_it() {
    let (image, code) = module(100, &lines(100));
    let (stage, nothing) = (Stage::new(), Arc::default());
    let first = stage.told(Some(&image), &[("inner", code + 41)]).await;
    assert!(first.contains("lib.rs:42"), "{first}");
    assert_eq!(stage.told(Some(&nothing), &[("inner", code + 41)]).await, first);
    assert!(!stage.told(Some(&nothing), &[("inner", code + 42)]).await.contains("lib.rs"), "another one is read");
}

/// A function may trap with every call, and make each trap dear to tell of.
#[tokio::test]
async fn a_function_that_is_dear_to_tell_of_soon_is_told_of_without_lines() {
    let (image, code) = module(1 << 20, &lines(1 << 20));
    assert!(!worth_keeping(&image).is_empty(), "as dear as may be");
    let stage = Stage::new();
    let (mut with, mut without) = (0, 0);
    while without == 0 {
        let told = stage.told(Some(&image), &[("inner", code + with)]).await;
        match told.contains(&format!("lib.rs:{}", with + 1)) {
            true => with += 1,
            false => {
                assert!(told.contains("too many traps"), "{told}");
                without += 1;
            }
        }
        assert!(with < 1_000, "its share is never used up");
    }
    assert!(with > 0, "the first ones have lines");
    // Nobody else pays for it.
    let other = Stage { share: Arc::default(), ..stage };
    let (image, code) = module(100, &lines(100));
    assert!(other.told(Some(&image), &[("inner", code + 41)]).await.contains("lib.rs:42"));
}
