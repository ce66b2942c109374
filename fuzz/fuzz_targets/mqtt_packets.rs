//! Any bytes are an MQTT packet, the beginning of one, or a typed fault; what is read can be written and reads the same
//! again.
#![no_main]

use gate_mqtt::codec::encode::{self, Ack, Outgoing};
use gate_mqtt::codec::{Packet, Publish, decode, split};
use gate_mqtt::{Qos, Version};
use lighter_fuzz::fuzz_target;

const PACKET_BYTES_MAX: usize = 2_048;

fuzz_target!(|data: &[u8]| {
    for version in [Version::V311, Version::V5] {
        let mut rest = data;
        loop {
            match split(rest, Some(version), PACKET_BYTES_MAX) {
                Ok(Some(frame)) => {
                    assert!(frame.bytes <= rest.len() && frame.bytes > frame.body.len());
                    match decode(frame, version) {
                        Ok(packet) => check(&packet, version),
                        Err(fault) => assert!(fault.reason.is_failure() && !fault.why.is_empty()),
                    }
                    rest = &rest[frame.bytes..];
                }
                Ok(None) => break,
                Err(fault) => {
                    assert!(fault.reason.is_failure());
                    break;
                }
            }
        }
    }
});

fn check(packet: &Packet<'_>, version: Version) {
    let mut bytes = Vec::new();
    // A CONNECT says its version itself.
    let version = if let Packet::Connect(connect) = packet { connect.version } else { version };
    if !write(packet, version, &mut bytes) {
        return;
    }
    let frame = split(&bytes, Some(version), bytes.len()).expect("it is a packet").expect("it is whole");
    assert_eq!(frame.bytes, bytes.len());
    assert_eq!(decode(frame, version).expect("it can be read"), *packet);
}

/// Says no to what only its reader keeps, or only another side writes.
fn write(packet: &Packet<'_>, version: Version, into: &mut Vec<u8>) -> bool {
    match packet {
        Packet::Connect(connect) => encode::connect(into, connect),
        Packet::Connack(connack) => encode::connack(into, connack, version),
        Packet::Publish(publish) if publish.properties.topic_alias.is_some() => return false,
        Packet::Publish(publish) => write_publish(publish, version, into),
        Packet::Puback { id, reason } => encode::ack(into, Ack::Puback, *id, *reason, version),
        Packet::Pubrec { id, reason } => encode::ack(into, Ack::Pubrec, *id, *reason, version),
        Packet::Pubrel { id, reason } => encode::ack(into, Ack::Pubrel, *id, *reason, version),
        Packet::Pubcomp { id, reason } => encode::ack(into, Ack::Pubcomp, *id, *reason, version),
        Packet::Subscribe(subscribe) => {
            encode::subscribe(into, subscribe.id, &subscribe.entries, subscribe.subscription_id, version);
        }
        Packet::Suback { id, codes } => encode::suback(into, *id, codes, version),
        Packet::Unsubscribe(unsubscribe) => encode::unsubscribe(into, unsubscribe.id, &unsubscribe.filters, version),
        Packet::Unsuback { id, codes } => encode::unsuback(into, *id, codes, version),
        Packet::Pingreq => encode::pingreq(into),
        Packet::Pingresp => encode::pingresp(into),
        Packet::Disconnect { session_expiry_s: Some(_), .. } | Packet::Auth => return false,
        Packet::Disconnect { reason, .. } => encode::disconnect(into, *reason, version),
    }
    true
}

fn write_publish(publish: &Publish<'_>, version: Version, into: &mut Vec<u8>) {
    let mut lasting = Vec::new();
    encode::lasting_properties(&mut lasting, &publish.properties);
    let outgoing = Outgoing {
        version,
        qos: publish.qos,
        retain: publish.retain,
        dup: publish.dup,
        id: publish.id,
        topic: publish.topic,
        payload: publish.payload,
        lasting: &lasting,
        expiry_s: publish.properties.expiry_s,
        subscription_ids: &publish.properties.subscription_ids,
    };
    let id_at = outgoing.write(into);
    assert_eq!(into.len(), outgoing.bytes());
    if publish.qos != Qos::AtMostOnce {
        assert_eq!(into[id_at..id_at + 2], publish.id.to_be_bytes());
    }
}
