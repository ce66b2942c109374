//! x86-64, in ring 3: what of a machine is this processor's alone.
//!
//! The guest has no descriptor tables: whatever faults shuts the machine down, and `out` is the only way to its tender.
#![expect(unsafe_code, reason = "gives floating point to KVM")]

#[cfg(test)]
pub mod code;
pub mod entry;
mod registers;

pub use registers::Registers;

use crate::debugger::DebugSession;
use crate::vm::{Stop, Vm};
use crate::written;
use kernel_abi::exits::Exit;
use kernel_abi::layout::{BOOT, PAGE_TABLES};
use kernel_code::{Features, Target};
use kvm_bindings::{CpuId, KVM_MAX_CPUID_ENTRIES, kvm_segment, kvm_xsave};
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd, VmFd};
use std::io;
use std::sync::OnceLock;

/// The kernel: `kernel/boards/microvm`, as `kernel/build` made it.
pub const KERNEL: &[u8] = include_bytes!("../../../../../kernel/prebuilt/microvm");
/// Its number in ELF files.
pub const ELF_MACHINE: u16 = 62;
/// Its name for gdb.
pub const GDB_NAME: &str = "i386:x86-64";
/// Errors of KVM by which a guest has faulted: a page that is not there.
pub const FAULTS: &[i32] = &[libc::EFAULT];
/// Where KVM does not say what may be used.
pub const LEAST: Target = Target::X86_64(Features { bmi1: false, bmi2: false, lzcnt: false });
/// What is written is what is fetched.
pub const CODE_IS_COHERENT: bool = true;
/// Pages that are mapped for the processor's sake: where, by which entry, and what is there.
pub const OWN_PAGES: &[(u64, u64, &[u8])] = &[];

/// Requests to KVM: run, registers, modes and floating point, memory slots, debugging, the counter's pace. And to the
/// system: which pages were written.
pub const IOCTLS: [u64; 10] = [
    0xAE80,
    0x8090_AE81,
    0x4090_AE82,
    0x8138_AE83,
    0x4138_AE84,
    0x5000_AEA5,
    0x4020_AE46,
    0x4048_AE9B,
    0xAEA3,
    written::SCAN,
];

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

pub fn machine(kvm: &Kvm) -> io::Result<VmFd> {
    Ok(kvm.create_vm()?)
}

/// The processor of a machine, in ring 3.
pub fn make(kvm: &Kvm, machine: &VmFd) -> io::Result<VcpuFd> {
    let processor = machine.create_vcpu(0)?;
    processor.set_cpuid2(features(kvm)?)?;
    set_mode(&processor)?;
    Ok(processor)
}

/// 64-bit, ring 3, paging with no-execute, SSE; no descriptor table of any kind.
fn set_mode(processor: &VcpuFd) -> io::Result<()> {
    let mut special = processor.get_sregs()?;
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
    let task =
        kvm_segment { base: TASK, limit: TASK_LIMIT, selector: 0x18, type_: 11, present: 1, ..kvm_segment::default() };
    (special.cs, special.ss, special.tr) = (code, stack, task);
    (special.ds, special.es, special.fs, special.gs, special.ldt) = (none, none, none, none, none);
    (special.gdt.limit, special.idt.limit) = (0, 0);
    special.cr3 = PAGE_TABLES;
    special.cr4 = 0x620;
    special.cr0 = 0x8005_0033;
    special.efer = 0xd01;
    processor.set_sregs(&special)?;
    Ok(())
}

pub fn set_registers(processor: &VcpuFd, registers: &Registers) -> io::Result<()> {
    Ok(processor.set_regs(&registers.0)?)
}

pub fn registers(processor: &VcpuFd) -> io::Result<Registers> {
    Ok(Registers(processor.get_regs()?))
}

/// Floating point as a processor begins with it; nothing else of a guest is left once its registers are set.
pub fn rest(processor: &VcpuFd) -> io::Result<()> {
    // The layout of XSAVE. `KVM_SET_FPU` would leave MXCSR as it was.
    let mut state = kvm_xsave { region: [0; 1_024], ..kvm_xsave::default() };
    state.region[CONTROL_WORD] = 0x37f;
    state.region[MXCSR] = 0x1f80;
    state.region[FEATURES_THAT_FOLLOW] = X87 | SSE;
    // SAFETY: KVM reads as many bytes as a `kvm_xsave` has, or fails: no larger state was ever asked for.
    unsafe { processor.set_xsave(&state)? };
    Ok(())
}

/// What an exit means.
pub fn stop(exit: &VcpuExit<'_>) -> Stop {
    match exit {
        VcpuExit::IoOut(port, _) => Stop::Port(*port),
        VcpuExit::Debug(_) => Stop::Debug,
        VcpuExit::Intr => Stop::Interrupted,
        // Reads of ports, addresses without memory, shutdown, and whatever else no kernel of ours does.
        _ => Stop::Fault,
    }
}

/// Turns of the time-stamp counter in a second.
pub fn tsc_hz(processor: &VcpuFd) -> u64 {
    processor.get_tsc_khz().map_or(0, |khz| u64::from(khz) * 1_000)
}

/// What compiled code may use in a guest: what KVM offers, which may be less than this processor has.
pub fn target(kvm: &Kvm) -> io::Result<Target> {
    let known = features(kvm)?.as_slice();
    let entry = |function| known.iter().find(|entry| entry.function == function && entry.index == 0);
    let (seven, extended) = (entry(7).map_or(0, |entry| entry.ebx), entry(0x8000_0001).map_or(0, |entry| entry.ecx));
    let is_set = |register: u32, bit: u32| register >> bit & 1 == 1;
    Ok(Target::X86_64(Features { bmi1: is_set(seven, 3), bmi2: is_set(seven, 8), lzcnt: is_set(extended, 5) }))
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

/// Whether a fault is a breakpoint or the end of a step: KVM inside of another hypervisor may not see them for what
/// they are, and the guest has no table by which to take an exception. It goes on as if there had been none.
pub fn is_debuggers(debugger: &DebugSession, vm: &Vm) -> bool {
    const BREAKPOINT: u8 = 0xcc;
    let Ok(mut registers) = vm.registers() else { return false };
    let before = registers.pc().wrapping_sub(1);
    let mut byte = [0];
    if vm.memory().read(before, &mut byte).is_ok() && byte[0] == BREAKPOINT {
        registers.0.rip = before;
        return vm.set_registers(&registers).is_ok();
    }
    debugger.has_stepped(registers.pc())
}

/// Machine code that leaves by this exit, and does no more.
pub fn leaving(exit: Exit) -> Vec<u8> {
    let [low, high] = exit.port().to_le_bytes();
    // mov edx, port; out dx, eax; hlt
    vec![0xba, low, high, 0, 0, 0xef, 0xf4]
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
