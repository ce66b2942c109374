//! One virtual machine with one processor, entered unprivileged: where it may go and how it comes back.
//!
//! The guest runs in ring 3, or at EL0, from its first instruction, and has no interrupts: whatever faults ends the
//! machine (`Stop::Fault`), and a write to a port, or to what stands for ports, is the only way to its tender. What
//! processors do not have in common is in `x86_64` and `aarch64`.
#![expect(unsafe_code, reason = "gives memory to KVM, and stops it from a signal")]

use crate::memory::Memory;
use crate::processor::{self, Registers};
use kvm_bindings::{
    KVM_GUESTDBG_ENABLE, KVM_GUESTDBG_SINGLESTEP, KVM_GUESTDBG_USE_SW_BP, kvm_guest_debug, kvm_userspace_memory_region,
};
use kvm_ioctls::{Kvm, VcpuFd, VmFd};
use std::cell::Cell;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::sync::{Arc, Once};

/// Why a guest stands still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// It wrote to a port.
    Port(u16),
    /// It did what it may not; the machine is at its end.
    Fault,
    /// A breakpoint or step of a debugger.
    Debug,
    /// It was told to stop, or a signal came.
    Interrupted,
}

/// A machine. It is used by the thread that made it.
pub struct Vm {
    processor: VcpuFd,
    machine: VmFd,
    // Dropped last: KVM has its address.
    memory: Arc<Memory>,
}

impl Vm {
    pub fn new(kvm: &Kvm, memory: Arc<Memory>) -> io::Result<Self> {
        let machine = processor::machine(kvm)?;
        // Before there is a processor: a change of memory waits for all of them.
        attach(&machine, &memory, memory.bytes())?;
        let processor = processor::make(kvm, &machine)?;
        Ok(Self { processor, machine, memory })
    }

    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Turns of the guest's counter in a second.
    pub fn tsc_hz(&self) -> u64 {
        processor::tsc_hz(&self.processor)
    }

    /// Makes the processor forget what it knows of the page tables, after they were changed.
    pub fn forget_tables(&self) -> io::Result<()> {
        attach(&self.machine, &self.memory, 0)?;
        attach(&self.machine, &self.memory, self.memory.bytes())
    }

    /// Has the processor fetch what was written to pages of code, perhaps to some that it knows.
    pub fn code_was_written(&self) -> io::Result<()> {
        if processor::CODE_IS_COHERENT { Ok(()) } else { self.forget_tables() }
    }

    pub fn set_registers(&self, registers: &Registers) -> io::Result<()> {
        processor::set_registers(&self.processor, registers)
    }

    pub fn registers(&self) -> io::Result<Registers> {
        processor::registers(&self.processor)
    }

    /// Registers as they are once the write that left the guest is done with.
    pub fn registers_after_exit(&mut self) -> io::Result<Registers> {
        self.processor.set_kvm_immediate_exit(1);
        let left = self.processor.run().map(|_| ());
        self.processor.set_kvm_immediate_exit(0);
        match left {
            Err(error) if error.errno() == libc::EINTR => self.registers(),
            Err(error) => Err(error.into()),
            Ok(()) => Err(io::Error::other("a guest that was not to run did")),
        }
    }

    /// Done with the last exit, and floating point as a processor begins with it: of what ran here nothing is left in
    /// the processor once its registers are set too.
    pub fn rest(&mut self) -> io::Result<()> {
        self.registers_after_exit()?;
        processor::rest(&self.processor)
    }

    /// Lets the guest run until it comes back.
    pub fn run(&mut self) -> io::Result<Stop> {
        match self.processor.run() {
            Ok(exit) => Ok(processor::stop(&exit)),
            Err(error) if error.errno() == libc::EINTR || error.errno() == libc::EAGAIN => Ok(Stop::Interrupted),
            Err(error) if processor::FAULTS.contains(&error.errno()) => Ok(Stop::Fault),
            Err(error) => Err(error.into()),
        }
    }

    /// Breakpoints end a run from now on, and if it steps each instruction does. Or nothing of the kind.
    pub fn set_debugged(&self, is_debugged: bool, steps: bool) -> io::Result<()> {
        let control = match (is_debugged, steps) {
            (false, _) => 0,
            (true, false) => KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_USE_SW_BP,
            (true, true) => KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_USE_SW_BP | KVM_GUESTDBG_SINGLESTEP,
        };
        Ok(self.processor.set_guest_debug(&kvm_guest_debug { control, ..kvm_guest_debug::default() })?)
    }

    /// From now on [`interrupt`] stops this machine, if it is sent to this thread.
    pub fn can_be_interrupted(&mut self) {
        let flag = &raw mut self.processor.get_kvm_run().immediate_exit;
        // SAFETY: the field lies in the page that is shared with KVM as long as the machine lives, aligned to a byte.
        RUNNING.set(flag.cast());
    }

    /// Takes back an interrupt that was not heeded yet.
    pub fn clear_interrupt(&mut self) {
        self.processor.set_kvm_immediate_exit(0);
    }
}

/// Gives a machine so much of the memory, which must live longer than the machine does.
fn attach(machine: &VmFd, memory: &Memory, memory_size: u64) -> io::Result<()> {
    let region = kvm_userspace_memory_region {
        slot: 0,
        flags: 0,
        guest_phys_addr: 0,
        memory_size,
        userspace_addr: memory.host_address(),
    };
    // SAFETY: the memory is mapped as long as the machine lives: `Vm` drops both, the machine first, and so does
    // `Vm::new` where it fails.
    unsafe { machine.set_user_memory_region(region)? };
    Ok(())
}

impl Drop for Vm {
    fn drop(&mut self) {
        RUNNING.set(ptr::null());
    }
}

thread_local! {
    /// `immediate_exit` of the machine this thread runs; a signal may look at it at any time.
    static RUNNING: Cell<*const AtomicU8> = const { Cell::new(ptr::null()) };
}

/// The signal by which a thread is told to leave its guest. Its handler does so even if the guest was just to be
/// entered.
pub fn interrupt_signal() -> libc::c_int {
    static INSTALLED: Once = Once::new();
    let signal = libc::SIGRTMIN() + 7;
    INSTALLED.call_once(|| {
        extern "C" fn leave(_: libc::c_int) {
            let flag = RUNNING.get();
            if !flag.is_null() {
                // SAFETY: not null means that the machine of this very thread lives; see `can_be_interrupted`.
                unsafe { (*flag).store(1, SeqCst) };
            }
        }
        // SAFETY: a handler that touches one atomic byte; an empty mask; no flags, so that system calls are broken off.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = leave as *const () as libc::sighandler_t;
            libc::sigemptyset(&raw mut action.sa_mask);
            libc::sigaction(signal, &raw const action, ptr::null_mut());
        }
    });
    signal
}
