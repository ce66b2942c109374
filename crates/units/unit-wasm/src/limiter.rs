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
    /// What of it was granted last, until it is known to have come.
    granted_bytes: u64,
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
            granted_bytes: 0,
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

    /// What there is counts from now on in the call of this meter.
    pub fn next_call(&mut self, meter: Arc<Meter>) {
        self.meter = meter;
        self.has_memory(self.memory_bytes);
    }

    fn has_memory(&mut self, bytes: u64) {
        self.memory_bytes = bytes;
        self.meter.memory_bytes.store(bytes, Ordering::Relaxed);
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
        self.granted_bytes = 0;
        // A memory of 64 bits can ask for all there are.
        let more = desired.saturating_sub(current) as u64;
        let total = self.memory_bytes.saturating_add(more);
        if total.saturating_add(self.host_bytes) > self.memory_bytes_max {
            self.meter.exceed(Code::MemoryExceeded);
            return Ok(false);
        }
        // A memory that grows must not keep the next unit from having one at all.
        let room = if current == 0 { self.units.grow(more) } else { self.units.grow_aside(more) };
        if let Err(full) = room {
            return Ok(self.full(full));
        }
        self.granted_bytes = more;
        self.has_memory(total);
        Ok(true)
    }

    /// What was granted and did not come, because the memory has a lower bound of its own or the machine refused,
    /// does not count. Wasmtime has asked for it before: only memories with pages of one byte, which are off, fail
    /// unasked.
    fn memory_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        let bytes = std::mem::take(&mut self.granted_bytes);
        self.units.shrink(bytes);
        self.has_memory(self.memory_bytes - bytes);
        if self.meter.exceeded().is_none() {
            self.meter.exceed(Code::MemoryExceeded);
        }
        Ok(())
    }

    fn table_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        let more = desired.saturating_sub(current) as u64;
        let total = self.table_elements.saturating_add(more);
        // What the table itself would refuse is not granted, and so need not be taken back.
        if total > self.table_elements_max || maximum.is_some_and(|maximum| desired > maximum) {
            self.meter.exceed(Code::TableExceeded);
            return Ok(false);
        }
        if let Err(full) = self.units.grow(more.saturating_mul(ELEMENT_BYTES)) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use manifest::Function;
    use std::time::{Duration, Instant};
    use wasmtime::{Instance, Module, Store};

    const PAGE: u64 = 64 << 10;

    fn limiter(pages: u64, budget: &Arc<Budget>) -> Limiter {
        let mut limits = Function::new("test").limits;
        limits.memory_bytes = pages * PAGE;
        let meter = Arc::new(Meter::new(Instant::now() + Duration::from_secs(20)));
        Limiter::new(meter, Series::Wasi02, &limits, budget).unwrap()
    }

    fn store(limiter: Limiter, module: &[u8]) -> (Store<Limiter>, Instance) {
        let engine = wasmtime::Engine::default();
        let module = Module::new(&engine, module).unwrap();
        let mut store = Store::new(&engine, limiter);
        store.limiter(|limiter| limiter);
        let instance = Instance::new(&mut store, &module, &[]).unwrap();
        (store, instance)
    }

    #[test]
    fn sums_beyond_every_number_are_refused() {
        let budget = Budget::unbounded();
        let mut limiter = limiter(4, &budget);
        assert!(limiter.memory_growing(0, 1 << 16, None).unwrap());
        for desired in [usize::MAX, 0_usize.wrapping_sub(1 << 16)] {
            assert!(!limiter.memory_growing(1, desired, None).unwrap());
            assert!(!limiter.table_growing(0, desired, None).unwrap());
        }
        assert!(limiter.table_growing(0, 1_000, None).unwrap());
        assert!(!limiter.table_growing(1, usize::MAX, None).unwrap());
        assert_eq!(limiter.memory_bytes, PAGE);
    }

    /// `(memory 1) (memory i64 1)`, and a function that grows the second by all pages there are.
    const WIDE: &[u8] = b"\0asm\x01\0\0\0\x01\x05\x01\x60\0\x01\x7e\x03\x02\x01\0\x05\x05\x02\0\x01\x04\x01\
        \x07\x05\x01\x01f\0\0\x0a\x08\x01\x06\0\x42\x7f\x40\x01\x0b";

    /// The sum of both was computed without a bound: the host panicked.
    #[test]
    fn a_memory_of_64_bits_that_asks_for_everything_is_refused() {
        let (mut store, instance) = store(limiter(4, &Budget::unbounded()), WIDE);
        let grow = instance.get_typed_func::<(), i64>(&mut store, "f").unwrap();
        assert_eq!(grow.call(&mut store, ()).unwrap(), -1);
        assert_eq!((store.data().memory_bytes, store.data().meter.exceeded()), (2 * PAGE, Some(Code::MemoryExceeded)));
    }

    /// `(memory 1 2)`, and a function that grows it by as many pages as it is told.
    const NARROW: &[u8] = b"\0asm\x01\0\0\0\x01\x06\x01\x60\x01\x7f\x01\x7f\x03\x02\x01\0\x05\x04\x01\x01\x01\x02\
        \x07\x05\x01\x01f\0\0\x0a\x08\x01\x06\0\x20\0\x40\0\x0b";

    /// What the memory itself refused had been counted, and was never taken back.
    #[test]
    fn what_was_granted_and_did_not_come_is_not_counted() {
        let budget = Budget::unbounded();
        let (mut store, instance) = store(limiter(101, &budget), NARROW);
        let before = budget.used_bytes(Purpose::Units);
        let grow = instance.get_typed_func::<i32, i32>(&mut store, "f").unwrap();
        assert_eq!(grow.call(&mut store, 100).unwrap(), -1);
        assert_eq!((store.data().memory_bytes, budget.used_bytes(Purpose::Units)), (PAGE, before));
        assert_eq!(grow.call(&mut store, 1).unwrap(), 1);
        assert_eq!(grow.call(&mut store, 200).unwrap(), -1, "refused, and nothing is taken back for it");
        assert_eq!((store.data().memory_bytes, budget.used_bytes(Purpose::Units)), (2 * PAGE, before + PAGE));
        assert_eq!(store.data().meter.memory_bytes.load(Ordering::Relaxed), 2 * PAGE);
    }

    #[test]
    fn a_unit_that_is_used_again_has_the_memory_it_had() {
        let mut limiter = limiter(4, &Budget::unbounded());
        assert!(limiter.memory_growing(0, 1 << 16, None).unwrap());
        let next = Arc::new(Meter::new(Instant::now()));
        limiter.next_call(next.clone());
        assert_eq!(next.spent().memory_bytes, PAGE);
    }
}
