//! Writes the Python SDK into the crate, so that a node needs only its own program to run Python.

use std::fs;
use std::path::{Path, PathBuf};
use std::{env, io};

fn main() -> io::Result<()> {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let source = here.join("../../../sdks/python/src");
    let mut files = Vec::new();
    list(&source, &mut files)?;
    files.sort();
    let mut text = String::from("/// Path and content of each file.\npub static SDK: &[(&str, &[u8])] = &[\n");
    for file in &files {
        // Not the folder: an interpreter that imports it writes its cache there, and that is no change.
        println!("cargo::rerun-if-changed={}", file.display());
        let path =
            file.strip_prefix(&source).expect("it was found in the folder").to_str().expect("our names are UTF-8");
        text += &format!("    ({path:?}, include_bytes!({file:?})),\n");
    }
    text += "];\n";
    fs::write(out.join("sdk.rs"), text)
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            list(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "py") {
            files.push(path);
        }
    }
    Ok(())
}
