//! A message as an event, and an event as a message.
//!
//! | event | message |
//! |---|---|
//! | `id` | the user property `id`; else the node makes one |
//! | `source` | `mqtt://CLIENT`, percent-encoded |
//! | `type` | `mqtt.publish` |
//! | `subject` | the topic |
//! | `datacontenttype` | the content type, if it is a media type |
//! | attributes | `gate` (`mqtt`), `mqttqos`, `mqttretain`, `mqttuser`, `mqttresponsetopic`, `traceparent`, and each user property as `mqtt-NAME` |

use crate::traces;
use event::{Event, Gate};
use gate_mqtt::codec::PublishProperties;
use gate_mqtt::codec::encode::lasting_properties;
use gate_mqtt::{Delivery, TOPIC_BYTES_MAX};
use problem::{Code, Problem};
use std::fmt::Write;

/// Bytes of an event's id that a client may choose; a longer one is not taken.
const ID_BYTES_MAX: usize = 256;

/// What the node adds.
pub struct Origin<'a> {
    /// If the client gave none.
    pub id: &'a str,
    pub time_ms: u64,
}

pub fn to_event(delivery: &Delivery, origin: Origin<'_>) -> Event {
    let message = &delivery.message;
    let properties = message.properties();
    let mut attributes = Vec::with_capacity(properties.user.len() + 3);
    let mut add = |name: &str, value: &str| attributes.push((name.to_owned(), value.to_owned()));
    add("mqttqos", ["0", "1", "2"][usize::from(message.qos().number())]);
    add("mqttretain", if delivery.retain { "true" } else { "false" });
    if let Some(user) = &delivery.user {
        add("mqttuser", user);
    }
    if let Some(topic) = properties.response_topic {
        add("mqttresponsetopic", topic);
    }
    let mut id = None;
    for (name, value) in &properties.user {
        match *name {
            "id" if id.is_none() && !value.is_empty() && value.len() <= ID_BYTES_MAX => id = Some(*value),
            traces::HEADER => add(traces::HEADER, value),
            name => add(&format!("mqtt-{name}"), value),
        }
    }
    let mut event = Event {
        id: id.unwrap_or(origin.id).to_owned(),
        source: source(&delivery.client),
        kind: "mqtt.publish".to_owned(),
        subject: Some(message.topic().to_owned()),
        time_ms: origin.time_ms,
        // MQTT takes any text there; what is no media type is none to whoever gets the event, either.
        content_type: properties.content_type.filter(|text| cloudevents::is_media_type(text)).map(str::to_owned),
        attributes,
        attempt: 1,
        data: message.payload().to_vec(),
        ..Event::default()
    };
    event.came_by(Gate::Mqtt, delivery.user.as_deref().unwrap_or_default());
    event
}

/// A client's name may hold anything; a source is a URI reference.
fn source(client: &str) -> String {
    let mut source = String::with_capacity(7 + client.len());
    source.push_str("mqtt://");
    for byte in client.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => source.push(char::from(byte)),
            other => write!(source, "%{other:02X}").expect("a string takes everything"),
        }
    }
    source
}

