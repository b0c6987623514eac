//! Reset and power off by PSCI (Arm DEN 0022).

use core::arch::asm;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use aarch64_cpu::registers::{ID_AA64PFR0_EL1, Readable};

pub const SYSTEM_OFF: u32 = 0x8400_0008;
pub const SYSTEM_RESET: u32 = 0x8400_0009;

/// 1 HVC, 2 SMC, 0 not known. Written once in the boot phase; a stale 0 on another core is guessed right.
static CONDUIT: AtomicU32 = AtomicU32::new(0);

pub fn set_conduit(conduit: u32) -> Result<(), &'static str> {
    if conduit > 2 {
        return Err("PSCI is called in an unknown way");
    }
    CONDUIT.store(conduit, Relaxed);
    Ok(())
}

/// Calls PSCI. Returns when there is none, or when it refuses.
pub fn call(function: u32) {
    let by_smc = match CONDUIT.load(Relaxed) {
        // An EL2 that we may see is empty, so the firmware is above it; else a hypervisor is there.
        0 => ID_AA64PFR0_EL1.get() >> 8 & 0xf != 0,
        conduit => conduit == 2,
    };
    // SAFETY: both calls end the machine or return an error in x0; SMCCC lets the callee change x0 to x17.
    unsafe {
        if by_smc {
            asm!("smc #0", inout("x0") function as u64 => _, clobber_abi("C"), options(nostack));
        } else {
            asm!("hvc #0", inout("x0") function as u64 => _, clobber_abi("C"), options(nostack));
        }
    }
}
