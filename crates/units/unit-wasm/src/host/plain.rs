//! The small interfaces: log, clock, random, config, and the two WASI proposals like them.

use crate::bindings::lighter::unit::{clock, config, log, random, types};
use crate::bindings::wasi::{config::store as wasi_config, logging::logging as wasi_logging};
use crate::unit_state::UnitState;
use unit::Level;

impl types::Host for UnitState {}

impl log::Host for UnitState {
    fn write(&mut self, level: log::Level, message: String) -> wasmtime::Result<()> {
        let level = match level {
            log::Level::Trace => Level::Trace,
            log::Level::Debug => Level::Debug,
            log::Level::Info => Level::Info,
            log::Level::Warn => Level::Warn,
            log::Level::Error => Level::Error,
        };
        self.host().log(&self.output, level, &message);
        Ok(())
    }
}

impl wasi_logging::Host for UnitState {
    fn log(&mut self, level: wasi_logging::Level, context: String, message: String) -> wasmtime::Result<()> {
        let level = match level {
            wasi_logging::Level::Trace => Level::Trace,
            wasi_logging::Level::Debug => Level::Debug,
            wasi_logging::Level::Info => Level::Info,
            wasi_logging::Level::Warn => Level::Warn,
            wasi_logging::Level::Error | wasi_logging::Level::Critical => Level::Error,
        };
        match context.is_empty() {
            true => self.host().log(&self.output, level, &message),
            false => self.host().log(&self.output, level, &format!("{context}: {message}")),
        }
        Ok(())
    }
}

impl clock::Host for UnitState {
    fn now_ms(&mut self) -> wasmtime::Result<u64> {
        Ok(self.host().now_ms())
    }

    fn monotonic_ns(&mut self) -> wasmtime::Result<u64> {
        Ok(self.host().monotonic_ns())
    }
}

impl random::Host for UnitState {
    fn bytes(&mut self, count: u32) -> wasmtime::Result<Vec<u8>> {
        self.host().random(count).map_err(wasmtime::Error::msg)
    }
}

impl config::Host for UnitState {
    fn get(&mut self, name: String) -> wasmtime::Result<Option<String>> {
        Ok(self.host().config(&name).map(str::to_owned))
    }
}

impl wasi_config::Host for UnitState {
    fn get(&mut self, name: String) -> wasmtime::Result<Result<Option<String>, wasi_config::Error>> {
        Ok(Ok(self.host().config(&name).map(str::to_owned)))
    }

    fn get_all(&mut self) -> wasmtime::Result<Result<Vec<(String, String)>, wasi_config::Error>> {
        Ok(Ok(self.host().configs()))
    }
}
