//! What crosses from one node to another, as a letter of the mail.
//!
//! ```text
//!   letter: queue `mqtt.fleet`, an event
//!     lighterage.mqtt.wanted    data: what the sender wants, as JSON
//!     lighterage.mqtt.message   data: head bytes (4) │ head, as JSON │ properties bytes (4) │ properties │ payload
//! ```

use super::wanted::Wanted;
use ::mail::{Letter, LetterError};
use event::Event;
use gate_mqtt::broker::View;
use gate_mqtt::codec::PublishProperties;
use gate_mqtt::{Qos, TOPIC_BYTES_MAX};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The queue of letters that are for MQTT: where they wait for the broker of their receiver. No manifest can name it.
pub const QUEUE: &str = "mqtt.fleet";

const WANTED: &str = "lighterage.mqtt.wanted";
const MESSAGE: &str = "lighterage.mqtt.message";
/// Bytes of the name of a client or a user; a message with a longer one is a dead letter.
const NAME_BYTES_MAX: usize = 1_024;

/// What a letter brings.
#[derive(Debug, PartialEq)]
pub enum Crossed {
    Wanted(Wanted),
    Message(Published),
}

/// A message with all that another broker has to know of it.
#[derive(Debug, PartialEq)]
pub struct Published {
    pub head: Head,
    pub qos: Qos,
    pub lasting: Vec<u8>,
    pub payload: Vec<u8>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Head {
    pub topic: String,
    pub qos: u8,
    #[serde(default)]
    pub retain: bool,
    /// It was retained before its receiver wanted it.
    #[serde(default)]
    pub is_old: bool,
    /// Milliseconds that it has left to live.
    #[serde(default)]
    pub left_ms: Option<u64>,
    #[serde(default)]
    pub client: String,
    #[serde(default)]
    pub user: Option<String>,
    /// Whose triggers are to hear it.
    #[serde(default)]
    pub queues: Vec<String>,
    /// How often it was put back for these triggers alone, whose queues took nothing. 0: it is for clients too.
    #[serde(default)]
    pub put_back: u32,
}

impl Head {
    /// Of a message that does not expire, and that no trigger hears.
    pub fn new(view: &View<'_>, now_ms: u64) -> Self {
        let left_ms = view.expires_ms.map(|at| at.saturating_sub(now_ms).max(1));
        Self { topic: view.topic.to_owned(), qos: view.qos.number(), left_ms, ..Self::default() }
    }
}

/// # Errors
/// It is too large for a letter.
pub fn of_message(id: &str, head: &Head, lasting: &[u8], payload: &[u8]) -> Result<Vec<u8>, LetterError> {
    letter(id, MESSAGE, data_of(head, lasting, payload), head.left_ms.map(Duration::from_millis))
}

fn data_of(head: &Head, lasting: &[u8], payload: &[u8]) -> Vec<u8> {
    let json = serde_json::to_vec(head).expect("it is plain data");
    let mut data = Vec::with_capacity(8 + json.len() + lasting.len() + payload.len());
    for part in [&json, lasting] {
        data.extend_from_slice(&(part.len() as u32).to_le_bytes());
        data.extend_from_slice(part);
    }
    data.extend_from_slice(payload);
    data
}

/// The same event once more, for the triggers of these queues alone. None: it brings no message.
pub fn put_back(event: &Event, queues: Vec<String>) -> Option<Event> {
    let Some(Crossed::Message(Published { head, lasting, payload, .. })) = read(event) else { return None };
    let head = Head { queues, put_back: head.put_back.saturating_add(1), retain: false, ..head };
    Some(Event { data: data_of(&head, &lasting, &payload), ..event.clone() })
}

/// # Errors
/// It is too large for a letter, which none is that [`Wanted::new`] made.
pub fn of_wanted(id: &str, wanted: &Wanted) -> Result<Vec<u8>, LetterError> {
    letter(id, WANTED, wanted.write(), None)
}

fn letter(id: &str, kind: &str, data: Vec<u8>, life: Option<Duration>) -> Result<Vec<u8>, LetterError> {
    let event = Event {
        id: id.to_owned(),
        source: "/mqtt".to_owned(),
        kind: kind.to_owned(),
        attempt: 1,
        data,
        ..Event::default()
    };
    Letter { queue: QUEUE.to_owned(), delay: Duration::ZERO, life, event }.write()
}

/// What an event of [`QUEUE`] brings. None: it is nothing of that kind, and nobody can use it.
pub fn read(event: &Event) -> Option<Crossed> {
    match event.kind.as_str() {
        WANTED => Wanted::read(&event.data).map(Crossed::Wanted),
        MESSAGE => read_message(&event.data).map(Crossed::Message),
        _ => None,
    }
}

fn read_message(data: &[u8]) -> Option<Published> {
    let (head, rest) = part(data)?;
    let (lasting, payload) = part(rest)?;
    let head: Head = serde_json::from_slice(head).ok()?;
    let qos = Qos::new(head.qos)?;
    let Head { topic, client, user, .. } = &head;
    let is_topic = !topic.is_empty()
        && topic.len() <= TOPIC_BYTES_MAX
        && !topic.starts_with('$')
        && !topic.contains(['+', '#', '\0']);
    let is_named = client.len() <= NAME_BYTES_MAX && user.as_ref().is_none_or(|user| user.len() <= NAME_BYTES_MAX);
    let is_sound = is_topic && is_named && PublishProperties::from_lasting(lasting).is_ok();
    is_sound.then(|| Published { head, qos, lasting: lasting.to_vec(), payload: payload.to_vec() })
}

fn part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view<'a>(topic: &'a str, payload: &'a [u8]) -> View<'a> {
        View { topic, payload, lasting: &[], qos: Qos::AtLeastOnce, expires_ms: Some(1_500) }
    }

