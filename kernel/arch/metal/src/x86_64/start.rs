//! The first instructions, from the 32 bits a PVH loader leaves to Rust, and what that loader tells.

use crate::Region;
use core::arch::global_asm;
use core::ptr;

global_asm!(
    r#"
.section .note.pvh, "a", @note
.p2align 2
.long 4, 8, 18
.asciz "Xen"
.quad _start

.section .boot, "ax"
.code32
.global _start
_start:
    cli
    mov esp, offset __stack_top
    // What the loader left is in ebx; the rest of `bss` is ours to clear.
    mov edi, offset __bss_start
    mov ecx, offset __bss_end
    sub ecx, edi
    shr ecx, 2
    xor eax, eax
    rep stosd
    // The first 4 GiB where they are, in pages of 2 MiB, until the kernel has made its own tables.
    mov eax, offset early_tables + 0x1003
    mov [early_tables], eax
    mov edi, offset early_tables + 0x1000
    mov eax, offset early_tables + 0x2003
    mov ecx, 4
1:  mov [edi], eax
    add eax, 0x1000
    add edi, 8
    loop 1b
    mov edi, offset early_tables + 0x2000
    mov eax, 0x83
    mov ecx, 2048
2:  mov [edi], eax
    add eax, 0x200000
    add edi, 8
    loop 2b
    // Long mode with pages that are not run, floating point without traps.
    mov eax, cr4
    or eax, 0x620
    mov cr4, eax
    mov eax, offset early_tables
    mov cr3, eax
    mov ecx, 0xC0000080
    rdmsr
    or eax, 0x900
    wrmsr
    mov eax, cr0
    and eax, 0xfffffffb
    or eax, 0x80000022
    mov cr0, eax
    lgdt [early_gdt_pointer]
    push 0x08
    mov eax, offset long_mode
    push eax
    retf
.code64
long_mode:
    mov ax, 0x10
    mov ds, ax
    mov es, ax
    mov ss, ax
    mov edi, ebx
    lea rsp, [rip + __stack_top]
    xor ebp, ebp
    call board_main
4:  cli
    hlt
    jmp 4b

.section .data.early, "aw"
.p2align 4
early_gdt: .quad 0, 0x00af9a000000ffff, 0x00cf92000000ffff
early_gdt_pointer: .word 23
    .quad early_gdt

.section .bss.early_tables, "aw", @nobits
.p2align 12
early_tables: .skip 0x6000
"#
);

/// The memory at 1 MiB and beyond, as the loader tells it; only before [`begin`](crate::begin). `left` is what it left.
pub fn memory(left: usize) -> Option<Region> {
    const MAGIC: u32 = 0x336e_c578;
    const USABLE: u32 = 1;
    const ENTRIES_MAX: u32 = 64;
    let read = |at: usize| {
        // SAFETY: memory is not protected yet, and the loader's tables lie in the first 4 GiB, all of which is mapped.
        unsafe { ptr::with_exposed_provenance::<u32>(at).read_unaligned() }
    };
    let read_long = |at: usize| u64::from(read(at)) | u64::from(read(at + 4)) << 32;
    if left == 0 || read(left) != MAGIC || read(left + 4) < 1 {
        return None;
    }
    let (map, count) = (read_long(left + 40) as usize, read(left + 48).min(ENTRIES_MAX) as usize);
    let mut entries = (0..count).map(|index| map + index * 24);
    let found = entries.find(|at| read_long(*at) == 1 << 20 && read(at + 16) == USABLE)?;
    Some(Region { start: 1 << 20, bytes: read_long(found + 8) as usize })
}
