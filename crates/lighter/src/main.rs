//! The program `lighter`: a node, and the command line that talks to one.
#![forbid(unsafe_code)]

mod classes;
mod commands;
mod engine;
mod files;
mod run;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // A jail has no use for a command line, and starts in every function's first call.
    let program = |word: String| classes::program(&word).or_else(|| engine::program(&word));
    if let Some(ended) = std::env::args().nth(1).and_then(program) {
        return ended;
    }
    cli::main(commands::brought())
}
