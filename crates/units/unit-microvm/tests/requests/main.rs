//! Components in machines, most of them of `wasi:http`: what the class wasm is held to, by the same text.

#[path = "../../../unit-wasm/tests/all/fixtures.rs"]
mod fixtures;
#[path = "../../../unit-wasm/tests/all/http.rs"]
mod http;
#[path = "../../../unit-wasm/tests/all/http_transactions.rs"]
mod http_transactions;
#[path = "../../../unit-wasm/tests/all/stage/mod.rs"]
mod stage;
#[path = "../../../unit-wasm/tests/all/toolchains.rs"]
mod toolchains;

// Unpacks the components of other toolchains, in a file of the other class.
use lzma_rust2 as _;
use unit_microvm::MicrovmClass;

/// The class, or the end of this program where it cannot be had.
fn class() -> MicrovmClass {
    let class = MicrovmClass::new().unwrap();
    if let Err(problem) = class.available() {
        println!("skipped: kvm: requests to microvm units: {problem}");
        std::process::exit(0);
    }
    class
}
