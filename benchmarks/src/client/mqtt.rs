//! The least of an MQTT 3.1.1 client: publishes with QoS 1, and a subscriber that handles what comes and confirms it.

use super::pump::{self, Protocol, Replies, SILENCE_MAX};
use super::tally::{Handled, Handling, Sending, Sent};
use super::{Flow, say_ready};
use anyhow::{Context as _, bail, ensure};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

/// Where the events are published unless something else is said.
pub const TOPIC: &str = "bench/events";
/// Once events come, a subscriber that hears nothing for so long has heard all that was not lost.
const LOST_AFTER: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, clap::Args)]
pub struct PushOptions {
    #[command(flatten)]
    flow: Flow,
    /// Connections that share the events; the window is each one's own.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    publishers: u64,
}

/// PUBLISH with QoS 1 to [`TOPIC`].
struct Publish;

impl Protocol for Publish {
    fn request(&self, number: u64, message: &[u8], bytes: &mut Vec<u8>) {
        publish(bytes, TOPIC, 1 + (number % 65_535) as u16, message);
    }

    fn confirmations(&self, bytes: &mut Vec<u8>) -> anyhow::Result<u64> {
        let mut count = 0;
        take_packets(bytes, |kind, _| {
            ensure!(kind >> 4 == 4, "the broker sent packet {kind:#x} where a PUBACK is due");
            count += 1;
            Ok(())
        })?;
        Ok(count)
    }
}

/// Publishes the events.
pub fn push(options: &PushOptions) -> anyhow::Result<Sent> {
    let PushOptions { flow, publishers } = options;
    let connect = |number: u64| connect(flow.address, &format!("publisher-{number}"));
    let streams = (0..*publishers).map(connect).collect::<anyhow::Result<Vec<_>>>()?;
    let share = |number: u64| number * flow.events / publishers;
    let counts = thread::scope(|scope| {
        let publisher = |(number, stream): (u64, _)| {
            let (first, end) = (share(number), share(number + 1));
            let rate = flow.rate.map(|rate| rate / *publishers as f64);
            let flow = Flow { events: end - first, rate, ..flow.clone() };
            scope.spawn(move || pump::push_from(first, &Publish, stream, &flow))
        };
        let threads: Vec<_> = (0..).zip(&streams).map(publisher).collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect::<anyhow::Result<Vec<_>>>()
    })?;
    let mut total = Sending::new();
    for count in &counts {
        total.add(count)?;
    }
    Ok(total.done())
}

/// Subscribes to [`TOPIC`], handles what comes and confirms it, until all came or nothing has come for two seconds.
pub fn handle(flow: &Flow) -> anyhow::Result<Handled> {
    let stream = connect(flow.address, "handler")?;
    subscribe(&stream, TOPIC)?;
    say_ready()?;
    let mut handling = Handling::new(flow.events);
    let (mut replies, mut acks, mut due) = (Replies::new(), Vec::new(), Vec::new());
    let mut count = 0;
    while count < flow.events {
        let bytes = match replies.more(&stream) {
            Ok(bytes) => bytes,
            Err(error) if count > 0 && matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
            Err(error) => return Err(error).context("no events"),
        };
        if count == 0 {
            stream.set_read_timeout(Some(LOST_AFTER))?;
        }
        take_packets(bytes, |kind, body| {
            let (packet_id, message) = received(kind, body)?;
            due.push(handling.handle(message)?);
            acks.extend_from_slice(&[0x40, 2]);
            acks.extend_from_slice(&packet_id.context("the broker lowered the quality of service")?);
            count += 1;
            Ok(())
        })?;
        (&stream).write_all(&acks)?;
        acks.clear();
        for due in due.drain(..) {
            handling.acked(due);
        }
    }
    Ok(handling.done())
}

#[derive(Debug, Clone, clap::Args)]
pub struct HoldOptions {
    address: SocketAddr,
    #[arg(long, default_value_t = 1_000)]
    connections: u32,
    /// The number of the first: each client has a name and a topic of its own.
    #[arg(long, default_value_t = 0)]
    first: u32,
}

