//! A redis client as a careful user would write it: LPUSH, BRPOPLPUSH to a list of what is being handled, LREM when
//! done.

use super::pump::{self, Protocol, Replies, SILENCE_MAX};
use super::tally::{Handled, Handling, Sent};
use super::{Flow, say_ready};
use anyhow::{Context as _, bail};
use std::io::Write as _;
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::mpsc;
use std::thread;

const QUEUE: &[u8] = b"queue";
const HANDLED_NOW: &[u8] = b"handled-now";

struct Lpush;

impl Protocol for Lpush {
    fn request(&self, _number: u64, message: &[u8], bytes: &mut Vec<u8>) {
        command(bytes, &[b"LPUSH", QUEUE, message]);
    }

    fn confirmations(&self, bytes: &mut Vec<u8>) -> anyhow::Result<u64> {
        let mut count = 0;
        take_replies(bytes, |_| {
            count += 1;
            Ok(())
        })?;
        Ok(count)
    }
}

/// Pushes the events.
pub fn push(flow: &Flow) -> anyhow::Result<Sent> {
    pump::push(&Lpush, &TcpStream::connect(flow.address)?, flow)
}

/// Takes, handles and acks until all events are acked. Taking and acking have a connection each, because a BRPOPLPUSH
/// that waits holds up what follows it on its own.
pub fn handle(flow: &Flow) -> anyhow::Result<Handled> {
    let connect = || {
        let stream = TcpStream::connect(flow.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE_MAX)).map(|()| stream)
    };
    let (taking, acking) = (connect()?, connect()?);
    // What an earlier run left behind.
    let mut asks = Vec::new();
    command(&mut asks, &[b"DEL", QUEUE, HANDLED_NOW]);
    (&acking).write_all(&asks)?;
    Replies::new().more(&acking)?;
    asks.clear();
    let asked = flow.window.min(flow.events);
    for _ in 0..asked {
        command(&mut asks, &[b"BRPOPLPUSH", QUEUE, HANDLED_NOW, b"0"]);
    }
    (&taking).write_all(&asks)?;
    say_ready()?;
    let handling = Mutex::new(Handling::new(flow.events));
    let (handed, acked) = mpsc::channel();
    thread::scope(|scope| {
        let acker = scope.spawn(|| read_acks(flow, asked, &taking, &acking, &handling, acked));
        let (mut replies, mut acks, mut taken) = (Replies::new(), Vec::new(), 0);
        while taken < flow.events {
            let bytes = replies.more(&taking).context("nothing to take")?;
            let mut handling = handling.lock().expect("no thread panics");
            take_replies(bytes, |message| {
                let due = handling.handle(message)?;
                // The oldest is at the list's end, where a negative count begins to look for it.
                command(&mut acks, &[b"LREM", HANDLED_NOW, b"-1", message]);
                taken += 1;
                handed.send(due).context("the thread that reads acks is gone")
            })?;
            drop(handling);
            (&acking).write_all(&acks)?;
            acks.clear();
        }
        acker.join().expect("no thread panics")
    })?;
    let handling = handling.into_inner().expect("no thread panics");
    Ok(handling.done())
}

/// Each event that is acked makes room to ask for another.
fn read_acks(
    flow: &Flow,
    mut asked: u64,
    mut taking: &TcpStream,
    acking: &TcpStream,
    handling: &Mutex<Handling>,
    due: mpsc::Receiver<u64>,
) -> anyhow::Result<()> {
    let (mut replies, mut asks, mut acked) = (Replies::new(), Vec::new(), 0);
    while acked < flow.events {
        let bytes = replies.more(acking).context("no acks")?;
        let mut handling = handling.lock().expect("no thread panics");
        take_replies(bytes, |_| {
            handling.acked(due.recv()?);
            acked += 1;
            if asked < flow.events {
                asked += 1;
                command(&mut asks, &[b"BRPOPLPUSH", QUEUE, HANDLED_NOW, b"0"]);
            }
            Ok(())
        })?;
        drop(handling);
        taking.write_all(&asks)?;
        asks.clear();
    }
    Ok(())
}

fn command(bytes: &mut Vec<u8>, words: &[&[u8]]) {
    // Writing to a vector cannot fail.
    let _ = write!(bytes, "*{}\r\n", words.len());
    for word in words {
        let _ = write!(bytes, "${}\r\n", word.len());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
}

/// Takes whole replies from the front of `bytes`; a number is given as its digits.
fn take_replies(bytes: &mut Vec<u8>, mut reply: impl FnMut(&[u8]) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let mut taken = 0;
    while let Some(length) = memchr_line(&bytes[taken..]) {
        let line = &bytes[taken..taken + length];
        let after = taken + length + 2;
        match line.first() {
            Some(b':') => {
                reply(&line[1..])?;
                taken = after;
            }
            Some(b'$') => {
                let size: usize = std::str::from_utf8(&line[1..])?.parse().context("a reply without a value")?;
                let Some(value) = bytes.get(after..after + size + 2) else { break };
                reply(&value[..size])?;
                taken = after + size + 2;
            }
            _ => bail!("redis says {:?}", String::from_utf8_lossy(line)),
        }
    }
    bytes.drain(..taken);
    Ok(())
}

fn memchr_line(bytes: &[u8]) -> Option<usize> {
    bytes.windows(2).position(|two| two == b"\r\n")
}

/// Whether a server answers.
pub fn answers(address: std::net::SocketAddr) -> bool {
    let ask = || {
        let stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(SILENCE_MAX)).ok()?;
        (&stream).write_all(b"PING\r\n").ok()?;
        Replies::new().more(&stream).ok().map(|bytes| bytes.starts_with(b"+PONG"))
    };
    ask().unwrap_or(false)
}
