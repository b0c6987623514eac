//! What the processor has, and the control registers that follow from it (Arm ARM, "AArch64 System register
//! descriptions").

use core::arch::asm;

use aarch64_cpu::asm::barrier;
use aarch64_cpu::registers::*;

/// The features that the kernel uses where they are there.
#[derive(Clone, Copy, Debug)]
pub struct Features {
    /// FEAT_PAN, FEAT_PAN3: the kernel can't touch user memory (with EPAN, not even memory that is execute-only).
    pan: bool,
    epan: bool,
    /// FEAT_PAuth, any algorithm for addresses.
    pub pointer_auth: bool,
    /// FEAT_E0PD: access by EL0 to the kernel's half faults in constant time, without a table walk.
    e0pd: bool,
    /// A performance monitor, whose EL0 access register must be closed.
    monitor: bool,
    physical_range: u64,
}

const fn field(register: u64, low: u32) -> u64 {
    register >> low & 0xf
}

impl Features {
    pub fn read() -> Self {
        let isar1 = ID_AA64ISAR1_EL1.get();
        let isar2: u64;
        let mmfr0 = ID_AA64MMFR0_EL1.get();
        let mmfr1 = ID_AA64MMFR1_EL1.get();
        let mmfr2 = ID_AA64MMFR2_EL1.get();
        // SAFETY: reading an identification register; by its encoding, for the assembler may not know the name.
        unsafe { asm!("mrs {}, s3_0_c0_c6_2", out(reg) isar2, options(nomem, nostack, preserves_flags)) };
        Features {
            pan: field(mmfr1, 20) >= 1,
            epan: field(mmfr1, 20) >= 3,
            pointer_auth: field(isar1, 4) != 0 || field(isar1, 8) != 0 || field(isar2, 12) != 0,
            e0pd: field(mmfr2, 60) != 0,
            monitor: !matches!(field(ID_AA64DFR0_EL1.get(), 8), 0 | 0xf),
            physical_range: field(mmfr0, 0),
        }
    }

    /// SCTLR_EL1 for running: MMU, caches, W^X, and everything that EL0 doesn't need trapped. Bits that are reserved on
    /// a processor without their feature are written with the value that they must have there.
    pub fn sctlr(&self) -> u64 {
        const M: u64 = 1;
        const C: u64 = 1 << 2;
        /// Stack alignment checks, EL1 and EL0.
        const SA: u64 = 1 << 3 | 1 << 4;
        /// AArch32's ITD and SED; reserved as 1 without AArch32.
        const NO_AARCH32: u64 = 1 << 7 | 1 << 8;
        /// Exception entry and return synchronise the context: EIS, EOS.
        const SYNCHRONISE: u64 = 1 << 22 | 1 << 11;
        const I: u64 = 1 << 12;
        /// `dc zva` at EL0.
        const DZE: u64 = 1 << 14;
        /// Writable memory is never executable, whatever the entries say.
        const WXN: u64 = 1 << 19;
        /// SCXTNUM_EL0 is not for EL0.
        const TSCXT: u64 = 1 << 20;
        /// 0: entry to EL1 sets PSTATE.PAN.
        const SPAN: u64 = 1 << 23;
        /// nTLSMD, LSMAOE: AArch32 again.
        const ONES: u64 = 1 << 28 | 1 << 29;
        /// Pointer authentication with key IA, the one that compilers use for return addresses.
        const EN_IA: u64 = 1 << 31;
        /// `paciasp` is no landing pad for `br`, at EL0 and EL1.
        const BT: u64 = 1 << 35 | 1 << 36;
        const EPAN: u64 = 1 << 57;
        let mut value = M | C | SA | NO_AARCH32 | SYNCHRONISE | I | DZE | WXN | TSCXT | ONES | BT;
        if !self.pan {
            value |= SPAN;
        }
        if self.epan {
            value |= EPAN;
        }
        if self.pointer_auth {
            value |= EN_IA;
        }
        value
    }

    /// TCR_EL1: 48 bits and 4 KiB in both halves, address-space numbers of 8 bits from TTBR0 (there are at most 64
    /// tasks), table walks write-back and inner shareable, like everybody's view of that memory.
    pub fn tcr(&self) -> u64 {
        const T0SZ: u64 = 16;
        const T1SZ: u64 = 16 << 16;
        const WALK_0: u64 = 3 << 12 | 1 << 10 | 1 << 8;
        const WALK_1: u64 = WALK_0 << 16;
        const TG1_4K: u64 = 2 << 30;
        const E0PD1: u64 = 1 << 56;
        // PARange 6 and 7 need a descriptor format that we don't use: 48 bits are enough.
        let mut value = T0SZ | T1SZ | WALK_0 | WALK_1 | TG1_4K | self.physical_range.min(5) << 32;
        if self.e0pd {
            value |= E0PD1;
        }
        value
    }

    /// Closes what EL0 has no use for. SVE and SME (CPACR_EL1.ZEN, SMEN) stay trapped for good; SIMD is opened for each
    /// task that has it.
    pub fn init_core(&self) {
        CPACR_EL1.set(SIMD_TRAPPED);
        TPIDRRO_EL0.set(0);
        TPIDR_EL0.set(0);
        // No debug: EL0 can't reach the debug channel (TDCC), no software step, no monitor events.
        MDSCR_EL1.set(1 << 12);
        if self.monitor {
            // SAFETY: PMUSERENR_EL0 is there, and 0 forbids EL0 the performance monitor.
            unsafe { asm!("msr pmuserenr_el0, xzr", options(nomem, nostack, preserves_flags)) };
        }
        if self.pan {
            // SAFETY: PSTATE.PAN := 1 (`msr pan, #1` by its encoding); the kernel uses no user mapping.
            unsafe { asm!(".inst 0xd500419f", options(nomem, nostack, preserves_flags)) };
        }
        barrier::isb(barrier::SY);
    }
}

/// CPACR_EL1: SIMD instructions of EL0 trap, those of EL1 (saving and restoring) don't.
const SIMD_TRAPPED: u64 = 1 << 20;
const SIMD_OPEN: u64 = 3 << 20;

/// In effect with the next exception return, which synchronises the context.
pub fn simd_allow(allow: bool) {
    CPACR_EL1.set(if allow { SIMD_OPEN } else { SIMD_TRAPPED });
}