/// Opens connections, each with a subscription of its own, and keeps them idle until its input ends.
pub fn hold(options: &HoldOptions) -> anyhow::Result<()> {
    let open = |number: u32| {
        let stream = connect(options.address, &format!("idle-{number}"))?;
        subscribe(&stream, &format!("idle/{number}")).map(|()| stream)
    };
    let _held = (options.first..options.first + options.connections).map(open).collect::<anyhow::Result<Vec<_>>>()?;
    say_ready()?;
    std::io::stdin().lock().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// The packet id, if there is one, and the message of a PUBLISH.
pub fn received(kind: u8, body: &[u8]) -> anyhow::Result<(Option<[u8; 2]>, &[u8])> {
    ensure!(kind >> 4 == 3, "the broker sent packet {kind:#x} where a PUBLISH is due");
    let topic = body.first_chunk().map(|length| usize::from(u16::from_be_bytes(*length)));
    let rest = topic.and_then(|length| body.get(2 + length..)).context("a PUBLISH without a topic")?;
    if kind & 0b110 == 0 {
        return Ok((None, rest));
    }
    let (packet_id, message) = rest.split_first_chunk().context("a PUBLISH without a packet id")?;
    Ok((Some(*packet_id), message))
}

/// A connection with a clean session, and a keep-alive of an hour: rumqttd admits none without one.
///
/// # Errors
/// There is no broker, or it refuses.
pub fn connect(address: SocketAddr, client: &str) -> anyhow::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    let mut body = vec![0, 4, b'M', b'Q', b'T', b'T', 4, 2, 0x0e, 0x10];
    text(&mut body, client);
    (&stream).write_all(&packet(0x10, &body))?;
    let answer = one_packet(&stream)?;
    if answer != [0x20, 2, 0, 0] {
        bail!("the broker answers CONNECT with {answer:x?}");
    }
    Ok(stream)
}

/// Subscribes with QoS 1.
///
/// # Errors
/// The broker refuses.
pub fn subscribe(mut stream: &TcpStream, filter: &str) -> anyhow::Result<()> {
    let mut body = vec![0, 1];
    text(&mut body, filter);
    body.push(1);
    stream.write_all(&packet(0x82, &body))?;
    let answer = one_packet(stream)?;
    if answer != [0x90, 3, 0, 1, 1] {
        bail!("the broker answers SUBSCRIBE with {answer:x?}");
    }
    Ok(())
}

/// Reads until there is one packet. Whoever asks waits for the answer, so nothing follows it.
fn one_packet(stream: &TcpStream) -> anyhow::Result<Vec<u8>> {
    let mut replies = Replies::new();
    loop {
        let bytes = replies.more(stream)?;
        if whole_packet(bytes)?.is_some() {
            return Ok(std::mem::take(bytes));
        }
    }
}

/// Appends a PUBLISH with QoS 1.
pub fn publish(bytes: &mut Vec<u8>, topic: &str, packet_id: u16, message: &[u8]) {
    let mut body = Vec::with_capacity(4 + topic.len() + message.len());
    text(&mut body, topic);
    body.extend_from_slice(&packet_id.to_be_bytes());
    body.extend_from_slice(message);
    bytes.extend_from_slice(&packet(0x32, &body));
}

fn text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend_from_slice(&(text.len() as u16).to_be_bytes());
    bytes.extend_from_slice(text.as_bytes());
}

fn packet(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![kind];
    let mut length = body.len();
    while length >= 0x80 {
        packet.push(length as u8 | 0x80);
        length >>= 7;
    }
    packet.push(length as u8);
    packet.extend_from_slice(body);
    packet
}

/// Takes whole packets from the front of `bytes`: their first byte and what follows the length.
pub fn take_packets(bytes: &mut Vec<u8>, mut take: impl FnMut(u8, &[u8]) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let mut taken = 0;
    while let Some((header, length)) = whole_packet(&bytes[taken..])? {
        let packet = &bytes[taken..taken + header + length];
        take(packet[0], &packet[header..])?;
        taken += header + length;
    }
    bytes.drain(..taken);
    Ok(())
}

/// Bytes of the header and of the rest, of a packet that is all there.
fn whole_packet(bytes: &[u8]) -> anyhow::Result<Option<(usize, usize)>> {
    let mut length = 0;
    for (place, byte) in bytes.iter().skip(1).take(4).enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            let header = 2 + place;
            return Ok((bytes.len() >= header + length).then_some((header, length)));
        }
    }
    ensure!(bytes.len() < 5, "the broker sent a packet without an end to its length");
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_taken_whole_wherever_they_are_cut() {
        let mut sent = Vec::new();
        for (number, size) in [(1, 5), (2, 200), (3, 20_000)] {
            publish(&mut sent, "a/b", number, &vec![7; size]);
        }
        let (mut buffer, mut seen) = (Vec::new(), Vec::new());
        for byte in sent {
            buffer.push(byte);
            take_packets(&mut buffer, |kind, body| {
                let (packet_id, message) = received(kind, body)?;
                seen.push((packet_id, message.len()));
                Ok(())
            })
            .unwrap();
        }
        assert_eq!(seen, [(Some([0, 1]), 5), (Some([0, 2]), 200), (Some([0, 3]), 20_000)]);
        assert!(take_packets(&mut vec![0x30, 0xff, 0xff, 0xff, 0xff], |_, _| Ok(())).is_err());
    }
}
