//! The binary mode: attributes as `ce-` header fields, data as the body (HTTP protocol binding, 3.1).

use crate::attribute::{self, Reading};
use crate::error::{Error, Fault};
use crate::{Limits, escape};
use event::Event;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue};

const PREFIX: &str = "ce-";

/// Fields of which one is enough to say that this wants to be an event: what is missing then is an error, not a request
/// that means something else.
const ANNOUNCING: [&str; 4] = ["ce-specversion", "ce-id", "ce-source", "ce-type"];

pub fn is_announced(headers: &HeaderMap) -> bool {
    ANNOUNCING.iter().any(|name| headers.contains_key(*name))
}

pub fn decode(headers: &HeaderMap, body: &[u8], now_ms: u64, limits: &Limits) -> Result<Event, Error> {
    let mut reading = Reading::default();
    for (name, value) in headers {
        let attribute = match name.as_str().strip_prefix(PREFIX) {
            // It has a field of its own, and two could differ.
            Some("datacontenttype") => return Err(Error::of("datacontenttype", Fault::Twice)),
            Some(attribute) => attribute,
            None => continue,
        };
        let value = escape::decode(value.as_bytes()).map_err(|fault| Error::of(attribute, fault))?;
        reading.add(attribute, value, limits)?;
    }
    // Not encoded: the field means what it means everywhere in HTTP.
    for value in headers.get_all(CONTENT_TYPE) {
        let value = value.to_str().map_err(|_| Error::of("datacontenttype", Fault::Character))?;
        reading.add("datacontenttype", value.to_owned(), limits)?;
    }
    if body.len() > limits.data_bytes_max {
        return Err(Error::of("data", Fault::TooLong { bytes: body.len(), bytes_max: limits.data_bytes_max }));
    }
    reading.finish(body.to_vec(), now_ms)
}

/// The header fields of an event; its data is the body. Attributes whose names CloudEvents does not allow are left out.
pub fn encode(event: &Event) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let time = attribute::time_text(event);
    for (name, value) in attribute::all(event).chain(time.iter().map(|time| ("time", time.as_str()))) {
        let name = HeaderName::try_from([PREFIX, name].concat());
        // Of plain letters and digits both are made.
        if let (Ok(name), Ok(value)) = (name, HeaderValue::try_from(escape::encode(value))) {
            headers.insert(name, value);
        }
    }
    if let Some(value) = attribute::content_type(event).and_then(|kind| HeaderValue::try_from(kind).ok()) {
        headers.insert(CONTENT_TYPE, value);
    }
    headers
}

/// Whether a header field may be added to those of an event without saying something about it.
pub fn may_be_named(name: &HeaderName) -> bool {
    !name.as_str().starts_with(PREFIX) && name != CONTENT_TYPE
}
