//! Says how the program is linked.

#[path = "build/link.rs"]
mod link;

use std::path::PathBuf;
use std::{env, io};

fn main() -> io::Result<()> {
    // Not of the tests nor the templates: whoever changes one does not wait for the program.
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build");
    link::ask(&PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")))
}
