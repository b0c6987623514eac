//! The three ways into the kernel. None returns; each ends in `Core::dispatch`.

use core::sync::atomic::Ordering;

use ipc::trace::Kind;

use super::core::Core;
use super::{call, control};
use crate::arch::{Arch, Fault, Interrupt, Machine};

type State = *mut <Arch as Machine>::CoreState;

/// A system call of the running task.
///
/// # Safety
/// See [`Core::enter`]; the same for the next two.
pub unsafe extern "C" fn on_call(state: State) -> ! {
    // SAFETY: the caller is entry code.
    let core = unsafe { Core::enter(state) };
    call::handle(core);
    core.dispatch()
}

/// A fault of the running task.
///
/// # Safety
/// See `on_call`.
pub unsafe fn on_fault(state: State, fault: Fault) -> ! {
    // SAFETY: the caller is entry code.
    let core = unsafe { Core::enter(state) };
    let Some(slot) = core.current else { panic!("fault without a task: {fault:?}") };
    control::fault(core, slot, fault.kind, fault.address, &[]);
    core.dispatch()
}

/// An interrupt of a task or of the idle core.
///
/// # Safety
/// See `on_call`.
pub unsafe fn on_interrupt(state: State, interrupt: Interrupt) -> ! {
    // SAFETY: the caller is entry code.
    let core = unsafe { Core::enter(state) };
    match interrupt {
        Interrupt::Timer => core.tick(),
        Interrupt::Ipi => core.look_around(),
        Interrupt::Device(irq) => device(core, irq),
        Interrupt::Spurious => (),
    }
    core.dispatch()
}

/// Turns an interrupt into its signal. It stays masked until the task acknowledges it.
fn device(core: &mut Core, irq: usize) {
    let kernel = core.kernel;
    let (Some(line), Some(row)) = (kernel.irqs.get(irq), kernel.system.irqs.get(irq)) else { return };
    if core.kernel.tracing.load(Ordering::Relaxed) {
        core.record(Kind::Irq, irq as u64, 0);
    }
    // Relaxed: only this core touches the line.
    if line.masked.swap(true, Ordering::Relaxed) {
        line.pending.store(true, Ordering::Relaxed);
        return;
    }
    Arch::irq_mask(irq);
    core.signal(&kernel.tasks[row.task as usize], 1 << row.bit);
}
