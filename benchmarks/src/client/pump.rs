//! Sends requests on one pipelined connection: at most so many unconfirmed at once, or at a steady rate.

use super::Flow;
use super::message::{message, now_ns};
use super::tally::{Sending, Sent};
use anyhow::{Context as _, bail};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

const READ_BYTES: usize = 64 << 10;
/// A server that confirms nothing for so long has lost something.
pub const SILENCE_MAX: Duration = Duration::from_secs(20);

/// A protocol in which each request is confirmed, in the order they were sent.
pub trait Protocol {
    /// Appends the request that carries `message`.
    fn request(&self, number: u64, message: &[u8], bytes: &mut Vec<u8>);

    /// Takes whole confirmations from the front of `bytes` and says how many there were.
    ///
    /// # Errors
    /// The server refused a request, or says what the protocol does not know.
    fn confirmations(&self, bytes: &mut Vec<u8>) -> anyhow::Result<u64>;
}

/// Sends all events of `flow` and waits until they are confirmed.
///
/// # Errors
/// The connection broke, the server refused, or said nothing for 20 seconds.
pub fn push(protocol: &(impl Protocol + Sync), stream: &TcpStream, flow: &Flow) -> anyhow::Result<Sent> {
    push_from(0, protocol, stream, flow).map(|sending| sending.done())
}

/// The same, with numbers that begin at `first`, and counts that can be added up.
///
/// # Errors
/// As of [`push`].
pub fn push_from(
    first: u64,
    protocol: &(impl Protocol + Sync),
    stream: &TcpStream,
    flow: &Flow,
) -> anyhow::Result<Sending> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    match flow.rate {
        None => closed(first, protocol, stream, flow),
        Some(rate) if rate > 0.0 => open(first, protocol, stream, flow, rate),
        Some(rate) => bail!("--rate {rate} is not above 0"),
    }
}

fn closed(first: u64, protocol: &impl Protocol, mut stream: &TcpStream, flow: &Flow) -> anyhow::Result<Sending> {
    let mut sending = Sending::new();
    let mut due = std::collections::VecDeque::new();
    let (mut sent, mut requests, mut replies) = (0, Vec::new(), Replies::new());
    loop {
        while sent < flow.events && (due.len() as u64) < flow.window {
            let now = now_ns();
            protocol.request(first + sent, &message(first + sent, now), &mut requests);
            due.push_back(now);
            sent += 1;
        }
        // Nothing is sent that is not due, and nothing waits to be confirmed.
        if due.is_empty() {
            return Ok(sending);
        }
        stream.write_all(&requests)?;
        requests.clear();
        for _ in 0..replies.read(protocol, stream)? {
            sending.confirmed(due.pop_front().context("the server confirmed more than was sent")?);
        }
    }
}

/// Sends on schedule on one thread, while another reads what is confirmed.
fn open(
    first: u64,
    protocol: &(impl Protocol + Sync),
    stream: &TcpStream,
    flow: &Flow,
    rate: f64,
) -> anyhow::Result<Sending> {
    let mut sending = Sending::new();
    let begin = now_ns();
    let due = |number: u64| begin + (number as f64 * 1e9 / rate) as u64;
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let (mut number, mut requests, mut stream) = (0, Vec::new(), stream);
            while number < flow.events {
                let now = now_ns();
                while number < flow.events && due(number) <= now {
                    protocol.request(first + number, &message(first + number, due(number)), &mut requests);
                    number += 1;
                }
                stream.write_all(&requests)?;
                requests.clear();
                thread::sleep(Duration::from_nanos(due(number).saturating_sub(now_ns())));
            }
            Ok::<_, std::io::Error>(())
        });
        let (mut number, mut replies) = (0, Replies::new());
        while number < flow.events {
            for _ in 0..replies.read(protocol, stream)? {
                sending.confirmed(due(number));
                number += 1;
            }
        }
        writer.join().expect("the writer does not panic").map_err(anyhow::Error::from)
    })?;
    Ok(sending)
}

/// What was read and is not a whole reply yet.
pub struct Replies {
    bytes: Vec<u8>,
    chunk: Vec<u8>,
}

impl Replies {
    pub fn new() -> Self {
        Self { bytes: Vec::new(), chunk: vec![0; READ_BYTES] }
    }

    /// Waits for bytes and takes what confirmations there are.
    fn read(&mut self, protocol: &impl Protocol, stream: &TcpStream) -> anyhow::Result<u64> {
        protocol.confirmations(self.more(stream)?)
    }

    /// Waits for more bytes, and gives all that are not taken yet.
    ///
    /// # Errors
    /// The connection ended or broke, or nothing came in time.
    pub fn more(&mut self, mut stream: &TcpStream) -> std::io::Result<&mut Vec<u8>> {
        match stream.read(&mut self.chunk)? {
            0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
            read => {
                self.bytes.extend_from_slice(&self.chunk[..read]);
                Ok(&mut self.bytes)
            }
        }
    }
}
