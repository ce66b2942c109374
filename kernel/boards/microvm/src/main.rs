//! The kernel in a machine of the class `microvm`: boots, waits for code, links it, then handles one event after another.
//!
//! ```text
//!   _start ─▶ Ready ═ first snapshot ═▶ link the code ─▶ Receive ═ second snapshot ═▶ handle ─▶ Receive …
//! ```
//! Each unit is a copy of the second snapshot.
#![no_std]
#![no_main]

extern crate alloc;

mod host;

use alloc::string::ToString;
use alloc::sync::Arc;
use core::panic::PanicInfo;
use kernel_abi::Policy;
use kernel_abi::boot::{Boot, MAGIC};
use kernel_abi::exits::{CallPage, DONE, Exit};
use kernel_arch::heap::Heap;
use kernel_arch::ring3;
use kernel_core::{Machine, Program, Terms};
use wasmtime::CustomCodeMemory;

#[global_allocator]
static HEAP: Heap = Heap::new();

#[unsafe(no_mangle)]
#[expect(unsafe_code, reason = "the tender enters here")]
extern "C" fn _start() -> ! {
    let boot = ring3::boot();
    if boot.magic != MAGIC || boot.version != u64::from(kernel_abi::VERSION) {
        ring3::halt();
    }
    // SAFETY: the tender has mapped what the boot page calls the heap, and nothing else lies there.
    unsafe { HEAP.begin(boot.heap as usize, || ring3::boot().heap_end as usize) };
    let machine = Machine { code: Arc::new(Pages), has_feature: ring3::has_feature, is_interpreter: false };
    let engine = kernel_core::engine(machine).expect("the tender checked what this processor can");
    ring3::exit(Exit::Ready, CallPage::default());
    let code = ring3::code(ring3::boot().code_bytes as usize);
    // SAFETY: the tender has put there what `kernel-code` made, on pages that are nobody else's; once they are published
    // nobody can write to them.
    let linked = unsafe { Program::link(engine, code, host::tender()) };
    match linked {
        Ok(program) => run(program),
        Err(error) => host::end(&alloc::format!("{error:#}")),
    }
}

fn run(mut program: Program) -> ! {
    let mut event = host::receive(&[], 0);
    loop {
        let Boot { policy, memory_bytes, .. } = ring3::boot();
        let reply = program.handle(&event, Terms { policy: Policy(policy), memory_bytes });
        event = host::receive(&reply, program.memory_bytes());
    }
}

/// Pages the tender makes executable.
struct Pages;

impl CustomCodeMemory for Pages {
    fn required_alignment(&self) -> usize {
        kernel_abi::layout::PAGE as usize
    }

    fn publish_executable(&self, start: *const u8, bytes: usize) -> wasmtime::Result<()> {
        let page = CallPage { request: start as u64, request_bytes: bytes as u64, ..CallPage::default() };
        if ring3::exit(Exit::Publish, page).status == DONE {
            return Ok(());
        }
        wasmtime::bail!("the tender does not make {bytes} bytes of code executable");
    }

    /// Published for good: the machine ends before its code does.
    fn unpublish_executable(&self, _: *const u8, _: usize) -> wasmtime::Result<()> {
        Ok(())
    }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    host::end(&info.to_string())
}
