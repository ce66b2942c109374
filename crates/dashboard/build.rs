//! Packs each file of the dashboard with gzip, so that the program holds it as it travels: without indents and without
//! lines that are comments, which are a tenth of it. The modules but the first travel as one, which is a quarter
//! smaller and one request in place of seventeen.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// The strongest, and slowest: it is done once.
const LEVEL: u8 = 10;

/// The module that imports all others.
const MAIN: &str = "main.js";

/// The one that runs before the others have come, and so travels by itself.
const FIRST: &str = "first.js";

fn main() -> io::Result<()> {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("files");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    println!("cargo::rerun-if-changed=files");
    let mut paths = fs::read_dir(&here)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    let mut text = String::from("/// Each file, by name.\npub static FILES: &[Packed] = &[\n");
    for path in paths {
        let name = path.file_name().and_then(|name| name.to_str()).expect("our names are UTF-8").to_owned();
        let content = match (name.as_str(), name.ends_with(".js")) {
            (MAIN, _) => {
                let others = joined(&here, MAIN, &mut HashSet::from([FIRST.to_owned()]))?;
                format!("import * as {} from './{FIRST}';\n{others}", variable(FIRST))
            }
            (FIRST, _) => bare(&fs::read_to_string(&path)?),
            (_, true) => continue,
            _ => bare(&fs::read_to_string(&path)?),
        };
        let content = content.into_bytes();
        let packed = out.join(format!("{name}.gz"));
        fs::write(&packed, gzip(&content))?;
        let mut hasher = DefaultHasher::new();
        hasher.write(&content);
        let etag = format!("\"{:016x}\"", hasher.finish());
        text += &format!("    Packed {{ name: {name:?}, etag: {etag:?}, gzip: include_bytes!({packed:?}) }},\n");
    }
    text += "];\n";
    fs::write(out.join("files.rs"), text)
}

/// A module behind all that it imports: each is a function that is called once, and returns what it exports. They
/// import with `import { a, b } from './other.js';` in a line, and export what they declare.
fn joined(folder: &Path, name: &str, known: &mut HashSet<String>) -> io::Result<String> {
    let (mut before, mut body, mut exports) = (String::new(), String::new(), Vec::new());
    for line in bare(&fs::read_to_string(folder.join(name))?).lines() {
        if let Some(import) = line.strip_prefix("import ") {
            let (names, from) = import.split_once(" from './").expect("imports stand in one line");
            let from = from.strip_suffix("';").expect("and end it");
            if known.insert(from.to_owned()) {
                before += &joined(folder, from, known)?;
            }
            body += &format!("const {names} = {};\n", variable(from));
        } else if let Some(declared) = line.strip_prefix("export ") {
            let word = declared.trim_start_matches("async ").split([' ', '(', ';']).nth(1).expect("it has a name");
            exports.push(word.to_owned());
            body += &format!("{declared}\n");
        } else {
            body += &format!("{line}\n");
        }
    }
    let variable = variable(name);
    Ok(format!("{before}const {variable} = (() => {{\n{body}return {{ {} }};\n}})();\n", exports.join(", ")))
}

/// `$dom` for `dom.js`.
fn variable(file: &str) -> String {
    format!("${}", file.trim_end_matches(".js"))
}

/// The lines that do something.
fn bare(text: &str) -> String {
    let is_comment = |line: &&str| ["//", "/*", "* ", "*/"].iter().any(|start| line.starts_with(start));
    let lines = text.lines().map(str::trim_start).filter(|line| !line.is_empty() && !is_comment(line));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// RFC 1952: a head of ten bytes, the packed bytes, their checksum and their length.
fn gzip(content: &[u8]) -> Vec<u8> {
    let mut packed = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 255];
    packed.extend(miniz_oxide::deflate::compress_to_vec(content, LEVEL));
    packed.extend(checksum(content).to_le_bytes());
    packed.extend(u32::try_from(content.len()).expect("the files are small").to_le_bytes());
    packed
}

/// CRC-32, bit by bit: the files are small.
fn checksum(content: &[u8]) -> u32 {
    let step = |sum: u32| if sum & 1 == 1 { (sum >> 1) ^ 0xedb8_8320 } else { sum >> 1 };
    let byte = |sum: u32, byte: &u8| (0..8).fold(sum ^ u32::from(*byte), |sum, _| step(sum));
    !content.iter().fold(u32::MAX, byte)
}
