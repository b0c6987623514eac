//! [`Machine`] for aarch64: what the other modules do, under the kernel's names.

use core::arch::asm;
use core::cell::UnsafeCell;
use core::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Acquire, Relaxed},
};

use aarch64_cpu::asm::barrier;
use aarch64_cpu::registers::{ID_AA64ISAR0_EL1, Readable, TPIDR_EL1, TTBR0_EL1, Writeable};
use ipc::abi::{MsiMessage, PAGE, PlatformDesc};

use super::context::{self, Context, CoreState};
use super::cpu::{self, Features};
use super::mmio::Window;
use super::{Aarch64, cache, gic, identity, interrupts, keys, psci, simd, start, timer, uart};
use crate::arch::{BootFacts, DeviceWindow, Machine};

/// What the boot core finds out before it starts the others.
struct Found {
    features: Features,
    /// The GIC's memory.
    private: gic::Memory,
    /// Physical ranges of the kernel's devices: start, length.
    protected: [(u64, u64); 5],
}

struct Once(UnsafeCell<Option<Found>>);

// SAFETY: written by the boot core in `init_boot`, before the other cores start, and in `platform`, in the boot phase,
// when no other core looks at what it writes (`protected`).
unsafe impl Sync for Once {}

static FOUND: Once = Once(UnsafeCell::new(None));

/// Kernel address of the UART in the device window; 0: not mapped there.
static UART: AtomicUsize = AtomicUsize::new(0);

fn found() -> &'static Found {
    // SAFETY: see `Once`.
    match unsafe { &*FOUND.0.get() } {
        Some(found) => found,
        None => panic!("init_boot comes first"),
    }
}

fn uart_window() -> Option<Window> {
    if !start::entered() {
        return identity::uart();
    }
    match UART.load(Relaxed) {
        0 => None,
        // SAFETY: mapped by `init_boot` or `platform` for good.
        base => Some(unsafe { Window::new(base) }),
    }
}

/// Nothing more to do on this core.
fn halt() -> ! {
    loop {
        // SAFETY: waits.
        unsafe { asm!("msr daifset, #0xf", "wfi", options(nomem, nostack)) }
    }
}

/// What no task may map: the interrupt controller. The UART is not among it, it becomes the console's.
fn protect(desc: &PlatformDesc) -> [(u64, u64); 5] {
    let v3 = desc.gic_version == 3;
    let distributor = if v3 { gic::V3_DISTRIBUTOR_BYTES } else { gic::V2_DISTRIBUTOR_BYTES };
    [
        (desc.gicd, distributor),
        (desc.gicc, gic::V2_INTERFACE_BYTES),
        (desc.gicr, desc.gicr_len),
        (desc.its, gic::ITS_BYTES),
        (desc.v2m, gic::V2M_BYTES),
    ]
}

// SAFETY: the promises are kept by the modules named in each function, which say how.
unsafe impl Machine for Aarch64 {
    type Context = Context;
    type CoreState = CoreState;

    fn early_console(bytes: &[u8]) {
        if let Some(uart) = uart_window() {
            uart::write(uart, bytes);
        }
    }

    fn reboot() -> ! {
        psci::call(psci::SYSTEM_RESET);
        halt()
    }

    fn power_off() -> ! {
        psci::call(psci::SYSTEM_OFF);
        halt()
    }

    fn private_pages(cores: usize, _irqs: usize) -> usize {
        gic::Memory::bytes(cores).div_ceil(PAGE)
    }

    fn init_boot(facts: &BootFacts, window: &mut dyn DeviceWindow) {
        start::init_boot(facts.kernel_root, facts.empty_root);
        interrupts::init_boot(facts.cores);
        // SAFETY: `BootFacts` gives us this memory, zeroed and aligned.
        let private = unsafe { gic::Memory::new(facts.private_phys, facts.physical_offset) };
        let found = Found { features: Features::read(), private, protected: [(0, 0); 5] };
        // SAFETY: see `Once`.
        unsafe { *FOUND.0.get() = Some(found) };
        if let Some(base) = window.map(uart::DEFAULT, uart::BYTES) {
            UART.store(base as usize, Relaxed);
        }
    }

    unsafe fn init_core(state: *mut CoreState, index: usize, stack_top: u64) {
        // SAFETY: the caller's promise.
        unsafe {
            (*state).index = index;
            (*state).stack_top = stack_top;
        }
        TPIDR_EL1.set(state as u64);
        context::init_core();
        found().features.init_core();
        interrupts::init_core(index);
    }

    unsafe fn enter_kernel(main: extern "C" fn(usize) -> !, argument: usize) -> ! {
        // SAFETY: `init_core` set the state; the rest is the caller's promise.
        unsafe { start::enter_kernel(&found().features, (*context::core()).stack_top, main, argument) }
    }

