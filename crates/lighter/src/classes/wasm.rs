//! `wasm`: components in the node's own process.

use super::{Class, Opened, debug};
use node::compiler::child::Compile;
use node::config::Config;
use problem::Problem;
use std::sync::Arc;
use unit::IsolationClass;
use unit_wasm::{Compiler, WasmClass};

/// How the words for its targets begin.
const TARGETS: &str = "wasm-";

pub const CLASS: Class = Class {
    options: None,
    configure: |_| Ok(Box::new(open)),
    command_line: Some(debug::bring),
    document: None,
    compiler: Some(compiler),
    program: None,
};

struct Wasm(Arc<WasmClass>);

fn open(config: &Config) -> Result<Opened, Problem> {
    let class = WasmClass::new(unit_wasm::Config { units_max: config.units_max })?;
    Ok(Opened::new(Wasm(Arc::new(class))))
}

impl node::Class for Wasm {
    fn units(&self) -> Arc<dyn IsolationClass> {
        self.0.clone()
    }
}

fn compiler(word: &str) -> Option<Result<Compile, Problem>> {
    let compile = |compiler: Compiler| Box::new(move |image: &[u8]| compiler.compile(image)) as Compile;
    word.starts_with(TARGETS).then(|| Compiler::for_target(word).map(compile))
}
