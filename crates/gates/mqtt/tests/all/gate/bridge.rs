//! The bridge, with a second gate as the outside broker.

use super::support::*;
use gate_mqtt::broker::View;
use gate_mqtt::codec::Version;
use gate_mqtt::{Bridge, BridgeConfig, Gate, Limits, Listener, PublishError, Qos, Users};
use std::sync::Arc;
use tokio::sync::watch;

struct Bridged {
    outside: Server,
    /// Of the node that has the bridge.
    inside: Arc<Memory>,
    bridge: Bridge,
    filters: watch::Sender<Vec<(String, Qos)>>,
}

impl Bridged {
    fn start(version: Version) -> Self {
        let outside = Server::start();
        let inside = Memory::new();
        inside.want("sensor/#");
        let (filters, wanted) = watch::channel(vec![("sensor/#".to_owned(), Qos::ExactlyOnce)]);
        let config = BridgeConfig {
            host: "127.0.0.1".to_owned(),
            port: outside.address.port(),
            secure: None,
            version,
            client_id: "bridge".to_owned(),
            user: None,
            password: None,
            qos_max: Qos::ExactlyOnce,
        };
        let _inside = outside.runtime.enter();
        let bridge = Bridge::start(config, inside.clone(), wanted).unwrap();
        drop(_inside);
        let bridged = Self { outside, inside, bridge, filters };
        bridged.wait(|bridged| bridged.outside.gate().counts().subscriptions == 1);
        bridged
    }

    fn wait(&self, until: impl Fn(&Self) -> bool) {
        while !until(self) {
            std::thread::yield_now();
        }
    }

    fn publish(&self, topic: &str, payload: &str, qos: Qos) {
        let view = View { topic, payload: payload.as_bytes(), lasting: &[], qos, expires_ms: None };
        self.outside.runtime.block_on(self.bridge.publish(view, false)).unwrap();
    }
}

#[test]
fn messages_of_the_outside_broker_become_events_once_each() {
    for version in [Version::V311, Version::V5] {
        let bridged = Bridged::start(version);
        let mut writer = bridged.outside.connect(Version::V5, "writer");
        for (id, qos) in [(1, 0), (2, 1), (3, 2)] {
            writer.publish_confirmed("sensor/1", &id.to_string(), qos, id);
        }
        writer.publish_confirmed("other", "x", 1, 4);
        bridged.wait(|bridged| bridged.inside.events().len() == 3);
        let payloads: Vec<String> = bridged.inside.events().into_iter().map(|(_, payload)| payload).collect();
        assert_eq!(payloads, ["1", "2", "3"]);
        bridged.wait(|bridged| bridged.outside.gate().counts().queued_bytes == 0);
        // The record of a QoS 2 message goes when the outside broker has released it.
        bridged.wait(|bridged| bridged.inside.records().is_empty());
    }
}

#[test]
fn a_message_is_acknowledged_outside_only_when_its_event_is_durable() {
    let bridged = Bridged::start(Version::V5);
    bridged.inside.hold();
    let mut writer = bridged.outside.connect(Version::V5, "writer");
    writer.publish_confirmed("sensor/1", "1", 1, 1);
    bridged.wait(|bridged| bridged.inside.events().len() == 1);
    assert!(bridged.outside.gate().counts().queued_bytes > 0);
    bridged.inside.release();
    bridged.wait(|bridged| bridged.outside.gate().counts().queued_bytes == 0);
}

#[test]
fn a_full_queue_leaves_messages_with_the_outside_broker() {
    let bridged = Bridged::start(Version::V311);
    bridged.inside.set_full(true);
    let mut writer = bridged.outside.connect(Version::V5, "writer");
    for id in 1..=20 {
        writer.publish_confirmed("sensor/1", &id.to_string(), 1, id);
    }
    assert!(bridged.inside.events().is_empty());
    bridged.inside.set_full(false);
    bridged.wait(|bridged| bridged.inside.events().len() == 20);
    let in_order = (1..=20).map(|number| ("sensor/1".to_owned(), number.to_string()));
    assert!(bridged.inside.events().into_iter().eq(in_order));
}

#[test]
fn sinks_publish_there_and_are_told_when_it_is_confirmed() {
    for version in [Version::V311, Version::V5] {
        let bridged = Bridged::start(version);
        let mut reader = bridged.outside.connect(Version::V5, "reader");
        reader.subscribe("out", 2);
        for qos in [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce] {
            bridged.publish("out", "m", qos);
            assert_eq!(reader.receive().qos, qos.number());
        }
    }
}

#[test]
fn filters_follow_what_is_deployed() {
    let bridged = Bridged::start(Version::V5);
    bridged.inside.want("#");
    bridged.filters.send_replace(vec![("other".to_owned(), Qos::AtLeastOnce)]);
    let mut writer = bridged.outside.connect(Version::V5, "writer");
    // The old filter goes before the new one comes, by the same connection: what comes by the new one is after both.
    while bridged.inside.events().is_empty() {
        writer.publish_confirmed("other", "first", 1, 1);
    }
    for payload in ["no", "yes"] {
        let topic = if payload == "no" { "sensor/1" } else { "other" };
        writer.publish_confirmed(topic, payload, 1, 2);
    }
    bridged.wait(|bridged| bridged.inside.events().last().unwrap().1 == "yes");
    assert!(bridged.inside.events().iter().all(|(topic, payload)| topic == "other" && payload != "no"));
}

/// The outside broker dies and comes back on the same address with what it had kept; nobody loses anything.
#[test]
fn the_bridge_survives_the_loss_of_the_outside_broker() {
    let mut bridged = Bridged::start(Version::V5);
    let (address, node) = (bridged.outside.address, bridged.outside.node.clone());
    bridged.outside.gate = None;
    bridged.wait(|bridged| !bridged.bridge.counts().is_connected);
    let view = View { topic: "out", payload: b"back", lasting: &[], qos: Qos::AtLeastOnce, expires_ms: None };
    let away = bridged.outside.runtime.block_on(bridged.bridge.publish(view, false));
    assert!(matches!(away, Err(PublishError::Unavailable(_))), "{away:?}");
    let _inside = bridged.outside.runtime.enter();
    let listener = Listener::bind(address, None).unwrap();
    let gate =
        Gate::start(vec![listener], Limits::default(), Users::open(), node, &budget::Budget::unbounded()).unwrap();
    drop(_inside);
    bridged.outside.gate = Some(gate);
    bridged.wait(|bridged| bridged.bridge.counts().is_connected);
    bridged.outside.runtime.block_on(bridged.bridge.publish(view, false)).unwrap();
    let mut writer = bridged.outside.connect(Version::V5, "writer");
    writer.publish_confirmed("sensor/1", "after", 2, 1);
    bridged.wait(|bridged| bridged.inside.events().len() == 1);
    assert!(bridged.bridge.counts().connects >= 2);
}
