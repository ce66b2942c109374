//! One event as bytes: no names of fields, nothing for what is not there, the data last.
//!
//! ```text
//! version │ flags │ pushed_ms │ [attempts] [expires] [since] [died] [reason] │ body
//! body:     flags │ time - pushed │ id │ source │ kind │ [subject] [type] [attributes] [gate sender] │ data
//! ```
//! The head changes when an event is tried again or dies; the body is copied as it is.

use super::varint::{self, Reader};
use event::{ATTRIBUTES_MAX, Event, GATE, Gate, Origin};
use fjall::Slice;

const VERSION: u8 = 1;
/// A few numbers before the body.
const HEAD_BYTES: usize = 24;

const ATTEMPTS: u8 = 1;
const EXPIRES: u8 = 2;
const SINCE: u8 = 4;
const DIED: u8 = 8;
const REASON: u8 = 16;
const REWRITTEN: u8 = 32;

const SUBJECT: u8 = 1;
const CONTENT_TYPE: u8 = 2;
const HAS_ATTRIBUTES: u8 = 4;
/// Absent in events of earlier versions, which did not keep senders from writing the attribute `gate`.
const HAS_GATE: u8 = 8;

/// What the queue knows about an event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventHead {
    pub pushed_ms: u64,
    /// Tries that failed.
    pub attempts: u32,
    /// When its life is over, in the queue's own time.
    pub expires: Option<u64>,
    /// Not ready before this moment of the queue's own time.
    pub since: Option<u64>,
    pub died_ms: Option<u64>,
    pub reason: Option<String>,
    /// Stored more than once under its present key.
    pub rewritten: bool,
}

impl EventHead {
    fn put(&self, out: &mut Vec<u8>) {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        out.push(VERSION);
        out.push(
            flag(self.attempts > 0, ATTEMPTS)
                | flag(self.expires.is_some(), EXPIRES)
                | flag(self.since.is_some(), SINCE)
                | flag(self.died_ms.is_some(), DIED)
                | flag(self.reason.is_some(), REASON)
                | flag(self.rewritten, REWRITTEN),
        );
        varint::put(out, self.pushed_ms);
        if self.attempts > 0 {
            varint::put(out, u64::from(self.attempts));
        }
        for number in [self.expires, self.since, self.died_ms].into_iter().flatten() {
            varint::put(out, number);
        }
        if let Some(reason) = &self.reason {
            varint::put_text(out, reason);
        }
    }

    /// The head and the body; none for bytes that we never wrote.
    pub fn split(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let mut reader = Reader(bytes);
        if reader.byte()? != VERSION {
            return None;
        }
        let flags = reader.byte()?;
        let mut head = Self { pushed_ms: reader.number()?, rewritten: flags & REWRITTEN != 0, ..Self::default() };
        if flags & ATTEMPTS != 0 {
            head.attempts = u32::try_from(reader.number()?).ok()?;
        }
        for (flag, place) in [(EXPIRES, &mut head.expires), (SINCE, &mut head.since), (DIED, &mut head.died_ms)] {
            if flags & flag != 0 {
                *place = Some(reader.number()?);
            }
        }
        if flags & REASON != 0 {
            head.reason = Some(reader.text()?.to_owned());
        }
        Some((head, reader.0))
    }
}

/// The bytes of a new event.
pub fn encode(head: &EventHead, event: &Event) -> Slice {
    let texts = event.id.len() + event.source.len() + event.kind.len() + event.subject.as_ref().map_or(0, String::len);
    // The gate stands in a place of its own, so that nothing a sender wrote can be taken for it.
    let attributes = event.attributes.iter().filter(|(key, _)| key != GATE);
    let count = attributes.clone().count();
    let attribute_bytes: usize = attributes.clone().map(|(key, value)| key.len() + value.len() + 4).sum();
    let mut out =
        Vec::with_capacity(HEAD_BYTES + texts + attribute_bytes + event.origin.sender.len() + event.data.len() + 64);
    head.put(&mut out);
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    out.push(
        flag(event.subject.is_some(), SUBJECT)
            | flag(event.content_type.is_some(), CONTENT_TYPE)
            | flag(count > 0, HAS_ATTRIBUTES)
            | flag(event.origin.gate.is_some(), HAS_GATE),
    );
    varint::put_signed(&mut out, event.time_ms.wrapping_sub(head.pushed_ms) as i64);
    for text in [&event.id, &event.source, &event.kind].into_iter().chain(&event.subject).chain(&event.content_type) {
        varint::put_text(&mut out, text);
    }
    if count > 0 {
        varint::put(&mut out, count as u64);
        for (key, value) in attributes {
            varint::put_text(&mut out, key);
            varint::put_text(&mut out, value);
        }
    }
    if let Some(gate) = event.origin.gate {
        out.push(gate as u8);
        varint::put_text(&mut out, &event.origin.sender);
    }
    out.extend_from_slice(&event.data);
    out.into()
}

/// The same event with another head.
pub fn with_head(head: &EventHead, body: &[u8]) -> Slice {
    let mut out = Vec::with_capacity(HEAD_BYTES + head.reason.as_ref().map_or(0, String::len) + body.len());
    head.put(&mut out);
    out.extend_from_slice(body);
    out.into()
}

