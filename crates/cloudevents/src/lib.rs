//! CloudEvents 1.0.2 over HTTP, in and out: headers and bodies on one side, [`event::Event`] on the other.
//!
//! ```text
//!   binary       ce-id: 7, ce-type: …, content-type: text/plain      body: the data
//!   structured   content-type: application/cloudevents+json          body: { "id": "7", "type": …, "data": … }
//!   batched      content-type: application/cloudevents-batch+json    body: [ {…}, {…} ]
//! ```
//! Pure: no socket and no clock. It follows the HTTP protocol binding and the JSON format of the standard, strictly
//! where the standard says MUST, with bounds on sizes and counts; errors name the attribute. Test cases for other
//! languages are in `contracts/conformance/cloudevents`.
//!
//! ```
//! let mut headers = http::HeaderMap::new();
//! for (name, value) in [("ce-specversion", "1.0"), ("ce-id", "7"), ("ce-source", "/meter"), ("ce-type", "reading")] {
//!     headers.insert(name, value.parse().unwrap());
//! }
//! let events = cloudevents::decode(&headers, b"21.5", 0, &cloudevents::Limits::default()).unwrap().unwrap();
//! assert_eq!((events[0].kind.as_str(), events[0].data.as_slice()), ("reading", &b"21.5"[..]));
//! ```
#![forbid(unsafe_code)]

mod attribute;
mod binary;
mod error;
mod escape;
mod json;

pub use attribute::is_media_type;
pub use binary::{encode as binary, may_be_named};
pub use error::{Error, Fault};
pub use json::{batched, structured, structured_opaque};

use event::Event;
use http::HeaderMap;
use http::header::CONTENT_TYPE;

/// Media type of one event as JSON.
pub const STRUCTURED: &str = "application/cloudevents+json";

/// Media type of a list of events as JSON.
pub const BATCHED: &str = "application/cloudevents-batch+json";

/// The only version of CloudEvents that is spoken.
pub const SPEC_VERSION: &str = "1.0";

/// How much one request may bring.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Events of a batch. Default 1,000.
    pub events_max: usize,
    /// Bytes of the data of one event. Default 8 MiB.
    pub data_bytes_max: usize,
    /// Bytes of one attribute. Default 8,192.
    pub attribute_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { events_max: 1_000, data_bytes_max: 8 << 20, attribute_bytes_max: 8_192 }
    }
}

/// How the events of a request are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Binary,
    Structured,
    Batched,
}

/// Which mode the headers announce; none if this is no CloudEvent.
///
/// # Errors
/// [`Fault::Format`]: it is one, in a format that is not spoken here.
pub fn mode(headers: &HeaderMap) -> Result<Option<Mode>, Error> {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut parts = content_type.split(';').map(str::trim);
    let media_type = parts.next().unwrap_or_default().to_ascii_lowercase();
    if !media_type.starts_with("application/cloudevents") {
        return Ok(binary::is_announced(headers).then_some(Mode::Binary));
    }
    let unknown = || Error::of("content-type", Fault::Format { found: content_type.to_owned() });
    let charset = parts.find_map(|part| part.to_ascii_lowercase().strip_prefix("charset=").map(str::to_owned));
    if charset.is_some_and(|charset| !matches!(charset.trim_matches('"'), "utf-8" | "utf8" | "us-ascii")) {
        return Err(unknown());
    }
    match media_type.as_str() {
        STRUCTURED => Ok(Some(Mode::Structured)),
        BATCHED => Ok(Some(Mode::Batched)),
        _ => Err(unknown()),
    }
}

/// Reads the events of a request, or of the reply to one; none if its headers announce no CloudEvent. An event that
/// does not say when it happened gets `now_ms`.
///
/// Extension attributes become texts, whatever their type was; `dataschema` stands among them. A time that is finer
/// than a millisecond stands there too, as it was written, and goes out again as it came.
///
/// # Errors
/// What the standard forbids, and what is over a limit: names the attribute and, in a batch, the event.
pub fn decode(headers: &HeaderMap, body: &[u8], now_ms: u64, limits: &Limits) -> Result<Option<Vec<Event>>, Error> {
    let events = match mode(headers)? {
        None => return Ok(None),
        Some(Mode::Binary) => vec![binary::decode(headers, body, now_ms, limits)?],
        Some(Mode::Structured) => vec![json::decode(body, now_ms, limits)?],
        Some(Mode::Batched) => json::decode_batch(body, now_ms, limits)?,
    };
    Ok(Some(events))
}
