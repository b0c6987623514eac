//! [`Machine`] for x86_64.

use core::arch::asm;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ipc::abi::{MsiMessage, PlatformDesc};
use x86_64::instructions::port::Port;
use x86_64::registers::control::{Cr0, Cr0Flags};

use super::context::Context;
use super::descriptors::{self, CoreState, GS_BASE};
use super::{X86, apic, cpu, entry, power, serial, simd, tsc};
use crate::arch::{BootFacts, DeviceWindow, Machine};
use crate::kernel;

/// Keeps the TLB's entries of the new PCID (SDM 4.10.4.1). Right, because an address space's tables don't change after
/// `Seal`, and before it the kernel flushes everything after a change.
const NO_FLUSH: u64 = 1 << 63;

/// Set by `init_boot`.
static KERNEL_ROOT: AtomicU64 = AtomicU64::new(0);

/// The core's own state, in kernel mode after `init_core`.
fn state() -> &'static mut CoreState {
    let this: *mut CoreState;
    // SAFETY: `gs` points to the state, whose first word is its own address. The kernel runs once a core, and no caller keeps
    // the reference.
    unsafe {
        asm!("mov {}, gs:[0]", out(reg) this, options(nostack, preserves_flags, readonly));
        &mut *this
    }
}

/// First code on a core's own stack and the kernel's tables.
extern "C" fn entered(main: extern "C" fn(usize) -> !, argument: usize) -> ! {
    cpu::enable_pcid();
    let index = state().index;
    apic::init_core(index);
    if index == 0 {
        tsc::calibrate();
    }
    main(argument)
}

// SAFETY: see the modules; entry and return are in `entry`, address spaces here.
unsafe impl Machine for X86 {
    type Context = Context;
    type CoreState = CoreState;

    fn early_console(bytes: &[u8]) {
        serial::write(bytes);
    }

    fn reboot() -> ! {
        power::reboot()
    }

    fn power_off() -> ! {
        power::power_off()
    }

    fn private_pages(_cores: usize, _irqs: usize) -> usize {
        0
    }

    fn init_boot(facts: &BootFacts, window: &mut dyn DeviceWindow) {
        KERNEL_ROOT.store(facts.kernel_root, Ordering::Relaxed);
        serial::init();
        // The old interrupt controllers: everything masked.
        // SAFETY: the mask registers of the 8259s.
        unsafe {
            Port::new(0x21).write(0xffu8);
            Port::new(0xa1).write(0xffu8);
        }
        cpu::choose();
        cpu::setup();
        simd::choose();
        simd::setup();
        apic::choose(window);
        descriptors::build_idt();
    }

    unsafe fn init_core(core: *mut CoreState, index: usize, stack_top: u64) {
        cpu::setup();
        simd::setup();
        // SAFETY: the caller's promise; `init_boot` built the IDT.
        unsafe { CoreState::load(core, index, stack_top) };
    }

    unsafe fn enter_kernel(main: extern "C" fn(usize) -> !, argument: usize) -> ! {
        let root = KERNEL_ROOT.load(Ordering::Relaxed);
        // SAFETY: the new tables map this code where it is, and the new stack.
        unsafe {
            asm!(
                "mov cr3, {root}",
                "mov rsp, gs:[8]",
                "xor ebp, ebp",
                "call {entered}",
                root = in(reg) root,
                entered = sym entered,
                in("rdi") main,
                in("rsi") argument,
                options(noreturn)
            )
        }
    }

    fn platform(desc: &PlatformDesc, window: &mut dyn DeviceWindow) -> Result<(), &'static str> {
        power::platform(desc, window)?;
        if tsc::refine(desc.pm_timer_port) { Ok(()) } else { Err("no clock tells the counter's frequency") }
    }

    fn is_protected(phys: u64, len: u64) -> bool {
        apic::is_protected(phys, len)
    }

    /// The other cores take the IPI of `seal_announce` in `idle`.
    fn seal_await(flag: &AtomicBool) {
        if !flag.load(Ordering::Acquire) {
            Self::idle()
        }
    }

    fn seal_announce(cores: usize) {
        (1..cores).for_each(apic::ipi);
    }

    fn sealed() {
        cpu::flush_all();
    }

    fn counter() -> u64 {
        tsc::counter()
    }

    fn counter_hz() -> u64 {
        tsc::hz()
    }

    fn timer_set(deadline: u64) {
        apic::timer_set(deadline);
    }

    fn irq_bind(irq: usize, core: usize, _requester_id: u32) -> Result<MsiMessage, &'static str> {
        apic::message(irq, core)
    }

    /// A local APIC can't mask one message: the kernel coalesces in software (`kernel::entry`), and each message costs
    /// one short entry.
    fn irq_mask(_irq: usize) {}

    fn irq_unmask(_irq: usize) {}

    fn ipi(core: usize) {
        apic::ipi(core);
    }

    fn space_token(root: u64, id: u16) -> u64 {
        if cpu::has_pcid() { root | id as u64 | NO_FLUSH } else { root }
    }

    unsafe fn switch_space(token: u64) {
        // SAFETY: the caller's promise. Bit 63 is set only with PCIDs on.
        unsafe { asm!("mov cr3, {}", in(reg) token, options(nostack, preserves_flags)) }
    }

    fn flush_all() {
        cpu::flush_all();
    }

    /// An entry that was not present is in no TLB (SDM 4.10.4.3), and a core sees its own stores.
    fn entries_written() {}

    fn simd_bytes() -> usize {
        simd::bytes()
    }

    unsafe fn simd_reset(area: *mut u8) {
        // SAFETY: the caller's promise; the same for the next two.
        unsafe { simd::reset(area) }
    }

    #[inline(always)]
    unsafe fn simd_save(area: *mut u8) {
        // SAFETY: see `simd_reset`. The registers are readable: only an owner is saved, and TS is clear while the kernel
        // handles SIMD state.
        unsafe {
            Self::simd_allow(true);
            simd::save(area)
        }
    }

    unsafe fn simd_restore(area: *const u8) {
        // SAFETY: see `simd_reset`.
        unsafe { simd::restore(area) }
    }

    fn simd_allow(allow: bool) {
        let state = state();
        if state.simd_allowed != allow {
            state.simd_allowed = allow;
            // SAFETY: CR0.TS makes SIMD instructions fault (#NM) and changes nothing else.
            unsafe { Cr0::update(|cr0| cr0.set(Cr0Flags::TASK_SWITCHED, !allow)) };
        }
    }

    fn com1_allow(allow: bool) {
        state().allow_com1(allow);
    }

    #[inline(always)]
    unsafe fn resume(context: *mut Context) -> ! {
        state().set_context(context);
        // SAFETY: the caller's promise.
        unsafe { entry::resume(context) }
    }

    fn idle() -> ! {
        entry::idle()
    }

    fn core() -> *mut CoreState {
        // SAFETY: the register exists. In kernel mode it holds the per-core pointer.
        unsafe { cpu::read_msr(GS_BASE) as *mut CoreState }
    }
}

const _: () = assert!(core::mem::offset_of!(kernel::core::Core, state) == 0);
