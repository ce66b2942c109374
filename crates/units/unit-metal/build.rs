//! Packs the kernels of boards: each is needed when a board is flashed or booted, and all of them are in the program.

use std::path::PathBuf;
use std::{env, fs, io};

const KERNELS: [&str; 3] = ["qemu-arm", "qemu-x86", "raspi3b"];
/// From 0 to 10: what comes after 6 takes seconds and gains a hundredth.
const LEVEL: u8 = 6;

fn main() -> io::Result<()> {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    for name in KERNELS {
        let kernel = here.join("../../../kernel/prebuilt").join(name);
        println!("cargo::rerun-if-changed={}", kernel.display());
        fs::write(out.join(name), miniz_oxide::deflate::compress_to_vec(&fs::read(kernel)?, LEVEL))?;
    }
    Ok(())
}
