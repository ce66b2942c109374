//! The JSON format: one event, or a list of them (JSON event format 1.0.2).

use crate::Limits;
use crate::attribute::{self, Reading, is_json};
use crate::error::{Error, Fault};
use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use event::Event;
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// Writes padding, and reads with or without.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Members of one object that are looked at, beside which there is nothing but an error.
const MEMBERS_MAX: usize = event::ATTRIBUTES_MAX + 16;

/// Levels of JSON data that stand in an event as JSON; deeper data stands there in base64. Readers have a limit too,
/// often of 128, and an event is itself part of a document.
const DEPTH_MAX: usize = 64;

/// Objects of a list that are held before they are looked at, whatever [`Limits`] say.
const LIST_MAX: usize = 10_000;

pub fn decode(body: &[u8], now_ms: u64, limits: &Limits) -> Result<Event, Error> {
    read(serde_json::from_slice(body).map_err(not_json)?, now_ms, limits)
}

pub fn decode_batch(body: &[u8], now_ms: u64, limits: &Limits) -> Result<Vec<Event>, Error> {
    let Batch(objects) = serde_json::from_slice(body).map_err(not_json)?;
    if objects.len() > limits.events_max {
        return Err(Error::whole(Fault::TooManyEvents { count_max: limits.events_max }));
    }
    let events = objects.into_iter().enumerate();
    events.map(|(index, object)| read(object, now_ms, limits).map_err(|error| error.in_batch(index))).collect()
}

fn not_json(error: serde_json::Error) -> Error {
    Error::whole(Fault::Json { why: error.to_string() })
}

fn read(object: Object<'_>, now_ms: u64, limits: &Limits) -> Result<Event, Error> {
    if object.0.len() > MEMBERS_MAX {
        return Err(Error::whole(Fault::TooManyAttributes { count_max: event::ATTRIBUTES_MAX }));
    }
    let (mut reading, mut data, mut data_base64) = (Reading::default(), None, None);
    for (name, value) in object.0 {
        let twice = || Error::of(&name, Fault::Twice);
        match (name.as_str(), value.get()) {
            ("data", _) if data.is_some() => return Err(twice()),
            ("data_base64", _) if data_base64.is_some() => return Err(twice()),
            // As data, null is a value; for all else it means that there is none.
            ("data", _) => data = Some(value),
            (_, "null") => {}
            ("data_base64", _) => data_base64 = Some(value),
            (name, value) => reading.add(name, text(name, value)?, limits)?,
        }
    }
    let data = match (data, data_base64) {
        (Some(_), Some(_)) => return Err(Error::of("data_base64", Fault::Twice)),
        (None, Some(encoded)) => from_base64(encoded.get(), limits)?,
        (Some(value), None) => from_value(value.get(), reading.content_type()),
        (None, None) => Vec::new(),
    };
    if data.len() > limits.data_bytes_max {
        return Err(Error::of("data", Fault::TooLong { bytes: data.len(), bytes_max: limits.data_bytes_max }));
    }
    reading.finish(data, now_ms)
}

/// The text form of an attribute's value.
fn text(name: &str, json: &str) -> Result<String, Error> {
    let wrong = || Error::of(name, Fault::Type);
    if let Ok(text) = serde_json::from_str::<String>(json) {
        return Ok(text);
    }
    // The attributes of the standard are texts, all of them.
    if matches!(name, "specversion" | "id" | "source" | "type" | "subject" | "time" | "datacontenttype" | "dataschema")
    {
        return Err(wrong());
    }
    match json {
        "true" | "false" => Ok(json.to_owned()),
        number => number.parse::<i32>().map(|number| number.to_string()).map_err(|_| wrong()),
    }
}

/// A text that is not JSON stands for its characters; all else is JSON, and kept as it was written.
fn from_value(json: &str, content_type: Option<&str>) -> Vec<u8> {
    if !is_json(content_type)
        && let Ok(text) = serde_json::from_str::<String>(json)
    {
        return text.into_bytes();
    }
    json.as_bytes().to_vec()
}

fn from_base64(json: &str, limits: &Limits) -> Result<Vec<u8>, Error> {
    let fault = |fault| Error::of("data_base64", fault);
    let text = serde_json::from_str::<String>(json).map_err(|_| fault(Fault::Type))?;
    let bytes = text.len() / 4 * 3;
    if bytes > limits.data_bytes_max.saturating_add(3) {
        return Err(fault(Fault::TooLong { bytes, bytes_max: limits.data_bytes_max }));
    }
    BASE64.decode(&text).map_err(|error| fault(Fault::Form { found: error.to_string() }))
}

