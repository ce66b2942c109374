//! The framing of HTTP/1, read strictly and before hyper reads it.
//!
//! ```text
//!  bytes ─▶ Head ──length──▶ Length ─┐      anything that two readers could read in two ways
//!            ▲  └───chunked─▶ Chunks ┤      ends the connection with a typed refusal
//!            └───────────────────────┘
//! ```
//! hyper is lenient where the standard lets it be: it takes bare line feeds, it drops one of two contradicting lengths.
//! Behind or before another proxy that leniency is request smuggling. What passes here, hyper reads in the same way.

mod chunks;
mod framing;
pub(crate) mod guard;
mod head;

pub use chunks::Chunks;
pub use framing::{Framing, Vetted};
pub use head::{Head, Length, METHOD_BYTES_MAX};

use problem::{Code, Problem};

/// Why a request is refused before the node sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    Malformed(&'static str),
    /// The request line and header fields have more bytes than the gate takes.
    HeadTooLarge,
    TooManyHeaders,
    Connect,
    /// The head did not arrive in time.
    Late,
    /// The node has no memory left for a head as large.
    NoRoom,
}

impl Refused {
    pub fn problem(self) -> Problem {
        match self {
            Self::Malformed(what) => Problem::new(Code::RequestMalformed, what),
            Self::HeadTooLarge => {
                Problem::new(Code::HeadersTooLarge, "the request head has more bytes than this gate takes")
            }
            Self::TooManyHeaders => Problem::new(
                Code::HeadersTooLarge,
                format!("the request has more than {} header fields", crate::config::HEADERS_MAX),
            ),
            Self::Connect => Problem::new(Code::MethodNotAllowed, "this is not a proxy: CONNECT is not offered")
                .with_hint("send the request itself"),
            Self::Late => Problem::new(Code::RequestTimeout, "the request head did not arrive in time"),
            Self::NoRoom => Problem::new(Code::MemoryFull, "there is no room for the head of this request now"),
        }
    }
}
