//! A component, linked: what is made once and what for each unit.

use crate::Host;
use crate::bindings::Function;
use crate::contract::{Instance, Ready};
use crate::convert::LIMITS;
use crate::failure;
use crate::imports::{Asked, Outside};
use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;
use core::ptr::NonNull;
use frame::Frame;
use kernel_abi::Policy;
use wasmtime::component::{Component, HasSelf, Linker};
use wasmtime::{Engine, Error, ResourceLimiter, Result, Store};

/// What one unit is allowed.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    pub policy: Policy,
    pub memory_bytes: u64,
}

/// Everything a unit has.
pub struct Unit {
    pub outside: Outside,
    memory: Memory,
}

/// Counts linear memory.
struct Memory {
    bytes: u64,
    bytes_max: u64,
    is_exceeded: bool,
}

impl ResourceLimiter for Memory {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> Result<bool> {
        let bytes = self.bytes + desired.saturating_sub(current) as u64;
        if bytes > self.bytes_max {
            self.is_exceeded = true;
            return Ok(false);
        }
        self.bytes = bytes;
        Ok(true)
    }

    fn memory_grow_failed(&mut self, _: Error) -> Result<()> {
        self.is_exceeded = true;
        Ok(())
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> Result<bool> {
        Ok(desired <= TABLE_ELEMENTS_MAX)
    }
}

/// Elements of one table, as in the `wasm` class.
const TABLE_ELEMENTS_MAX: usize = 100_000;

/// A linked component.
pub struct Program {
    engine: Engine,
    ready: Ready,
    /// What the next unit is given.
    host: Option<Box<dyn Host>>,
    unit: Option<(Store<Unit>, Instance)>,
}

impl Program {
    /// Loads compiled code where it lies, resolves its imports, and makes an instance of it if nothing of that depends on
    /// the host.
    ///
    /// # Errors
    /// It was compiled for another kernel, or imports what this one does not offer.
    ///
    /// # Safety
    /// The bytes are what `kernel-code` made, unchanged; they lie at the start of a page, stay there as long as the program
    /// lives, and nothing else writes to them.
    #[expect(unsafe_code, reason = "loading native code that the board has verified")]
    pub unsafe fn link(engine: Engine, code: NonNull<[u8]>, host: Box<dyn Host>) -> Result<Self> {
        // SAFETY: as promised by the caller.
        let component = unsafe { Component::deserialize_raw(&engine, code)? };
        let mut linker = Linker::<Unit>::new(&engine);
        Function::add_to_linker::<_, HasSelf<Outside>>(&mut linker, |unit| &mut unit.outside)?;
        #[cfg(feature = "wasi")]
        crate::wasi::add_to_linker(&mut linker, &engine, &component)?;
        let ready = Ready::of(&engine, &linker, &component)?;
        let mut program = Self { engine, ready, host: Some(host), unit: None };
        let terms = Terms { policy: Policy(0), memory_bytes: u64::MAX };
        match program.start(terms, true) {
            Err(error) if !error.is::<Asked>() => return Err(error),
            // It asks the host when it starts: then every unit starts by itself.
            _ => Ok(program),
        }
    }

    /// Whether there is an instance already.
    pub fn is_started(&self) -> bool {
        self.unit.is_some()
    }

    fn start(&mut self, terms: Terms, is_linking: bool) -> Result<()> {
        let host = self.host.take().ok_or_else(|| wasmtime::format_err!("the unit before this one was not ended"))?;
        let outside = Outside {
            host,
            policy: terms.policy,
            is_linking,
            #[cfg(feature = "wasi")]
            held: crate::wasi::Held::default(),
        };
        let memory = Memory { bytes: 0, bytes_max: terms.memory_bytes, is_exceeded: false };
        let mut store = Store::new(&self.engine, Unit { outside, memory });
        store.limiter(|unit| &mut unit.memory);
        match self.ready.instantiate(&mut store) {
            Ok(instance) => {
                self.unit = Some((store, instance));
                Ok(())
            }
            Err(error) => {
                self.host = Some(store.into_data().outside.host);
                Err(error)
            }
        }
    }

    /// Hands the unit an event, a frame, and returns its reply, a frame.
    pub fn handle(&mut self, event: &[u8], terms: Terms) -> Vec<u8> {
        let frame = Frame::decode(event, &LIMITS);
        let Ok(frame) = frame else {
            return failure::ended("trapped", "the host's event makes no sense");
        };
        if self.unit.is_none()
            && let Err(error) = self.start(terms, false)
        {
            let message = format!("{error:#}");
            return if message.contains("memory") {
                failure::ended("memory", &message)
            } else {
                failure::trapped(&error, false)
            };
        }
        let Some((store, instance)) = &mut self.unit else { unreachable!("just started") };
        let unit = store.data_mut();
        unit.outside.policy = terms.policy;
        unit.outside.is_linking = false;
        unit.memory.bytes_max = terms.memory_bytes;
        if unit.memory.bytes > terms.memory_bytes {
            let (bytes, bytes_max) = (unit.memory.bytes, terms.memory_bytes);
            let message = format!("it begins with {bytes} bytes of memory, limits.memory_bytes is {bytes_max}");
            return failure::ended("memory", &message);
        }
        match instance.work(store, &frame.body) {
            Ok(reply) => reply,
            Err(error) => failure::trapped(&error, store.data().memory.is_exceeded),
        }
    }

    /// Linear memory the unit has now.
    pub fn memory_bytes(&self) -> u64 {
        self.unit.as_ref().map_or(0, |(store, _)| store.data().memory.bytes)
    }

    /// Ends the unit; the next event gets a fresh one.
    pub fn end(&mut self) {
        if let Some((store, _)) = self.unit.take() {
            self.host = Some(store.into_data().outside.host);
        }
    }
}
