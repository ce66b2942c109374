//! TLS with the certificates of the HTTP gate, and users.

use super::support::*;
use gate_mqtt::codec::{Connect, Qos, Reason, Version, Will};
use gate_mqtt::{Certificates, Limits, User, Users, hash_password};
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::{AsyncClient, MqttOptions};
use rumqttc::{TlsConfiguration, Transport};
use rustls::RootCertStore;
use rustls_pki_types::CertificateDer;
use std::sync::Arc;

fn users() -> Users {
    let user = User {
        password: hash_password(b"secret").unwrap(),
        publish: vec!["sensor/{client}/#".into()],
        subscribe: vec!["sensor/+/co2".into(), "command/{client}".into()],
        ..User::default()
    };
    Users::new([("meter".to_owned(), user)].into(), None).unwrap()
}

fn named<'a>(version: Version, user: Option<&'a str>, password: &'a [u8]) -> Connect<'a> {
    Connect { client_id: "7", user, password: user.map(|_| password), ..plain(version) }
}

#[test]
fn only_users_are_let_in_and_only_with_their_password() {
    let server = Server::with_users(Limits::default(), users(), None);
    for (version, codes) in [(Version::V311, [5, 5, 5]), (Version::V5, [0x87, 0x86, 0x86])] {
        assert_eq!(server.try_connect(named(version, None, b"")).1.code, codes[0]);
        assert_eq!(server.try_connect(named(version, Some("meter"), b"wrong")).1.code, codes[1]);
        assert_eq!(server.try_connect(named(version, Some("nobody"), b"secret")).1.code, codes[2]);
        assert_eq!(server.try_connect(named(version, Some("meter"), b"secret")).1.code, 0);
    }
}

#[test]
fn a_user_publishes_and_subscribes_only_where_it_may() {
    let server = Server::with_users(Limits::default(), users(), None);
    for version in [Version::V311, Version::V5] {
        let (mut client, _) = server.connect_as(named(version, Some("meter"), b"secret"));
        let denied = if version == Version::V5 { Reason::NOT_AUTHORIZED.0 } else { 0x80 };
        for (filter, code) in [
            ("sensor/+/co2", 1),
            ("sensor/8/co2", 1),
            ("$share/g/sensor/8/co2", 1),
            ("#", denied),
            ("sensor/#", denied),
            ("command/8", denied),
        ] {
            assert_eq!(client.subscribe(filter, 1), code, "{filter}");
        }
        use gate_mqtt::codec::encode::Ack;
        client.publish("sensor/8/co2", "not mine", 1, 1);
        // 3.1.1 has no word for it: confirmed, and passed on to nobody.
        client.expect_ack(
            Ack::Puback,
            1,
            if version == Version::V5 { Reason::NOT_AUTHORIZED } else { Reason::SUCCESS },
        );
        client.ping();
        let will = Will {
            topic: "other",
            payload: b"",
            qos: Qos::AtMostOnce,
            retain: false,
            delay_s: 0,
            properties: Default::default(),
        };
        let connect = Connect { will: Some(will), ..named(version, Some("meter"), b"secret") };
        assert_ne!(server.try_connect(connect).1.code, 0);
    }
}

#[test]
fn a_session_belongs_to_its_user() {
    let user = || User { password: hash_password(b"p").unwrap(), subscribe: vec!["#".into()], ..User::default() };
    let users = Users::new([("a".to_owned(), user()), ("b".to_owned(), user())].into(), None).unwrap();
    let server = Server::with_users(Limits::default(), users, None);
    let connect = |name| Connect { clean_start: false, session_expiry_s: 10, ..named(Version::V5, Some(name), b"p") };
    assert_eq!(server.try_connect(connect("a")).1.code, 0);
    // Another user's client of the same name has a session of its own, and takes nothing away.
    let (_other, connack) = server.try_connect(connect("b"));
    assert_eq!((connack.code, connack.session_present), (0, false));
    assert!(server.try_connect(connect("a")).1.session_present);
}

#[test]
fn a_client_that_is_not_ours_speaks_tls() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let certificates = Certificates::load(&certificate, &key).unwrap();
    let server = Server::with_users(Limits::default(), users(), Some(&certificates));
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(made.cert.der().to_vec())).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let payload: Vec<u8> = (0..100_000).map(|number| number as u8).collect();
    server.runtime.block_on(async {
        let mut options = MqttOptions::new("7", "localhost", server.address.port());
        options
            .set_credentials("meter", "secret")
            .set_transport(Transport::tls_with_config(TlsConfiguration::Rustls(Arc::new(tls))));
        options.set_max_packet_size(Some(1 << 20));
        let (client, mut events) = AsyncClient::new(options, 10);
        client.subscribe("sensor/+/co2", QoS::ExactlyOnce).await.unwrap();
        client.publish("sensor/7/co2", QoS::ExactlyOnce, false, payload.clone()).await.unwrap();
        loop {
            use rumqttc::v5::Event;
            use rumqttc::v5::mqttbytes::v5::Packet;
            if let Event::Incoming(Packet::Publish(publish)) = events.poll().await.unwrap() {
                assert_eq!(publish.payload, payload);
                break;
            }
        }
    });
}
