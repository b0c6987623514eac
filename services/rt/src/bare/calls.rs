//! The system calls.

use ipc::abi::{Call, Exit, FaultRecord, SysOp, TaskInfoKind, TaskOp, TaskStatus};
use zerocopy::{FromZeros, IntoBytes};

/// # Safety
/// Arguments that are pointers must be valid for what the call does with them.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn call(number: Call, a: u64, b: u64, c: u64, d: u64) -> (u64, u64) {
    let (r0, r1);
    // SAFETY: the kernel preserves all registers but these (ipc::abi); memory is touched as the caller promises.
    unsafe {
        core::arch::asm!("syscall", inlateout("rax") number as u64 => r0, inlateout("rdx") c => r1,
            in("rdi") a, in("rsi") b, in("r10") d, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    (r0, r1)
}

/// # Safety
/// Arguments that are pointers must be valid for what the call does with them.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
unsafe fn call(number: Call, a: u64, b: u64, c: u64, d: u64) -> (u64, u64) {
    let (r0, r1);
    // SAFETY: the kernel preserves all registers but these (ipc::abi); memory is touched as the caller promises.
    unsafe {
        core::arch::asm!("svc #0", in("x8") number as u64, inlateout("x0") a => r0, inlateout("x1") b => r1,
            in("x2") c, in("x3") d, options(nostack));
    }
    (r0, r1)
}

/// Waits for a bit of `mask` until `deadline` (ticks). Returns the bits taken (0: the deadline came) and the time.
pub fn wait(mask: u64, deadline: u64) -> (u64, u64) {
    // SAFETY: no pointers.
    unsafe { call(Call::Wait, mask, deadline, 0, 0) }
}

pub fn signal(cap: u16) {
    // SAFETY: no pointers.
    unsafe { call(Call::Signal, cap as u64, 0, 0, 0) };
}

pub fn signal_wait(cap: u16, mask: u64, deadline: u64) -> (u64, u64) {
    // SAFETY: no pointers.
    unsafe { call(Call::SignalWait, cap as u64, mask, deadline, 0) }
}

/// Unmasks the interrupt that the capability names.
pub fn irq_ack(cap: u16) {
    // SAFETY: no pointers.
    unsafe { call(Call::IrqAck, cap as u64, 0, 0, 0) };
}

pub fn exit(kind: Exit, message: &str) -> ! {
    // SAFETY: the pointer and length are those of a string.
    unsafe { call(Call::Exit, kind as u64, message.as_ptr() as u64, message.len() as u64, 0) };
    unreachable!("exit returned")
}

/// Asks the supervisor for a restart, without a report.
pub fn exit_clean() -> ! {
    exit(Exit::Clean, "")
}

/// Supervisor: 0 done, 1 under way on another core.
pub fn task_ctl(cap: u16, op: TaskOp) -> u64 {
    // SAFETY: no pointers.
    unsafe { call(Call::TaskCtl, cap as u64, op as u64, 0, 0).0 }
}

/// A record that `task_read` can fetch.
pub trait Readable: IntoBytes + FromZeros + zerocopy::FromBytes {
    const KIND: TaskInfoKind;
}

impl Readable for FaultRecord {
    const KIND: TaskInfoKind = TaskInfoKind::Fault;
}

impl Readable for TaskStatus {
    const KIND: TaskInfoKind = TaskInfoKind::Status;
}

/// Supervisor: state of a task.
pub fn task_read<T: Readable>(cap: u16) -> T {
    let mut value = T::new_zeroed();
    let bytes = value.as_mut_bytes();
    // SAFETY: pointer and length are those of `value`, which is valid for any bytes.
    unsafe {
        call(Call::TaskRead, cap as u64, T::KIND as u64, bytes.as_mut_ptr() as u64, bytes.len() as u64)
    };
    value
}

/// Supervisor: see [`SysOp`]; returns status and value.
///
/// # Safety
/// Pointers among the arguments must be valid for what the operation does with them.
pub unsafe fn sys_ctl(op: SysOp, a: u64, b: u64, c: u64) -> (u64, u64) {
    // SAFETY: by the caller.
    unsafe { call(Call::SysCtl, op as u64, a, b, c) }
}

/// Early console of development images.
pub fn early_log(text: &[u8]) {
    // SAFETY: the pointer and length are those of a slice.
    unsafe { call(Call::Log, text.as_ptr() as u64, text.len() as u64, 0, 0) };
}
