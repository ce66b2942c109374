//! `wasi:http`: requests and replies as resources, their bodies piece by piece over numbered calls.
//!
//! ```text
//!   request ─▶ IncomingRequest ─▶ IncomingBody ─▶ InputStream ── http.read ──▶ the caller's body, as it comes
//!   reply   ◀─ ResponseOutparam ◀─ OutgoingResponse ◀─ OutgoingBody ── http.head, http.write, http.finish ──▶
//!   fetch   ─▶ OutgoingRequest ── http.fetch ──▶ FutureResponse ── http.fetched ──▶ IncomingResponse ─▶ …
//! ```
//! The host knows each exchange by a number: 0 is the one the unit serves, the others are requests of its own. A body
//! is never whole in the kernel: at most one piece of it waits here.

mod fields;
mod incoming;
mod outgoing;

pub use fields::Fields;
pub use incoming::Arrived;
pub use outgoing::{Going, ResponseOutparam};

use super::Handle;
use super::bindings::wasi::http::types::{self, ErrorCode, Method, Scheme};
use super::io::Failed;
use crate::convert::{self as c, Strange};
use crate::imports::Outside;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use frame::Value;
use wasmtime::Result;

/// The exchange that a unit serves.
pub const SERVED: u64 = 0;

/// Bytes of the method, authority or path of an outgoing request, as in the class `wasm`. More are refused.
const TEXT_BYTES_MAX: usize = 8 << 10;

impl types::Host for Outside {
    fn http_error_code(&mut self, failed: Handle) -> Result<Option<ErrorCode>> {
        Ok(self.held.get::<Failed>(&failed)?.code.clone())
    }
}

/// What a host calls an error, by a word.
pub fn error_code(value: &Value<'_>) -> core::result::Result<ErrorCode, Strange> {
    let Some(Value::Str(word)) = value.get("failed") else { return Err(Strange) };
    let number = match value.get("number") {
        Some(Value::I64(number)) => u64::try_from(*number).ok(),
        _ => None,
    };
    let text = match value.get("text") {
        Some(Value::Str(text)) => Some((*text).to_owned()),
        _ => None,
    };
    Ok(match *word {
        "denied" => ErrorCode::HttpRequestDenied,
        "ip-prohibited" => ErrorCode::DestinationIpProhibited,
        "name-unknown" => ErrorCode::DnsError(types::DnsErrorPayload { rcode: None, info_code: None }),
        "refused" => ErrorCode::ConnectionRefused,
        "unavailable" => ErrorCode::DestinationUnavailable,
        "connect-timeout" => ErrorCode::ConnectionTimeout,
        "read-timeout" => ErrorCode::ConnectionReadTimeout,
        "tls" => ErrorCode::TlsProtocolError,
        "protocol" => ErrorCode::HttpProtocolError,
        "body-size" => ErrorCode::HttpRequestBodySize(number),
        "uri" => ErrorCode::HttpRequestUriInvalid,
        _ => ErrorCode::InternalError(text),
    })
}

fn failed(code: ErrorCode) -> Failed {
    Failed { text: format!("{code:?}"), code: Some(code) }
}

fn method_of(word: &str) -> Method {
    match word {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "POST" => Method::Post,
        "PUT" => Method::Put,
        "DELETE" => Method::Delete,
        "CONNECT" => Method::Connect,
        "OPTIONS" => Method::Options,
        "TRACE" => Method::Trace,
        "PATCH" => Method::Patch,
        other => Method::Other(other.to_owned()),
    }
}

fn word_of(method: &Method) -> &str {
    match method {
        Method::Get => "GET",
        Method::Head => "HEAD",
        Method::Post => "POST",
        Method::Put => "PUT",
        Method::Delete => "DELETE",
        Method::Connect => "CONNECT",
        Method::Options => "OPTIONS",
        Method::Trace => "TRACE",
        Method::Patch => "PATCH",
        Method::Other(word) => word,
    }
}

fn scheme_of(word: &str) -> Scheme {
    match word {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        other => Scheme::Other(other.to_owned()),
    }
}

fn scheme_word(scheme: Option<&Scheme>) -> &str {
    match scheme {
        Some(Scheme::Http) => "http",
        Some(Scheme::Https) | None => "https",
        Some(Scheme::Other(word)) => word,
    }
}

/// A method or a name of a header, as HTTP has it.
fn is_token(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

fn read_headers(value: &Value<'_>) -> core::result::Result<Vec<(String, Vec<u8>)>, Strange> {
    let Value::List(pairs) = value else { return Err(Strange) };
    let pair = |pair: &Value<'_>| match pair {
        Value::List(pair) => match pair.as_slice() {
            [Value::Str(name), Value::Bytes(value) | Value::Buffer(value)] => Ok((name.to_string(), value.to_vec())),
            _ => Err(Strange),
        },
        _ => Err(Strange),
    };
    pairs.iter().map(pair).collect()
}

fn headers_value(headers: &[(String, Vec<u8>)]) -> Value<'_> {
    Value::List(headers.iter().map(|(name, value)| Value::List(vec![Value::Str(name), c::bytes(value)])).collect())
}
