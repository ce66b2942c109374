//! Attributes, whichever way they came: their names, their values, and their place in an event.

use crate::error::{Error, Fault};
use crate::{Limits, SPEC_VERSION};
use event::{ATTRIBUTES_MAX, Event};
use jiff::Timestamp;

/// Bytes of a name. The standard asks for no more than 20 and does not forbid more.
const NAME_BYTES_MAX: usize = 64;

/// Members of the JSON format that are no attributes, and so may not be the name of one.
const NO_NAMES: [&str; 2] = ["data", "data_base64"];

/// The attribute that keeps the time of an event as its sender wrote it, where that is finer than a millisecond.
const TIME: &str = "time";

/// Whether an attribute may have this name.
pub fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(plain) && !NO_NAMES.contains(&name)
}

/// An event that is being read, attribute by attribute.
#[derive(Default)]
pub struct Reading {
    event: Event,
    has_version: bool,
    time_ms: Option<u64>,
}

impl Reading {
    /// Takes one attribute under the name it has in the standard.
    pub fn add(&mut self, name: &str, value: String, limits: &Limits) -> Result<(), Error> {
        self.take(name, value, limits).map_err(|fault| Error::of(name, fault))
    }

    fn take(&mut self, name: &str, value: String, limits: &Limits) -> Result<(), Fault> {
        if !is_name(name) {
            return Err(Fault::Name);
        }
        if value.len() > limits.attribute_bytes_max {
            return Err(Fault::TooLong { bytes: value.len(), bytes_max: limits.attribute_bytes_max });
        }
        if value.chars().any(is_forbidden) {
            return Err(Fault::Character);
        }
        let form = |found: String| Err(Fault::Form { found });
        match name {
            "specversion" if self.has_version => return Err(Fault::Twice),
            "specversion" if value == SPEC_VERSION => self.has_version = true,
            "specversion" => return Err(Fault::Version { found: value }),
            "id" => once(&mut self.event.id, value)?,
            "source" if !value.is_empty() && !is_uri_reference(&value) => return form(value),
            "source" => once(&mut self.event.source, value)?,
            "type" => once(&mut self.event.kind, value)?,
            "subject" => once(self.event.subject.get_or_insert_default(), value)?,
            "datacontenttype" if !value.is_empty() && !is_media_type(&value) => return form(value),
            "datacontenttype" => once(self.event.content_type.get_or_insert_default(), value)?,
            "time" if self.time_ms.is_some() => return Err(Fault::Twice),
            "time" => match time_ms(&value) {
                Some(ms) => {
                    self.time_ms = Some(ms);
                    if is_finer(&value, ms) && self.event.attributes.len() < ATTRIBUTES_MAX {
                        self.event.attributes.push((TIME.to_owned(), value));
                    }
                }
                None => return form(value),
            },
            "dataschema" if value.is_empty() => return Err(Fault::Empty),
            "dataschema" if !is_uri(&value) => return form(value),
            _ => {
                if self.event.attribute(name).is_some() {
                    return Err(Fault::Twice);
                }
                if self.event.attributes.len() == ATTRIBUTES_MAX {
                    return Err(Fault::TooManyAttributes { count_max: ATTRIBUTES_MAX });
                }
                self.event.attributes.push((name.to_owned(), value));
            }
        }
        Ok(())
    }

    pub fn content_type(&self) -> Option<&str> {
        self.event.content_type.as_deref()
    }

    /// The whole event.
    ///
    /// # Errors
    /// [`Fault::Missing`] names the first required attribute that did not come.
    pub fn finish(self, data: Vec<u8>, now_ms: u64) -> Result<Event, Error> {
        let Event { id, source, kind, .. } = &self.event;
        let required = [
            ("specversion", self.has_version),
            ("id", !id.is_empty()),
            ("source", !source.is_empty()),
            ("type", !kind.is_empty()),
        ];
        if let Some((name, _)) = required.iter().find(|(_, there)| !there) {
            return Err(Error::of(name, Fault::Missing));
        }
        Ok(Event { time_ms: self.time_ms.unwrap_or(now_ms), attempt: 1, data, ..self.event })
    }
}

fn once(place: &mut String, value: String) -> Result<(), Fault> {
    if value.is_empty() {
        return Err(Fault::Empty);
    }
    if !place.is_empty() {
        return Err(Fault::Twice);
    }
    *place = value;
    Ok(())
}

