//! Writes what a Go function needs of the contract: `bindings-go WIT_DIR WORLD OUT_DIR`.
//!
//! ```text
//! OUT_DIR/exports/       package main: what the node calls, passed on to the package `function` beside OUT_DIR
//! OUT_DIR/*_*_*/        the interfaces, a package each
//! OUT_DIR/world.section  a custom section that says which world the module is made for, to be put at its end
//! ```
//! The Go module is called `function.local`. Go's linker cannot write custom sections, but a wasm module may end with any
//! number of them, so that `cat` will do.

use std::path::Path;

use anyhow::{Context, Result, bail};
use wit_bindgen_core::{Files, wit_parser::Resolve};
use wit_component::{StringEncoding, embed_component_metadata};

/// An empty module: its magic number and version.
const MODULE: &[u8] = b"\0asm\x01\0\0\0";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [wit, world, out] = arguments.as_slice() else { bail!("usage: bindings-go WIT_DIR WORLD OUT_DIR") };
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_path(wit)?;
    let world = resolve.select_world(&[package], Some(world))?;

    let mut module = MODULE.to_vec();
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8, false)?;
    write(&Path::new(out).join("world.section"), &module[MODULE.len()..])?;

    let mut files = Files::default();
    wit_bindgen_go::Opts::default().build().generate(&mut resolve, world, &mut files)?;
    for (path, content) in files.iter().filter(|(path, _)| *path != "go.mod") {
        let path = match path {
            "wit_exports.go" => "exports/wit_exports.go",
            other => other,
        };
        match std::str::from_utf8(content) {
            Ok(text) => write(&Path::new(out).join(path), imports_of_ours(text).as_bytes())?,
            Err(_) => bail!("{path} is not text"),
        }
    }
    Ok(())
}

/// The same code, with every import from the one module that a template is. What the world exports is the user's
/// `function`, whatever the generated code calls it.
fn imports_of_ours(code: &str) -> String {
    let line =
        |line: &str| match line.trim().strip_prefix("\"wit_component/export_").and_then(|it| it.strip_suffix('"')) {
            Some(name) => format!("\texport_{name} \"function.local/function\"\n"),
            None => {
                line.replace("\"wit_component/", "\"function.local/internal/")
                    .replace("\"go.bytecodealliance.org/pkg/wit/", "\"function.local/internal/wit/")
                    + "\n"
            }
        };
    code.lines().map(line).collect()
}

fn write(path: &Path, content: &[u8]) -> Result<()> {
    let folder = path.parent().context("a file stands in a folder")?;
    std::fs::create_dir_all(folder)?;
    std::fs::write(path, content).with_context(|| format!("write {}", path.display()))
}
