//! Says how the program is linked.

#[path = "build/link.rs"]
mod link;

use std::path::PathBuf;
use std::{env, io};

fn main() -> io::Result<()> {
    link::ask(&PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")))
}
