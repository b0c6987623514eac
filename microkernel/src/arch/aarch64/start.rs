//! From the loader's page tables to the kernel's own.
//!
//! The loader (Limine protocol, base revision 2) enters with the MMU on, the image and the physical map in the upper half,
//! and nothing promised about the lower half. Its tables may map the same addresses in other block sizes than ours, and
//! TCR and MAIR are its own. With the MMU on, such changes need break-before-make (Arm ARM, "Using break-before-make when
//! updating translation table entries") of the very memory that runs the code, and TCR fields may be cached in the
//! TLB. So the switch is done with the MMU off:
//!
//! 1. The few instructions that do it are mapped at their physical address through TTBR0 ([`identity`]), and cleaned to
//!    the point of coherency: with the MMU off, fetches may miss the caches that hold them.
//! 2. There: MMU and data cache off, MAIR, TCR, TTBR0, TTBR1, TLB invalidated, MMU on. No load or store in between, so no
//!    memory is seen with two different attributes; everything is in registers.
//! 3. Back at the image's address: TTBR0 to the empty table, TLB invalidated once more for the identity mapping.
//!
//! The page tables themselves were written write-back and inner shareable, as the walks read them: no cleaning.

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use aarch64_cpu::asm::barrier;
use aarch64_cpu::registers::{Readable, TTBR1_EL1};

use super::cache;
use super::cpu::Features;
use super::identity;

/// Attribute 0: normal memory, inner and outer write-back, read- and write-allocate. Attribute 1: Device-nGnRE (early
/// acknowledgement, as PCI's posted writes are).
const MAIR: u64 = 0xff | 0x04 << 8;

/// Roots (physical), written by the boot core before any core enters.
static KERNEL_ROOT: AtomicU64 = AtomicU64::new(0);
static EMPTY_ROOT: AtomicU64 = AtomicU64::new(0);

const ROOT: u64 = 0x0000_ffff_ffff_fffe & !0xfff;

pub fn init_boot(kernel_root: u64, empty_root: u64) {
    KERNEL_ROOT.store(kernel_root, Relaxed);
    EMPTY_ROOT.store(empty_root, Relaxed);
}

/// The calling core runs on the kernel's tables.
pub fn entered() -> bool {
    let root = KERNEL_ROOT.load(Relaxed);
    root != 0 && TTBR1_EL1.get() & ROOT == root
}

unsafe extern "C" {
    static switch_tables: u8;
    static switch_tables_end: u8;
}

/// The instructions that run with the MMU off.
pub fn switch_code() -> (*const u8, usize) {
    let start = &raw const switch_tables;
    (start, &raw const switch_tables_end as usize - start as usize)
}

/// # Safety
/// As for [`crate::arch::Machine::enter_kernel`]; `init_boot` was called.
pub unsafe fn enter_kernel(
    features: &Features,
    stack_top: u64,
    main: extern "C" fn(usize) -> !,
    argument: usize,
) -> ! {
    let identity_root = identity::install();
    let (code, len) = switch_code();
    cache::clean_and_invalidate(code, len);
    barrier::dsb(barrier::SY);
    // SAFETY: the tables map this code and the stack (caller); the code at the physical address is the same
    // (`identity`). Interrupts are masked, nothing is returned to, the stack is fresh.
    unsafe {
        asm!(
            "msr daifset, #0xf",
            "adr x11, 2f",
            "mrs x10, sctlr_el1",
            // M and C off.
            "bic x10, x10, #1",
            "bic x10, x10, #4",
            "br x9",
            "2:",
            "msr ttbr0_el1, x8",
            "isb",
            "tlbi vmalle1",
            "dsb nsh",
            "isb",
            "msr spsel, #1",
            "mov sp, x2",
            "mov x29, xzr",
            "mov x30, xzr",
            "br x3",
            in("x0") argument,
            in("x2") stack_top,
            in("x3") main,
            in("x4") identity_root,
            in("x5") KERNEL_ROOT.load(Relaxed),
            in("x6") MAIR | identity::MAIR,
            in("x7") features.tcr(),
            in("x8") EMPTY_ROOT.load(Relaxed),
            in("x9") identity::physical(code as usize),
            in("x12") features.sctlr(),
            options(noreturn),
        )
    }
}

// x4: TTBR0, x5: TTBR1, x6: MAIR, x7: TCR, x10: SCTLR with the MMU off, x11: where to go on, x12: SCTLR.
// Aligned so that it lies in one page.
global_asm!(
    r#"
.section .text.switch, "ax"
.balign 128
.global switch_tables
switch_tables:
    msr     sctlr_el1, x10
    isb
    msr     mair_el1, x6
    msr     tcr_el1, x7
    msr     ttbr0_el1, x4
    msr     ttbr1_el1, x5
    isb
    tlbi    vmalle1
    dsb     nsh
    ic      iallu
    dsb     nsh
    isb
    msr     sctlr_el1, x12
    isb
    br      x11
.global switch_tables_end
switch_tables_end:
.text
"#
);
