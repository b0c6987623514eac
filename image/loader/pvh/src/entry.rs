//! From the 32-bit entries of PVH and multiboot2 to [`crate::start`] in long mode, with the first 4 GiB mapped as they are.

use core::arch::global_asm;

/// In `edi` when we come from PVH; multiboot2 gives its own number.
pub const PVH: u32 = 0;
pub const MULTIBOOT2: u32 = 0x36d7_6289;

global_asm!(
    r#"
    .section .multiboot2, "a"
    .balign 8
2:
    .long 0xe85250d6, 0, 3f - 2b, -(0xe85250d6 + (3f - 2b))
    .short 6, 0
    .long 8
    .short 0, 0
    .long 8
3:
    .section .note.pvh, "a"
    .balign 4
    .long 4, 4, 18
    .asciz "Xen"
    .long pvh_start

    .text
    .code32
    .globl pvh_start
pvh_start:
    xor eax, eax
    .globl multiboot2_start
multiboot2_start:
    cli
    cld
    mov esp, offset boot_stack_top
    mov edi, eax
    mov esi, ebx

    // 2048 blocks of 2 MiB in four consecutive tables.
    mov ebx, offset boot_tables
    xor ecx, ecx
4:
    mov eax, ecx
    shl eax, 21
    or eax, 0x83
    mov [ebx + ecx * 8 + 8192], eax
    mov dword ptr [ebx + ecx * 8 + 8196], 0
    inc ecx
    cmp ecx, 2048
    jne 4b
    lea eax, [ebx + 4096 + 3]
    mov [ebx], eax
    xor ecx, ecx
    lea eax, [ebx + 8192 + 3]
5:
    mov [ebx + ecx * 8 + 4096], eax
    add eax, 4096
    inc ecx
    cmp ecx, 4
    jne 5b

    mov cr3, ebx
    mov eax, 0xa0
    mov cr4, eax
    mov ecx, 0xc0000080
    rdmsr
    or eax, 0x100
    wrmsr
    mov eax, 0x80010033
    mov cr0, eax
    lgdt [boot_gdt_pointer]
    push 8
    mov eax, offset boot_long
    push eax
    retf

    .code64
boot_long:
    mov eax, 0x10
    mov ds, eax
    mov es, eax
    mov ss, eax
    xor ebp, ebp
    call {start}
    ud2

    .balign 8
boot_gdt:
    .quad 0, 0x00af9b000000ffff, 0x00cf93000000ffff
boot_gdt_pointer:
    .short 23
    .long boot_gdt

    .section .bss.boot, "aw", @nobits
    .balign 4096
boot_tables:
    .skip 6 * 4096
boot_stack:
    .skip 128 * 1024
boot_stack_top:
    .text
    "#,
    start = sym crate::start,
);
