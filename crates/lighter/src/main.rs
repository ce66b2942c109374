//! The program `lighter`: a node, and the command line that talks to one.
#![forbid(unsafe_code)]

mod api;
mod cli;
mod identity;
mod node;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::main()
}