    fn platform(desc: &PlatformDesc, window: &mut dyn DeviceWindow) -> Result<(), &'static str> {
        interrupts::platform(desc, found().private, window)?;
        // SAFETY: see `Once`.
        if let Some(found) = unsafe { &mut *FOUND.0.get() } {
            found.protected = protect(desc);
        }
        if desc.uart != 0 && desc.uart != uart::DEFAULT {
            let base = window.map(desc.uart, uart::BYTES).ok_or("no room to map the UART")?;
            // SAFETY: just mapped as device memory, for good.
            uart::init(unsafe { Window::new(base as usize) });
            UART.store(base as usize, Relaxed);
        }
        Ok(())
    }

    fn is_protected(phys: u64, len: u64) -> bool {
        let end = phys.saturating_add(len);
        found().protected.iter().any(|&(start, bytes)| {
            start != 0 && bytes != 0 && phys < start.saturating_add(bytes) && start < end
        })
    }

    /// An event sent after the look at the flag is remembered: WFE returns at once then (Arm ARM, "Wait For Event").
    fn seal_await(flag: &AtomicBool) {
        while !flag.load(Acquire) {
            // SAFETY: waits.
            unsafe { asm!("wfe", options(nostack, preserves_flags)) };
        }
    }

    fn seal_announce(_cores: usize) {
        // The flag must be visible before the event: DSB, then SEV.
        barrier::dsb(barrier::ISHST);
        // SAFETY: wakes cores that wait for an event.
        unsafe { asm!("sev", options(nostack, preserves_flags)) };
    }

    fn sealed() {
        cache::flush_tlb();
        interrupts::start_core();
    }

    fn entropy(into: &mut [u8]) -> usize {
        keys::hardware_random(into)
    }

    /// The low half of ID_AA64ISAR0_EL1: AES, SHA1, SHA2, CRC32, atomics.
    fn isa() -> u32 {
        ID_AA64ISAR0_EL1.get() as u32
    }

    fn counter() -> u64 {
        timer::now()
    }

    fn counter_hz() -> u64 {
        timer::hz()
    }

    fn timer_set(deadline: u64) {
        interrupts::timer_set(deadline);
    }

    fn irq_bind(irq: usize, core: usize, requester_id: u32) -> Result<MsiMessage, &'static str> {
        interrupts::bind(irq, core, requester_id)
    }

    // Messages are edges, and one more of them sets a bit that is set already: masking would only cost two accesses to
    // the controller (or, with an ITS, a command that the cores must take turns at).
    fn irq_mask(_irq: usize) {}
    fn irq_unmask(_irq: usize) {}

    fn ipi(core: usize) {
        interrupts::ipi(core);
    }

    /// TTBR0: the root, and the address-space number in bits 63 to 48.
    fn space_token(root: u64, id: u16) -> u64 {
        root | (id as u64) << 48
    }

    /// Root and number change in one write, so there is no moment at which one task's translations are filed under
    /// another's number (Arm ARM, "Use of ASIDs"). The kernel's half isn't touched, and the exception return
    /// synchronises the context before any instruction of the task.
    unsafe fn switch_space(token: u64) {
        TTBR0_EL1.set(token);
    }

    fn flush_all() {
        cache::flush_tlb();
    }

    /// An entry that was invalid isn't cached in a TLB, so it needs no invalidation: DSB makes the store visible to the
    /// walks, ISB discards what was fetched ahead (Arm ARM, "Ordering of memory accesses from translation table walks").
    fn entries_written() {
        barrier::dsb(barrier::ISHST);
        barrier::isb(barrier::SY);
    }

    unsafe fn code_written(at: *const u8, len: usize) {
        cache::code_written(at, len);
    }

    fn simd_bytes() -> usize {
        simd::BYTES
    }

    unsafe fn simd_reset(area: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { core::ptr::write_bytes(area, 0, simd::BYTES) }
    }

    unsafe fn simd_save(area: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { simd::save(area) }
    }

    unsafe fn simd_restore(area: *const u8) {
        // SAFETY: the caller's promise.
        unsafe { simd::restore(area) }
    }

    fn simd_allow(allow: bool) {
        cpu::simd_allow(allow);
    }

    fn com1_allow(_allow: bool) {}

    unsafe fn resume(context: *mut Context) -> ! {
        // SAFETY: the caller's promise.
        unsafe { context::resume(context, found().features.pointer_auth) }
    }

    fn idle() -> ! {
        // SAFETY: the core's own stack, of which nothing is needed any more; `idle` doesn't return.
        unsafe {
            asm!(
                "mov sp, {}",
                "mov x29, xzr",
                "mov x30, xzr",
                "b {}",
                in(reg) (*context::core()).stack_top,
                sym idle,
                options(noreturn),
            )
        }
    }

    fn core() -> *mut CoreState {
        context::core()
    }

    unsafe fn zero_pages(at: *mut u8, len: usize) {
        // SAFETY: the caller's promise; `dc zva` is on for EL1 unless DCZID_EL0.DZP says otherwise.
        unsafe { cache::zero(at, len) }
    }
}

extern "C" fn idle() -> ! {
    interrupts::idle()
}
