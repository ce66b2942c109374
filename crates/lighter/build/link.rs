//! Linker options that make the program smaller, where the linker knows them.
//!
//! Linkers differ, and so do the loaders of the machines that run the program. So each option is tried first, in a
//! program that does nothing.

use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, fs, io};

/// One copy of functions that are the same, byte for byte (lld and gold).
const FOLD: &str = "-Wl,--icf=all";

/// Relocations as bitmaps instead of 24 bytes each. The loader reads them: glibc from 2.36 on.
const PACK: &str = "-Wl,-z,pack-relative-relocs";

/// Asks for what works here.
pub fn ask(out: &Path) -> io::Result<()> {
    let source = out.join("probe.rs");
    fs::write(&source, "fn main() {}")?;
    let is_native = env::var_os("HOST") == env::var_os("TARGET");
    if links(&source, FOLD) {
        println!("cargo::rustc-link-arg-bins={FOLD}");
    }
    if is_native && links(&source, PACK) && succeeds(Command::new(out.join("probe"))) {
        println!("cargo::rustc-link-arg-bins={PACK}");
    }
    Ok(())
}

/// Whether a program can be linked so, by the compiler and with the flags that the real one gets.
fn links(source: &Path, argument: &str) -> bool {
    let mut rustc = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.arg("--target").arg(env::var_os("TARGET").expect("cargo sets it"));
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut option = std::ffi::OsString::from("-Clinker=");
        option.push(linker);
        rustc.arg(option);
    }
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    rustc.args(flags.split('\x1f').filter(|flag| !flag.is_empty()));
    rustc.arg(format!("-Clink-arg={argument}")).arg("-o").arg(source.with_extension("")).arg(source);
    succeeds(rustc)
}

fn succeeds(mut command: Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
