//! What a wasm component is: the contract it exports and what it imports, read without compiling it.
#![forbid(unsafe_code)]

mod offer;
mod outermost;

pub use offer::{OFFERED, offered};
pub use outermost::Outermost;

/// The contract a component exports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contract {
    /// `lighter:unit/handler`: takes an event.
    Unit,
    /// `wasi:http/incoming-handler`: takes a request.
    WasiHttp,
    /// A function with arguments, which travel as a frame: takes an event whose data it is.
    Call,
}

impl Contract {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unit => "lighter:unit",
            Self::WasiHttp => "wasi:http",
            Self::Call => "lighter:call",
        }
    }
}

/// What an image is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    pub contract: Contract,
    /// Interfaces it imports, with versions.
    pub imports: Vec<String>,
}