/// Topic and lasting properties of the message that a sink makes of an event.
///
/// # Errors
/// [`Code::EventInvalid`]: the event makes no topic.
pub fn to_message(event: &Event, topic: &str) -> Result<(String, Vec<u8>), Problem> {
    let invalid = |why: String| Err(Problem::new(Code::EventInvalid, why));
    if topic.contains("{subject}") && event.subject.is_none() {
        return invalid(format!("the event has no subject for the topic {topic:?}"));
    }
    let topic = topic.replace("{subject}", event.subject.as_deref().unwrap_or_default());
    if topic.is_empty() || topic.len() > TOPIC_BYTES_MAX || topic.contains(['+', '#', '\0']) {
        return invalid(format!("the event makes the topic {topic:?}, which is empty, too long or has a wildcard"));
    }
    let mut user = vec![("id", event.id.as_str()), ("source", event.source.as_str()), ("type", event.kind.as_str())];
    user.extend(event.attribute(traces::HEADER).map(|trace| (traces::HEADER, trace)));
    user.retain(|(_, value)| value.len() <= usize::from(u16::MAX) && !value.contains('\0'));
    let content_type =
        event.content_type.as_deref().filter(|text| text.len() <= usize::from(u16::MAX) && !text.contains('\0'));
    let mut lasting = Vec::new();
    lasting_properties(&mut lasting, &PublishProperties { content_type, user, ..PublishProperties::default() });
    Ok((topic, lasting))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gate_mqtt::Qos;
    use gate_mqtt::broker::View;
    use std::sync::Arc;

    fn delivery(user: Vec<(&str, &str)>) -> Delivery {
        delivery_of(user, "text/plain")
    }

    fn delivery_of(user: Vec<(&str, &str)>, content_type: &str) -> Delivery {
        let mut lasting = Vec::new();
        let properties = PublishProperties { content_type: Some(content_type), user, ..PublishProperties::default() };
        lasting_properties(&mut lasting, &properties);
        let view =
            View { topic: "meter/7", payload: b"20", lasting: &lasting, qos: Qos::AtLeastOnce, expires_ms: None };
        Delivery { message: Arc::new(view.to_message()), client: "a b/c".into(), user: Some("u".into()), retain: true }
    }

    #[test]
    fn a_message_becomes_the_event_the_manual_describes() {
        let event = to_event(&delivery(vec![("unit", "W"), ("traceparent", "00-t")]), Origin { id: "n1", time_ms: 7 });
        assert_eq!(
            (event.id.as_str(), event.source.as_str(), event.kind.as_str()),
            ("n1", "mqtt://a%20b%2Fc", "mqtt.publish")
        );
        assert_eq!((event.subject.as_deref(), event.data.as_slice(), event.time_ms), (Some("meter/7"), &b"20"[..], 7));
        assert_eq!(event.content_type.as_deref(), Some("text/plain"));
        let expected =
            [("mqttqos", "1"), ("mqttretain", "true"), ("mqttuser", "u"), ("mqtt-unit", "W"), ("traceparent", "00-t")];
        for (name, value) in expected {
            assert_eq!(event.attribute(name), Some(value), "{name}");
        }
        assert_eq!(to_event(&delivery(vec![("id", "mine")]), Origin { id: "n1", time_ms: 7 }).id, "mine");
    }

    #[test]
    fn a_content_type_that_is_no_media_type_is_none() {
        for (said, expected) in [
            ("application/json; charset=utf-8", Some("application/json; charset=utf-8")),
            ("not a media type", None),
            ("json", None),
            ("", None),
            ("text/\u{e9}", None),
        ] {
            let event = to_event(&delivery_of(Vec::new(), said), Origin { id: "n1", time_ms: 7 });
            assert_eq!(event.content_type.as_deref(), expected, "{said:?}");
        }
    }

    #[test]
    fn an_event_becomes_a_message_or_says_why_not() {
        let event = Event {
            id: "1".into(),
            source: "s".into(),
            kind: "k".into(),
            subject: Some("lamp".into()),
            ..Event::default()
        };
        let (topic, lasting) = to_message(&event, "home/{subject}/set").unwrap();
        assert_eq!(topic, "home/lamp/set");
        let properties = PublishProperties::from_lasting(&lasting).unwrap();
        assert_eq!(properties.user, [("id", "1"), ("source", "s"), ("type", "k")]);
        for subject in [None, Some("a/+"), Some("#")] {
            let event = Event { subject: subject.map(str::to_owned), ..event.clone() };
            assert_eq!(to_message(&event, "x/{subject}").unwrap_err().code, Code::EventInvalid, "{subject:?}");
        }
        assert!(to_message(&Event { subject: None, ..event }, "fixed").is_ok());
    }
}
