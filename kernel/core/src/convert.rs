//! Between the types of the contract and values of frames.

use crate::bindings::types::Error;
use crate::bindings::{Event, http, queue, store};
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use frame::{Checksum, Frame, Kind, Limits, Value};
use kernel_abi::Verb;

/// Frames are as large as memory allows: whoever made one had limits of its own.
pub const LIMITS: Limits = Limits {
    total_bytes_max: 1 << 40,
    meta_bytes_max: 64 << 20,
    buffers_max: 1_024,
    depth_max: 32,
    values_max: 1 << 20,
};

/// Bytes over this travel in a buffer of their own.
const SMALL: usize = 4 << 10;

/// What the host should not have answered.
pub struct Strange;

type Read<T> = Result<T, Strange>;

pub fn question(verb: Verb, arguments: Vec<Value<'_>>) -> Read<Vec<u8>> {
    let body = Value::Map(vec![("op", Value::Str(verb.op())), ("args", Value::List(arguments))]);
    let frame = Frame { kind: Kind::Call, id: u64::from(verb.number()) + 2, body };
    frame.encode(Checksum::Front, &LIMITS).map(|frame| frame.to_vec()).map_err(|_| Strange)
}

/// What a host answered: a value, or its refusal.
pub fn answer(bytes: &[u8]) -> Read<Result<Value<'_>, Error>> {
    let frame = Frame::decode(bytes, &LIMITS).map_err(|_| Strange)?;
    match frame.kind {
        Kind::Reply => Ok(Ok(frame.body)),
        Kind::Failure => {
            let (Some(Value::Str(kind)), Some(Value::Str(message))) =
                (frame.body.get("kind"), frame.body.get("message"))
            else {
                return Err(Strange);
            };
            let message = (*message).to_owned();
            Ok(Err(match *kind {
                "denied" => Error::Denied(message),
                "invalid" => Error::Invalid(message),
                "unavailable" => Error::Unavailable(message),
                _ => return Err(Strange),
            }))
        }
        _ => Err(Strange),
    }
}

pub fn bytes(bytes: &[u8]) -> Value<'_> {
    if bytes.len() <= SMALL { Value::Bytes(bytes) } else { Value::Buffer(bytes) }
}

pub fn maybe_bytes(bytes_or_none: Option<&Vec<u8>>) -> Value<'_> {
    bytes_or_none.map_or(Value::Null, |some| bytes(some))
}

pub fn maybe_text(text: Option<&String>) -> Value<'_> {
    text.map_or(Value::Null, |text| Value::Str(text))
}

/// Milliseconds and counts beyond what a frame carries are as good as for ever.
pub fn number(number: u64) -> Value<'static> {
    Value::I64(i64::try_from(number).unwrap_or(i64::MAX))
}

fn maybe_number(maybe: Option<u64>) -> Value<'static> {
    maybe.map_or(Value::Null, number)
}

fn pairs(pairs: &[(String, String)]) -> Value<'_> {
    Value::List(pairs.iter().map(|(name, value)| Value::List(vec![Value::Str(name), Value::Str(value)])).collect())
}

pub fn outgoing(event: &queue::Outgoing) -> Value<'_> {
    Value::Map(vec![
        ("type", Value::Str(&event.type_)),
        ("subject", maybe_text(event.subject.as_ref())),
        ("content-type", maybe_text(event.content_type.as_ref())),
        ("attributes", pairs(&event.attributes)),
        ("data", bytes(&event.data)),
        ("delay-ms", maybe_number(event.delay_ms)),
        ("ttl-ms", maybe_number(event.ttl_ms)),
    ])
}

pub fn request(request: &http::Request) -> Value<'_> {
    Value::Map(vec![
        ("method", Value::Str(&request.method)),
        ("url", Value::Str(&request.url)),
        ("headers", pairs(&request.headers)),
        ("body", bytes(&request.body)),
        ("timeout-ms", maybe_number(request.timeout_ms.map(u64::from))),
    ])
}

pub fn read_nothing(value: &Value<'_>) -> Read<()> {
    if *value == Value::Null { Ok(()) } else { Err(Strange) }
}

pub fn read_maybe_bytes(value: &Value<'_>) -> Read<Option<Vec<u8>>> {
    match value {
        Value::Null => Ok(None),
        Value::Bytes(bytes) | Value::Buffer(bytes) => Ok(Some(bytes.to_vec())),
        _ => Err(Strange),
    }
}

pub fn read_bytes(value: &Value<'_>) -> Read<Vec<u8>> {
    read_maybe_bytes(value)?.ok_or(Strange)
}

#[cfg(feature = "wasi")]
pub fn read_text(value: &Value<'_>) -> Read<String> {
    read_maybe_text(value)?.ok_or(Strange)
}

pub fn read_maybe_text(value: &Value<'_>) -> Read<Option<String>> {
    match value {
        Value::Null => Ok(None),
        Value::Str(text) => Ok(Some((*text).to_owned())),
        _ => Err(Strange),
    }
}

pub fn read_integer(value: &Value<'_>) -> Read<i64> {
    if let Value::I64(number) = value { Ok(*number) } else { Err(Strange) }
}

pub fn read_bool(value: &Value<'_>) -> Read<bool> {
    if let Value::Bool(is) = value { Ok(*is) } else { Err(Strange) }
}

pub fn read_pairs(value: &Value<'_>) -> Read<Vec<(String, String)>> {
    let Value::List(pairs) = value else { return Err(Strange) };
    let pair = |pair: &Value<'_>| match pair {
        Value::List(pair) => match pair.as_slice() {
            [Value::Str(name), Value::Str(value)] => Ok(((*name).to_owned(), (*value).to_owned())),
            _ => Err(Strange),
        },
        _ => Err(Strange),
    };
    pairs.iter().map(pair).collect()
}

pub fn read_page(value: &Value<'_>) -> Read<store::Page> {
    let (Some(Value::List(entries)), Some(next)) = (value.get("entries"), value.get("next")) else {
        return Err(Strange);
    };
    let entry = |entry: &Value<'_>| match entry {
        Value::List(pair) => match pair.as_slice() {
            [Value::Str(key), value] => Ok(store::Entry { key: (*key).to_owned(), value: read_bytes(value)? }),
            _ => Err(Strange),
        },
        _ => Err(Strange),
    };
    let entries = entries.iter().map(entry).collect::<Read<_>>()?;
    Ok(store::Page { entries, next: read_maybe_text(next)? })
}

pub fn read_response(value: &Value<'_>) -> Read<http::Response> {
    let field = |name| value.get(name).ok_or(Strange);
    Ok(http::Response {
        status: u16::try_from(read_integer(field("status")?)?).map_err(|_| Strange)?,
        headers: read_pairs(field("headers")?)?,
        body: read_bytes(field("body")?)?,
    })
}

pub fn read_event(value: &Value<'_>) -> Read<Event> {
    frame::read_event(value).map(event).map_err(|_| Strange)
}

pub fn read_maybe_event(value: &Value<'_>) -> Read<Option<Event>> {
    if *value == Value::Null { Ok(None) } else { read_event(value).map(Some) }
}

fn event(event: event::Event) -> Event {
    let event::Event { id, source, kind, subject, time_ms, content_type, attributes, attempt, data, origin: _ } = event;
    Event { id, source, type_: kind, subject, time_ms, content_type, attributes, attempt, data }
}
