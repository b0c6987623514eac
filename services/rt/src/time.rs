//! Time, read in user mode through the kernel's clock page.

use ipc::abi::{CLOCK_VADDR, Clock};

fn clock() -> &'static Clock {
    // SAFETY: mapped read-only in every task, constant since before the task's first instruction.
    unsafe { &*(CLOCK_VADDR as *const Clock) }
}

/// Nanoseconds since boot.
pub fn now_ns() -> u64 {
    ns_from_ticks(crate::ticks_now())
}

pub(crate) fn ns_from_ticks(ticks: u64) -> u64 {
    let c = clock();
    ((ticks.saturating_sub(c.base_ticks) as u128 * c.mult as u128) >> c.shift) as u64
}

/// The counter value at `ns` nanoseconds since boot; [`ipc::abi::NEVER`] for `u64::MAX`.
pub fn ticks_from_ns(ns: u64) -> u64 {
    if ns == u64::MAX {
        return ipc::abi::NEVER;
    }
    let c = clock();
    // 2^-32 ticks a nanosecond; the division is by a constant.
    let rate = (c.ticks_per_second << 20) / (1_000_000_000 >> 12);
    c.base_ticks.saturating_add(((ns as u128 * rate as u128) >> 32) as u64).saturating_add(1)
}

/// Seconds since 1970; 0 when the firmware had no clock.
pub fn wall_seconds() -> u64 {
    match clock().wall_base_ns {
        0 => 0,
        base => (base + now_ns()) / 1_000_000_000,
    }
}

/// [`Clock::isa`].
pub fn isa() -> u32 {
    clock().isa
}
