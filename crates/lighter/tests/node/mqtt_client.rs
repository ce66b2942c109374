//! A real MQTT client for the tests: publishes with QoS 1 and waits for the confirmation, collects what it subscribed
//! to.

use rumqttc::{Client, Event, MqttOptions, Packet, Publish, QoS};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

/// Nothing here takes longer unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Mqtt {
    client: Client,
    confirmed: Receiver<()>,
    subscribed: Receiver<()>,
    received: Receiver<Publish>,
}

impl Mqtt {
    /// `address` as `127.0.0.1:1883`.
    pub fn connect(address: &str, id: &str) -> Self {
        Self::open(address, id, true)
    }

    /// With a session that outlives the connection.
    pub fn resume(address: &str, id: &str) -> Self {
        Self::open(address, id, false)
    }

    fn open(address: &str, id: &str, is_clean: bool) -> Self {
        let (host, port) = address.rsplit_once(':').unwrap();
        let mut options = MqttOptions::new(id, host, port.parse().unwrap());
        options.set_inflight(100);
        options.set_clean_session(is_clean);
        let (client, mut connection) = Client::new(options, 1_000);
        let (confirm, confirmed) = channel();
        let (subscribe, subscribed) = channel();
        let (receive, received) = channel();
        thread::spawn(move || {
            for event in connection.iter() {
                // The test that started this has ended where nobody listens.
                let sent = match event {
                    Ok(Event::Incoming(Packet::PubAck(_) | Packet::PubComp(_))) => confirm.send(()).is_ok(),
                    Ok(Event::Incoming(Packet::SubAck(_))) => subscribe.send(()).is_ok(),
                    Ok(Event::Incoming(Packet::Publish(publish))) => receive.send(publish).is_ok(),
                    Ok(_) => true,
                    Err(_) => false,
                };
                if !sent {
                    return;
                }
            }
        });
        Self { client, confirmed, subscribed, received }
    }

    pub fn subscribe(&self, filter: &str) {
        self.client.subscribe(filter, QoS::AtLeastOnce).unwrap();
        self.subscribed.recv_timeout(PATIENCE).expect("the subscription is confirmed");
    }

    /// Publishes all, in this order, and returns when each is confirmed.
    pub fn publish<'a>(&self, messages: impl IntoIterator<Item = (&'a str, &'a str)>) {
        let mut count = 0;
        for (topic, payload) in messages {
            self.client.publish(topic, QoS::AtLeastOnce, false, payload).unwrap();
            count += 1;
        }
        for _ in 0..count {
            self.confirmed.recv_timeout(PATIENCE).expect("the publish is confirmed");
        }
    }

    /// Publishes one that the broker keeps for whoever subscribes later.
    pub fn retain(&self, topic: &str, payload: &str) {
        self.client.publish(topic, QoS::AtLeastOnce, true, payload).unwrap();
        self.confirmed.recv_timeout(PATIENCE).expect("the publish is confirmed");
    }

    /// Publishes one with QoS 0: nobody confirms it.
    pub fn say(&self, topic: &str, payload: &str) {
        self.client.publish(topic, QoS::AtMostOnce, false, payload).unwrap();
    }

    /// Tells the broker that it goes.
    pub fn close(self) {
        self.client.disconnect().unwrap();
    }

    /// The next message it subscribed to: topic and payload.
    pub fn next(&self) -> (String, String) {
        let publish = self.received.recv_timeout(PATIENCE).expect("a message comes");
        (publish.topic, String::from_utf8(publish.payload.to_vec()).unwrap())
    }

    /// All that have come and were not asked for.
    pub fn rest(&self) -> Vec<String> {
        self.received.try_iter().map(|publish| publish.topic).collect()
    }
}
