//! A gate on a free port, a node in memory whose disk can be held up, and a client that says exactly what it is told.

use budget::Budget;
use gate_mqtt::codec::encode::{self, Ack, Outgoing};
use gate_mqtt::codec::{
    Connack, Connect, Packet, Qos, Reason, SubscribeEntry, SubscriptionOptions, Version, decode, split,
};
use gate_mqtt::{Certificates, Changes, Gate, Limits, Listener, Node, Refused, Users, topic};
use parking_lot::Mutex;
use problem::{Code, Problem};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// Changes that a transaction of the real node has room for.
const TRANSACTION_MAX: usize = 10_000;

/// Keeps records and events; what is durable is said when the test says so.
pub struct Memory {
    kept: Mutex<Kept>,
    durable: watch::Sender<u64>,
}

#[derive(Default)]
struct Kept {
    records: BTreeMap<String, Vec<u8>>,
    events: Vec<(String, Vec<u8>)>,
    commits: u64,
    wanted: Option<String>,
    is_full: bool,
    is_disk_full: bool,
    never: Option<(String, Code)>,
    is_held: bool,
}

impl Memory {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { kept: Mutex::default(), durable: watch::Sender::new(0) })
    }

    /// A function wants the messages of these topics.
    pub fn want(&self, filter: &str) {
        self.kept.lock().wanted = Some(filter.to_owned());
    }

    pub fn set_full(&self, is_full: bool) {
        self.kept.lock().is_full = is_full;
    }

    /// Events of this topic are refused with this code.
    pub fn refuse(&self, topic: &str, code: Code) {
        self.kept.lock().never = Some((topic.to_owned(), code));
    }

    /// No record is written from now on.
    pub fn set_disk_full(&self, is_full: bool) {
        self.kept.lock().is_disk_full = is_full;
    }

    /// Nothing becomes durable from now on.
    pub fn hold(&self) {
        self.kept.lock().is_held = true;
    }

    /// Everything is durable.
    pub fn release(&self) {
        let mut kept = self.kept.lock();
        kept.is_held = false;
        self.durable.send_replace(kept.commits);
    }

    pub fn events(&self) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        self.kept.lock().events.iter().map(|(topic, payload)| (topic.clone(), text(payload))).collect()
    }

    /// A record that an earlier release wrote.
    pub fn write(&self, key: &str, value: &[u8]) {
        self.kept.lock().records.insert(key.to_owned(), value.to_vec());
    }

    pub fn records(&self) -> Vec<String> {
        self.kept.lock().records.keys().cloned().collect()
    }
}

impl Node for Memory {
    fn wants(&self, name: &str) -> bool {
        self.kept.lock().wanted.as_ref().is_some_and(|filter| topic::matches(filter, name))
    }

    fn commit(&self, changes: &Changes) -> Result<u64, Refused> {
        let mut kept = self.kept.lock();
        if kept.is_full && !changes.events.is_empty() {
            return Err(Refused::QueueFull(Problem::new(Code::QueueFull, "the test says so")));
        }
        if kept.is_disk_full && !changes.records.is_empty() {
            return Err(Refused::Unavailable(Problem::new(Code::DiskFull, "the test says so")));
        }
        if let Some((topic, code)) = &kept.never
            && changes.events.iter().any(|event| event.message.topic() == topic)
        {
            return Err(Refused::QueueFull(Problem::new(*code, "the test says so")));
        }
        if changes.records.len() + changes.events.len() > TRANSACTION_MAX {
            return Err(Refused::Unavailable(Problem::new(Code::Internal, "a transaction has no room for so much")));
        }
        for (key, value) in &changes.records {
            assert!(key.len() <= 1_024, "{key}");
            match value {
                Some(value) => drop(kept.records.insert(key.clone(), value.clone())),
                None => drop(kept.records.remove(key)),
            }
        }
        for event in &changes.events {
            kept.events.push((event.message.topic().to_owned(), event.message.payload().to_vec()));
        }
        kept.commits += 1;
        if !kept.is_held {
            self.durable.send_replace(kept.commits);
        }
        Ok(kept.commits)
    }

    async fn durable(&self, number: u64) -> Result<u64, Problem> {
        let mut durable = self.durable.subscribe();
        let reached = durable.wait_for(|durable| *durable >= number).await.expect("the node lives as long as the gate");
        Ok(*reached)
    }

    fn restore(&self, take: &mut dyn FnMut(&str, &[u8])) -> Result<(), Problem> {
        self.kept.lock().records.iter().for_each(|(key, value)| take(key, value));
        Ok(())
    }
}

pub struct Server {
    pub runtime: Runtime,
    pub address: SocketAddr,
    pub node: Arc<Memory>,
    pub gate: Option<Gate<Memory>>,
    pub budget: Arc<Budget>,
    limits: Limits,
}

impl Server {
    pub fn start() -> Self {
        Self::with(Limits::default())
    }

    pub fn with(limits: Limits) -> Self {
        Self::with_users(limits, Users::open(), None)
    }

