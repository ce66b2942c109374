//! Descriptor tables: every exception ends in a report, on a stack of its own.

use crate::Exclusive;
use core::arch::{asm, global_asm};

const VECTORS: usize = 48;
const CODE: u16 = 0x08;
const TASK: u16 = 0x18;

global_asm!(
    r#"
.section .text.vectors, "ax"
.p2align 4
.global vectors
vectors:
.set vector, 0
.rept 48
.p2align 4
.if vector == 8 || (vector >= 10 && vector <= 14) || vector == 17 || vector == 21 || vector == 29 || vector == 30
.else
    // Where the processor pushes no error code: zero in its place.
    .byte 0x6a, 0
.endif
    .byte 0x6a, vector
    jmp exception
.set vector, vector + 1
.endr

exception:
    push rax
    push rbx
    push rcx
    push rdx
    push rsi
    push rdi
    push rbp
    push r8
    push r9
    push r10
    push r11
    push r12
    push r13
    push r14
    push r15
    mov rax, cr2
    push rax
    mov rdi, rsp
    and rsp, -16
    xor ebp, ebp
    call exception_taken
    ud2

// The end of a sleep: acknowledged, nothing else.
.global wake
.p2align 4
wake:
    push rax
    mov eax, 0xfee000b0
    mov dword ptr [rax], 0
    pop rax
    iretq

.section .bss.report_stack, "aw", @nobits
.p2align 4
    .skip 0x4000
.global report_stack_top
report_stack_top:
"#
);

unsafe extern "C" {
    static vectors: u8;
    static wake: u8;
    static report_stack_top: u8;
}

struct Descriptors {
    gdt: [u64; 5],
    idt: [[u64; 2]; VECTORS],
    task: [u32; 26],
}

static DESCRIPTORS: Exclusive<Descriptors> = Exclusive::new(Descriptors {
    gdt: [0, 0x00af_9a00_0000_ffff, 0x00cf_9200_0000_ffff, 0, 0],
    idt: [[0; 2]; VECTORS],
    task: [0; 26],
});

#[repr(C, packed)]
struct Pointer {
    limit: u16,
    base: u64,
}

pub(super) fn begin() {
    const STUB_BYTES: usize = 16;
    DESCRIPTORS.with(|descriptors| {
        // Stack 1 of the task, which every gate names.
        let stack = (&raw const report_stack_top).addr() as u64;
        (descriptors.task[9], descriptors.task[10]) = (stack as u32, (stack >> 32) as u32);
        // No map of ports.
        descriptors.task[25] = 104 << 16;
        for (vector, gate) in descriptors.idt.iter_mut().enumerate() {
            let stub = (&raw const vectors).addr() + vector * STUB_BYTES;
            *gate = self::gate(stub as u64);
        }
        descriptors.idt[super::apic::WAKE_VECTOR as usize] = gate((&raw const wake).addr() as u64);
        let task = (&raw const descriptors.task).addr() as u64;
        descriptors.gdt[3] = 103 | (task & 0xff_ffff) << 16 | 0x89 << 40 | (task >> 24 & 0xff) << 56;
        descriptors.gdt[4] = task >> 32;
        let gdt = Pointer { limit: 39, base: (&raw const descriptors.gdt).addr() as u64 };
        let idt = Pointer { limit: (VECTORS * 16 - 1) as u16, base: (&raw const descriptors.idt).addr() as u64 };
        // SAFETY: the tables are static and describe what is there; the segments in use stay as they were.
        unsafe {
            asm!("lgdt [{}]", in(reg) &raw const gdt);
            asm!("lidt [{}]", in(reg) &raw const idt);
            asm!("ltr {:x}", in(reg) TASK);
        }
    });
}

/// An interrupt gate to `stub`, on stack 1.
fn gate(stub: u64) -> [u64; 2] {
    const PRESENT_INTERRUPT: u64 = 0x8e;
    let low = stub & 0xffff | u64::from(CODE) << 16 | 1 << 32 | PRESENT_INTERRUPT << 40 | (stub >> 16 & 0xffff) << 48;
    [low, stub >> 32]
}
