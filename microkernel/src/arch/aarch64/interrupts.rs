//! Interrupts of a core, before and after there is an interrupt controller.
//!
//! The controller is known only when discovery has reported it (`platform`, in the boot phase), and each core starts its
//! part of it when the boot phase ends (`sealed`). Until then the boot core's only "interrupt" is its deadline, which `idle`
//! looks at: in the boot phase nothing runs but the supervisor, and it waits for nothing else.

use core::arch::asm;
use core::cell::UnsafeCell;
use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};

use aarch64_cpu::asm::barrier;
use aarch64_cpu::registers::{CNTP_CTL_EL0, Writeable};
use ipc::abi::{MAX_CORES, MsiMessage, PlatformDesc};

use super::context::{self, Context, IRQ_MASKED};
use super::gic::{self, Gic};
use super::{psci, timer};
use crate::arch::{DeviceWindow, Interrupt};
use crate::kernel::entry;

/// The one interrupt controller.
struct Controller(UnsafeCell<Option<Gic>>);

// SAFETY: written by the boot core in the boot phase only (`platform`, `bind`), when no other core looks (they do from
// `start_core` on, which comes after); shared and unchanged from then on but for atomics.
unsafe impl Sync for Controller {}

static CONTROLLER: Controller = Controller(UnsafeCell::new(None));

/// A core was called while it didn't take interrupts yet, and calls itself when it does. SeqCst with `STARTED`: of "ring the doorbell, look whether
/// started" and "mark as started, look at the doorbell" one sees the other.
static DOORBELL: [AtomicBool; MAX_CORES] = [const { AtomicBool::new(false) }; MAX_CORES];
/// The core's part of the controller is on.
static STARTED: [AtomicBool; MAX_CORES] = [const { AtomicBool::new(false) }; MAX_CORES];

/// Affinity of each core. Relaxed: stored by itself in `init_core`, read by the boot core after it saw the core online.
static AFFINITY: [AtomicU32; MAX_CORES] = [const { AtomicU32::new(0) }; MAX_CORES];
/// Cores that will run; set once by the boot core.
static CORES: AtomicUsize = AtomicUsize::new(1);

pub fn init_boot(cores: usize) {
    CORES.store(cores.clamp(1, MAX_CORES), Relaxed);
}

/// Notes which core this is, and turns its timers off: firmware may have left them on.
pub fn init_core(index: usize) {
    AFFINITY[index].store(gic::own_affinity(), Relaxed);
    CNTP_CTL_EL0.set(0);
    timer::init_core();
}

fn controller() -> Option<&'static Gic> {
    // SAFETY: see `Controller`.
    unsafe { (*CONTROLLER.0.get()).as_ref() }
}

/// Sets the controller up. Boot core, boot phase.
pub fn platform(
    desc: &PlatformDesc,
    memory: gic::Memory,
    window: &mut dyn DeviceWindow,
) -> Result<(), &'static str> {
    if controller().is_some() {
        return Err("the platform was described already");
    }
    psci::set_conduit(desc.psci_conduit)?;
    let gic = Gic::new(desc, &AFFINITY[..CORES.load(Relaxed)], memory, window)?;
    // SAFETY: see `Controller`: the boot phase, and nobody holds a reference (there was nothing to refer to).
    unsafe { *CONTROLLER.0.get() = Some(gic) };
    Ok(())
}

/// Boot core, boot phase.
pub fn bind(irq: usize, core: usize, requester: u32) -> Result<MsiMessage, &'static str> {
    // SAFETY: see `Controller`: the boot phase, and `controller()` hands out no reference that outlives a call.
    match unsafe { (*CONTROLLER.0.get()).as_mut() } {
        Some(gic) => gic.bind(irq, core, requester),
        None => Err("no interrupt controller was described"),
    }
}

/// Starts the calling core's part of the controller, and what it was asked before.
pub fn start_core() {
    // SAFETY: the core's own state.
    let state = unsafe { &mut *context::core() };
    let Some(gic) = controller() else { panic!("the boot phase ended without an interrupt controller") };
    gic.start_core(state.index);
    timer::set(state.deadline);
    if !state.quieted.is_null() {
        // SAFETY: a context of this core; the supervisor's, which is in the kernel.
        unsafe { (*state.quieted).pstate &= !IRQ_MASKED };
        state.quieted = core::ptr::null_mut();
    }
    STARTED[state.index].store(true, SeqCst);
    if DOORBELL[state.index].load(SeqCst) {
        gic.send_ipi(state.index);
    }
}

/// Whether the calling core takes real interrupts.
fn started() -> bool {
    // SAFETY: the core's own state.
    STARTED[unsafe { (*context::core()).index }].load(Relaxed)
}

pub fn timer_set(deadline: u64) {
    if started() {
        timer::set(deadline);
    } else {
        // SAFETY: the core's own state.
        unsafe { (*context::core()).deadline = deadline };
    }
}

pub fn ipi(core: usize) {
    if STARTED[core].load(SeqCst)
        && let Some(gic) = controller()
    {
        gic.send_ipi(core);
        return;
    }
    DOORBELL[core].store(true, SeqCst);
    if STARTED[core].load(SeqCst)
        && let Some(gic) = controller()
    {
        gic.send_ipi(core);
    }
}

fn deliver(interrupt: Interrupt) -> ! {
    // SAFETY: at the end of an entry, or in `idle`: nothing of the kernel is in use on this core.
    unsafe { entry::on_interrupt(context::core(), interrupt) }
}

/// An interrupt while a task ran.
pub fn from_task(context: *mut Context) -> ! {
    if started()
        && let Some(gic) = controller()
    {
        deliver(gic.take())
    }
    // Something that the firmware left pending, before we can talk to the controller: not now.
    // SAFETY: the context that was just saved, of this core.
    unsafe {
        (*context).pstate |= IRQ_MASKED;
        (*context::core()).quieted = context;
    }
    deliver(Interrupt::Spurious)
}

/// Waits for one interrupt and hands it over. Interrupts stay masked: a pending one ends WFI all the same (Arm ARM,
/// "Wait For Interrupt": "regardless of the value of the PSTATE.{A, I, F} masks"), and is acknowledged here instead of
/// by way of a vector. One that becomes pending before WFI makes it return at once, so none is slept through.
pub fn idle() -> ! {
    if !started() {
        idle_before_start()
    }
    let Some(gic) = controller() else { unreachable!() };
    loop {
        // Stores of ours reach others before we sleep.
        barrier::dsb(barrier::SY);
        // SAFETY: waits.
        unsafe { asm!("wfi", options(nostack, preserves_flags)) };
        match gic.take() {
            Interrupt::Spurious => {}
            interrupt => deliver(interrupt),
        }
    }
}

/// Watches the clock; it takes milliseconds at most.
fn idle_before_start() -> ! {
    // SAFETY: the core's own state.
    let state = unsafe { &mut *context::core() };
    loop {
        if timer::now() >= state.deadline {
            state.deadline = ipc::abi::NEVER;
            deliver(Interrupt::Timer)
        }
    }
}
