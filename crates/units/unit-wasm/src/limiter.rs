//! What one unit holds: its memory and tables, and what the host keeps for it. All of it counts together against
//! `limits.memory_bytes`, and each part against the node's budget.

use crate::engine::{Series, stacks};
use crate::holdings::Held;
use crate::meter::Meter;
use budget::{Budget, Full, Purpose, Share};
use problem::{Code, Problem};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wasmtime::ResourceLimiter;

/// What a unit takes before it has any memory, for each of its stacks: what may be filled of it, and what the engine
/// keeps of an instance.
const UNIT_BYTES: u64 = 640 << 10;
/// Bytes of one element of a table.
const ELEMENT_BYTES: u64 = 8;

pub struct Limiter {
    pub meter: Arc<Meter>,
    memory_bytes: u64,
    memory_bytes_max: u64,
    table_elements: u64,
    table_elements_max: u64,
    /// Memory and tables, in the node's budget.
    units: Share,
    /// What the host keeps, in the node's budget.
    host: Share,
    counted: Held,
    transaction: u64,
    /// Bytes of it that count against the function's memory.
    host_bytes: u64,
    /// Why the unit is to end, once it is.
    over: Option<Problem>,
}

impl Limiter {
    /// # Errors
    /// [`Code::NodeFull`]: the node has no room for another unit. [`Code::MemoryFull`]: it never will.
    pub fn new(
        meter: Arc<Meter>,
        series: Series,
        limits: &manifest::Limits,
        budget: &Arc<Budget>,
    ) -> Result<Self, Problem> {
        Ok(Self {
            meter,
            memory_bytes: 0,
            memory_bytes_max: limits.memory_bytes,
            table_elements: 0,
            table_elements_max: limits.table_elements,
            units: budget
                .take(Purpose::Units, UNIT_BYTES * u64::from(stacks(series)))
                .map_err(|full| full.for_unit(0))?,
            host: budget.share(Purpose::HostCalls),
            counted: Held::default(),
            transaction: 0,
            host_bytes: 0,
            over: None,
        })
    }

    /// Notes what the host keeps for the unit now: what was `counted`, and what the `transaction` holds, for which room
    /// was found by itself and which counts against the function's memory alone.
    ///
    /// # Errors
    /// It is more than the function or the node has room for. The unit is to end; it is told again by
    /// [`Limiter::over`].
    pub fn host_holds(&mut self, counted: Held, transaction: u64) -> Result<(), Problem> {
        (self.counted, self.transaction) = (counted, transaction);
        self.host_adds(0)
    }

    /// Notes what the host holds beside that, until it is counted again.
    ///
    /// # Errors
    /// As of [`Limiter::host_holds`].
    pub fn host_adds(&mut self, bytes: u64) -> Result<(), Problem> {
        let Held { unit, windows } = self.counted;
        let host_bytes = (unit + self.transaction).saturating_add(bytes);
        let problem = if self.memory_bytes.saturating_add(host_bytes) > self.memory_bytes_max {
            let detail = format!(
                "the host keeps {host_bytes} bytes for the unit, beside {} bytes of its memory: the limit is {} bytes",
                self.memory_bytes, self.memory_bytes_max
            );
            Problem::new(Code::MemoryExceeded, detail)
        } else {
            self.host_bytes = host_bytes;
            match self.host.hold((unit + windows).saturating_add(bytes)) {
                Ok(()) => return Ok(()),
                Err(full) => full.into(),
            }
        };
        self.meter.exceed(problem.code);
        self.over = Some(problem.clone());
        Err(problem)
    }

    /// Why the unit is to end, if it is.
    pub fn over(&self) -> Option<&Problem> {
        self.over.as_ref()
    }

    fn full(&self, full: Full) -> bool {
        // The memory it begins with is part of its start.
        let code = match self.meter.start() {
            None => full.for_unit(self.units.bytes()).code,
            Some(_) => Code::MemoryFull,
        };
        self.meter.exceed(code);
        false
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        let more = (desired - current) as u64;
        let total = self.memory_bytes + more;
        if total.saturating_add(self.host_bytes) > self.memory_bytes_max {
            self.meter.exceed(Code::MemoryExceeded);
            return Ok(false);
        }
        // A memory that grows must not keep the next unit from having one at all.
        let room = if current == 0 { self.units.grow(more) } else { self.units.grow_aside(more) };
        if let Err(full) = room {
            return Ok(self.full(full));
        }
        self.memory_bytes = total;
        self.meter.memory_bytes.store(total, Ordering::Relaxed);
        Ok(true)
    }

    fn memory_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        if self.meter.exceeded().is_none() {
            self.meter.exceed(Code::MemoryExceeded);
        }
        Ok(())
    }

    fn table_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        let more = (desired - current) as u64;
        let total = self.table_elements + more;
        if total > self.table_elements_max {
            self.meter.exceed(Code::TableExceeded);
            return Ok(false);
        }
        if let Err(full) = self.units.grow(more * ELEMENT_BYTES) {
            return Ok(self.full(full));
        }
        self.table_elements = total;
        Ok(true)
    }

    fn table_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        if self.meter.exceeded().is_none() {
            self.meter.exceed(Code::TableExceeded);
        }
        Ok(())
    }
}
