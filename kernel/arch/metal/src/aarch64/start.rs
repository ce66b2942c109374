//! The first instructions, and those after an exception.

use core::arch::global_asm;

global_asm!(
    r#"
.section .boot, "ax"
.global _start
_start:
    // One core is all we use; what the loader left is in x0.
    mrs x1, mpidr_el1
    and x1, x1, #0xff
    cbnz x1, 9f
    mov x20, x0
    mrs x1, CurrentEL
    lsr x1, x1, #2
    cmp x1, #3
    b.ne 0f
    // From EL3, where QEMU begins with an ELF file on a Pi, to EL2: not secure, 64 bits, no traps.
    mov x1, #0x5b1
    msr scr_el3, x1
    msr cptr_el3, xzr
    mov x1, #0x3c9
    msr spsr_el3, x1
    adr x1, 0f
    msr elr_el3, x1
    eret
0:  mrs x1, CurrentEL
    lsr x1, x1, #2
    cmp x1, #2
    b.ne 1f
    // From EL2 to EL1: 64 bits, timers and floating point without traps.
    mov x1, #(1 << 31)
    msr hcr_el2, x1
    mov x1, #3
    msr cnthctl_el2, x1
    msr cntvoff_el2, xzr
    mov x1, #0x33ff
    msr cptr_el2, x1
    mov x1, #0x3c5
    msr spsr_el2, x1
    adr x1, 1f
    msr elr_el2, x1
    eret
1:  msr daifset, #15
    mov x1, #(3 << 20)
    msr cpacr_el1, x1
    adrp x1, vectors
    add x1, x1, :lo12:vectors
    msr vbar_el1, x1
    isb
    adrp x1, __stack_top
    add x1, x1, :lo12:__stack_top
    mov sp, x1
    adrp x1, __bss_start
    add x1, x1, :lo12:__bss_start
    adrp x2, __bss_end
    add x2, x2, :lo12:__bss_end
2:  cmp x1, x2
    b.hs 3f
    str xzr, [x1], #8
    b 2b
3:  mov x29, xzr
    mov x30, xzr
    mov x0, x20
    bl board_main
9:  wfe
    b 9b

.section .text.vectors, "ax"
.p2align 11
vectors:
.set vector, 0
.rept 16
.p2align 7
    // The stack may be what went wrong: it is not touched.
    msr tpidr_el1, x0
    mov x0, #vector
    b exception
.set vector, vector + 1
.endr

.p2align 2
exception:
    msr tpidr_el0, x1
    mov x1, sp
    msr tpidrro_el0, x1
    adrp x1, report_stack_top
    add x1, x1, :lo12:report_stack_top
    sub sp, x1, #304
    str x0, [sp, #256]
    mrs x0, tpidr_el1
    mrs x1, tpidr_el0
    stp x0, x1, [sp, #0]
    stp x2, x3, [sp, #16]
    stp x4, x5, [sp, #32]
    stp x6, x7, [sp, #48]
    stp x8, x9, [sp, #64]
    stp x10, x11, [sp, #80]
    stp x12, x13, [sp, #96]
    stp x14, x15, [sp, #112]
    stp x16, x17, [sp, #128]
    stp x18, x19, [sp, #144]
    stp x20, x21, [sp, #160]
    stp x22, x23, [sp, #176]
    stp x24, x25, [sp, #192]
    stp x26, x27, [sp, #208]
    stp x28, x29, [sp, #224]
    mrs x1, tpidrro_el0
    stp x30, x1, [sp, #240]
    mrs x1, elr_el1
    str x1, [sp, #264]
    mrs x1, esr_el1
    mrs x2, far_el1
    stp x1, x2, [sp, #272]
    mrs x1, spsr_el1
    str x1, [sp, #288]
    mov x0, sp
    mov x29, xzr
    bl exception_taken
    b 9b

.section .bss.report_stack, "aw", @nobits
.p2align 4
    .skip 0x4000
report_stack_top:
"#
);
