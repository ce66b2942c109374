//! How a handling that failed is told: the handler's own verdict, or a trap with the way that led to it.

use crate::bindings::Failure;
use crate::convert::LIMITS;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use frame::{Checksum, Frame, Kind, Value};
use wasmtime::{Error, Trap, WasmBacktrace};

/// Functions of a backtrace that are told.
const FRAMES_MAX: usize = 30;

/// Id of the frame that answers an event.
const WORK: u64 = 1;

/// A reply as a frame.
pub fn reply(data: &[u8]) -> Vec<u8> {
    encode(Kind::Reply, Value::Buffer(data))
}

/// What the handler itself says went wrong.
pub fn said(failure: &Failure) -> Vec<u8> {
    let (kind, message) = match failure {
        Failure::Invalid(message) => ("invalid", message),
        Failure::Retry(message) => ("retry", message),
        Failure::Fatal(message) => ("fatal", message),
    };
    told(kind, message, Value::List(Vec::new()))
}

/// A failure of the kernel's own making: `kind` is `memory`, `stack` or `trapped`.
pub fn ended(kind: &str, message: &str) -> Vec<u8> {
    told(kind, message, Value::List(Vec::new()))
}

/// The unit called exit, with this status.
#[derive(Debug)]
pub struct Exited(pub u8);

impl core::fmt::Display for Exited {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "the unit called exit with status {}", self.0)
    }
}

impl core::error::Error for Exited {}

/// A trap. `is_memory_exceeded`: more memory than allowed was asked for before.
pub fn trapped(error: &Error, is_memory_exceeded: bool) -> Vec<u8> {
    let cause = error.root_cause().to_string();
    if error.is::<Exited>() {
        return ended("exited", &cause);
    }
    let (kind, message) = match error.downcast_ref::<Trap>() {
        Some(Trap::StackOverflow) => ("stack", String::from("the unit ran out of stack, the limit is 512 KiB")),
        _ if is_memory_exceeded => ("memory", format!("more memory was refused, and then: {cause}")),
        _ => ("trapped", cause),
    };
    let frames: Vec<(String, i64)> = error.downcast_ref::<WasmBacktrace>().map_or_else(Vec::new, |backtrace| {
        let frames = backtrace.frames().iter().take(FRAMES_MAX);
        frames
            .map(|frame| {
                let name = frame.func_name().map(String::from);
                let name = name.unwrap_or_else(|| format!("function {}", frame.func_index()));
                let offset = frame.module_offset().and_then(|offset| i64::try_from(offset).ok());
                (name, offset.unwrap_or(-1))
            })
            .collect()
    });
    let frames = frames.iter().map(|(name, offset)| Value::List(vec![Value::Str(name), Value::I64(*offset)]));
    told(kind, &message, Value::List(frames.collect()))
}

fn told(kind: &str, message: &str, frames: Value<'_>) -> Vec<u8> {
    encode(
        Kind::Failure,
        Value::Map(vec![("kind", Value::Str(kind)), ("message", Value::Str(message)), ("frames", frames)]),
    )
}

fn encode(kind: Kind, body: Value<'_>) -> Vec<u8> {
    // Only text over 64 MiB does not fit; the host hears a reply that makes no sense.
    let frame = Frame { kind, id: WORK, body };
    frame.encode(Checksum::Front, &LIMITS).map(|frame| frame.to_vec()).unwrap_or_default()
}
