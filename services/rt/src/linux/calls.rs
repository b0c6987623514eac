//! The system calls of a task, by Linux's.
//!
//! A word is an eventfd. Its writers can't take bits away (seccomp lets them write it only), and which bit was set doesn't
//! matter to a task that looks at all its links on every wake-up; so any signal counts as all bits of the mask.

use super::memory::start;
use ipc::abi::{Exit, NEVER};
use ipc::hosted::NONE;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use rustix::io::{read, write};
use rustix::time::{ClockId, clock_gettime};

fn fd(number: i32) -> BorrowedFd<'static> {
    // SAFETY: the host opened the descriptors of the start document before the task began, and nothing closes them.
    unsafe { BorrowedFd::borrow_raw(number) }
}

/// The raw counter: nanoseconds.
pub fn ticks_now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Waits for a signal until `deadline` (ticks). Returns the bits taken (0: the deadline came) and the time.
pub fn wait(mask: u64, deadline: u64) -> (u64, u64) {
    let bell = fd(start().header.bell);
    let left = deadline.saturating_sub(ticks_now());
    let limit = Timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 };
    let mut one = [PollFd::new(&bell, PollFlags::IN)];
    // The bell doesn't block: one that a neighbour has filled up must not hold whoever rings it.
    if !matches!(poll(&mut one, (deadline != NEVER).then_some(&limit)), Ok(1)) {
        return (0, ticks_now());
    }
    let rung = read(bell, &mut [0u8; 8]).is_ok();
    (if rung { mask } else { 0 }, ticks_now())
}

/// Sets the capability's bit in the peer's word.
pub fn signal(cap: u16) {
    match start().signals.get(cap as usize) {
        Some(&number) if number != NONE => wake(number),
        _ => exit(Exit::Panic, "signal by a handle that the manifest does not give"),
    }
}

/// Adds to an eventfd. One whose count is about to overflow has long been rung.
pub fn wake(number: i32) {
    let _ = write(fd(number), &1u64.to_ne_bytes());
}

pub fn signal_wait(cap: u16, mask: u64, deadline: u64) -> (u64, u64) {
    signal(cap);
    wait(mask, deadline)
}

/// The task's own bell, for a front end that waits for sockets as well.
pub fn bell() -> BorrowedFd<'static> {
    fd(start().header.bell)
}

/// What the task drives: a [`DEVICE_LISTENER`](ipc::hosted::DEVICE_LISTENER) or the like, and its descriptor.
pub fn device() -> Option<(u32, BorrowedFd<'static>)> {
    let header = start().header;
    (header.device != NONE).then(|| (header.device_kind, fd(header.device)))
}

/// No task of the hosted platform has an interrupt.
pub fn irq_ack(_: u16) {
    exit(Exit::Panic, "irq_ack by a handle that the manifest does not give")
}

/// Ends the process; the message goes to `urmqtt host`.
pub fn exit(kind: Exit, message: &str) -> ! {
    let report = start().header.report;
    let mut bytes = [0; 257];
    let len = message.len().min(256);
    bytes[0] = kind as u8;
    bytes[1..][..len].copy_from_slice(&message.as_bytes()[..len]);
    // At most PIPE_BUF bytes, so written as a whole.
    write_all(report, &bytes[..1 + len]);
    leave(0)
}

/// Ends the process at once: nothing of it is worth cleaning up, and seccomp wouldn't let it.
pub(super) fn leave(status: i32) -> ! {
    // SAFETY: touches no memory and doesn't return.
    unsafe { libc::_exit(status) }
}

/// Asks the supervisor for a restart, without a report.
pub fn exit_clean() -> ! {
    exit(Exit::Clean, "")
}

/// The early console is the serial line.
pub fn early_log(text: &[u8]) {
    let serial = start().header.serial;
    if serial != NONE {
        write_all(serial, text);
    }
}

/// Writes what a descriptor takes; a closed one takes nothing.
pub(super) fn write_all(number: i32, mut bytes: &[u8]) {
    while let Ok(n @ 1..) = write(fd(number), bytes) {
        bytes = &bytes[n..];
        if bytes.is_empty() {
            return;
        }
    }
}

/// 64 bits more for the seed, which has its entropy from the host already.
pub fn hardware_random() -> u64 {
    ticks_now()
}
