//! The generic timer (Arm ARM, "The Generic Timer in AArch64 state"): virtual counter and virtual timer, which a guest
//! always has to itself, and which need no trap under a hypervisor.

use aarch64_cpu::asm::barrier;
use aarch64_cpu::registers::{
    CNTFRQ_EL0, CNTKCTL_EL1, CNTV_CTL_EL0, CNTV_CVAL_EL0, CNTVCT_EL0, Readable, Writeable,
};

/// Ticks. The ISB keeps the read from being done ahead of what comes before it in program order.
pub fn now() -> u64 {
    barrier::isb(barrier::SY);
    CNTVCT_EL0.get()
}

/// Ticks a second, as the firmware wrote it down. 0 would be a firmware that didn't.
pub fn hz() -> u64 {
    CNTFRQ_EL0.get()
}

/// Tasks read the virtual counter; every other timer register traps. The timer is off.
pub fn init_core() {
    CNTKCTL_EL1.write(CNTKCTL_EL1::EL0VCTEN::SET);
    CNTV_CTL_EL0.set(0);
    barrier::isb(barrier::SY);
}

/// One interrupt at `deadline`. The timer condition is `counter >= CVAL`, unsigned, so a deadline that has passed fires
/// at once and `u64::MAX` never.
pub fn set(deadline: u64) {
    CNTV_CVAL_EL0.set(deadline);
    CNTV_CTL_EL0.write(CNTV_CTL_EL0::ENABLE::SET);
    // In effect before we return to user mode or look for pending interrupts.
    barrier::isb(barrier::SY);
}

/// Lowers the interrupt's level until the next `set`.
pub fn mask() {
    CNTV_CTL_EL0.write(CNTV_CTL_EL0::ENABLE::SET + CNTV_CTL_EL0::IMASK::SET);
    barrier::isb(barrier::SY);
}
