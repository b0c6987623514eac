//! The local APIC (SDM chapter 10): timer, interrupts between cores, message-signalled interrupts. x2APIC where the
//! processor has it, else the memory-mapped one.
//!
//! *Order of the end of interrupt:* all our interrupts are edge-triggered, and the kernel runs with interrupts off, so the
//! EOI is written at once: the same vector can be latched again (10.8.5: IRR) and is taken when user mode or idle
//! enables interrupts. Nothing is lost, nothing nests.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

use ipc::abi::{MAX_CORES, MsiMessage};

use super::cpu::{cpuid, read_msr, write_msr};
use super::tsc;
use crate::arch::{DeviceWindow, Interrupt};

/// Where the memory-mapped registers lie, and what no task may map: all local APICs and the I/O APICs' usual page.
const BASE: u64 = 0xfee0_0000;
const PROTECTED: [(u64, u64); 2] = [(BASE, 1 << 20), (0xfec0_0000, 1 << 20)];

const APIC_BASE_MSR: u32 = 0x1b;
const ENABLE: u64 = 1 << 11;
const ENABLE_X2: u64 = 1 << 10;
const X2_MSRS: u32 = 0x800;
const TSC_DEADLINE_MSR: u32 = 0x6e0;

const ID: u32 = 0x20;
const TASK_PRIORITY: u32 = 0x80;
const EOI: u32 = 0xb0;
const SPURIOUS: u32 = 0xf0;
const COMMAND_LOW: u32 = 0x300;
const COMMAND_HIGH: u32 = 0x310;
const TIMER: u32 = 0x320;
const LINT0: u32 = 0x350;
const LINT1: u32 = 0x360;
const ERROR: u32 = 0x370;
const INITIAL_COUNT: u32 = 0x380;
const CURRENT_COUNT: u32 = 0x390;
const DIVIDE: u32 = 0x3e0;

const MASKED: u32 = 1 << 16;
const TIMER_DEADLINE: u32 = 2 << 17;
const SOFTWARE_ENABLE: u32 = 1 << 8;
const DIVIDE_BY_1: u32 = 0b1011;
const DELIVERY_PENDING: u32 = 1 << 12;

/// Vectors: those of devices follow the manifest's numbers.
const FIRST_DEVICE: u8 = 0x30;
const LAST_DEVICE: u8 = 0xef;
const TIMER_VECTOR: u8 = 0xf0;
const IPI_VECTOR: u8 = 0xf1;
const SPURIOUS_VECTOR: u8 = 0xff;

/// Written once by the boot core, before the others start.
static X2: AtomicBool = AtomicBool::new(false);
static DEADLINE: AtomicBool = AtomicBool::new(false);
static REGISTERS: AtomicPtr<u32> = AtomicPtr::new(core::ptr::null_mut());
/// Timer ticks in 2^32 counter ticks.
static TICKS: AtomicU64 = AtomicU64::new(0);
/// APIC identifiers of the cores; each writes its own before it is online.
static IDS: [AtomicU32; MAX_CORES] = [const { AtomicU32::new(0) }; MAX_CORES];

/// Once, on the boot core.
pub fn choose(window: &mut dyn DeviceWindow) {
    let features = cpuid(1, 0).ecx;
    DEADLINE.store(features >> 24 & 1 == 1, Ordering::Relaxed);
    if features >> 21 & 1 == 1 {
        X2.store(true, Ordering::Relaxed);
    } else if let Some(at) = window.map(BASE, 4096) {
        REGISTERS.store(at.cast(), Ordering::Relaxed);
    }
}

fn read(register: u32) -> u32 {
    if X2.load(Ordering::Relaxed) {
        // SAFETY: x2APIC is on; the register exists in it.
        return unsafe { read_msr(X2_MSRS + (register >> 4)) } as u32;
    }
    // SAFETY: `choose` mapped the page of registers.
    unsafe { REGISTERS.load(Ordering::Relaxed).byte_add(register as usize).read_volatile() }
}

fn write(register: u32, value: u32) {
    if X2.load(Ordering::Relaxed) {
        // SAFETY: x2APIC is on; the register exists in it, and the kernel's vectors have handlers.
        return unsafe { write_msr(X2_MSRS + (register >> 4), value as u64) };
    }
    // SAFETY: as in `read`.
    unsafe { REGISTERS.load(Ordering::Relaxed).byte_add(register as usize).write_volatile(value) }
}

