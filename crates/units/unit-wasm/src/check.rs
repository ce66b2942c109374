//! What an image is, read from its outermost section headers without compiling it.

use crate::host::OFFERED;
use component::Outermost;
use problem::{Code, Problem};
use unit::{Contract, Shape};

pub fn shape(image: &[u8]) -> Result<Shape, Problem> {
    let outermost = Outermost::read(image)?;
    let contract = contract(&outermost)?;
    for import in &outermost.imports {
        offered(import)?;
    }
    Ok(Shape { contract, imports: outermost.imports })
}

fn contract(outermost: &Outermost) -> Result<Contract, Problem> {
    if outermost.exports("lighter:unit/handler") {
        Ok(Contract::Unit)
    } else if outermost.exports("wasi:http/incoming-handler") {
        Ok(Contract::WasiHttp)
    } else {
        Err(outermost.without_handler())
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
        true => problem,
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
        let problem = offered("fermyon:spin/sqlite@2.0.0").unwrap_err();
        assert!(problem.hint.contains("fermyon:spin/key-value@2.0.0"), "{problem}");
    }
}
