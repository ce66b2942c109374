//! One virtual machine with one processor, entered in ring 3: where it may go and how it comes back.
//!
//! The guest runs unprivileged from its first instruction. It has no descriptor tables and no interrupts: whatever
//! faults ends the machine (`Stop::Fault`), and `out` is the only way to its tender.
#![expect(unsafe_code, reason = "gives memory to KVM, and stops it from a signal")]

use crate::memory::Memory;
use crate::registers::Registers;
use kernel_abi::layout::{BOOT, PAGE_TABLES};
use kernel_code::Features;
use kvm_bindings::{
    CpuId, KVM_GUESTDBG_ENABLE, KVM_GUESTDBG_SINGLESTEP, KVM_GUESTDBG_USE_SW_BP, KVM_MAX_CPUID_ENTRIES,
    kvm_guest_debug, kvm_segment, kvm_userspace_memory_region, kvm_xsave,
};
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd, VmFd};
use std::cell::Cell;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::sync::{Arc, Once, OnceLock};

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

/// Words of the state that XSAVE writes, and of what kind is in it.
const CONTROL_WORD: usize = 0;
const MXCSR: usize = 6;
const FEATURES_THAT_FOLLOW: usize = 128;
const X87: u32 = 1;
const SSE: u32 = 2;

/// A task segment of zeros, in a page the guest can only read: its I/O bitmap allows every port. Processors look at the
/// privilege in the flags and never here; hypervisors that emulate `out` may look here and not there.
const TASK: u64 = BOOT + 2_048;
const TASK_LIMIT: u32 = 2_047;

/// A machine. It is used by the thread that made it.
pub struct Vm {
    processor: VcpuFd,
    machine: VmFd,
    // Dropped last: KVM has its address.
    memory: Arc<Memory>,
}

impl Vm {
    pub fn new(kvm: &Kvm, memory: Arc<Memory>) -> io::Result<Self> {
        let machine = kvm.create_vm()?;
        // Before there is a processor: a change of memory waits for all of them.
        attach(&machine, &memory, memory.bytes())?;
        let processor = machine.create_vcpu(0)?;
        let vm = Self { processor, machine, memory };
        vm.processor.set_cpuid2(features(kvm)?)?;
        vm.set_mode()?;
        Ok(vm)
    }

    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Turns of the time-stamp counter in a second.
    pub fn tsc_hz(&self) -> u64 {
        self.processor.get_tsc_khz().map_or(0, |khz| u64::from(khz) * 1_000)
    }

    /// Makes the processor forget what it knows of the page tables, after they were changed.
    pub fn forget_tables(&self) -> io::Result<()> {
        attach(&self.machine, &self.memory, 0)?;
        attach(&self.machine, &self.memory, self.memory.bytes())
    }

    /// 64-bit, ring 3, paging with no-execute, SSE; no descriptor table of any kind.
    fn set_mode(&self) -> io::Result<()> {
        let mut special = self.processor.get_sregs()?;
        let code = kvm_segment {
            limit: u32::MAX,
            selector: 0x33,
            type_: 11,
            present: 1,
            dpl: 3,
            s: 1,
            l: 1,
            g: 1,
            ..kvm_segment::default()
        };
        let stack = kvm_segment { selector: 0x2b, type_: 3, l: 0, db: 1, ..code };
        let none = kvm_segment { unusable: 1, ..kvm_segment::default() };
        let task = kvm_segment {
            base: TASK,
            limit: TASK_LIMIT,
            selector: 0x18,
            type_: 11,
            present: 1,
            ..kvm_segment::default()
        };
        (special.cs, special.ss, special.tr) = (code, stack, task);
        (special.ds, special.es, special.fs, special.gs, special.ldt) = (none, none, none, none, none);
        (special.gdt.limit, special.idt.limit) = (0, 0);
        special.cr3 = PAGE_TABLES;
        special.cr4 = 0x620;
        special.cr0 = 0x8005_0033;
        special.efer = 0xd01;
        self.processor.set_sregs(&special)?;
        Ok(())
    }

    pub fn set_registers(&self, registers: &Registers) -> io::Result<()> {
        Ok(self.processor.set_regs(&registers.0)?)
    }

    pub fn registers(&self) -> io::Result<Registers> {
        Ok(Registers(self.processor.get_regs()?))
    }

    /// Registers as they are once the `out` that left the guest is done with.
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
        // The layout of XSAVE. `KVM_SET_FPU` would leave MXCSR as it was.
        let mut state = kvm_xsave { region: [0; 1_024], ..kvm_xsave::default() };
        state.region[CONTROL_WORD] = 0x37f;
        state.region[MXCSR] = 0x1f80;
        state.region[FEATURES_THAT_FOLLOW] = X87 | SSE;
        // SAFETY: KVM reads as many bytes as a `kvm_xsave` has, or fails: no larger state was ever asked for.
        unsafe { self.processor.set_xsave(&state)? };
        Ok(())
    }

    /// Lets the guest run until it comes back.
    pub fn run(&mut self) -> io::Result<Stop> {
        match self.processor.run() {
            Ok(VcpuExit::IoOut(port, _)) => Ok(Stop::Port(port)),
            Ok(VcpuExit::Debug(_)) => Ok(Stop::Debug),
            Ok(VcpuExit::Intr) => Ok(Stop::Interrupted),
            // Reads of ports, addresses without memory, shutdown, and whatever else no kernel of ours does.
            Ok(_) => Ok(Stop::Fault),
            Err(error) if error.errno() == libc::EINTR || error.errno() == libc::EAGAIN => Ok(Stop::Interrupted),
            // A guest page that is not there, or an instruction KVM cannot emulate.
            Err(error) if error.errno() == libc::EFAULT => Ok(Stop::Fault),
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

/// A processor that never runs. Linux patches its own code when the first processor without an interrupt controller is
/// made, and when the last one ends: a fifth of a millisecond of each, and of every other processor of the machine.
/// While there is one, none is the first or the last.
pub struct Anchor {
    // In this order.
    _processor: VcpuFd,
    _machine: VmFd,
}

impl Anchor {
    pub fn new(kvm: &Kvm) -> io::Result<Self> {
        let machine = kvm.create_vm()?;
        Ok(Self { _processor: machine.create_vcpu(0)?, _machine: machine })
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

/// Instructions that compiled code may use in a guest: those KVM offers, which may be fewer than this processor has.
pub fn offered(kvm: &Kvm) -> io::Result<Features> {
    let known = features(kvm)?.as_slice();
    let entry = |function| known.iter().find(|entry| entry.function == function && entry.index == 0);
    let (seven, extended) = (entry(7).map_or(0, |entry| entry.ebx), entry(0x8000_0001).map_or(0, |entry| entry.ecx));
    let is_set = |register: u32, bit: u32| register >> bit & 1 == 1;
    Ok(Features { bmi1: is_set(seven, 3), bmi2: is_set(seven, 8), lzcnt: is_set(extended, 5) })
}

/// What a processor can do here. KVM takes its time to say so.
fn features(kvm: &Kvm) -> io::Result<&'static CpuId> {
    static FEATURES: OnceLock<CpuId> = OnceLock::new();
    if let Some(known) = FEATURES.get() {
        return Ok(known);
    }
    let asked = kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)?;
    Ok(FEATURES.get_or_init(|| asked))
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
