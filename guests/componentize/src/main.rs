//! Makes components: from a core module that a compiler wrote, or from WebAssembly text.
//!
//! ```text
//! componentize CORE.wasm OUT.wasm [--wit DIR WORLD]   component of a core module; DIR and WORLD if it names none
//! componentize --text IN.wat OUT.wasm                 what the text says, module or component
//! componentize --show FILE.wasm                       what a component imports and exports
//! ```

use std::path::Path;

use anyhow::{Context, Result, bail};
use componentize::{encode, show, with_world};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["--show", file] => {
            print!("{}", show(&read(file)?).with_context(|| format!("show {file}"))?);
            Ok(())
        }
        ["--text", from, to] => write(to, &wat::parse_file(from)?),
        [from, to] => write(to, &encode(&read(from)?).with_context(|| format!("encode {from}"))?),
        [from, to, "--wit", wit, world] => {
            let module = with_world(&read(from)?, Path::new(wit), world).with_context(|| format!("embed {wit}"))?;
            write(to, &encode(&module).with_context(|| format!("encode {from}"))?)
        }
        _ => bail!("usage: componentize CORE OUT [--wit DIR WORLD] | --text IN OUT | --show FILE"),
    }
}

fn read(path: &str) -> Result<Vec<u8>> {
    // Text is taken too, so that a core module may be written by hand.
    wat::parse_file(path).with_context(|| format!("read {path}"))
}

fn write(path: &str, bytes: &[u8]) -> Result<()> {
    std::fs::write(path, bytes).with_context(|| format!("write {path}"))
}
