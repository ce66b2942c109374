//! The node at the other end of a session, as the host of the function that runs for it.

use crate::station::Station;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use arch_metal::{Exclusive, now_ns};
use board_link::{DATA_BYTES_MAX, Message};
use frame::{Checksum, Frame, Kind, Limits, Value};
use kernel_abi::Verb;
use kernel_core::{Host, Lost};

/// Of the contract; see `random.bytes` of `contracts/wit/unit.wit`.
const RANDOM_BYTES_MAX: i64 = 65_536;

/// The node that called, as the host of the unit.
pub struct NodeHost {
    pub station: Arc<Exclusive<Station>>,
    pub connection: usize,
    /// The node's time when the call began, and ours.
    pub began_ms: u64,
    pub began_ns: u64,
}

impl Host for NodeHost {
    fn call(&mut self, verb: Verb, request: &[u8]) -> Result<Vec<u8>, Lost> {
        if verb == Verb::RandomBytes {
            return self.random(request);
        }
        if request.len() > DATA_BYTES_MAX as usize {
            return too_large(verb, request.len());
        }
        let question = Message::HostCall { number: verb.number(), frame: request.to_vec() };
        self.station.with(|station| station.send(self.connection, &question)).map_err(|_| Lost)?;
        loop {
            // The watchdog is not fed: waiting is part of the run.
            let heard = self.station.with(|station| {
                station.net.turn();
                station.hear(self.connection)
            });
            match heard {
                Ok(Some(Message::Answer { frame })) => return Ok(frame),
                Ok(None) => {}
                Ok(Some(_)) | Err(_) => {
                    self.station.with(|station| station.close(self.connection));
                    return Err(Lost);
                }
            }
        }
    }

    fn log(&mut self, level: u32, text: &str) {
        let line = Message::Log { level: u8::try_from(level).unwrap_or(2).min(4), line: text.into() };
        // A session that is lost says so at its next question, or when the reply is sent.
        let _ = self.station.with(|station| station.send(self.connection, &line));
    }

    /// Boards run units without WASI, which have no streams.
    fn print(&mut self, _: u32, bytes: &[u8]) {
        self.log(2, &String::from_utf8_lossy(bytes));
    }

    fn unix_ns(&mut self) -> u64 {
        self.began_ms.saturating_mul(1_000_000).saturating_add(now_ns() - self.began_ns)
    }

    fn monotonic_ns(&mut self) -> u64 {
        now_ns()
    }
}

impl NodeHost {
    /// The board has randomness of its own.
    fn random(&mut self, request: &[u8]) -> Result<Vec<u8>, Lost> {
        let request = Frame::decode(request, &Limits::default()).map_err(|_| Lost)?;
        let Some(Value::List(arguments)) = request.body.get("args") else { return Err(Lost) };
        let [Value::I64(count @ 0..=RANDOM_BYTES_MAX)] = arguments.as_slice() else { return Err(Lost) };
        // At most 65,536.
        let mut bytes = vec![0; *count as usize];
        self.station.with(|station| station.entropy.fill(&mut bytes));
        let answer = Frame { kind: Kind::Reply, id: request.id, body: Value::Bytes(&bytes) };
        answer.encode(Checksum::Front, &Limits::default()).map(|frame| frame.to_vec()).map_err(|_| Lost)
    }
}

/// The answer to a question that no session carries. It was not asked, and the session goes on.
fn too_large(verb: Verb, bytes: usize) -> Result<Vec<u8>, Lost> {
    let why = format!("{}: {bytes} bytes; a session with a board carries {DATA_BYTES_MAX}", verb.op());
    let body = Value::Map(vec![("kind", Value::Str("invalid")), ("message", Value::Str(&why))]);
    let answer = Frame { kind: Kind::Failure, id: 0, body };
    answer.encode(Checksum::Front, &Limits::default()).map(|frame| frame.to_vec()).map_err(|_| Lost)
}
