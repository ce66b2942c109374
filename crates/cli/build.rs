//! Writes two lists into the crate: the templates of `lighter new`, and the contract's WIT files that go with them.
//!
//! The list is made here and not by a macro, because cargo watches the folders: a new file makes the list anew.

use std::fs;
use std::path::{Path, PathBuf};
use std::{env, io};

fn main() -> io::Result<()> {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let lists = [("TEMPLATES", here.join("../lighter/templates")), ("WIT", here.join("../../contracts/wit"))];
    let mut text = String::new();
    for (name, folder) in lists {
        println!("cargo::rerun-if-changed={}", folder.display());
        let mut files = Vec::new();
        list(&folder, &mut files)?;
        files.sort();
        text += &format!("/// Path and content of each file.\npub static {name}: &[(&str, &[u8])] = &[\n");
        for file in &files {
            let path = file
                .strip_prefix(&folder)
                .expect("it was found in the folder")
                .to_str()
                .expect("our file names are UTF-8");
            text += &format!("    ({path:?}, include_bytes!({file:?})),\n");
        }
        text += "];\n";
    }
    fs::write(out.join("embedded.rs"), text)
}

/// What a build leaves in a template that somebody tried out is no part of it.
const LEFT_OVER: [&str; 5] = ["target", "build", "node_modules", "__pycache__", "Cargo.lock"];

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if LEFT_OVER.iter().any(|name| entry.file_name() == *name) {
            continue;
        }
        match entry.file_type()?.is_dir() {
            true => list(&entry.path(), files)?,
            false => files.push(entry.path()),
        }
    }
    Ok(())
}
