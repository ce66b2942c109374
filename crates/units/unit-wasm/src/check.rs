//! What an image is, read from its outermost section headers without compiling it.

use crate::engine::Series;
use crate::host::wasi03;
use component::{OFFERED, Outermost};
use problem::{Code, Problem};
use unit::{Contract, Shape};

pub fn shape(image: &[u8]) -> Result<Shape, Problem> {
    let outermost = Outermost::read(image)?;
    let (contract, also) = match series_of(&outermost) {
        Series::Wasi02 => (outermost.contract()?, &[][..]),
        Series::Wasi03 => {
            is_one(&outermost)?;
            (Contract::WasiHttp, wasi03::OFFERED)
        }
    };
    for import in &outermost.imports {
        component::offered(import, &[OFFERED, also].concat())?;
    }
    Ok(Shape { contract, imports: outermost.imports })
}

/// Which engine an image is for.
pub fn series(image: &[u8]) -> Result<Series, Problem> {
    Ok(series_of(&Outermost::read(image)?))
}

fn series_of(outermost: &Outermost) -> Series {
    let is_unit = outermost.exports("lighter:unit/handler");
    if outermost.exports("wasi:http/handler") && !is_unit { Series::Wasi03 } else { Series::Wasi02 }
}

/// Each part of a composed component may have a task that waits on a stack of its own, and how many parts will be made
/// is not said outside.
fn is_one(outermost: &Outermost) -> Result<(), Problem> {
    if !outermost.is_composed {
        return Ok(());
    }
    let detail = "the component exports wasi:http/handler and is composed of parts that have code of their own";
    Err(Problem::new(Code::WorldMismatch, detail)
        .with_hint("deploy the parts as functions that send requests to each other, or use wasi:http 0.2"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use problem::Code;

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

    /// A component that exports a handler of WASI 0.3, with another one inside whose sections are these.
    fn with_part(part: &[u8]) -> Vec<u8> {
        const HEADER: &[u8] = b"\0asm\x0d\0\x01\0";
        let part = [HEADER, part].concat();
        let name = b"wasi:http/handler@0.3.0";
        let export = [&[1, 0, name.len() as u8], &name[..], &[5, 0, 0]].concat();
        let section = |id: u8, bytes: &[u8]| [&[id, bytes.len() as u8], bytes].concat();
        [HEADER, &section(4, &part), &section(11, &export)].concat()
    }

    #[test]
    fn a_component_of_wasi_03_is_one() {
        let renames = with_part(&[]);
        assert_eq!(shape(&renames).unwrap().contract, Contract::WasiHttp);
        assert_eq!(series(&renames).unwrap(), Series::Wasi03);
        // One core instance.
        let has_code = with_part(&[2, 3, 1, 1, 0]);
        let problem = shape(&has_code).unwrap_err();
        assert_eq!(problem.code, Code::WorldMismatch);
        assert!(problem.detail.contains("composed"), "{problem}");
    }

    #[test]
    fn what_this_class_offers_is_named() {
        let offered = |import| component::offered(import, OFFERED);
        assert!(offered("wasi:http/types@0.2.1").is_ok());
        let problem = offered("wasi:keyvalue/store@9.9.9").unwrap_err();
        assert!(problem.hint.contains("wasi:keyvalue/store@0.2.0-draft"), "{problem}");
        let problem = offered("fermyon:spin/sqlite@2.0.0").unwrap_err();
        assert!(problem.hint.contains("fermyon:spin/key-value@2.0.0"), "{problem}");
    }
}