/// Reads what [`encode`] wrote; none for anything else. The event's `attempt` is the one that comes next.
pub fn decode(bytes: &[u8]) -> Option<(EventHead, Event)> {
    let (head, body) = EventHead::split(bytes)?;
    let mut reader = Reader(body);
    let flags = reader.byte()?;
    let mut event = Event {
        time_ms: head.pushed_ms.wrapping_add(reader.signed()? as u64),
        id: reader.text()?.to_owned(),
        source: reader.text()?.to_owned(),
        kind: reader.text()?.to_owned(),
        attempt: head.attempts.saturating_add(1),
        ..Event::default()
    };
    if flags & SUBJECT != 0 {
        event.subject = Some(reader.text()?.to_owned());
    }
    if flags & CONTENT_TYPE != 0 {
        event.content_type = Some(reader.text()?.to_owned());
    }
    if flags & HAS_ATTRIBUTES != 0 {
        let count = usize::try_from(reader.number()?).ok().filter(|count| *count <= ATTRIBUTES_STORED_MAX)?;
        for _ in 0..count {
            let (name, value) = (reader.text()?, reader.text()?);
            if name != GATE {
                event.attributes.push((name.to_owned(), value.to_owned()));
            }
        }
    }
    if flags & HAS_GATE != 0 {
        let gate = Gate::from_number(reader.byte()?)?;
        event.attributes.push((GATE.to_owned(), gate.word().to_owned()));
        event.origin = Origin { gate: Some(gate), sender: reader.text()?.to_owned() };
    }
    event.data = reader.0.to_vec();
    Some((head, event))
}

/// Gates let fewer in; more than this are only in bytes that are damaged.
const ATTRIBUTES_STORED_MAX: usize = 64 * ATTRIBUTES_MAX;

/// Events of one key are handled one after the other: the attribute `partitionkey`, else the subject. Zero is no key.
pub fn key_of(event: &Event) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let Some(key) = event.attribute("partitionkey").or(event.subject.as_deref()) else {
        return 0;
    };
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (EventHead, Event) {
        let head = EventHead {
            pushed_ms: 1_700_000_000_000,
            attempts: 3,
            expires: Some(1_700_000_060_000),
            since: Some(1_700_000_000_500),
            died_ms: Some(7),
            reason: Some("no".to_owned()),
            rewritten: true,
        };
        let event = Event {
            id: "id".into(),
            source: "/s".into(),
            kind: "k".into(),
            subject: Some("meter/7".into()),
            time_ms: 1_699_999_999_000,
            content_type: Some("application/json".into()),
            attributes: vec![("traceparent".into(), "00-ab".into()), ("empty".into(), String::new())],
            attempt: 4,
            data: b"{}".to_vec(),
            ..Event::default()
        };
        (head, event)
    }

    #[test]
    fn an_event_comes_back_as_it_was() {
        let (head, event) = sample();
        assert_eq!(decode(&encode(&head, &event)), Some((head.clone(), event)));
        let (plain, bare) =
            (EventHead { pushed_ms: 5, ..EventHead::default() }, Event { attempt: 1, ..Event::default() });
        let stored = encode(&plain, &bare);
        assert_eq!((decode(&stored), stored.len()), (Some((plain, bare)), 8));
    }

    #[test]
    fn the_gate_is_what_the_node_said_and_never_what_an_attribute_says() {
        let (head, mut event) = sample();
        // As a version before gates were kept may have stored it.
        event.attributes.push(("gate".into(), "mqtt".into()));
        let (_, found) = decode(&encode(&head, &event)).unwrap();
        assert_eq!((found.origin.gate, found.attribute("gate")), (None, None));
        event.came_by(Gate::Http, "ci");
        let (_, found) = decode(&encode(&head, &event)).unwrap();
        assert_eq!((&found.origin, found.attribute("gate")), (&event.origin, Some("http")));
        assert_eq!(found, event);
    }

    #[test]
    fn an_event_of_an_earlier_version_is_read_without_its_forged_gate() {
        // pushed_ms 5, an id, a source, a type, one attribute `gate`, as `encode` wrote it before the gate had its
        // place.
        let mut stored = vec![1, 0, 5, HAS_ATTRIBUTES, 0];
        for text in ["1", "/s", "t"] {
            varint::put_text(&mut stored, text);
        }
        varint::put(&mut stored, 1);
        for text in ["gate", "mqtt"] {
            varint::put_text(&mut stored, text);
        }
        stored.push(b'x');
        let (_, event) = decode(&stored).unwrap();
        assert_eq!((event.id.as_str(), event.data.as_slice()), ("1", &b"x"[..]));
        assert_eq!((event.origin.gate, event.attribute("gate")), (None, None));
    }

    #[test]
    fn another_head_leaves_the_event_alone() {
        let (head, event) = sample();
        let stored = encode(&head, &event);
        let (_, body) = EventHead::split(&stored).unwrap();
        let other = EventHead { pushed_ms: head.pushed_ms, attempts: 9, ..EventHead::default() };
        let (found, found_event) = decode(&with_head(&other, body)).unwrap();
        assert_eq!((found, found_event), (other, Event { attempt: 10, ..event }));
    }

    #[test]
    fn whatever_the_bytes_are_decoding_ends_without_a_panic() {
        let (head, event) = sample();
        let stored = encode(&head, &event).to_vec();
        for length in 0..stored.len() {
            decode(&stored[..length]);
        }
        let mut random = 1_u64;
        for _ in 0..200_000 {
            let mut bytes = stored.clone();
            for _ in 0..3 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let at = (random >> 33) as usize % bytes.len();
                bytes[at] = (random >> 16) as u8;
            }
            decode(&bytes);
        }
    }
}
