//! SIMD state: XSAVE where there is one (SDM volume 1, chapter 13), else FXSAVE. The kernel itself uses no SIMD register.

use core::arch::asm;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::cpu::cpuid;

/// x87, SSE, AVX, and the three parts of AVX-512. Not: MPX, PKRU, AMX, supervisor state.
const WANTED: u64 = 0b1110_0111;
const AVX512: u64 = 0b1110_0000;
/// Offset of MXCSR and its value at reset; the same for the x87 control word.
const MXCSR: usize = 24;
const MXCSR_RESET: u32 = 0x1f80;
const FCW_RESET: u16 = 0x037f;

const FXSAVE: u8 = 0;
const XSAVE: u8 = 1;
const XSAVEOPT: u8 = 2;

/// All cores have the boot core's features: written once, before the others start.
static HOW: AtomicU8 = AtomicU8::new(FXSAVE);
static MASK: AtomicU64 = AtomicU64::new(0);

/// Once, on the boot core.
pub fn choose() {
    if cpuid(1, 0).ecx >> 26 & 1 == 0 {
        return;
    }
    let offered = cpuid(0xd, 0);
    let mut mask = (offered.eax as u64 | (offered.edx as u64) << 32) & WANTED;
    if mask & AVX512 != AVX512 || mask & 4 == 0 {
        mask &= !AVX512;
    }
    MASK.store(mask, Ordering::Relaxed);
    HOW.store(if cpuid(0xd, 1).eax & 1 == 1 { XSAVEOPT } else { XSAVE }, Ordering::Relaxed);
}

/// On every core, after CR4.OSXSAVE was set.
pub fn setup() {
    let mask = MASK.load(Ordering::Relaxed);
    if mask != 0 {
        // SAFETY: `choose` took the bits from what the processor offers; x87 and SSE are among them (XSETBV's rules, SDM
        // volume 1, 13.3).
        unsafe { asm!("xsetbv", in("ecx") 0, in("eax") mask as u32, in("edx") (mask >> 32) as u32) };
    }
}

/// Bytes of a state with the parts that are on. Valid after `setup`.
pub fn bytes() -> usize {
    if HOW.load(Ordering::Relaxed) == FXSAVE { 512 } else { cpuid(0xd, 0).ebx as usize }
}

/// # Safety
/// `area` has `bytes()` bytes.
pub unsafe fn reset(area: *mut u8) {
    // SAFETY: the caller's promise. A header (bytes 512..576) of zeros makes `xrstor` take the initial state, but MXCSR
    // from here; `fxrstor` takes all from here.
    unsafe {
        core::ptr::write_bytes(area, 0, bytes());
        area.cast::<u16>().write(FCW_RESET);
        area.add(MXCSR).cast::<u32>().write(MXCSR_RESET);
    }
}

/// # Safety
/// `area` has `bytes()` bytes, 64-byte aligned, and was reset or saved before.
#[inline(always)]
pub unsafe fn save(area: *mut u8) {
    let mask = MASK.load(Ordering::Relaxed);
    let (low, high) = (mask as u32, (mask >> 32) as u32);
    // SAFETY: the caller's promise. XSAVEOPT may leave out what has not changed since the last `xrstor` from this very area
    // (SDM volume 1, 13.9): it tracks the area and the core, and a task never changes either.
    unsafe {
        match HOW.load(Ordering::Relaxed) {
            XSAVEOPT => asm!("xsaveopt64 [{}]", in(reg) area, in("eax") low, in("edx") high),
            XSAVE => asm!("xsave64 [{}]", in(reg) area, in("eax") low, in("edx") high),
            _ => asm!("fxsave64 [{}]", in(reg) area),
        }
    }
}

/// # Safety
/// As `save`.
#[inline(always)]
pub unsafe fn restore(area: *const u8) {
    let mask = MASK.load(Ordering::Relaxed);
    let (low, high) = (mask as u32, (mask >> 32) as u32);
    // SAFETY: the caller's promise.
    unsafe {
        match HOW.load(Ordering::Relaxed) {
            FXSAVE => asm!("fxrstor64 [{}]", in(reg) area),
            _ => asm!("xrstor64 [{}]", in(reg) area, in("eax") low, in("edx") high),
        }
    }
}
