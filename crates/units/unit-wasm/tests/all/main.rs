//! What the wasm class promises beside the checks of all classes, a subject in each file. One program, because linking
//! takes longer than most of them.

mod checks;
#[path = "../../../../state/tests/all/common/mod.rs"]
mod common;
mod compute;
mod deploy;
mod durable_answers;
mod fixtures;
mod http;
mod http03;
mod http_transactions;
mod resting;
mod stage;
mod toolchains;

use unit_wasm::{Config, WasmClass};

/// The class that the files tell of which others use too.
fn class() -> WasmClass {
    WasmClass::new(Config { units_max: 20 }).unwrap()
}
