//! From a core module to a component, and a look into one.
//!
//! A core module that `wit-bindgen` had a hand in says in a custom section which world it is made for; one that Go
//! wrote does not, so it is told with [`with_world`]. A module that still calls WASI preview 1 gets the adapter
//! beside it, which makes calls to `wasi:cli` and friends of them.

use std::path::Path;

use anyhow::{Context, Result, bail};
use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER,
};
use wasmparser::{Parser, Payload};
use wit_component::{ComponentEncoder, DecodedWasm, StringEncoding, WitPrinter, embed_component_metadata};
use wit_parser::Resolve;

/// The component of a core module that says which world it is made for.
///
/// # Errors
/// Not a core module, or one whose imports and exports do not fit its world.
pub fn encode(module: &[u8]) -> Result<Vec<u8>> {
    let calls = calls(module)?;
    let mut encoder = ComponentEncoder::default().validate(true).module(module)?;
    if calls.preview1 {
        let adapter =
            if calls.command { WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER } else { WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER };
        encoder = encoder.adapter(WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, adapter)?;
    }
    encoder.encode()
}

/// The core module with a custom section that says it is made for `world` of the WIT package in `wit`, or for the one
/// world of the file `world`, if that ends with `.wit`: it may name what is in `wit`.
///
/// # Errors
/// The WIT is malformed, or has no such world.
pub fn with_world(module: &[u8], wit: &Path, world: &str) -> Result<Vec<u8>> {
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_path(wit)?;
    let world = match world.ends_with(".wit") {
        true => {
            let package = resolve.push_file(world)?;
            resolve.select_world(&[package], None)?
        }
        false => resolve.select_world(&[package], Some(world))?,
    };
    let mut module = module.to_vec();
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8)?;
    Ok(module)
}

/// What a component imports and exports, as WIT.
///
/// # Errors
/// Not a component.
pub fn show(component: &[u8]) -> Result<String> {
    let DecodedWasm::Component(resolve, world) = wit_component::decode(component)? else {
        bail!("a WIT package, not a component");
    };
    let package = resolve.worlds[world].package.context("the world of a component has a package")?;
    let mut printer = WitPrinter::default();
    printer.emit_docs(false).print(&resolve, package, &[])?;
    Ok(printer.output.to_string())
}

/// What matters to encoding about what a core module imports and exports.
struct Calls {
    /// It imports from WASI preview 1.
    preview1: bool,
    /// It is a program with a `_start`, not a library.
    command: bool,
}

fn calls(module: &[u8]) -> Result<Calls> {
    let mut calls = Calls { preview1: false, command: false };
    for payload in Parser::new(0).parse_all(module) {
        match payload? {
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    calls.preview1 |= import?.module == WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME;
                }
            }
            Payload::ExportSection(exports) => {
                for export in exports {
                    calls.command |= export?.name == "_start";
                }
            }
            _ => {}
        }
    }
    Ok(calls)
}