    #[test]
    fn a_message_arrives_as_it_left_and_garbage_is_nothing() {
        let view = view("a/b", b"20");
        let head = Head { queues: vec!["q".to_owned()], retain: true, ..Head::new(&view, 500) };
        let letter = of_message("1", &head, view.lasting, view.payload).unwrap();
        let letter = Letter::read(&letter, "node-1").unwrap();
        assert_eq!((letter.queue.as_str(), letter.life), (QUEUE, Some(Duration::from_secs(1))));
        let Some(Crossed::Message(message)) = read(&letter.event) else { panic!("it is a message") };
        assert_eq!((message.head, message.qos, message.payload), (head, Qos::AtLeastOnce, b"20".to_vec()));
        for cut in 0..letter.event.data.len() - 2 {
            let mut cut_off = letter.event.clone();
            cut_off.data.truncate(cut);
            assert_eq!(read(&cut_off), None, "{cut}");
        }
        for topic in ["", "a/+", "#", "$SYS/a", "a\0"] {
            let head = Head { topic: topic.to_owned(), ..head_of(topic) };
            let letter = Letter::read(&of_message("1", &head, &[], b"").unwrap(), "node-1").unwrap();
            assert_eq!(read(&letter.event), None, "{topic:?}");
        }
        let bad_properties = of_message("1", &head_of("a"), b"\xff\xff", b"").unwrap();
        assert_eq!(read(&Letter::read(&bad_properties, "node-1").unwrap().event), None);
    }

    #[test]
    fn what_is_put_back_is_the_same_message_for_fewer_triggers() {
        let view = view("a/b", b"20");
        let queues = ["p", "q"].map(str::to_owned).to_vec();
        let head = Head { queues, retain: true, client: "c".to_owned(), ..Head::new(&view, 500) };
        let letter = Letter::read(&of_message("1", &head, b"", view.payload).unwrap(), "node-1").unwrap();
        let once = put_back(&letter.event, vec!["q".to_owned()]).unwrap();
        let twice = put_back(&once, vec!["q".to_owned()]).unwrap();
        assert_eq!((&twice.id, &twice.source), (&letter.event.id, &letter.event.source));
        let Some(Crossed::Message(message)) = read(&twice) else { panic!("it is a message") };
        let expected = Head { queues: vec!["q".to_owned()], retain: false, put_back: 2, ..head };
        assert_eq!((message.head, message.payload), (expected, b"20".to_vec()));
    }

    fn head_of(topic: &str) -> Head {
        Head::new(&view(topic, b""), 0)
    }

    #[test]
    fn what_a_node_wants_fits_into_a_letter_however_much_it_is() {
        let filters = (0..1_000).map(|number| format!("{number}/{}", "\u{1}".repeat(50))).collect();
        let wanted = Wanted::new(filters, Default::default());
        let letter = Letter::read(&of_wanted("1", &wanted).unwrap(), "node-1").unwrap();
        assert_eq!(read(&letter.event), Some(Crossed::Wanted(wanted)));
    }
}
