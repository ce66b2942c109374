//! aarch64, at EL0: what of a machine is this processor's alone.
//!
//! ```text
//!   EL0 (all of the guest) ── str [EXIT] ──▶ no memory there: KVM_EXIT_MMIO ──▶ tender
//!     └─ faults ──▶ EL1: 16 vectors of four instructions each, made here ── str [EXIT_FAULT] ──┘
//! ```
//! There is no interrupt controller and no timer. EL1 is entered by faults alone, and only ever leaves to the tender:
//! it reads nothing that EL0 has, but saves the one register that it needs.
#![expect(unsafe_code, reason = "reads the pace of the counter")]

#[cfg(test)]
pub mod code;
pub mod entry;
mod registers;

pub use registers::Registers;

use crate::debugger::DebugSession;
use crate::vm::{Stop, Vm};
use crate::written;
use kernel_abi::exits::Exit;
use kernel_abi::layout::{EXIT, EXIT_FAULT, PAGE_TABLES, VECTORS};
use kernel_code::Target;
use kvm_bindings::{
    KVM_REG_ARM_CORE, KVM_REG_ARM64, KVM_REG_ARM64_SYSREG, KVM_REG_SIZE_U32, KVM_REG_SIZE_U64, KVM_REG_SIZE_U128,
    kvm_vcpu_init,
};
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd, VmFd};
use registers::{PC, STATE};
use std::io;

/// The kernel: `kernel/boards/microvm`, as `kernel/build` made it.
pub const KERNEL: &[u8] = include_bytes!("../../../../../kernel/prebuilt/microvm-aarch64");
/// Its number in ELF files.
pub const ELF_MACHINE: u16 = 183;
/// Its name for gdb.
pub const GDB_NAME: &str = "aarch64";
/// Errors of KVM by which a guest has faulted: a page that is not there, or a store to no memory by an instruction of
/// which the processor does not say what it stores.
pub const FAULTS: &[i32] = &[libc::EFAULT, libc::ENOSYS];
/// Where KVM does not say what may be used.
pub const LEAST: Target = Target::Aarch64;
/// Code is what it was when KVM mapped its page.
pub const CODE_IS_COHERENT: bool = false;
/// Pages that are mapped for the processor's sake: where, by which entry, and what is there.
pub const OWN_PAGES: &[(u64, u64, &[u8])] =
    &[(VECTORS, entry::vectors(VECTORS), &VECTORS_BYTES), (EXIT, entry::exit(EXIT), &[])];

/// Requests to KVM: run, registers one by one, memory slots, debugging. And to the system: which pages were written.
pub const IOCTLS: [u64; 6] = [0xAE80, 0x4010_AEAB, 0x4010_AEAC, 0x4020_AE46, 0x4208_AE9B, written::SCAN];

/// Addresses of a machine: enough for the largest and its exit. With so few, what KVM maps has a level less than with
/// all that a processor can.
const ADDRESS_BITS: u32 = 36;

/// Vectors, each of the same instructions: x0 is saved, and the machine left. It is at its end; entered again it leaves
/// again.
const VECTORS_BYTES: [u8; 0x800] = {
    const EACH: usize = 0x80;
    let instructions: [u32; 4] = [
        0xd518_d080,                            // msr tpidr_el1, x0
        0xd2c0_0000 | (EXIT >> 32 << 5) as u32, // mov x0, #EXIT
        0xb900_081f,                            // str wzr, [x0, #8]
        0x17ff_ffff,                            // b to the store
    ];
    assert!(EXIT_FAULT == EXIT + 8 && EXIT.is_multiple_of(1 << 32));
    let mut bytes = [0; 0x800];
    let mut at = 0;
    while at < bytes.len() {
        let word = instructions[at % EACH / 4 % 4].to_le_bytes();
        (bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]) = (word[0], word[1], word[2], word[3]);
        at += 4;
    }
    bytes
};

/// A register of the system, by the numbers an instruction has for it.
const fn system(op0: u32, op1: u32, crn: u32, crm: u32, op2: u32) -> u64 {
    let number = op0 << 14 | op1 << 11 | crn << 7 | crm << 3 | op2;
    KVM_REG_ARM64 | KVM_REG_SIZE_U64 | (KVM_REG_ARM64_SYSREG | number) as u64
}

/// A register by its place in KVM's structure, in words of four bytes.
const fn core(size: u64, place: u32) -> u64 {
    KVM_REG_ARM64 | size | (KVM_REG_ARM_CORE | place) as u64
}

const CONTROL: u64 = system(3, 0, 1, 0, 0);
const FLOATING_POINT: u64 = system(3, 0, 1, 0, 2);
const TABLES: u64 = system(3, 0, 2, 0, 0);
const TRANSLATION: u64 = system(3, 0, 2, 0, 2);
const ATTRIBUTES: u64 = system(3, 0, 10, 2, 0);
const VECTOR_BASE: u64 = system(3, 0, 12, 0, 0);
const COUNTERS: u64 = system(3, 0, 14, 1, 0);
/// Where a vector saves x0.
const SAVED: u64 = system(3, 0, 13, 0, 4);
/// The one register beside those of all programs that EL0 can write to.
const THREAD: u64 = system(3, 3, 13, 0, 2);
/// Where a fault was, and the state then.
const FAULTED_AT: u64 = core(KVM_REG_SIZE_U64, 70);
const FAULTED_STATE: u64 = core(KVM_REG_SIZE_U64, 72);

