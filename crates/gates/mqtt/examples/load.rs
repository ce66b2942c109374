//! Publishes with QoS 1 and counts what one subscriber gets: `load ADDRESS PUBLISHERS WINDOW MESSAGES [BYTES]`.
//!
//! Works against any broker. Blocking sockets, one thread each; the last line is JSON.

use gate_mqtt::codec::encode::{self, Ack, Outgoing};
use gate_mqtt::codec::{Connect, Packet, Qos, Reason, SubscribeEntry, SubscriptionOptions, Version, decode, split};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

const VERSION: Version = Version::V311;

struct Client {
    socket: TcpStream,
    bytes: Vec<u8>,
    used: usize,
}

impl Client {
    fn connect(address: &str, name: &str) -> Self {
        let socket = TcpStream::connect(address).expect("a broker listens there");
        socket.set_nodelay(true).expect("a socket option");
        socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a socket option");
        let mut client = Self { socket, bytes: Vec::with_capacity(1 << 17), used: 0 };
        let mut out = Vec::new();
        let connect = Connect {
            version: VERSION,
            clean_start: true,
            keep_alive_s: 0,
            client_id: name,
            will: None,
            user: None,
            password: None,
            session_expiry_s: 0,
            receive_maximum: u16::MAX,
            packet_bytes_max: None,
            topic_alias_maximum: 0,
            wants_problems: true,
            auth_method: None,
        };
        encode::connect(&mut out, &connect);
        client.socket.write_all(&out).expect("the broker reads");
        client.packets(|packet| assert!(matches!(packet, Packet::Connack(connack) if connack.code == 0)));
        client
    }

    /// Waits for bytes and hands over the packets in them. False if none came in time.
    fn packets(&mut self, mut take: impl FnMut(Packet<'_>)) -> bool {
        loop {
            let mut chunk = [0; 1 << 16];
            match self.socket.read(&mut chunk) {
                Ok(0) => panic!("the broker closed the connection"),
                Ok(read) => self.bytes.extend_from_slice(&chunk[..read]),
                Err(_) => return false,
            }
            let mut count = 0;
            while let Some(frame) = split(&self.bytes[self.used..], None, 1 << 20).expect("packets are well formed") {
                self.used += frame.bytes;
                count += 1;
                take(decode(frame, VERSION).expect("packets are well formed"));
            }
            self.bytes.drain(..self.used);
            self.used = 0;
            if count > 0 {
                return true;
            }
        }
    }
}

fn subscribe(address: &str, total: usize) -> (usize, Instant) {
    let mut client = Client::connect(address, "load-subscriber");
    let mut out = Vec::new();
    let options = SubscriptionOptions { qos: Qos::AtLeastOnce, ..SubscriptionOptions::default() };
    encode::subscribe(&mut out, 1, &[SubscribeEntry { filter: "load/#", options }], None, VERSION);
    client.socket.write_all(&out).expect("the broker reads");
    client.packets(|packet| assert!(matches!(packet, Packet::Suback { .. })));
    READY.store(true, std::sync::atomic::Ordering::SeqCst);
    let (mut count, mut last) = (0, Instant::now());
    let mut acks = Vec::new();
    while count < total {
        acks.clear();
        let came = client.packets(|packet| {
            if let Packet::Publish(publish) = packet {
                count += 1;
                encode::ack(&mut acks, Ack::Puback, publish.id, Reason::SUCCESS, VERSION);
            }
        });
        if !came {
            break;
        }
        last = Instant::now();
        client.socket.write_all(&acks).expect("the broker reads");
    }
    (count, last)
}

static READY: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

fn publish(address: &str, number: usize, window: usize, total: usize, payload: &[u8]) -> Vec<Duration> {
    let mut client = Client::connect(address, &format!("load-{number}"));
    let topic = format!("load/{number}");
    let (mut sent, mut waiting, mut took) = (0, VecDeque::new(), Vec::with_capacity(total));
    let mut out = Vec::new();
    while took.len() < total {
        out.clear();
        while sent < total && waiting.len() < window {
            let publish = Outgoing {
                version: VERSION,
                qos: Qos::AtLeastOnce,
                retain: false,
                dup: false,
                id: (sent % 65_535) as u16 + 1,
                topic: &topic,
                payload,
                lasting: &[],
                expiry_s: None,
                subscription_ids: &[],
            };
            publish.write(&mut out);
            waiting.push_back(Instant::now());
            sent += 1;
        }
        client.socket.write_all(&out).expect("the broker reads");
        let came = client.packets(|packet| {
            if let Packet::Puback { .. } = packet {
                took.push(waiting.pop_front().expect("one PUBACK for each PUBLISH").elapsed());
            }
        });
        assert!(came, "no PUBACK within five seconds");
    }
    took
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, publishers, window, messages, ..] = &arguments[..] else {
        panic!("usage: load ADDRESS PUBLISHERS WINDOW MESSAGES [BYTES]")
    };
    let number = |text: &String| text.parse::<usize>().expect("a number");
    let (publishers, window, messages) = (number(publishers), number(window), number(messages));
    let payload = vec![b'x'; arguments.get(4).map_or(64, number)];
    let each = messages / publishers;
    let subscriber = thread::spawn({
        let address = address.clone();
        move || subscribe(&address, each * publishers)
    });
    while !READY.load(std::sync::atomic::Ordering::SeqCst) {
        thread::yield_now();
    }
    let started = Instant::now();
    let mut took: Vec<Duration> = thread::scope(|scope| {
        let threads: Vec<_> = (0..publishers)
            .map(|number| {
                scope.spawn({
                    let payload = &payload;
                    move || publish(address, number, window, each, payload)
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a publisher ends well")).collect()
    });
    let (count, last) = subscriber.join().expect("the subscriber ends well");
    let seconds = last.duration_since(started).as_secs_f64();
    took.sort_unstable();
    let percentile = |share: f64| took[((took.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
    println!(
        "{{\"publishers\":{publishers},\"window\":{window},\"deliveries_per_s\":{:.0},\"lost\":{},\"ack_p50_us\":{:.0},\"ack_p99_us\":{:.0}}}",
        count as f64 / seconds,
        each * publishers - count,
        percentile(0.5),
        percentile(0.99)
    );
}
