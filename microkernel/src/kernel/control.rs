//! Start, stop and fault of tasks.

use core::sync::atomic::Ordering;

use ipc::abi::{FaultKind, FaultRecord, PAGE, SIGNAL_FAULT, SIGNAL_RESTART, TaskOp, TaskState};
use ipc::manifest::{EXECUTE, KEEP, REGION_RESET, Segment};
use ipc::trace::Kind;
use zerocopy::FromZeros;

use super::Kernel;
use super::core::Core;
use super::task::{Placed, Task};
use crate::arch::{Arch, Machine, Registers};
use crate::clock;
use crate::sched::Budget;

/// Bits of `Task::request`.
const START: u32 = 1;
const HOLD: u32 = 2;
const INJECT: u32 = 4;

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    Now,
    /// By another core, or at `Seal`.
    Later,
    /// The task is not in a state for it.
    Refused,
}

/// Serves a `task_ctl` of this core.
pub fn request(core: &mut Core, task: &'static Task, op: TaskOp) -> Done {
    if op == TaskOp::Start && !task.status.is_stopped() {
        return Done::Refused;
    }
    let bit = match op {
        TaskOp::Start => START,
        TaskOp::Hold => HOLD,
        TaskOp::InjectFault => INJECT,
    };
    // SeqCst: pairs with the swap in `serve`.
    task.request.fetch_or(bit, Ordering::SeqCst);
    if core.boot.is_some() && task.index != 0 {
        // Tasks begin to run at `Seal`, which looks at every request.
        return Done::Now;
    }
    if task.core != core.index {
        core.kernel.attend(task);
        return Done::Later;
    }
    serve(core, task);
    Done::Now
}

/// Does what was requested of a task of this core.
pub fn serve(core: &mut Core, task: &'static Task) {
    let bits = task.request.swap(0, Ordering::SeqCst);
    let slot = task.slot;
    if bits & INJECT != 0 && !task.status.is_stopped() {
        fault(core, slot, FaultKind::Injected, 0, &[]);
    }
    if bits & HOLD != 0 && !task.status.is_stopped() {
        let record = record_of(core, slot, FaultKind::Held, 0);
        stop(core, slot, TaskState::Stopped, &record);
    }
    if bits & START != 0 && task.status.is_stopped() {
        start(core, slot);
    }
}

/// Pristine memory and registers, a new epoch, RESTART to the neighbours, ready.
pub fn start(core: &mut Core, slot: u8) {
    let kernel = core.kernel;
    let task = core.task(slot);
    task.segments.iter().filter(|p| p.copied && p.segment.flags & KEEP == 0).for_each(|p| refill(core, p));
    for (region, &phys) in kernel.system.regions.iter().zip(kernel.regions) {
        if region.owner as usize == task.index && region.flags & REGION_RESET != 0 {
            // SAFETY: the region is ordinary memory that the kernel has handed out. The owner is stopped; others read
            // it, in their own address spaces, as atomics.
            unsafe { Arch::zero_pages(kernel.map.at(phys), region.pages as usize * PAGE) };
        }
    }
    free_interrupts(kernel, task);
    core.drop_simd(slot);
    let hz = Arch::counter_hz();
    let now = core.now;
    let local = core.local(slot);
    local.context = Registers::new(task.manifest.entry, task.manifest.stack_top);
    local.budget = Budget::new(
        clock::ticks(hz, task.manifest.budget_us.into()),
        clock::ticks(hz, task.manifest.period_us.into()),
    );
    local.deadline = now;
    if !local.simd.is_null() {
        // SAFETY: the task's own area; `drop_simd` made sure that nothing will be saved there.
        unsafe { Arch::simd_reset(local.simd) };
    }
    task.word.store(0, Ordering::Relaxed);
    // Release: the zeroed halves; pairs with Acquire in `Epochs::of`. Only this core writes this task's epoch; 0 means
    // "never started", so it is skipped.
    let epoch = kernel.epochs[task.index].load(Ordering::Relaxed).wrapping_add(1).max(1);
    kernel.epochs[task.index].store(epoch, Ordering::Release);
    if kernel.tracing.load(Ordering::Relaxed) {
        core.record(Kind::Restart, task.index as u64, epoch as u64);
    }
    core.make_ready(slot);
    let mut neighbours = task.manifest.neighbours;
    while neighbours != 0 {
        core.signal(&kernel.tasks[neighbours.trailing_zeros() as usize], 1 << SIGNAL_RESTART);
        neighbours &= neighbours - 1;
    }
}