/// Turns the core's APIC on, everything masked but what the kernel uses. On the kernel's page tables.
pub fn init_core(index: usize) {
    // SAFETY: the APIC is set to its usual place and on; x2APIC from xAPIC is a legal step (10.12.5).
    unsafe {
        let base = read_msr(APIC_BASE_MSR) & 0xfff | BASE | ENABLE;
        write_msr(APIC_BASE_MSR, base);
        if X2.load(Ordering::Relaxed) {
            write_msr(APIC_BASE_MSR, base | ENABLE_X2);
        }
    }
    let id = read(ID);
    IDS[index].store(if X2.load(Ordering::Relaxed) { id } else { id >> 24 }, Ordering::Relaxed);
    write(TASK_PRIORITY, 0);
    [LINT0, LINT1, ERROR].into_iter().for_each(|lvt| write(lvt, MASKED));
    write(SPURIOUS, SOFTWARE_ENABLE | SPURIOUS_VECTOR as u32);
    write(DIVIDE, DIVIDE_BY_1);
    let deadline = if DEADLINE.load(Ordering::Relaxed) { TIMER_DEADLINE } else { 0 };
    write(TIMER, deadline | TIMER_VECTOR as u32);
    // The mode is written to memory, the deadline to an MSR: keep them in order (10.5.4.1).
    fence(Ordering::SeqCst);
}

/// Runs the timer as a stop-watch (masked) and returns `during`'s result with the ticks that it took.
pub fn stopwatch<T>(during: impl FnOnce(&dyn Fn() -> u32) -> T) -> T {
    write(TIMER, MASKED | TIMER_VECTOR as u32);
    write(INITIAL_COUNT, u32::MAX);
    let result = during(&|| u32::MAX - read(CURRENT_COUNT));
    write(INITIAL_COUNT, 0);
    let deadline = if DEADLINE.load(Ordering::Relaxed) { TIMER_DEADLINE } else { 0 };
    write(TIMER, deadline | TIMER_VECTOR as u32);
    fence(Ordering::SeqCst);
    result
}

/// The timer's rate against the counter's.
pub fn set_rate(timer_hz: u64, counter_hz: u64) {
    let ticks = ((timer_hz as u128) << 32) / counter_hz.max(1) as u128;
    TICKS.store(ticks as u64, Ordering::Relaxed);
}

/// The timer has no mode that compares with the counter.
pub fn needs_rate() -> bool {
    !DEADLINE.load(Ordering::Relaxed)
}

pub fn timer_set(deadline: u64) {
    if DEADLINE.load(Ordering::Relaxed) {
        // 0 would disarm; a deadline in the past fires at once (10.5.4.1).
        // SAFETY: the MSR exists where the mode does; its interrupt has a handler.
        return unsafe { write_msr(TSC_DEADLINE_MSR, deadline.max(1)) };
    }
    let left = deadline.saturating_sub(tsc::counter());
    let count = ((left as u128 * TICKS.load(Ordering::Relaxed) as u128) >> 32) + 1;
    // A deadline beyond the timer's range comes early, and the kernel sets it again.
    write(INITIAL_COUNT, count.min(u32::MAX as u128) as u32);
}

pub fn ipi(core: usize) {
    let id = IDS[core % MAX_CORES].load(Ordering::Relaxed);
    // The write that follows may be weakly ordered (x2APIC, 10.12.3): earlier stores must be visible when the other core
    // takes the interrupt. MFENCE; LFENCE is what the manual asks for.
    // SAFETY: fences touch nothing.
    unsafe { core::arch::asm!("mfence", "lfence", options(nostack, preserves_flags)) };
    if X2.load(Ordering::Relaxed) {
        // SAFETY: a fixed interrupt with a handler, to a core of ours.
        return unsafe { write_msr(X2_MSRS + (COMMAND_LOW >> 4), (id as u64) << 32 | IPI_VECTOR as u64) };
    }
    while read(COMMAND_LOW) & DELIVERY_PENDING != 0 {
        core::hint::spin_loop();
    }
    write(COMMAND_HIGH, id << 24);
    write(COMMAND_LOW, IPI_VECTOR as u32);
}

/// The message that raises interrupt `irq` at `core` (10.11): fixed, edge, physical destination.
pub fn message(irq: usize, core: usize) -> Result<MsiMessage, &'static str> {
    let id = IDS[core % MAX_CORES].load(Ordering::Relaxed);
    if id > 0xff {
        return Err("the core's APIC identifier is too large for a message");
    }
    let vector =
        u8::try_from(irq).ok().and_then(|i| FIRST_DEVICE.checked_add(i)).filter(|&v| v <= LAST_DEVICE);
    let data = vector.ok_or("too many interrupts")? as u32;
    Ok(MsiMessage { address: BASE | (id as u64) << 12, data, reserved: 0 })
}

/// Takes an interrupt: tells the APIC that it is over, and says what it was.
pub fn take(vector: u8) -> Interrupt {
    let what = match vector {
        TIMER_VECTOR => Interrupt::Timer,
        IPI_VECTOR => Interrupt::Ipi,
        FIRST_DEVICE..=LAST_DEVICE => Interrupt::Device((vector - FIRST_DEVICE) as usize),
        // A spurious one has no EOI (10.9); others can't come, for the old controller is masked.
        _ => return Interrupt::Spurious,
    };
    write(EOI, 0);
    what
}

pub fn is_protected(phys: u64, len: u64) -> bool {
    PROTECTED.iter().any(|&(base, size)| phys < base + size && base < phys.saturating_add(len))
}