/// One event as JSON. Its data stands there as JSON where it is JSON, as text where its media type says text, else in
/// base64 (so does JSON of more than 64 levels); read again it has the same bytes, but for blanks around JSON.
pub fn structured(event: &Event) -> Vec<u8> {
    let mut json = Vec::with_capacity(event.data.len() + 512);
    write(event, &mut json);
    json
}

/// As [`structured`], with data that is always in base64: what a strict reader of JSON refuses (numbers beyond its
/// range, halves of characters) stands there as bytes.
pub fn structured_opaque(event: &Event) -> Vec<u8> {
    let mut json = Vec::with_capacity(event.data.len() / 3 * 4 + 512);
    write_with(event, &mut json, write_base64);
    json
}

/// A list of events as JSON.
pub fn batched<'a>(events: impl IntoIterator<Item = &'a Event>) -> Vec<u8> {
    let mut json = vec![b'['];
    for event in events {
        if json.len() > 1 {
            json.push(b',');
        }
        write(event, &mut json);
    }
    json.push(b']');
    json
}

fn write(event: &Event, json: &mut Vec<u8>) {
    write_with(event, json, write_data);
}

fn write_with(event: &Event, json: &mut Vec<u8>, write_data: impl Fn(&Event, &mut Vec<u8>)) {
    json.push(b'{');
    let time = attribute::time_text(event);
    let time = time.iter().map(|time| ("time", time.as_str()));
    let content_type = attribute::content_type(event).into_iter().map(|kind| ("datacontenttype", kind));
    for (name, value) in attribute::all(event).chain(time).chain(content_type) {
        write_member(name, value, json);
    }
    if !event.data.is_empty() {
        write_data(event, json);
    }
    json.push(b'}');
}

fn write_member(name: &str, value: &str, json: &mut Vec<u8>) {
    if json.last() != Some(&b'{') {
        json.push(b',');
    }
    write_text(name, json);
    json.push(b':');
    write_text(value, json);
}

fn write_text(text: &str, json: &mut Vec<u8>) {
    serde_json::to_writer(json, text).expect("a text is JSON, and memory takes it");
}

fn write_data(event: &Event, json: &mut Vec<u8>) {
    let content_type = event.content_type.as_deref();
    if is_json(content_type) {
        if let Ok(value) = serde_json::from_slice::<&RawValue>(&event.data)
            && is_shallow(value.get())
        {
            json.extend_from_slice(b",\"data\":");
            json.extend_from_slice(value.get().as_bytes());
            return;
        }
    } else if content_type.is_some_and(|kind| kind.to_ascii_lowercase().starts_with("text/"))
        && let Ok(text) = std::str::from_utf8(&event.data)
    {
        return write_member("data", text, json);
    }
    write_base64(event, json);
}

fn write_base64(event: &Event, json: &mut Vec<u8>) {
    write_member("data_base64", &BASE64.encode(&event.data), json);
}

/// Whether JSON has at most [`DEPTH_MAX`] levels.
fn is_shallow(json: &str) -> bool {
    let (mut depth, mut in_text, mut is_escaped) = (0_usize, false, false);
    for byte in json.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => {
                depth += 1;
                if depth > DEPTH_MAX {
                    return false;
                }
            }
            b']' | b'}' if !in_text => depth -= 1,
            _ => {}
        }
    }
    true
}

/// The members of an object in order, those that are there twice among them.
struct Object<'a>(Vec<(String, &'a RawValue)>);

/// A list of objects.
struct Batch<'a>(Vec<Object<'a>>);

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if members.len() > MEMBERS_MAX {
                        return Err(de::Error::custom("an object has too many members"));
                    }
                    members.push((name, map.next_value()?));
                }
                Ok(Object(members))
            }
        }

        deserializer.deserialize_map(Members)
    }
}

impl<'de> Deserialize<'de> for Batch<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Objects;

        impl<'de> Visitor<'de> for Objects {
            type Value = Batch<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of objects")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Batch<'de>, A::Error> {
                let mut objects = Vec::new();
                while let Some(object) = list.next_element()? {
                    if objects.len() == LIST_MAX {
                        return Err(de::Error::custom("the list is too long"));
                    }
                    objects.push(object);
                }
                Ok(Batch(objects))
            }
        }

        deserializer.deserialize_seq(Objects)
    }
}
