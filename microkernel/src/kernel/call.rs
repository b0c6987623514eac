//! System calls (`ipc::abi`). Whatever a task does wrong here is its fault, in both senses.

use core::sync::atomic::Ordering;

use ipc::abi::{Call, Exit, FaultKind, TaskInfoKind, TaskOp, TaskStatus};
use ipc::manifest::{self, CapKind};
use zerocopy::IntoBytes;

use super::core::Core;
use super::task::Task;
use super::{boot_phase, control};
use crate::arch::{Arch, Machine, Registers};

/// Most bytes of one `log` call, and of a message of `exit`.
const LOG_BYTES: usize = 512;
const MESSAGE_BYTES: usize = 256;

/// The call was misuse: the caller gets a [`FaultKind::BadCall`].
#[derive(Clone, Copy, Debug)]
pub struct Misuse;

/// Serves the call of the running task.
pub fn handle(core: &mut Core) {
    let Some(slot) = core.current else { panic!("system call without a task") };
    let (number, args) = core.local(slot).context.call();
    if serve(core, slot, number, args).is_err() {
        control::fault(core, slot, FaultKind::BadCall, number, &[]);
    }
}

#[inline(always)]
fn serve(core: &mut Core, slot: u8, number: u64, [a, b, c, d]: [u64; 4]) -> Result<(), Misuse> {
    match Call::from_number(number).ok_or(Misuse)? {
        Call::Wait => core.wait(slot, a, b),
        Call::Signal => signal(core, slot, a)?,
        Call::SignalWait => {
            signal(core, slot, a)?;
            core.wait(slot, b, c);
        }
        Call::IrqAck => irq_ack(core, slot, a)?,
        Call::Exit => exit(core, slot, a, b, c)?,
        Call::TaskCtl => {
            let status = task_ctl(core, slot, a, b)?;
            core.local(slot).context.set_results(status, 0);
        }
        Call::TaskRead => {
            let bytes = task_read(core, slot, a, b, c, d)?;
            core.local(slot).context.set_results(bytes, 0);
        }
        Call::SysCtl => {
            let sys = capability(core, slot, 0)?;
            if CapKind::from_number(sys.kind) != Some(CapKind::Sys) {
                return Err(Misuse);
            }
            let (status, value) = boot_phase::sys_ctl(core, slot, [a, b, c, d])?;
            core.local(slot).context.set_results(status, value);
        }
        Call::Log => log(core, slot, a, b)?,
    }
    Ok(())
}

/// The row of the caller's table that a handle names.
#[inline(always)]
fn capability(core: &Core, slot: u8, handle: u64) -> Result<&'static manifest::Cap, Misuse> {
    usize::try_from(handle).ok().and_then(|h| core.task(slot).caps.get(h)).ok_or(Misuse)
}

/// The object of a handle of the given kind.
#[inline(always)]
fn object(core: &Core, slot: u8, handle: u64, kind: CapKind) -> Result<&'static manifest::Cap, Misuse> {
    capability(core, slot, handle).and_then(|cap| if cap.kind == kind as u16 { Ok(cap) } else { Err(Misuse) })
}

fn controlled(core: &Core, slot: u8, handle: u64) -> Result<&'static Task, Misuse> {
    let cap = object(core, slot, handle, CapKind::TaskCtl)?;
    Ok(&core.kernel.tasks[cap.object as usize])
}

#[inline(always)]
fn signal(core: &mut Core, slot: u8, handle: u64) -> Result<(), Misuse> {
    let cap = object(core, slot, handle, CapKind::Signal)?;
    let target = &core.kernel.tasks[cap.object as usize];
    core.signal(target, 1 << cap.bit);
    Ok(())
}

/// Unmasks an interrupt, or delivers the one that came in the meantime.
fn irq_ack(core: &mut Core, slot: u8, handle: u64) -> Result<(), Misuse> {
    let irq = object(core, slot, handle, CapKind::Irq)?.object as usize;
    let (line, row) = (&core.kernel.irqs[irq], &core.kernel.system.irqs[irq]);
    // The line belongs to the core of its task.
    if row.task as usize != core.task(slot).index {
        return Err(Misuse);
    }
    if line.pending.swap(false, Ordering::Relaxed) {
        core.signal(&core.kernel.tasks[row.task as usize], 1 << row.bit);
    } else if line.masked.swap(false, Ordering::Relaxed) {
        Arch::irq_unmask(irq);
    }
    Ok(())
}

fn exit(core: &mut Core, slot: u8, kind: u64, ptr: u64, len: u64) -> Result<(), Misuse> {
    let kind = match kind {
        k if k == Exit::Clean as u64 => FaultKind::Exit,
        k if k == Exit::Panic as u64 => FaultKind::Panic,
        _ => return Err(Misuse),
    };
    let mut message = [0; MESSAGE_BYTES];
    let message = &mut message[..len.min(MESSAGE_BYTES as u64) as usize];
    core.kernel.memory_of(core.task(slot)).read(ptr, message).ok_or(Misuse)?;
    control::fault(core, slot, kind, 0, message);
    Ok(())
}

fn task_ctl(core: &mut Core, slot: u8, handle: u64, op: u64) -> Result<u64, Misuse> {
    let task = controlled(core, slot, handle)?;
    let op = match op {
        o if o == TaskOp::Start as u64 => TaskOp::Start,
        o if o == TaskOp::Hold as u64 => TaskOp::Hold,
        o if o == TaskOp::InjectFault as u64 && core.kernel.has_flag(manifest::DEVELOPMENT) => {
            TaskOp::InjectFault
        }
        _ => return Err(Misuse),
    };
    match control::request(core, task, op) {
        control::Done::Now => Ok(0),
        control::Done::Later => Ok(1),
        control::Done::Refused => Err(Misuse),
    }
}

fn task_read(core: &mut Core, slot: u8, handle: u64, what: u64, ptr: u64, len: u64) -> Result<u64, Misuse> {
    let task = controlled(core, slot, handle)?;
    let memory = core.kernel.memory_of(core.task(slot));
    let copy = |bytes: &[u8]| {
        let len = (bytes.len() as u64).min(len);
        memory.write(ptr, &bytes[..len as usize]).map(|()| len).ok_or(Misuse)
    };
    match what {
        w if w == TaskInfoKind::Fault as u64 => copy(task.fault.load().as_bytes()),
        w if w == TaskInfoKind::Status as u64 => copy(
            TaskStatus {
                state: task.status.raw(),
                epoch: core.kernel.epochs[task.index].load(Ordering::Relaxed),
                core: task.core as u32,
                reserved: 0,
                run_ticks: task.status.run_ticks.load(Ordering::Relaxed),
                switches: task.status.switches.load(Ordering::Relaxed),
            }
            .as_bytes(),
        ),
        _ => Err(Misuse),
    }
}

fn log(core: &mut Core, slot: u8, ptr: u64, len: u64) -> Result<(), Misuse> {
    if !core.kernel.has_flag(manifest::EARLY_LOG) || len > LOG_BYTES as u64 {
        return Err(Misuse);
    }
    let mut text = [0; LOG_BYTES];
    let text = &mut text[..len as usize];
    core.kernel.memory_of(core.task(slot)).read(ptr, text).ok_or(Misuse)?;
    Arch::early_console(text);
    Ok(())
}
