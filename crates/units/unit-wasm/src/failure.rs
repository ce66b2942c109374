//! Turns the errors of wasmtime into the problems a user reads.

use crate::bindings::types::Failure;
use crate::meter::Meter;
use problem::{Code, Problem};
use unit::{Level, Output, StackFrame};
use wasmtime::{Error, FrameInfo, Trap, WasmBacktrace};
use wasmtime_wasi::I32Exit;

/// Names what went wrong, and says so in the unit's log.
pub fn of(error: &Error, meter: &Meter, output: &Output) -> Problem {
    if let Some(problem) = error.downcast_ref::<Problem>() {
        output.note(Level::Error, &problem.detail);
        return problem.clone();
    }
    if let Some(exit) = error.downcast_ref::<I32Exit>() {
        return Problem::new(Code::UnitExited, format!("the unit called exit with status {}", exit.0));
    }
    let problem = named(error, meter);
    output.note(Level::Error, &problem.detail);
    problem
}

/// Whether a unit was not started because the node had no memory for it now.
pub fn is_full(error: &Error, meter: &Meter) -> bool {
    meter.exceeded() == Some(Code::NodeFull) && !error.is::<WasmBacktrace>()
}

/// Where the unit trapped, the innermost function first; none if it did not.
pub fn stack(error: &Error) -> Vec<StackFrame> {
    if error.is::<Problem>() || error.is::<I32Exit>() {
        return Vec::new();
    }
    error.downcast_ref::<WasmBacktrace>().map(frames).unwrap_or_default()
}

/// The way to where a unit is, the innermost function first.
pub fn frames(backtrace: &WasmBacktrace) -> Vec<StackFrame> {
    let told = |frame: &FrameInfo| StackFrame {
        function: frame.func_name().map_or_else(|| format!("function {}", frame.func_index()), str::to_owned),
        offset: frame.module_offset().map(|offset| offset as u64),
    };
    backtrace.frames().iter().map(told).collect()
}

fn named(error: &Error, meter: &Meter) -> Problem {
    let trap = error.downcast_ref::<Trap>();
    if trap == Some(&Trap::StackOverflow) {
        return Problem::new(Code::StackExceeded, "the unit ran out of stack, the limit is 512 KiB");
    }
    if let Some(code) = meter.exceeded() {
        return Problem::new(code, format!("{}, and then: {}", code.title(), error.root_cause()));
    }
    if error.is::<wasmtime::PoolConcurrencyLimitError>() {
        return Problem::new(Code::NodeFull, format!("no room for another unit: {error}"));
    }
    Problem::new(Code::UnitTrapped, format!("the unit trapped: {}", error.root_cause()))
}

/// What the handler itself says went wrong.
pub fn said(failure: Failure, output: &Output) -> Problem {
    let failure = match failure {
        Failure::Invalid(why) => event::Failure::Invalid(why),
        Failure::Retry(why) => event::Failure::Retry(why),
        Failure::Fatal(why) => event::Failure::Fatal(why),
    };
    unit::said(failure, output)
}
