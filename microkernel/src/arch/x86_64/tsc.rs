//! The time-stamp counter and its frequency.
//!
//! The TSC must be invariant and the same on all cores; hypervisors and processors of the last decade give that (SDM
//! 17.17.1). Frequency, best source first: CPUID 0x15; the hypervisor's leaf 0x40000010; the APIC timer, which in QEMU
//! and KVM runs at exactly 1 GHz; the PIT; the ACPI PM timer once discovery has found it; CPUID 0x16.

use core::arch::x86_64::_rdtsc;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use x86_64::instructions::port::Port;

use super::apic;
use super::cpu::cpuid;

/// Taken until a better one is known.
const GUESS_HZ: u64 = 1_000_000_000;
const PLAUSIBLE_HZ: core::ops::RangeInclusive<u64> = 100_000_000..=10_000_000_000;
/// How long a comparison takes: with the APIC timer, whose steps are short, and with others.
const COMPARE_APIC_US: u64 = 1000;
const COMPARE_US: u64 = 5000;

/// The APIC timer's rate in QEMU's emulation and in KVM.
const VIRTUAL_APIC_HZ: u64 = 1_000_000_000;
const PIT_HZ: u64 = 1_193_182;
const PM_TIMER_HZ: u64 = 3_579_545;
/// The PM timer has at least 24 bits (ACPI 4.8.3.3).
const PM_TIMER_MASK: u32 = 0xff_ffff;

static HZ: AtomicU64 = AtomicU64::new(GUESS_HZ);
/// `HZ` is more than a guess.
static KNOWN: AtomicBool = AtomicBool::new(false);

pub fn counter() -> u64 {
    // SAFETY: CR4.TSD is off, and the kernel may read it anyway.
    unsafe { _rdtsc() }
}

pub fn hz() -> u64 {
    HZ.load(Ordering::Relaxed)
}

fn learn(hz: u64) -> bool {
    let plausible = PLAUSIBLE_HZ.contains(&hz);
    if plausible {
        HZ.store(hz, Ordering::Relaxed);
        KNOWN.store(true, Ordering::Relaxed);
    }
    plausible
}

/// On the boot core, with its APIC on.
pub fn calibrate() {
    let _ = learn(from_cpuid()) || is_known_hypervisor() && learn(from_apic()) || learn(from_pit());
    set_timer_rate();
}

/// The rate of the APIC timer, where the kernel needs it.
fn set_timer_rate() {
    if !apic::needs_rate() {
        return;
    }
    let timer_hz = if is_known_hypervisor() { VIRTUAL_APIC_HZ } else { apic_hz() };
    apic::set_rate(timer_hz, hz());
}

/// Discovery has found the PM timer (`port`, or 0). False: the frequency stays unknown.
pub fn refine(port: u32) -> bool {
    if !KNOWN.load(Ordering::Relaxed) {
        let port = u16::try_from(port).unwrap_or(0);
        let found = port != 0 && learn(from_pm_timer(port)) || learn(cpuid(0x16, 0).eax as u64 * 1_000_000);
        if found {
            set_timer_rate();
        }
    }
    KNOWN.load(Ordering::Relaxed)
}

/// Leaf 0x15: crystal frequency and ratio (SDM 18.7.3); leaf 0x40000010: kHz, VMware's convention.
fn from_cpuid() -> u64 {
    let ratio = cpuid(0x15, 0);
    if ratio.eax != 0 && ratio.ebx != 0 && ratio.ecx != 0 {
        return (ratio.ecx as u128 * ratio.ebx as u128 / ratio.eax as u128) as u64;
    }
    cpuid(0x4000_0010, 0).eax as u64 * 1000
}

fn is_known_hypervisor() -> bool {
    let id = cpuid(0x4000_0000, 0);
    let name = [id.ebx, id.ecx, id.edx].map(u32::to_le_bytes);
    let name = name.as_flattened();
    name == b"TCGTCGTCGTCG" || name == b"KVMKVMKVM\0\0\0"
}

/// A reading of another clock with the counter at that moment: the tightest of some, for a vCPU may lose the processor
/// between the two.
fn together(read: &dyn Fn() -> u32) -> (u64, u32) {
    let mut best = (u64::MAX, 0, 0);
    for _ in 0..8 {
        let before = counter();
        let value = read();
        let gap = counter().wrapping_sub(before);
        if gap < best.0 {
            best = (gap, before.wrapping_add(gap / 2), value);
        }
    }
    (best.1, best.2)
}

/// Counter ticks and the other clock's ticks over at least `least` of those.
fn compare(read: &dyn Fn() -> u32, mask: u32, least: u32) -> (u64, u32) {
    let (start, first) = together(read);
    let passed = |now: u32| now.wrapping_sub(first) & mask;
    // Bounded, in case the other clock stands still.
    for _ in 0..100_000_000u32 {
        if passed(read()) >= least {
            break;
        }
        core::hint::spin_loop();
    }
    let (end, last) = together(read);
    (end.wrapping_sub(start), passed(last))
}

fn rate(ticks: u64, others: u32, others_hz: u64) -> u64 {
    (ticks as u128 * others_hz as u128 / others.max(1) as u128).min(u64::MAX as u128) as u64
}

fn from_apic() -> u64 {
    let least = (VIRTUAL_APIC_HZ * COMPARE_APIC_US / 1_000_000) as u32;
    let (ticks, others) = apic::stopwatch(|read| compare(read, u32::MAX, least));
    rate(ticks, others, VIRTUAL_APIC_HZ)
}

/// The APIC timer's own rate, against the counter.
fn apic_hz() -> u64 {
    let (ticks, others) = apic::stopwatch(|read| {
        let start = together(read);
        let end = hz() * COMPARE_APIC_US / 1_000_000;
        while counter().wrapping_sub(start.0) < end {
            core::hint::spin_loop();
        }
        let stop = together(read);
        (stop.0.wrapping_sub(start.0), stop.1.wrapping_sub(start.1))
    });
    rate(others as u64, u32::try_from(ticks).unwrap_or(u32::MAX), hz())
}

/// Channel 2 counts down once, its output shows in port 0x61.
fn from_pit() -> u64 {
    let count = (PIT_HZ * COMPARE_US / 1_000_000) as u16;
    let (mut gate, mut mode, mut data) =
        (Port::<u8>::new(0x61), Port::<u8>::new(0x43), Port::<u8>::new(0x42));
    // SAFETY: channel 2 drives the speaker only, which stays off.
    let (ticks, looks) = unsafe {
        let old = gate.read();
        gate.write(old & !2 | 1);
        mode.write(0b1011_0000u8);
        data.write(count as u8);
        data.write((count >> 8) as u8);
        let start = counter();
        let looks = (0..10_000_000u32).take_while(|_| gate.read() & 1 << 5 == 0).count();
        let ticks = counter().wrapping_sub(start);
        gate.write(old);
        (ticks, looks)
    };
    // Where there is no PIT the port answers at once, or never.
    if (50..10_000_000).contains(&looks) { rate(ticks, count as u32, PIT_HZ) } else { 0 }
}

fn from_pm_timer(port: u16) -> u64 {
    // SAFETY: reading the PM timer has no effect.
    let read = || unsafe { Port::<u32>::new(port).read() } & PM_TIMER_MASK;
    let (ticks, others) = compare(&read, PM_TIMER_MASK, (PM_TIMER_HZ * COMPARE_US / 1_000_000) as u32);
    rate(ticks, others, PM_TIMER_HZ)
}
