//! What user mode may ask the processor.

/// The raw counter.
#[cfg(target_arch = "x86_64")]
pub fn ticks_now() -> u64 {
    // SAFETY: the kernel allows RDTSC in user mode. Not serialising: a few nanoseconds early do no harm here.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The raw counter.
#[cfg(target_arch = "aarch64")]
pub fn ticks_now() -> u64 {
    let ticks;
    // SAFETY: the kernel allows CNTVCT_EL0 in user mode. No ISB: a few nanoseconds early do no harm here.
    unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
    ticks
}

/// 64 bits of RDRAND, 0 where the CPU has none: it only adds to the seed.
#[cfg(target_arch = "x86_64")]
pub fn hardware_random() -> u64 {
    if core::arch::x86_64::__cpuid(1).ecx >> 30 & 1 == 0 {
        return 0;
    }
    let (value, ok): (u64, u8);
    // SAFETY: CPUID says that the instruction exists.
    unsafe {
        core::arch::asm!("rdrand {}", "setc {}", out(reg) value, out(reg_byte) ok, options(nomem, nostack))
    };
    if ok == 1 { value } else { 0 }
}

/// The counter's low bits: user mode may not look whether RNDR exists, and the seed has it already.
#[cfg(target_arch = "aarch64")]
pub fn hardware_random() -> u64 {
    ticks_now()
}