    pub fn with_users(limits: Limits, users: Users, certificates: Option<&Certificates>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (node, budget) = (Memory::new(), Budget::new(1 << 30));
        let _inside = runtime.enter();
        let listener = Listener::bind(([127, 0, 0, 1], 0).into(), certificates).unwrap();
        let address = listener.address();
        let gate = Gate::start(vec![listener], limits.clone(), users, node.clone(), &budget).unwrap();
        drop(_inside);
        Self { runtime, address, node, gate: Some(gate), budget, limits }
    }

    /// Ends as a power cut would, and starts again with what was committed.
    pub fn restart(&mut self) {
        self.restart_with_users(Users::open());
    }

    pub fn restart_with_users(&mut self, users: Users) {
        self.gate = None;
        let _inside = self.runtime.enter();
        let listener = Listener::bind(([127, 0, 0, 1], 0).into(), None).unwrap();
        self.address = listener.address();
        self.gate =
            Some(Gate::start(vec![listener], self.limits.clone(), users, self.node.clone(), &self.budget).unwrap());
    }

    pub fn gate(&self) -> &Gate<Memory> {
        self.gate.as_ref().unwrap()
    }

    pub fn connect(&self, version: Version, name: &str) -> Raw {
        self.connect_as(Connect { client_id: name, ..plain(version) }).0
    }

    /// A session that outlives its connection.
    pub fn connect_kept(&self, version: Version, name: &str) -> (Raw, bool) {
        let connect = Connect { client_id: name, clean_start: false, session_expiry_s: 100, ..plain(version) };
        let (raw, connack) = self.connect_as(connect);
        (raw, connack.session_present)
    }

    pub fn connect_as(&self, connect: Connect<'_>) -> (Raw, Connack) {
        let (raw, connack) = self.try_connect(connect);
        assert_eq!(connack.code, 0);
        (raw, connack)
    }

    pub fn try_connect(&self, connect: Connect<'_>) -> (Raw, Connack) {
        let mut raw = self.raw(connect.version);
        raw.write(|out| encode::connect(out, &connect));
        let connack = raw.take(|packet| match packet {
            Packet::Connack(connack) => *connack,
            other => panic!("{other:?} instead of CONNACK"),
        });
        (raw, connack)
    }

    pub fn raw(&self, version: Version) -> Raw {
        Self::speak(TcpStream::connect(self.address).unwrap(), version)
    }

    /// A connection that comes from another address of this machine.
    pub fn raw_from(&self, address: [u8; 4], version: Version) -> Raw {
        let connect = async {
            let socket = tokio::net::TcpSocket::new_v4()?;
            socket.bind((address, 0).into())?;
            socket.connect(self.address).await?.into_std()
        };
        let socket = self.runtime.block_on(connect).unwrap();
        socket.set_nonblocking(false).unwrap();
        Self::speak(socket, version)
    }

    /// A connection that exists already.
    pub fn speak(socket: TcpStream, version: Version) -> Raw {
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Raw { socket, bytes: Vec::new(), version }
    }
}

pub fn plain(version: Version) -> Connect<'static> {
    Connect {
        version,
        clean_start: true,
        keep_alive_s: 60,
        client_id: "c",
        will: None,
        user: None,
        password: None,
        session_expiry_s: 0,
        receive_maximum: u16::MAX,
        packet_bytes_max: None,
        topic_alias_maximum: 0,
        wants_problems: true,
        auth_method: None,
    }
}

/// A client that says what it is told and tells what it hears.
pub struct Raw {
    pub socket: TcpStream,
    bytes: Vec<u8>,
    pub version: Version,
}

/// A message as a client got it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Got {
    pub topic: String,
    pub payload: String,
    pub qos: u8,
    pub retain: bool,
    pub dup: bool,
    pub id: u16,
    pub subscription_ids: Vec<u32>,
    pub expiry_s: Option<u32>,
}

impl Raw {
    pub fn write(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        let mut out = Vec::new();
        encode(&mut out);
        self.socket.write_all(&out).unwrap();
    }