/// Interrupts that the earlier life was signalled and did not acknowledge may come again.
fn free_interrupts(kernel: &Kernel, task: &Task) {
    for (irq, (row, line)) in kernel.system.irqs.iter().zip(kernel.irqs).enumerate() {
        // Relaxed: the line belongs to this core.
        if row.task as usize == task.index && line.masked.swap(false, Ordering::Relaxed) {
            line.pending.store(false, Ordering::Relaxed);
            Arch::irq_unmask(irq);
        }
    }
}

/// Copies a segment's pristine bytes from the package and zeroes the rest.
fn refill(core: &Core, placed: &Placed) {
    let kernel = core.kernel;
    let Segment { file_offset, file_len, pages, flags, .. } = *placed.segment;
    let to = kernel.map.at::<u8>(placed.phys);
    let len = (pages as usize * PAGE).min(file_len as usize);
    // SAFETY: boot checked that the bytes lie in the package, which is mapped and never written; the segment's memory was
    // handed out for it alone, and its task is stopped.
    unsafe {
        core::ptr::copy_nonoverlapping(kernel.map.at::<u8>(kernel.package.start + file_offset), to, len);
        core::ptr::write_bytes(to.add(len), 0, pages as usize * PAGE - len);
        if flags & EXECUTE != 0 {
            Arch::code_written(to, pages as usize * PAGE);
        }
    }
}

/// Stops a task for a reason that the supervisor is told. The supervisor's own fault ends the system.
pub fn fault(core: &mut Core, slot: u8, kind: FaultKind, address: u64, message: &[u8]) {
    let mut record = record_of(core, slot, kind, address);
    let len = message.len().min(record.message.len());
    record.message[..len].copy_from_slice(&message[..len]);
    record.message_len = len as u32;
    let task = core.task(slot);
    if task.index == 0 {
        panic!(
            "the supervisor failed: {kind:?} at {:#x}, address {address:#x} {}",
            record.pc,
            core::str::from_utf8(&message[..len]).unwrap_or("")
        );
    }
    if core.kernel.tracing.load(Ordering::Relaxed) {
        core.record(Kind::Fault, kind as u64, address);
    }
    stop(core, slot, TaskState::Faulted, &record);
}

fn stop(core: &mut Core, slot: u8, state: TaskState, record: &FaultRecord) {
    let task = core.task(slot);
    task.fault.store(record);
    core.withdraw(slot, state);
    core.signal(&core.kernel.tasks[0], 1 << SIGNAL_FAULT);
}

fn record_of(core: &mut Core, slot: u8, kind: FaultKind, address: u64) -> FaultRecord {
    let (ticks, kernel) = (core.now, core.kernel);
    let local = core.local(slot);
    let task = local.task;
    let mut record = FaultRecord::new_zeroed();
    let overflow =
        matches!(kind, FaultKind::Read | FaultKind::Write) && is_stack_guard(kernel, task, address);
    record.kind = if overflow { FaultKind::StackOverflow } else { kind } as u32;
    record.epoch = kernel.epochs[task.index].load(Ordering::Relaxed);
    record.pc = local.context.pc();
    record.sp = local.context.sp();
    record.address = address;
    record.ticks = ticks;
    record
}

/// The address lies in the unmapped page below the task's stack.
fn is_stack_guard(kernel: &Kernel, task: &Task, address: u64) -> bool {
    let segments = kernel.system.task_segments(task.manifest);
    let page = PAGE as u64;
    segments.iter().any(|s| {
        let is_stack = s.vaddr + s.pages as u64 * page == task.manifest.stack_top;
        is_stack && address < s.vaddr && s.vaddr - address <= page
    })
}
