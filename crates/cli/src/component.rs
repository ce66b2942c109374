//! From a core wasm module, as most compilers write it, to a component, as a node runs it.

use problem::{Code, Problem};
use std::borrow::Cow;
use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME as WASI, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER as ADAPTER,
};
use wasmparser::{Parser, Payload};
use wit_component::ComponentEncoder;

/// The image as a component: itself if it is one, else made of the core module it is.
///
/// # Errors
/// - [`Code::ImageNotWasm`] when it is neither.
/// - [`Code::WorldMismatch`] when a core module does not say which WIT world it was made for.
pub fn component(image: &[u8]) -> Result<Cow<'_, [u8]>, Problem> {
    if Parser::is_component(image) {
        return Ok(Cow::Borrowed(image));
    }
    if !Parser::is_core_wasm(image) {
        return Err(Problem::new(Code::ImageNotWasm, "it does not begin as WebAssembly does"));
    }
    let broken = |error: &dyn std::fmt::Display| {
        Problem::new(Code::ImageNotWasm, format!("the core module cannot be read: {error}"))
    };
    let outline = outline(image).map_err(|error| broken(&error))?;
    if !outline.has_world {
        let problem = Problem::new(Code::WorldMismatch, "the core module does not say which WIT world it was made for");
        return Err(problem.with_hint("generate its bindings with wit-bindgen from wit/unit.wit, or build a component"));
    }
    let unfit = |error: &dyn std::fmt::Debug| {
        Problem::new(Code::WorldMismatch, format!("no component can be made of the core module: {error:?}"))
    };
    let mut encoder = ComponentEncoder::default().validate(true).module(image).map_err(|error| unfit(&error))?;
    if outline.uses_preview1 {
        encoder = encoder.adapter(WASI, ADAPTER).map_err(|error| unfit(&error))?;
    }
    Ok(Cow::Owned(encoder.encode().map_err(|error| unfit(&error))?))
}

/// What decides how a component is made.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outline {
    /// It was written for WASI 0.1, which an adapter brings to 0.2.
    uses_preview1: bool,
    /// It carries the world it was made for, as bindings from WIT do.
    has_world: bool,
}

fn outline(module: &[u8]) -> Result<Outline, wasmparser::BinaryReaderError> {
    let mut outline = Outline::default();
    for payload in Parser::new(0).parse_all(module) {
        match payload? {
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    outline.uses_preview1 |= import?.module == WASI;
                }
            }
            Payload::CustomSection(section) => outline.has_world |= section.name().starts_with("component-type"),
            _ => {}
        }
    }
    Ok(outline)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_stays_as_it_is() {
        let empty_component = b"\0asm\x0d\0\x01\0";
        assert!(matches!(component(empty_component), Ok(Cow::Borrowed(image)) if image == empty_component));
    }

    #[test]
    fn what_cannot_become_a_component_says_why() {
        for (image, code) in [
            (&b"\x7fELF"[..], Code::ImageNotWasm),
            (b"", Code::ImageNotWasm),
            (b"\0asm\x01\0\0\0", Code::WorldMismatch),
            (b"\0asm\x01\0\0\0\x02\x7f", Code::ImageNotWasm),
        ] {
            assert_eq!(component(image).unwrap_err().code, code, "{image:?}");
        }
    }

    #[test]
    fn an_import_of_wasi_0_1_asks_for_the_adapter() {
        // Type 0 is func(); import "wasi_snapshot_preview1" "x" as func 0.
        let mut module = b"\0asm\x01\0\0\0\x01\x04\x01\x60\0\0\x02\x1c\x01\x16wasi_snapshot_preview1\x01x\0\0".to_vec();
        assert_eq!(outline(&module).unwrap(), Outline { uses_preview1: true, has_world: false });
        module.extend(b"\0\x0f\x0ecomponent-type");
        assert_eq!(outline(&module).unwrap(), Outline { uses_preview1: true, has_world: true });
    }
}
