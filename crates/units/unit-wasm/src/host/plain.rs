//! The small interfaces: log, clock, random, config, and the two WASI proposals like them.

use crate::bindings::lighter::unit::{clock, config, log, random, types};
use crate::bindings::wasi::{config::store as wasi_config, logging::logging as wasi_logging};
use crate::unit_state::UnitState;
use std::sync::LazyLock;
use std::time::Instant;
use unit::{Level, Stream};
use unit_host::{unix_ms, value, values};

/// Where the monotonic clock starts.
static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

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
        self.output.write(level, Stream::Log, &message);
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
            true => self.output.write(level, Stream::Log, &message),
            false => self.output.write(level, Stream::Log, &format!("{context}: {message}")),
        }
        Ok(())
    }
}

impl clock::Host for UnitState {
    fn now_ms(&mut self) -> wasmtime::Result<u64> {
        Ok(unix_ms())
    }

    fn monotonic_ns(&mut self) -> wasmtime::Result<u64> {
        Ok(u64::try_from(ORIGIN.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

impl random::Host for UnitState {
    fn bytes(&mut self, count: u32) -> wasmtime::Result<Vec<u8>> {
        unit_host::random(count).map_err(wasmtime::Error::msg)
    }
}

impl config::Host for UnitState {
    fn get(&mut self, name: String) -> wasmtime::Result<Option<String>> {
        Ok(value(&self.deployed, &name).cloned())
    }
}

impl wasi_config::Host for UnitState {
    fn get(&mut self, name: String) -> wasmtime::Result<Result<Option<String>, wasi_config::Error>> {
        Ok(Ok(value(&self.deployed, &name).cloned()))
    }

    fn get_all(&mut self) -> wasmtime::Result<Result<Vec<(String, String)>, wasi_config::Error>> {
        Ok(Ok(values(&self.deployed)))
    }
}
