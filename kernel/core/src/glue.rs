//! What wasmtime wants of a machine without an operating system. The unsafe lines of this crate are here and in `program`.

use alloc::sync::Arc;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use wasmtime::{Config, CustomCodeMemory, Engine, Result};

/// Stack of compiled code, as in the `wasm` class. A board's own stack is larger than this by what the kernel needs.
const STACK_BYTES: usize = 512 << 10;

/// What a board tells of its machine.
pub struct Machine {
    /// Makes pages executable, and never writable again.
    pub code: Arc<dyn CustomCodeMemory>,
    /// What the processor can; see [`Config::detect_host_feature`].
    pub has_feature: fn(&str) -> Option<bool>,
    /// Runs portable bytecode instead of machine code.
    pub is_interpreter: bool,
}

/// The engine: with the settings of `crates/units/kernel-code`, or nothing that one compiles would load here.
///
/// # Errors
/// The machine lacks what every code needs.
pub fn engine(machine: Machine) -> Result<Engine> {
    let mut config = Config::new();
    kernel_abi::engine_settings!(config).max_wasm_stack(STACK_BYTES).with_custom_code_memory(Some(machine.code));
    if machine.is_interpreter {
        config.target("pulley64")?;
    } else {
        // SAFETY: the board tells the truth of its processor; and `kernel-code` compiles for SSE4.1 at least, so that no
        // float is ever passed to a function of this kernel, which is built without registers for them.
        #[expect(unsafe_code, reason = "promises about the processor")]
        unsafe {
            config.detect_host_feature(machine.has_feature);
            #[cfg(target_arch = "x86_64")]
            config.x86_float_abi_ok(true);
        }
    }
    Engine::new(&config)
}

/// Two pointers wasmtime keeps for each thread; here is one.
static THREAD: [AtomicPtr<u8>; 2] = [AtomicPtr::new(ptr::null_mut()), AtomicPtr::new(ptr::null_mut())];

#[unsafe(no_mangle)]
#[expect(unsafe_code, reason = "wasmtime looks for it by this name")]
extern "C" fn wasmtime_tls_get(slot: usize) -> *mut u8 {
    THREAD[slot].load(Relaxed)
}

#[unsafe(no_mangle)]
#[expect(unsafe_code, reason = "wasmtime looks for it by this name")]
extern "C" fn wasmtime_tls_set(slot: usize, pointer: *mut u8) {
    THREAD[slot].store(pointer, Relaxed);
}
