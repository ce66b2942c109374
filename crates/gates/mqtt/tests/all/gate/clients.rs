//! Clients that are not ours: rumqttc, in both versions of MQTT.

use super::support::*;
use rumqttc::{AsyncClient, Event, MqttOptions, Packet, QoS, v5};
use std::collections::BTreeMap;
use std::time::Duration;

const MESSAGES: usize = 300;

#[test]
fn rumqttc_publishes_and_subscribes_with_every_qos() {
    let server = Server::start();
    let port = server.address.port();
    server.runtime.block_on(async {
        for (number, qos) in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce].into_iter().enumerate() {
            let mut options = MqttOptions::new(format!("c{number}"), "127.0.0.1", port);
            options.set_inflight(50);
            let (client, mut events) = AsyncClient::new(options, 1_000);
            let topic = format!("t/{number}");
            client.subscribe(&topic, qos).await.unwrap();
            for message in 0..MESSAGES {
                client.publish(&topic, qos, false, message.to_string()).await.unwrap();
            }
            let mut got = Vec::new();
            while got.len() < MESSAGES {
                if let Event::Incoming(Packet::Publish(publish)) = events.poll().await.unwrap() {
                    assert_eq!(publish.qos, qos);
                    got.push(String::from_utf8(publish.payload.to_vec()).unwrap().parse::<usize>().unwrap());
                }
            }
            // Each once, in order.
            assert!(got.iter().copied().eq(0..MESSAGES), "{qos:?}");
        }
    });
}

#[test]
fn rumqttc_of_version_5_does_too_with_properties() {
    use v5::mqttbytes::QoS;
    use v5::mqttbytes::v5::{Packet, PublishProperties};
    let server = Server::start();
    server.runtime.block_on(async {
        let mut options = v5::MqttOptions::new("c", "127.0.0.1", server.address.port());
        options.set_session_expiry_interval(Some(60)).set_clean_start(false);
        let (client, mut events) = v5::AsyncClient::new(options, 1_000);
        client.subscribe("t/+", QoS::ExactlyOnce).await.unwrap();
        let properties = PublishProperties {
            content_type: Some("text/plain".to_owned()),
            user_properties: vec![("a".to_owned(), "b".to_owned())],
            ..PublishProperties::default()
        };
        for message in 0..MESSAGES {
            let qos = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce][message % 3];
            client.publish_with_properties("t/x", qos, false, message.to_string(), properties.clone()).await.unwrap();
        }
        let mut got: BTreeMap<usize, u32> = BTreeMap::new();
        while got.len() < MESSAGES {
            if let v5::Event::Incoming(Packet::Publish(publish)) = events.poll().await.unwrap() {
                let carried = publish.properties.unwrap();
                assert_eq!(
                    (&carried.content_type, &carried.user_properties),
                    (&properties.content_type, &properties.user_properties)
                );
                *got.entry(String::from_utf8(publish.payload.to_vec()).unwrap().parse().unwrap()).or_default() += 1;
            }
        }
        assert!(got.values().all(|count| *count == 1));
    });
}

#[test]
fn rumqttc_comes_back_after_the_broker_died_and_has_missed_nothing() {
    let mut server = Server::start();
    let options = |server: &Server| {
        let mut options = MqttOptions::new("reader", "127.0.0.1", server.address.port());
        options.set_clean_session(false).set_keep_alive(Duration::from_secs(5));
        options
    };
    let port_before = options(&server);
    server.runtime.block_on(async {
        let (client, mut events) = AsyncClient::new(port_before, 10);
        client.subscribe("t", QoS::AtLeastOnce).await.unwrap();
        while !matches!(events.poll().await.unwrap(), Event::Incoming(Packet::SubAck(_))) {}
    });
    let mut writer = server.connect(gate_mqtt::Version::V311, "writer");
    for number in 0..50 {
        writer.publish_confirmed("t", &number.to_string(), 1, number + 1);
    }
    server.restart();
    let port_after = options(&server);
    server.runtime.block_on(async {
        let (_client, mut events) = AsyncClient::new(port_after, 10);
        let mut next = 0;
        while next < 50 {
            if let Event::Incoming(Packet::Publish(publish)) = events.poll().await.unwrap() {
                assert_eq!(publish.payload, next.to_string().as_bytes());
                next += 1;
            }
        }
    });
}