/// How EL1 is set, for good: EL0 can write to none of these.
const MODE: [(u64, u64); 7] = [
    // 48 bits of addresses below, none above; tables in cached memory; 40 bits of physical addresses.
    (TRANSLATION, 16 | 1 << 8 | 1 << 10 | 0b11 << 12 | 1 << 23 | 0b010 << 32),
    // Attribute 0: devices; attribute 1: memory, written back.
    (ATTRIBUTES, 0xff04),
    (TABLES, PAGE_TABLES),
    (VECTOR_BASE, VECTORS),
    // Registers of floating point are everybody's.
    (FLOATING_POINT, 0b11 << 20),
    // Of the counters and timers EL0 may read the virtual counter.
    (COUNTERS, 1 << 1),
    // Tables, caches, stack alignment, what is writable is not run; instructions that wait or change caches fault.
    (CONTROL, 0x30d0_0800 | 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 12 | 1 << 19),
];

pub fn machine(kvm: &Kvm) -> io::Result<VmFd> {
    Ok(kvm.create_vm_with_ipa_size(ADDRESS_BITS)?)
}

/// The processor of a machine, at EL0.
pub fn make(_: &Kvm, machine: &VmFd) -> io::Result<VcpuFd> {
    let processor = machine.create_vcpu(0)?;
    let mut kind = kvm_vcpu_init::default();
    machine.get_preferred_target(&mut kind)?;
    processor.vcpu_init(&kind)?;
    for (register, value) in MODE {
        set(&processor, register, value)?;
    }
    // KVM begins with a number of its own in the thread's register.
    rest(&processor)?;
    Ok(processor)
}

fn set(processor: &VcpuFd, register: u64, value: u64) -> io::Result<()> {
    processor.set_one_reg(register, &value.to_le_bytes())?;
    Ok(())
}

fn get(processor: &VcpuFd, register: u64) -> io::Result<u64> {
    let mut bytes = [0; 8];
    processor.get_one_reg(register, &mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

pub fn set_registers(processor: &VcpuFd, registers: &Registers) -> io::Result<()> {
    let mut words = registers.words().into_iter().zip((0_u32..).step_by(2));
    words.try_for_each(|(word, place)| set(processor, core(KVM_REG_SIZE_U64, place), word))
}

/// Those of EL0: where a fault has led to EL1, as they were at the fault.
pub fn registers(processor: &VcpuFd) -> io::Result<Registers> {
    const LEVEL: u64 = 0b1111;
    let mut words = [0; Registers::WORDS];
    for (word, place) in words.iter_mut().zip((0_u32..).step_by(2)) {
        *word = get(processor, core(KVM_REG_SIZE_U64, place))?;
    }
    if words[STATE] & LEVEL != 0 {
        words[0] = get(processor, SAVED)?;
        (words[PC], words[STATE]) = (get(processor, FAULTED_AT)?, get(processor, FAULTED_STATE)?);
    }
    Ok(Registers::from_words(words))
}

/// Floating point as a processor begins with it, and the thread's register: nothing else of a guest is left once its
/// registers are set.
pub fn rest(processor: &VcpuFd) -> io::Result<()> {
    const VECTOR_FIRST: u32 = 84;
    const STATUS_AND_CONTROL: [u32; 2] = [212, 213];
    for index in 0..32 {
        processor.set_one_reg(core(KVM_REG_SIZE_U128, VECTOR_FIRST + 4 * index), &[0; 16])?;
    }
    for place in STATUS_AND_CONTROL {
        processor.set_one_reg(core(KVM_REG_SIZE_U32, place), &[0; 4])?;
    }
    set(processor, THREAD, 0)
}

/// What an exit means.
pub fn stop(exit: &VcpuExit<'_>) -> Stop {
    match exit {
        VcpuExit::MmioWrite(EXIT, number) => {
            let number = <[u8; 4]>::try_from(&**number).map(u32::from_le_bytes);
            number.ok().and_then(|number| u16::try_from(number).ok()).map_or(Stop::Fault, Stop::Port)
        }
        VcpuExit::Debug(_) => Stop::Debug,
        VcpuExit::Intr => Stop::Interrupted,
        // What a vector says, reads of what is no memory, and whatever else no kernel of ours does.
        _ => Stop::Fault,
    }
}

/// Turns of the virtual counter in a second.
pub fn tsc_hz(_: &VcpuFd) -> u64 {
    let hz;
    // SAFETY: reads a register that every program may read.
    unsafe { std::arch::asm!("mrs {}, cntfrq_el0", out(reg) hz, options(nomem, nostack, preserves_flags)) };
    hz
}

/// What compiled code may use in a guest.
#[expect(clippy::unnecessary_wraps, reason = "other processors ask KVM")]
pub fn target(_: &Kvm) -> io::Result<Target> {
    Ok(Target::Aarch64)
}

/// KVM sees breakpoints and steps for what they are: a fault is none.
pub fn is_debuggers(_: &DebugSession, _: &Vm) -> bool {
    false
}

/// Machine code that leaves by this exit, and does no more.
pub fn leaving(exit: Exit) -> Vec<u8> {
    let instructions = [
        0x5280_0000 | u32::from(exit.port()) << 5, // mov w0, port
        0xd2c0_0001 | (EXIT >> 32 << 5) as u32,    // mov x1, #EXIT
        0xb900_0020,                               // str w0, [x1]
        0,                                         // udf #0
    ];
    instructions.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A processor that was entered once, and ran nothing. Linux patches its own code when the first processor without an
/// interrupt controller is entered, and when the last one ends. While there is one, none is the first or the last.
pub struct Anchor {
    // In this order.
    _processor: VcpuFd,
    _machine: VmFd,
}

impl Anchor {
    pub fn new(kvm: &Kvm) -> io::Result<Self> {
        let machine = machine(kvm)?;
        let mut processor = make(kvm, &machine)?;
        processor.set_kvm_immediate_exit(1);
        // It comes back at once, and says so by an error.
        let _ = processor.run();
        Ok(Self { _processor: processor, _machine: machine })
    }
}
