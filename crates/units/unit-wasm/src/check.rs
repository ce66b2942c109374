//! What an image is, read from its outermost section headers without compiling it.

use crate::host::OFFERED;
use problem::{Code, Problem};
use unit::{Contract, Shape};
use wasmparser::{Encoding, Parser, Payload};

pub fn shape(image: &[u8]) -> Result<Shape, Problem> {
    let broken = |error: wasmparser::BinaryReaderError| {
        let detail = format!("the image is not a whole wasm component: {} at byte {}", error.message(), error.offset());
        Problem::new(Code::ImageNotWasm, detail)
    };
    if !image.starts_with(b"\0asm") {
        return Err(Problem::new(Code::ImageNotWasm, "the image does not begin as wasm does, with \\0asm"));
    }
    let mut imports = Vec::new();
    let mut exports = Vec::new();
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(image) {
        match payload.map_err(broken)? {
            Payload::Version { encoding: Encoding::Module, .. } if depth == 0 => {
                return Err(Problem::new(Code::ImageNotWasm, "the image is a core wasm module, not a component"));
            }
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(section) if depth == 0 => {
                for import in section {
                    imports.push(import.map_err(broken)?.name.name.to_owned());
                }
            }
            Payload::ComponentExportSection(section) if depth == 0 => {
                for export in section {
                    exports.push(export.map_err(broken)?.name.name.to_owned());
                }
            }
            _ => {}
        }
    }
    let contract = contract(&exports)?;
    for import in &imports {
        offered(import)?;
    }
    Ok(Shape { contract, imports })
}

fn contract(exports: &[String]) -> Result<Contract, Problem> {
    let has = |name: &str| exports.iter().any(|export| export.split('@').next() == Some(name));
    if has("lighter:unit/handler") {
        Ok(Contract::Unit)
    } else if has("wasi:http/incoming-handler") {
        Ok(Contract::WasiHttp)
    } else {
        let exports = if exports.is_empty() { "nothing".to_owned() } else { exports.join(", ") };
        Err(Problem::new(Code::WorldMismatch, format!("the component exports {exports}")))
    }
}

/// Imports of plain functions and types are left to the linker, which knows their types too.
fn offered(import: &str) -> Result<(), Problem> {
    if !import.contains(':') {
        return Ok(());
    }
    let (interface, version) = import.split_once('@').unwrap_or((import, ""));
    let package = interface.split('/').next().unwrap_or(interface);
    let fits = |(name, offered): &&(&str, &str)| *name == interface && compatible(version, offered);
    if OFFERED.iter().any(|offer| fits(&offer)) {
        return Ok(());
    }
    let near: Vec<String> = OFFERED
        .iter()
        .filter(|(name, _)| name.split('/').next() == Some(package))
        .map(|(name, version)| format!("{name}@{version}"))
        .collect();
    let problem = Problem::new(Code::ImportUnknown, format!("the component imports {import}"));
    Err(match near.is_empty() {
        true => problem.with_hint(
            "this node offers lighter:unit, wasi:http, wasi:keyvalue, wasi:config, wasi:logging and WASI 0.2",
        ),
        false => problem.with_hint(format!("of {package} this node offers {}", near.join(", "))),
    })
}

/// 0.2.x of WASI are compatible among themselves; drafts only with themselves.
fn compatible(wanted: &str, offered: &str) -> bool {
    let series = |version: &str| version.rsplit_once('.').map(|(series, _)| series.to_owned());
    wanted == offered || (!wanted.contains('-') && !offered.contains('-') && series(wanted) == series(offered))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_component_is_named() {
        assert_eq!(shape(b"").unwrap_err().code, Code::ImageNotWasm);
        assert_eq!(shape(b"#!/bin/sh").unwrap_err().code, Code::ImageNotWasm);
        let module = b"\0asm\x01\0\0\0";
        assert!(shape(module).unwrap_err().detail.contains("core wasm module"));
        let truncated = b"\0asm\x0d\0\x01\0\x0a\xff";
        assert_eq!(shape(truncated).unwrap_err().code, Code::ImageNotWasm);
    }

    #[test]
    fn a_component_without_a_handler_names_its_exports() {
        let empty = b"\0asm\x0d\0\x01\0";
        let problem = shape(empty).unwrap_err();
        assert_eq!(problem.code, Code::WorldMismatch);
        assert!(problem.detail.contains("nothing"), "{problem}");
    }

    #[test]
    fn versions_of_a_series_fit_and_drafts_do_not() {
        assert!(compatible("0.2.0", "0.2.12"));
        assert!(compatible("0.2.0-draft", "0.2.0-draft"));
        assert!(!compatible("0.3.0", "0.2.12"));
        assert!(!compatible("0.2.0-draft2", "0.2.0-draft"));
        assert!(offered("wasi:http/types@0.2.1").is_ok());
        let problem = offered("wasi:keyvalue/store@9.9.9").unwrap_err();
        assert!(problem.hint.contains("wasi:keyvalue/store@0.2.0-draft"), "{problem}");
    }
}
