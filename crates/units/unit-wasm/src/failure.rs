//! From what wasmtime says to what the user reads.

use crate::bindings::types::Failure;
use crate::meter::Meter;
use problem::{Code, Problem};
use unit::Level;
use unit_host::Output;
use wasmtime::{Error, Trap, WasmBacktrace};
use wasmtime_wasi::I32Exit;

/// Frames of a backtrace that go to the log.
const FRAMES_MAX: usize = 30;

/// Names what went wrong and writes the backtrace to the unit's log.
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
    if let Some(backtrace) = error.downcast_ref::<WasmBacktrace>() {
        output.note(Level::Error, &frames(backtrace));
    }
    problem
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

fn frames(backtrace: &WasmBacktrace) -> String {
    let mut text = String::new();
    for (index, frame) in backtrace.frames().iter().take(FRAMES_MAX).enumerate() {
        let symbols = frame.symbols();
        if symbols.is_empty() {
            let name = frame.func_name().map(|name| format!("{:#}", rustc_demangle::demangle(name)));
            let name = name.unwrap_or_else(|| format!("function {}", frame.func_index()));
            let offset = frame.module_offset().unwrap_or_default();
            text += &format!("  {index}: {name} at byte {offset:#x}; build with debug information for source lines\n");
        }
        for symbol in symbols {
            let name = symbol.name().or(frame.func_name()).unwrap_or("?");
            text += &format!("  {index}: {:#}", rustc_demangle::demangle(name));
            if let Some(file) = symbol.file() {
                text += &format!(" at {file}:{}", symbol.line().unwrap_or_default());
            }
            text.push('\n');
        }
    }
    if backtrace.frames().len() > FRAMES_MAX {
        text += &format!("  … {} more frames\n", backtrace.frames().len() - FRAMES_MAX);
    }
    text
}

/// What the handler itself says went wrong.
pub fn said(failure: Failure, output: &Output) -> Problem {
    let failure = match failure {
        Failure::Invalid(why) => event::Failure::Invalid(why),
        Failure::Retry(why) => event::Failure::Retry(why),
        Failure::Fatal(why) => event::Failure::Fatal(why),
    };
    unit_host::said(failure, output)
}
