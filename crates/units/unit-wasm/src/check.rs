//! What an image is, read from its outermost section headers without compiling it.

use component::{OFFERED, Outermost};
use problem::Problem;
use unit::Shape;

pub fn shape(image: &[u8]) -> Result<Shape, Problem> {
    let outermost = Outermost::read(image)?;
    let contract = outermost.contract()?;
    for import in &outermost.imports {
        component::offered(import, OFFERED)?;
    }
    Ok(Shape { contract, imports: outermost.imports })
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