/// All attributes of an event as the standard names them, without those it does not allow (`http-…`).
pub fn all(event: &Event) -> impl Iterator<Item = (&str, &str)> {
    let given = [("id", &event.id), ("source", &event.source), ("type", &event.kind)]
        .map(|(name, value)| (name, value.as_str()));
    let subject = event.subject.as_deref().filter(|subject| !subject.is_empty()).map(|subject| ("subject", subject));
    let extensions = event.attributes.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let own = ["id", "source", "type", "subject", "time", "specversion", "datacontenttype"];
    let extensions = extensions.filter(move |(name, _)| is_name(name) && !own.contains(name));
    [("specversion", SPEC_VERSION)].into_iter().chain(given).chain(subject).chain(extensions)
}

/// Control characters and those Unicode never assigns (1.0.2, "Type System").
fn is_forbidden(c: char) -> bool {
    c.is_control() || matches!(c, '\u{FDD0}'..='\u{FDEF}') || u32::from(c) & 0xFFFE == 0xFFFE
}

/// Whether these are characters a URI reference may hold (RFC 3986), or an IRI reference beyond ASCII.
fn is_uri_reference(text: &str) -> bool {
    let percents =
        text.split('%').skip(1).all(|rest| rest.len() >= 2 && rest.bytes().take(2).all(|b| b.is_ascii_hexdigit()));
    percents && !text.chars().any(|c| c.is_whitespace() || c.is_control() || "\"<>\\^`{|}".contains(c))
}

/// The same, with a scheme: the standard wants some to mean one thing wherever they are read.
fn is_uri(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"+-.".contains(&b);
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(plain)
        && !rest.is_empty()
        && is_uri_reference(text)
}

/// Whether this can be a `datacontenttype`: a media type, perhaps with parameters.
pub fn is_media_type(text: &str) -> bool {
    let name = text.split(';').next().unwrap_or_default().trim();
    let token = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
    };
    text.bytes().all(|b| (b' '..=b'~').contains(&b))
        && name.split_once('/').is_some_and(|(kind, sub)| token(kind) && token(sub))
}

/// Milliseconds since 1970 of an RFC 3339 time; none for one before that.
fn time_ms(text: &str) -> Option<u64> {
    let plain = |b: u8| b.is_ascii_digit() || b"-:.+TtZz".contains(&b);
    // The library reads more forms than the standard has: without a time, in other writings of the offset.
    let (_, zone) = text.split_at_checked("2026-01-01T00:00:00".len())?;
    let has_zone = zone.ends_with(['Z', 'z']) || zone.get(zone.len().checked_sub(6)?..).is_some_and(is_offset);
    if !text.bytes().all(plain) || !has_zone {
        return None;
    }
    u64::try_from(text.parse::<Timestamp>().ok()?.as_millisecond()).ok()
}

/// `+01:00`.
fn is_offset(text: &str) -> bool {
    matches!(text.as_bytes(), [b'+' | b'-', h1, h2, b':', m1, m2] if [h1, h2, m1, m2].iter().all(|b| b.is_ascii_digit()))
}

/// Whether the time has digits that its milliseconds have not.
fn is_finer(text: &str, ms: u64) -> bool {
    let whole = i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    text.parse::<Timestamp>().ok() != whole
}

/// `2026-11-21T07:00:00.5Z`, or as the sender wrote it where that is finer; none for a time the calendar does not
/// reach.
pub fn time_text(event: &Event) -> Option<String> {
    let written = event.attribute(TIME).filter(|text| time_ms(text) == Some(event.time_ms));
    match written {
        Some(text) => Some(text.to_owned()),
        None => Some(Timestamp::from_millisecond(i64::try_from(event.time_ms).ok()?).ok()?.to_string()),
    }
}

/// The media type of the data; none where what came as one is none.
pub fn content_type(event: &Event) -> Option<&str> {
    event.content_type.as_deref().filter(|kind| is_media_type(kind))
}

/// Whether data of this media type is JSON. None said means JSON, in the JSON format.
pub fn is_json(content_type: Option<&str>) -> bool {
    let Some(content_type) = content_type else { return true };
    let name = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    name.split_once('/').is_some_and(|(_, sub)| sub == "json" || sub.ends_with("+json"))
}
