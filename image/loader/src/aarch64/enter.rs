//! From whatever a processor starts in (EL2 or EL1, MMU on or off) to EL1 with the kernel's page tables.
//!
//! Translation registers change with the MMU off (Arm ARM D8.16 "break-before-make" asks for no less). With it off, a
//! processor fetches this code and reads nothing: all values are in registers by then. The code has been cleaned to the
//! point of coherency, and is mapped at its physical address before and after.

use core::arch::{asm, global_asm};
use core::ops::Range;

use crate::limine::HHDM;
use zerocopy::{Immutable, IntoBytes};

/// What a processor needs; all registers of the kernel's entry come from here.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
pub struct Context {
    pub mair: u64,
    pub tcr: u64,
    /// Physical addresses of the tables.
    pub low: u64,
    pub high: u64,
    pub sctlr: u64,
    pub stack: u64,
    /// Where to; 0: park, and look for it at `goto_address`.
    pub entry: u64,
    /// First argument.
    pub info: u64,
    pub goto_address: u64,
    /// Written by the processor, through the direct map, when it is parked.
    pub parked: u64,
}

impl Context {
    pub fn at(contexts: u64, index: usize) -> u64 {
        contexts + (index * size_of::<Context>()) as u64
    }
}

/// Index 0 normal write-back memory, 1 Device-nGnRnE: the indices of [`crate::paging::Aarch64`].
pub const MAIR: u64 = 0x00ff;
/// Reserved ones, then I, SA0, SA, C, M.
pub const SCTLR: u64 = SCTLR_OFF | 1 << 12 | 1 << 4 | 1 << 3 | 1 << 2 | 1;
const SCTLR_OFF: u64 = 0x30d0_0800;
const SCTLR_EL2_OFF: u64 = 0x30c5_0830;

/// 48 bits and 4 KiB pages in both halves, walks inner-shareable write-back; physical addresses as wide as there are,
/// up to 48 bits.
pub fn tcr() -> u64 {
    let features: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mrs {}, id_aa64mmfr0_el1", out(reg) features, options(nomem, nostack, preserves_flags)) };
    let range = (features & 0xf).min(5);
    const HALF: u64 = 16 | 1 << 8 | 1 << 10 | 3 << 12;
    HALF | HALF << 16 | 2 << 30 | range << 32
}

global_asm!(
    r#"
    .text
    .balign 64
    .globl urmqtt_enter
urmqtt_enter:
    msr daifset, #15
    mov x29, x0
    ldp x1, x2, [x0]
    ldp x3, x4, [x0, #16]
    ldp x5, x6, [x0, #32]
    ldp x7, x8, [x0, #48]
    ldr x9, [x0, #64]

    mrs x10, currentel
    cmp x10, #8
    b.ne 20f
    bl urmqtt_drop_to_el1
20:
    ldr x10, ={sctlr_off}
    msr sctlr_el1, x10
    isb
    msr mair_el1, x1
    msr tcr_el1, x2
    msr ttbr0_el1, x3
    msr ttbr1_el1, x4
    isb
    tlbi vmalle1
    ic iallu
    dsb nsh
    isb
    msr sctlr_el1, x5
    isb

    msr spsel, #0
    mov sp, x6
    cbnz x7, 30f
    // Parked: say so, then wait for the address. The load's monitor makes the store that clears it wake us.
    mov x10, #1
    ldr x11, ={direct_map}
    add x29, x29, x11
    add x29, x29, #72
    stlr x10, [x29]
21:
    ldaxr x7, [x9]
    cbnz x7, 30f
    wfe
    b 21b
30:
    mov x0, x8
    mov x17, x7
    mov x1, xzr
    mov x2, xzr
    mov x3, xzr
    mov x4, xzr
    mov x5, xzr
    mov x6, xzr
    mov x7, xzr
    mov x8, xzr
    mov x9, xzr
    mov x10, xzr
    mov x11, xzr
    mov x12, xzr
    mov x13, xzr
    mov x14, xzr
    mov x15, xzr
    mov x16, xzr
    mov x18, xzr
    mov x19, xzr
    mov x20, xzr
    mov x21, xzr
    mov x22, xzr
    mov x23, xzr
    mov x24, xzr
    mov x25, xzr
    mov x26, xzr
    mov x27, xzr
    mov x28, xzr
    mov x29, xzr
    mov x30, xzr
    br x17

    // EL2 to EL1, with nothing of EL1 trapped that a kernel uses. Changes x10 to x12; x30 is where to go on.
    .globl urmqtt_drop_to_el1
urmqtt_drop_to_el1:
    ldr x10, ={sctlr_el2_off}
    msr sctlr_el2, x10
    isb
    // RW, and API and APK: no trap of pointer authentication.
    mov x10, #0x80000000
    orr x10, x10, #(3 << 40)
    msr hcr_el2, x10
    isb
    mov x10, #3
    msr cnthctl_el2, x10
    msr cntvoff_el2, xzr
    msr hstr_el2, xzr
    msr vttbr_el2, xzr
    mrs x10, midr_el1
    msr vpidr_el2, x10
    mrs x10, mpidr_el1
    msr vmpidr_el2, x10
    mrs x10, mdcr_el2
    and x10, x10, #0x1f
    msr mdcr_el2, x10
    // No trap of SIMD; none of SVE where there is SVE.
    mov x10, #0x33ff
    mrs x11, id_aa64pfr0_el1
    ubfx x12, x11, #32, #4
    cbz x12, 40f
    bic x10, x10, #0x100
40:
    msr cptr_el2, x10
    // System registers of a GICv3.
    ubfx x12, x11, #24, #4
    cbz x12, 41f
    mrs x10, S3_4_C12_C9_5
    orr x10, x10, #0xf
    msr S3_4_C12_C9_5, x10
    isb
    msr S3_4_C12_C11_0, xzr
41:
    // Fine-grained traps.
    mrs x11, id_aa64mmfr0_el1
    ubfx x12, x11, #56, #4
    cbz x12, 42f
    msr S3_4_C1_C1_4, xzr
    msr S3_4_C1_C1_5, xzr
    msr S3_4_C1_C1_6, xzr
    msr S3_4_C3_C1_4, xzr
    msr S3_4_C3_C1_5, xzr
42:
    mrs x11, id_aa64mmfr1_el1
    ubfx x12, x11, #40, #4
    cbz x12, 43f
    msr S3_4_C1_C2_2, xzr
43:
    ldr x10, ={sctlr_off}
    msr sctlr_el1, x10
    // EL1h, all masked.
    mov x10, #0x3c5
    msr spsr_el2, x10
    msr elr_el2, x30
    isb
    eret

    .ltorg
    .globl urmqtt_enter_end
urmqtt_enter_end:
    "#,
    direct_map = const HHDM,
    sctlr_off = const SCTLR_OFF,
    sctlr_el2_off = const SCTLR_EL2_OFF,
);

unsafe extern "C" {
    /// Takes the address of a [`Context`].
    pub fn urmqtt_enter(context: u64) -> !;
    static urmqtt_enter_end: [u8; 0];
}

/// Where this code is.
pub fn code() -> Range<u64> {
    urmqtt_enter as *const () as u64..&raw const urmqtt_enter_end as u64
}
