//! What a wasm component imports and exports, read from its outermost section headers without compiling it.

use crate::Contract;
use problem::{Code, Problem};
use wasmparser::{Encoding, Parser, Payload};

/// Names with versions, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outermost {
    pub imports: Vec<String>,
    pub exports: Vec<String>,
    /// Components inside of it have code of their own. What toolchains put inside to rename types has none.
    pub is_composed: bool,
}

impl Outermost {
    /// Whether the interface `name` is exported, in whatever version.
    pub fn exports(&self, name: &str) -> bool {
        self.exports.iter().any(|export| export.split('@').next() == Some(name))
    }

    /// The contract of a class that takes events and requests.
    ///
    /// # Errors
    /// It exports neither handler.
    pub fn contract(&self) -> Result<Contract, Problem> {
        if self.exports("lighter:unit/handler") {
            Ok(Contract::Unit)
        } else if self.exports("wasi:http/incoming-handler") {
            Ok(Contract::WasiHttp)
        } else {
            Err(self.without_handler())
        }
    }

    /// What to say of one that exports no handler.
    pub fn without_handler(&self) -> Problem {
        let exports = if self.exports.is_empty() { "nothing".to_owned() } else { self.exports.join(", ") };
        Problem::new(Code::WorldMismatch, format!("the component exports {exports}"))
    }

    /// # Errors
    /// [`Code::ImageNotWasm`]: it is no whole component.
    pub fn read(image: &[u8]) -> Result<Self, Problem> {
        let broken = |error: wasmparser::BinaryReaderError| {
            let detail =
                format!("the image is not a whole wasm component: {} at byte {}", error.message(), error.offset());
            Problem::new(Code::ImageNotWasm, detail)
        };
        if !image.starts_with(b"\0asm") {
            return Err(Problem::new(Code::ImageNotWasm, "the image does not begin as wasm does, with \\0asm"));
        }
        let mut outermost = Self::default();
        let mut depth = 0_usize;
        for payload in Parser::new(0).parse_all(image) {
            match payload.map_err(broken)? {
                Payload::Version { encoding: Encoding::Module, .. } if depth == 0 => {
                    return Err(Problem::new(Code::ImageNotWasm, "the image is a core wasm module, not a component"));
                }
                // Nothing is inside of a module, so this is inside of a component.
                Payload::InstanceSection(_) if depth > 0 => outermost.is_composed = true,
                Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
                Payload::End(_) => depth = depth.saturating_sub(1),
                Payload::ComponentImportSection(section) if depth == 0 => {
                    for import in section {
                        outermost.imports.push(import.map_err(broken)?.name.name.to_owned());
                    }
                }
                Payload::ComponentExportSection(section) if depth == 0 => {
                    for export in section {
                        outermost.exports.push(export.map_err(broken)?.name.name.to_owned());
                    }
                }
                _ => {}
            }
        }
        Ok(outermost)
    }
}
