//! Wills: what is published for a client that is lost.

use super::support::*;
use gate_mqtt::codec::{Connect, PublishProperties, Qos, Reason, Version, Will, encode};

fn will(delay_s: u32) -> Option<Will<'static>> {
    let (qos, properties) = (Qos::AtLeastOnce, PublishProperties::default());
    Some(Will { topic: "will", payload: b"gone", qos, retain: false, delay_s, properties })
}

fn with_will(version: Version, delay_s: u32, session_expiry_s: u32) -> Connect<'static> {
    Connect {
        client_id: "mortal",
        will: will(delay_s),
        session_expiry_s,
        clean_start: session_expiry_s == 0,
        ..plain(version)
    }
}

#[test]
fn the_will_of_a_client_that_vanishes_is_published_and_reaches_functions() {
    for version in [Version::V311, Version::V5] {
        let server = Server::start();
        server.node.want("will");
        let mut reader = server.connect(version, "reader");
        reader.subscribe("will", 1);
        drop(server.connect_as(with_will(version, 0, 0)));
        assert_eq!(reader.receive().payload, "gone");
        reader.ping();
        assert_eq!(server.node.events().len(), 1);
    }
}

#[test]
fn a_client_that_says_goodbye_has_no_will_unless_it_says_so() {
    for version in [Version::V311, Version::V5] {
        let server = Server::start();
        let mut reader = server.connect(version, "reader");
        reader.subscribe("will", 1);
        server.connect_as(with_will(version, 0, 0)).0.disconnect();
        reader.ping();
        if version == Version::V5 {
            let mut client = server.connect_as(with_will(version, 0, 0)).0;
            client.write(|out| encode::disconnect(out, Reason::DISCONNECT_WITH_WILL, Version::V5));
            assert_eq!(reader.receive().payload, "gone");
        }
    }
}

#[test]
fn a_delayed_will_is_published_when_it_is_due_or_the_session_ends() {
    for (delay_s, session_expiry_s) in [(1, 100), (100, 1), (100, 0)] {
        let server = Server::start();
        let mut reader = server.connect(Version::V5, "reader");
        reader.subscribe("will", 1);
        drop(server.connect_as(with_will(Version::V5, delay_s, session_expiry_s)));
        assert_eq!(reader.receive().payload, "gone", "{delay_s} {session_expiry_s}");
    }
}

#[test]
fn who_comes_back_in_time_takes_the_will_back() {
    let server = Server::start();
    let mut reader = server.connect(Version::V5, "reader");
    reader.subscribe("will", 1);
    drop(server.connect_as(with_will(Version::V5, 1, 100)));
    let (mut back, connack) = server.connect_as(Connect { will: None, ..with_will(Version::V5, 0, 100) });
    assert!(connack.session_present);
    // Another will that is due at the same moment comes, so the first would have come by now.
    drop(server.connect_as(Connect { client_id: "other", ..with_will(Version::V5, 1, 100) }));
    assert_eq!(reader.receive().payload, "gone");
    back.ping();
    reader.ping();
}

#[test]
fn the_will_of_a_kept_session_survives_the_broker() {
    let mut server = Server::start();
    let (mut reader, _) = server.connect_kept(Version::V5, "reader");
    reader.subscribe("will", 1);
    drop(reader);
    let mortal = server.connect_as(with_will(Version::V5, 1, 100));
    server.restart();
    drop(mortal);
    let (mut reader, _) = server.connect_kept(Version::V5, "reader");
    assert_eq!(reader.receive().payload, "gone");
}

#[test]
fn a_will_for_a_full_queue_is_tried_again() {
    let server = Server::start();
    server.node.want("will");
    server.node.set_full(true);
    drop(server.connect_as(with_will(Version::V5, 0, 0)));
    while server.gate().counts().connections > 0 {
        std::thread::yield_now();
    }
    assert!(server.node.events().is_empty());
    server.node.set_full(false);
    while server.node.events().is_empty() {
        std::thread::yield_now();
    }
    assert_eq!(server.node.events(), [("will".to_owned(), "gone".to_owned())]);
}

#[test]
fn a_silent_client_is_lost_after_one_and_a_half_times_its_keep_alive() {
    for version in [Version::V311, Version::V5] {
        let server = Server::start();
        let mut reader = server.connect(version, "reader");
        reader.subscribe("will", 1);
        let started = std::time::Instant::now();
        let (mut silent, _) = server.connect_as(Connect { keep_alive_s: 1, ..with_will(version, 0, 0) });
        assert_eq!(reader.receive().payload, "gone");
        assert!(started.elapsed().as_millis() >= 1_500);
        silent.expect_closed(Reason::KEEP_ALIVE);
    }
}
