//! Where the linker puts what.

fn main() {
    let folder = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    println!("cargo:rustc-link-arg-bins=-T{folder}/link.ld");
    println!("cargo:rerun-if-changed=link.ld");
}
