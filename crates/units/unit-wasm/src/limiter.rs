//! Memory and tables of one unit, counted together.

use crate::meter::Meter;
use problem::Code;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wasmtime::ResourceLimiter;

pub struct Limiter {
    pub meter: Arc<Meter>,
    memory_bytes: u64,
    memory_bytes_max: u64,
    table_elements: u64,
    table_elements_max: u64,
}

impl Limiter {
    pub fn new(meter: Arc<Meter>, limits: &manifest::Limits) -> Self {
        Self {
            meter,
            memory_bytes: 0,
            memory_bytes_max: limits.memory_bytes,
            table_elements: 0,
            table_elements_max: limits.table_elements,
        }
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        let total = self.memory_bytes + (desired - current) as u64;
        if total > self.memory_bytes_max {
            self.meter.exceed(Code::MemoryExceeded);
            return Ok(false);
        }
        self.memory_bytes = total;
        self.meter.memory_bytes.store(total, Ordering::Relaxed);
        Ok(true)
    }

    fn memory_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        self.meter.exceed(Code::MemoryExceeded);
        Ok(())
    }

    fn table_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        let total = self.table_elements + (desired - current) as u64;
        if total > self.table_elements_max {
            self.meter.exceed(Code::TableExceeded);
            return Ok(false);
        }
        self.table_elements = total;
        Ok(true)
    }

    fn table_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        self.meter.exceed(Code::TableExceeded);
        Ok(())
    }
}
