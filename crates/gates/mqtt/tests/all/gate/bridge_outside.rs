//! The bridge, with an outside broker that the test plays.

use super::support::*;
use gate_mqtt::broker::View;
use gate_mqtt::codec::encode::{self, Ack, lasting_properties};
use gate_mqtt::codec::{Connack, Packet, PublishProperties, Reason, Version};
use gate_mqtt::{Bridge, BridgeConfig, PublishError, Qos};
use problem::Code;
use std::net::TcpListener;
use std::sync::Arc;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

struct Played {
    runtime: Runtime,
    /// Of the node that has the bridge.
    inside: Arc<Memory>,
    bridge: Arc<Bridge>,
    outside: TcpListener,
    version: Version,
    _filters: watch::Sender<Vec<(String, Qos)>>,
}

impl Played {
    /// A bridge, and the outside broker's end of its first connection.
    fn start(version: Version, connack: &Connack) -> (Self, Raw) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let outside = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let inside = Memory::new();
        inside.want("#");
        let (filters, wanted) = watch::channel(Vec::new());
        let config = BridgeConfig {
            host: "127.0.0.1".to_owned(),
            port: outside.local_addr().unwrap().port(),
            secure: None,
            version,
            client_id: "bridge".to_owned(),
            user: None,
            password: None,
            qos_max: Qos::ExactlyOnce,
        };
        let bridge = runtime.block_on(async { Bridge::start(config, inside.clone(), wanted) }).unwrap();
        let played = Self { runtime, inside, bridge: Arc::new(bridge), outside, version, _filters: filters };
        let raw = played.accept(connack);
        (played, raw)
    }

    fn accept(&self, connack: &Connack) -> Raw {
        let mut raw = Server::speak(self.outside.accept().unwrap().0, self.version);
        raw.take(|packet| assert!(matches!(packet, Packet::Connect(_))));
        raw.write(|out| encode::connack(out, connack, self.version));
        while !self.bridge.counts().is_connected {
            std::thread::yield_now();
        }
        raw
    }

    fn publish(&self, payload: &str, qos: Qos) -> JoinHandle<Result<(), PublishError>> {
        let (bridge, payload) = (self.bridge.clone(), payload.as_bytes().to_vec());
        self.runtime.spawn(async move {
            let view = View { topic: "out", payload: &payload, lasting: &[], qos, expires_ms: None };
            bridge.publish(view, false).await
        })
    }

    fn end(&self, publish: JoinHandle<Result<(), PublishError>>) -> Result<(), PublishError> {
        self.runtime.block_on(publish).unwrap()
    }
}

fn goes_on() -> Connack {
    Connack { session_present: true, ..Connack::default() }
}

/// The identifier was free after a restart, and its message from before was still held outside: the new message was
/// taken for that one, and confirmed.
#[test]
fn an_identifier_that_may_be_in_use_outside_is_released_before_its_first_use() {
    for version in [Version::V311, Version::V5] {
        let (played, mut outside) = Played::start(version, &goes_on());
        let publish = played.publish("new", Qos::ExactlyOnce);
        let id = outside.take(|packet| match packet {
            Packet::Pubrel { id, .. } => id,
            other => panic!("{other:?} instead of PUBREL"),
        });
        outside.ack(Ack::Pubcomp, id);
        let got = outside.message();
        assert_eq!((got.payload.as_str(), got.id, got.dup), ("new", id, false));
        // Of an earlier release: the message has not been released.
        outside.ack(Ack::Pubcomp, id);
        outside.ack(Ack::Pubrec, id);
        outside.expect_ack(Ack::Pubrel, id, Reason::SUCCESS);
        assert!(!publish.is_finished());
        outside.ack(Ack::Pubcomp, id);
        played.end(publish).unwrap();
        // A session that begins holds nothing.
        drop(outside);
        let mut outside = played.accept(&Connack::default());
        let publish = played.publish("next", Qos::ExactlyOnce);
        assert_eq!(outside.receive().payload, "next");
        played.end(publish).unwrap();
    }
}

#[test]
fn what_can_never_be_taken_is_acknowledged_and_holds_nothing_up() {
    for version in [Version::V311, Version::V5] {
        let (played, mut outside) = Played::start(version, &goes_on());
        played.inside.refuse("bad", Code::EventInvalid);
        outside.publish("bad", "x", 1, 1);
        outside.expect_ack(Ack::Puback, 1, Reason::SUCCESS);
        outside.publish_confirmed("bad", "x", 2, 2);
        outside.publish_confirmed("large", &"x".repeat(3_000_000), 2, 3);
        outside.publish("large", &"x".repeat(1_000_000), 0, 0);
        if version == Version::V5 {
            let properties = PublishProperties { user: vec![("a", "b"); 65], ..Default::default() };
            let mut lasting = Vec::new();
            lasting_properties(&mut lasting, &properties);
            outside.publish_with("many", "x", 1, 4, |outgoing| outgoing.lasting = &lasting);
            outside.expect_ack(Ack::Puback, 4, Reason::SUCCESS);
        }
        outside.publish_confirmed("good", "1", 1, 5);
        assert_eq!(played.inside.events(), [("good".to_owned(), "1".to_owned())]);
        assert_eq!(played.bridge.counts().connects, 1);
    }
}

#[test]
fn what_is_larger_than_the_outside_broker_takes_is_refused() {
    let (played, mut outside) =
        Played::start(Version::V5, &Connack { packet_bytes_max: Some(100), ..Connack::default() });
    for qos in [Qos::AtMostOnce, Qos::AtLeastOnce] {
        let refused = played.end(played.publish(&"x".repeat(200), qos));
        assert!(matches!(refused, Err(PublishError::Refused(_))), "{refused:?}");
    }
    let publish = played.publish("small", Qos::AtLeastOnce);
    assert_eq!(outside.receive().payload, "small");
    played.end(publish).unwrap();
    assert_eq!(played.bridge.counts().published, 1);
}

/// Nobody could tell whether the broker was away or refused: events became dead letters while it was away, and one
/// that it refused was tried for ever.
#[test]
fn a_broker_that_refuses_is_not_one_that_is_away() {
    let (played, mut outside) = Played::start(Version::V5, &goes_on());
    let publish = played.publish("forbidden", Qos::AtLeastOnce);
    let id = outside.message().id;
    outside.write(|out| encode::ack(out, Ack::Puback, id, Reason::NOT_AUTHORIZED, Version::V5));
    let refused = played.end(publish);
    assert!(matches!(refused, Err(PublishError::Refused(_))), "{refused:?}");
    // What nobody waits for any more is not sent again.
    let given_up = played.publish("given up", Qos::AtLeastOnce);
    assert_eq!(outside.message().payload, "given up");
    given_up.abort();
    assert!(played.runtime.block_on(given_up).is_err());
    drop(outside);
    while played.bridge.counts().is_connected {
        std::thread::yield_now();
    }
    let away = played.end(played.publish("away", Qos::AtLeastOnce));
    assert!(matches!(away, Err(PublishError::Unavailable(_))), "{away:?}");
    let mut outside = played.accept(&goes_on());
    let publish = played.publish("back", Qos::AtLeastOnce);
    assert_eq!(outside.receive().payload, "back");
    played.end(publish).unwrap();
}
