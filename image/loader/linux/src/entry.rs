//! The head of a Linux Image (kernel.org `arch/arm64/booting.rst`), up to [`crate::start`] at EL1 with the MMU on.
//!
//! Entered with the MMU off, the image cleaned to the point of coherency, the device tree's address in `x0`. What we write
//! with the MMU off goes past the caches, so lines that somebody may have read before are invalidated before it goes on.

use core::arch::global_asm;

use loader::aarch64::{MAIR, SCTLR};

global_asm!(
    r#"
    .section .head, "ax"
    b 1f
    .long 0
    .quad 0
    .quad image_bytes
    // Little-endian, 4 KiB pages, anywhere in memory.
    .quad 0xa
    .quad 0, 0, 0
    .ascii "ARM\x64"
    .long 0
1:
    msr daifset, #15
    mov x19, x0
    adrp x20, image_start

    // Relative relocations: the image was linked at 0.
    adrp x1, rela_start
    add x1, x1, :lo12:rela_start
    adrp x2, rela_end
    add x2, x2, :lo12:rela_end
2:
    cmp x1, x2
    b.hs 3f
    ldp x3, x4, [x1]
    ldr x5, [x1, #16]
    add x1, x1, #24
    cmp x4, #1027
    b.ne 2b
    add x5, x5, x20
    str x5, [x3, x20]
    b 2b
3:
    adrp x1, bss_start
    adrp x21, image_end
4:
    stp xzr, xzr, [x1], #16
    cmp x1, x21
    b.lo 4b

    // A GiB around the image, and one around the device tree, as normal memory.
    adrp x1, boot_tables
    add x2, x1, #4096
    orr x3, x2, #3
    str x3, [x1]
    mov x4, #0x701
    lsr x3, x20, #30
    orr x5, x4, x3, lsl #30
    str x5, [x2, x3, lsl #3]
    lsr x3, x19, #30
    orr x5, x4, x3, lsl #30
    str x5, [x2, x3, lsl #3]

    // Smallest data cache line, then the whole image.
    mrs x3, ctr_el0
    ubfx x3, x3, #16, #4
    mov x4, #4
    lsl x4, x4, x3
    mov x5, x20
5:
    dc ivac, x5
    add x5, x5, x4
    cmp x5, x21
    b.lo 5b
    dsb sy

    mrs x3, currentel
    cmp x3, #8
    b.ne 6f
    bl urmqtt_drop_to_el1
6:
    mov x3, #{mair}
    msr mair_el1, x3
    // 48 bits, 4 KiB pages, walks write-back inner-shareable; no high half.
    ldr x3, =0x00803510
    mrs x4, id_aa64mmfr0_el1
    and x4, x4, #7
    cmp x4, #5
    mov x5, #5
    csel x4, x4, x5, lo
    orr x3, x3, x4, lsl #32
    msr tcr_el1, x3
    msr ttbr0_el1, x1
    isb
    tlbi vmalle1
    ic iallu
    dsb nsh
    isb
    ldr x3, ={sctlr}
    msr sctlr_el1, x3
    isb

    adrp x3, boot_stack_top
    add x3, x3, :lo12:boot_stack_top
    mov sp, x3
    mov x29, xzr
    mov x30, xzr
    mov x0, x19
    b {start}
    .ltorg

    .section .bss.boot, "aw", @nobits
    .balign 4096
    .globl boot_tables
boot_tables:
    .skip 8192
boot_stack:
    .skip 128 * 1024
boot_stack_top:
    .text
    "#,
    mair = const MAIR,
    sctlr = const SCTLR,
    start = sym crate::start,
);
