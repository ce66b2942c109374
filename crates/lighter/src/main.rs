//! The program `lighter`: a node, and the command line that talks to one.
#![forbid(unsafe_code)]

mod files;
mod run;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::main(|config, ready| run::run(config, ready))
}
