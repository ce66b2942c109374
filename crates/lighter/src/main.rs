//! The program `lighter`: a node, and the command line that talks to one.
#![forbid(unsafe_code)]

mod api;
mod cli;
mod node;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
