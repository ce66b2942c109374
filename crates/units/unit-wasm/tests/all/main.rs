//! What the wasm class promises beside the checks of all classes, a subject in each file. One program, because linking
//! takes longer than most of them.

mod checks;
#[path = "../../../../state/tests/all/common/mod.rs"]
mod common;
mod durable_answers;
mod http;
mod http_transactions;
mod stage;
mod toolchains;
