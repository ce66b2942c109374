//! What is done with a message: payloads are checked and kept, calls are linked, run, answered and unlinked.

use crate::host::NodeHost;
use crate::load;
use crate::station::Station;
use crate::store::{Code, Store};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use arch_metal::{Exclusive, now_ns};
use board_link::{
    DATA_BYTES_MAX, Failed, FailedKind, Hash, Message, PublicKey, Settings, Stages, format_of, hash, open_payload,
};
use kernel_abi::Policy;
use kernel_core::Terms;
use wasmtime::Engine;

const PORTABLE: usize = 1;

type Board = Arc<Exclusive<Station>>;

pub struct Executive {
    /// Machine code, then bytecode, as in `formats`.
    engines: [Engine; 2],
    formats: [String; 2],
    signers: Vec<PublicKey>,
    run_ms_max: u32,
    watchdog_ms: u32,
    store: Store,
    /// The payload that was offered last, on which connection.
    wanted: Option<(usize, Hash, u32)>,
    runs: u32,
}

struct Call {
    id: u64,
    code: Hash,
    may: u64,
    run_ms_max: u32,
    memory_bytes_max: u64,
    now_ms: u64,
    event: Vec<u8>,
}

impl Executive {
    /// # Errors
    /// Why there is no engine, for people.
    pub fn new(architecture: &str, settings: &Settings) -> Result<Self, String> {
        let engine = |is_portable| load::engine(is_portable).map_err(|error| format!("{error:#}"));
        Ok(Self {
            engines: [engine(false)?, engine(true)?],
            formats: [format_of(&format!("{architecture}-unknown-none")), format_of("pulley64")],
            signers: settings.signers.clone(),
            run_ms_max: settings.run_ms_max,
            watchdog_ms: settings.watchdog_ms,
            store: Store::default(),
            wanted: None,
            runs: 0,
        })
    }

    pub fn formats(&self) -> Vec<String> {
        self.formats.to_vec()
    }

    pub fn runs(&self) -> u32 {
        self.runs
    }

    /// Does what a message asks for, and says how that went.
    pub fn answer(&mut self, station: &Board, connection: usize, message: Message) {
        let answer = match message {
            Message::Offer { code, bytes } => self.offered(connection, code, bytes),
            Message::Code { bytes } => self.arrived(connection, &bytes),
            Message::Call { id, code, may, run_ms_max, memory_bytes_max, now_ms, event } => {
                let call = Call { id, code, may, run_ms_max, memory_bytes_max, now_ms, event };
                self.called(station, connection, call)
            }
            Message::Drop => {
                station.with(|station| station.close(connection));
                return;
            }
            _ => Err(failed(FailedKind::Order, "an answer to a question that was not asked")),
        };
        let answer = answer.unwrap_or_else(Message::Failed);
        // A node that is gone by now has not heard it; its next session is a new one.
        let _ = station.with(|station| station.answer(connection, &answer));
    }

    fn offered(&mut self, connection: usize, code: Hash, bytes: u32) -> Result<Message, Failed> {
        if self.store.holds(&code) {
            return Ok(Message::Held { code });
        }
        // As it arrives, whole, and once more without its head.
        if !self.store.make_room(u64::from(bytes) * 4) {
            return Err(failed(FailedKind::TooLarge, "there is no room for the payload"));
        }
        self.wanted = Some((connection, code, bytes));
        Ok(Message::Wanted { code })
    }

    fn arrived(&mut self, connection: usize, payload: &[u8]) -> Result<Message, Failed> {
        let offered = self.wanted.take();
        let Some((_, wanted, _)) =
            offered.filter(|(by, _, bytes)| *by == connection && *bytes as usize == payload.len())
        else {
            return Err(failed(FailedKind::Order, "this payload was not wanted"));
        };
        if hash(payload) != wanted {
            return Err(failed(FailedKind::Payload, "the payload does not have the hash it was offered with"));
        }
        let (code, format) = open_payload(payload, &self.formats, &self.signers)
            .map_err(|fault| failed(FailedKind::Payload, &fault.to_string()))?;
        self.store.keep(Code { hash: wanted, code: code.to_vec(), is_portable: format == PORTABLE });
        Ok(Message::Held { code: wanted })
    }

    fn called(&mut self, station: &Board, connection: usize, call: Call) -> Result<Message, Failed> {
        let code = self.store.take(&call.code);
        let code = code.ok_or_else(|| failed(FailedKind::CodeUnknown, "the payload is not on the board"))?;
        let run_ms = call.run_ms_max.clamp(1, self.run_ms_max);
        // From here to the end of the run nobody feeds the watchdog.
        station.with(|station| station.watch(run_ms));
        let result = self.run(station, connection, &code, call);
        station.with(|station| station.watch(self.watchdog_ms));
        self.store.keep(code);
        self.runs = self.runs.wrapping_add(1);
        result
    }

    fn run(&self, station: &Board, connection: usize, code: &Code, call: Call) -> Result<Message, Failed> {
        let began_ns = now_ns();
        let node = NodeHost { station: station.clone(), connection, began_ms: call.now_ms, began_ns };
        let engine = &self.engines[usize::from(code.is_portable)];
        let linked = load::link(engine, &code.code, Box::new(node));
        let mut linked = linked.map_err(|why| failed(FailedKind::Link, &why))?;
        let linked_ns = now_ns();
        let terms = Terms { policy: Policy(call.may), memory_bytes: call.memory_bytes_max };
        let frame = linked.program.handle(&call.event, terms);
        let ran_ns = now_ns();
        let memory_bytes = linked.program.memory_bytes();
        drop(linked);
        let stages = Stages {
            link_us: micros(linked_ns - began_ns),
            run_us: micros(ran_ns - linked_ns),
            unlink_us: micros(now_ns() - ran_ns),
            memory_bytes,
        };
        // No session carries it, and who waits for it is to know.
        if frame.len() > DATA_BYTES_MAX as usize {
            let reason = format!("the reply has {} bytes; a session carries {DATA_BYTES_MAX}", frame.len());
            return Err(failed(FailedKind::TooLarge, &reason));
        }
        Ok(Message::Reply { id: call.id, stages, frame })
    }
}

fn failed(kind: FailedKind, reason: &str) -> Failed {
    Failed { kind, reason: reason.into() }
}

fn micros(ns: u64) -> u32 {
    u32::try_from(ns / 1_000).unwrap_or(u32::MAX)
}
