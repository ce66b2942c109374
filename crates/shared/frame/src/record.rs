//! Events and failures as the bodies of frames: the records of crate `event`, field by field.

use crate::{Checksum, EncodeError, Encoded, Frame, Kind, Limits, RecordError, Value};
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use event::{ATTRIBUTES_MAX, Event, Failure};

/// An event as a frame of kind `event`. Its data is not copied.
///
/// # Errors
/// Over a limit, or a time that does not fit an i64.
pub fn encode_event<'a>(event: &'a Event, checksum: Checksum, limits: &Limits) -> Result<Encoded<'a>, EncodeError> {
    Frame { kind: Kind::Event, id: 0, body: event_body(event)? }.encode(checksum, limits)
}

/// Reads a frame of kind `event`.
///
/// # Errors
/// It is no frame, of another kind, or its body is no event record.
pub fn decode_event(bytes: &[u8], limits: &Limits) -> Result<Event, RecordError> {
    let frame = Frame::decode(bytes, limits)?;
    if frame.kind != Kind::Event {
        return Err(RecordError::Kind(frame.kind));
    }
    read_event(&frame.body)
}

/// An event as a value: the body of an event, or of a call to a `lighter:unit` handler.
///
/// # Errors
/// [`EncodeError::Time`]: the time does not fit an i64.
pub fn event_body(event: &Event) -> Result<Value<'_>, EncodeError> {
    let time_ms = i64::try_from(event.time_ms).map_err(|_| EncodeError::Time(event.time_ms))?;
    let attributes = event.attributes.iter();
    let attributes = attributes.map(|(name, value)| Value::List(vec![Value::Str(name), Value::Str(value)])).collect();
    let mut fields = Vec::with_capacity(9);
    fields.push(("id", Value::Str(&event.id)));
    fields.push(("source", Value::Str(&event.source)));
    fields.push(("type", Value::Str(&event.kind)));
    fields.extend(event.subject.as_deref().map(|subject| ("subject", Value::Str(subject))));
    fields.push(("time-ms", Value::I64(time_ms)));
    fields.extend(event.content_type.as_deref().map(|media_type| ("content-type", Value::Str(media_type))));
    fields.push(("attributes", Value::List(attributes)));
    fields.push(("attempt", Value::I64(event.attempt.into())));
    fields.push(("data", Value::Buffer(&event.data)));
    Ok(Value::Map(fields))
}

/// Reads what [`event_body`] made. A missing `id` or `source` is left empty and a missing time 0: the receiver
/// fills them in.
///
/// # Errors
/// [`RecordError::Field`] with the first field that is not as the contract says.
pub fn read_event(body: &Value<'_>) -> Result<Event, RecordError> {
    let mut event = Event { attempt: 1, ..Event::default() };
    let mut has_type = false;
    for (name, value) in fields(body)? {
        match *name {
            "id" => event.id = text(value, "id")?,
            "source" => event.source = text(value, "source")?,
            "type" => {
                event.kind = text(value, "type")?;
                has_type = true;
            }
            "subject" => event.subject = Some(text(value, "subject")?),
            "time-ms" => event.time_ms = number(value, "time-ms")?,
            "content-type" => event.content_type = Some(text(value, "content-type")?),
            "attributes" => event.attributes = attributes(value)?,
            "attempt" => event.attempt = number(value, "attempt")?,
            "data" => match value {
                Value::Buffer(data) | Value::Bytes(data) => event.data = (*data).to_owned(),
                _ => return Err(RecordError::Field("data")),
            },
            _ => return Err(RecordError::Field("")),
        }
    }
    if has_type { Ok(event) } else { Err(RecordError::Field("type")) }
}

/// A failure as the body of a frame of kind `failure`.
pub fn failure_body(failure: &Failure) -> Value<'_> {
    let (kind, message) = match failure {
        Failure::Invalid(message) => ("invalid", message),
        Failure::Retry(message) => ("retry", message),
        Failure::Fatal(message) => ("fatal", message),
    };
    Value::Map(vec![("kind", Value::Str(kind)), ("message", Value::Str(message))])
}

/// Reads what [`failure_body`] made.
///
/// # Errors
/// [`RecordError::Field`] with the field that is not as the contract says.
pub fn read_failure(body: &Value<'_>) -> Result<Failure, RecordError> {
    if fields(body)?.iter().any(|(name, _)| !matches!(*name, "kind" | "message")) {
        return Err(RecordError::Field(""));
    }
    let field = |name| body.get(name).ok_or(RecordError::Field(name));
    let kind = field("kind")?;
    let message = text(field("message")?, "message")?;
    match kind {
        Value::Str("invalid") => Ok(Failure::Invalid(message)),
        Value::Str("retry") => Ok(Failure::Retry(message)),
        Value::Str("fatal") => Ok(Failure::Fatal(message)),
        _ => Err(RecordError::Field("kind")),
    }
}

fn fields<'v, 'a>(body: &'v Value<'a>) -> Result<&'v [(&'a str, Value<'a>)], RecordError> {
    match body {
        Value::Map(entries) => Ok(entries),
        _ => Err(RecordError::Field("")),
    }
}

fn attributes(value: &Value<'_>) -> Result<Vec<(String, String)>, RecordError> {
    const WRONG: RecordError = RecordError::Field("attributes");
    let Value::List(items) = value else { return Err(WRONG) };
    if items.len() > ATTRIBUTES_MAX {
        return Err(WRONG);
    }
    let attribute = |item: &Value<'_>| match item {
        Value::List(pair) => match pair.as_slice() {
            [Value::Str(name), Value::Str(value)] => Ok(((*name).to_owned(), (*value).to_owned())),
            _ => Err(WRONG),
        },
        _ => Err(WRONG),
    };
    items.iter().map(attribute).collect()
}

fn text(value: &Value<'_>, field: &'static str) -> Result<String, RecordError> {
    match value {
        Value::Str(text) => Ok((*text).to_owned()),
        _ => Err(RecordError::Field(field)),
    }
}

fn number<N: TryFrom<i64>>(value: &Value<'_>, field: &'static str) -> Result<N, RecordError> {
    match value {
        Value::I64(number) => N::try_from(*number).map_err(|_| RecordError::Field(field)),
        _ => Err(RecordError::Field(field)),
    }
}