    pub fn take<T>(&mut self, take: impl FnOnce(Packet<'_>) -> T) -> T {
        self.try_take(take).expect("the broker closed the connection")
    }

    /// None if the broker closed the connection.
    pub fn try_take<T>(&mut self, take: impl FnOnce(Packet<'_>) -> T) -> Option<T> {
        loop {
            if let Some(frame) = split(&self.bytes, None, 1 << 24).unwrap() {
                let bytes = frame.bytes;
                let taken = take(decode(frame, self.version).unwrap());
                self.bytes.drain(..bytes);
                return Some(taken);
            }
            let mut chunk = [0; 65_536];
            match self.socket.read(&mut chunk) {
                Ok(0) => return None,
                Ok(read) => self.bytes.extend_from_slice(&chunk[..read]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("nothing came: {error}"),
            }
        }
    }

    /// The next packet, as it prints.
    pub fn next(&mut self) -> String {
        self.try_take(|packet| format!("{packet:?}")).unwrap_or_else(|| "closed".to_owned())
    }

    pub fn publish(&mut self, topic: &str, payload: &str, qos: u8, id: u16) {
        self.publish_with(topic, payload, qos, id, |_| {});
    }

    pub fn publish_with<'a>(
        &mut self,
        topic: &'a str,
        payload: &'a str,
        qos: u8,
        id: u16,
        change: impl FnOnce(&mut Outgoing<'a>),
    ) {
        let mut outgoing = Outgoing {
            version: self.version,
            qos: Qos::new(qos).unwrap(),
            retain: false,
            dup: false,
            id,
            topic,
            payload: payload.as_bytes(),
            lasting: &[],
            expiry_s: None,
            subscription_ids: &[],
        };
        change(&mut outgoing);
        self.write(|out| {
            outgoing.write(out);
        });
    }

    /// Publishes and waits for the confirmation.
    pub fn publish_confirmed(&mut self, topic: &str, payload: &str, qos: u8, id: u16) {
        self.publish(topic, payload, qos, id);
        match qos {
            0 => self.ping(),
            1 => self.expect_ack(Ack::Puback, id, Reason::SUCCESS),
            _ => {
                self.expect_ack(Ack::Pubrec, id, Reason::SUCCESS);
                self.ack(Ack::Pubrel, id);
                self.expect_ack(Ack::Pubcomp, id, Reason::SUCCESS);
            }
        }
    }

    pub fn retain(&mut self, topic: &str, payload: &str) {
        self.publish_with(topic, payload, 1, 1, |outgoing| outgoing.retain = true);
        self.expect_ack(Ack::Puback, 1, Reason::SUCCESS);
    }

    pub fn ack(&mut self, kind: Ack, id: u16) {
        let version = self.version;
        self.write(|out| encode::ack(out, kind, id, Reason::SUCCESS, version));
    }

    #[track_caller]
    pub fn expect_ack(&mut self, kind: Ack, id: u16, reason: Reason) {
        let expected = match kind {
            Ack::Puback => Packet::Puback { id, reason },
            Ack::Pubrec => Packet::Pubrec { id, reason },
            Ack::Pubrel => Packet::Pubrel { id, reason },
            Ack::Pubcomp => Packet::Pubcomp { id, reason },
        };
        self.take(|packet| {
            // Accepted either way.
            let packet = match packet {
                Packet::Puback { id, reason: Reason::NO_SUBSCRIBERS } => Packet::Puback { id, reason: Reason::SUCCESS },
                Packet::Pubrec { id, reason: Reason::NO_SUBSCRIBERS } => Packet::Pubrec { id, reason: Reason::SUCCESS },
                other => other,
            };
            assert_eq!(packet, expected);
        });
    }

    pub fn subscribe(&mut self, filter: &str, qos: u8) -> u8 {
        self.subscribe_with(filter, SubscriptionOptions { qos: Qos::new(qos).unwrap(), ..Default::default() }, None)
    }

    pub fn subscribe_with(&mut self, filter: &str, options: SubscriptionOptions, id: Option<u32>) -> u8 {
        let version = self.version;
        self.write(|out| encode::subscribe(out, 9, &[SubscribeEntry { filter, options }], id, version));
        self.take(|packet| match packet {
            Packet::Suback { id: 9, codes } => codes[0],
            other => panic!("{other:?} instead of SUBACK"),
        })
    }

    /// The next message; it is not answered.
    #[track_caller]
    pub fn message(&mut self) -> Got {
        self.take(|packet| match packet {
            Packet::Publish(publish) => Got {
                topic: publish.topic.to_owned(),
                payload: String::from_utf8_lossy(publish.payload).into_owned(),
                qos: publish.qos.number(),
                retain: publish.retain,
                dup: publish.dup,
                id: publish.id,
                subscription_ids: publish.properties.subscription_ids,
                expiry_s: publish.properties.expiry_s,
            },
            other => panic!("{other:?} instead of a message"),
        })
    }

    /// The next message, answered as its QoS asks for.
    #[track_caller]
    pub fn receive(&mut self) -> Got {
        let got = self.message();
        match got.qos {
            0 => {}
            1 => self.ack(Ack::Puback, got.id),
            _ => {
                self.ack(Ack::Pubrec, got.id);
                self.expect_ack(Ack::Pubrel, got.id, Reason::SUCCESS);
                self.ack(Ack::Pubcomp, got.id);
            }
        }
        got
    }

    /// Everything sent before has been handled, and nothing was waiting to be heard.
    #[track_caller]
    pub fn ping(&mut self) {
        self.write(encode::pingreq);
        self.take(|packet| assert_eq!(packet, Packet::Pingresp));
    }

    pub fn disconnect(mut self) {
        let version = self.version;
        self.write(|out| encode::disconnect(out, Reason::SUCCESS, version));
        assert_eq!(self.next(), "closed");
    }

    /// The broker closed the connection; with MQTT 5 it said why.
    #[track_caller]
    pub fn expect_closed(&mut self, reason: Reason) {
        if self.version == Version::V5 {
            self.take(|packet| assert_eq!(packet, Packet::Disconnect { reason, session_expiry_s: None }));
        }
        assert_eq!(self.next(), "closed");
    }
}
