//! System calls with what isn't ours: numbers, handles, kinds of capability, pointers, phases.

use crate::memory::{echo, misdeeds};
use crate::misdeed::{Misdeed, Outcome, Outcome::*};
use ipc::abi::Call;
use ipc::ring::Desc;
use rt::Task;

const KERNEL: u64 = 0xffff_ffff_8000_0000;
const NOWHERE: u64 = 0x5555_5000;
/// A handle beyond every table, and one that a 16-bit cut would make valid.
const BEYOND: u64 = 60_000;
const WRAPPED: u64 = 1 << 16;

pub const ALL: &[Misdeed] = misdeeds! {
    "call 9" => |_| call(9, 0, 0, 0, 0),
    "call 2^64 - 1" => |_| call(u64::MAX, 0, 0, 0, 0),
    "to signal by a forged handle" => |_| call(Call::Signal as u64, BEYOND, 0, 0, 0),
    "to signal by a handle beyond 16 bits" => |_| call(Call::Signal as u64, WRAPPED, 0, 0, 0),
    "to signal and wait by a forged handle" => |_| call(Call::SignalWait as u64, BEYOND, 0, 0, 0),
    "to unmask by a forged handle" => |_| call(Call::IrqAck as u64, BEYOND, 0, 0, 0),
    "to control by a forged handle" => |_| call(Call::TaskCtl as u64, BEYOND, 0, 0, 0),
    "to read a task by a forged handle" => |_| call(Call::TaskRead as u64, BEYOND, 0, 0, 0),
    "to unmask by the capability of a signal" => |task| call(Call::IrqAck as u64, own(task), 0, 0, 0),
    "to stop a task by the capability of a signal" => |task| call(Call::TaskCtl as u64, own(task), 1, 0, 0),
    "to read a task by the capability of a signal" => |task| call(Call::TaskRead as u64, own(task), 0, 0, 0),
    "to reboot" => |_| call(Call::SysCtl as u64, 0, 0, 0, 0),
    "to map memory after the seal" => |_| call(Call::SysCtl as u64, 3, 0, 1, 0x10_0000),
    "to seal again" => |_| call(Call::SysCtl as u64, 7, 0, 0, 0),
    "to exit with a message in the kernel" => |_| call(Call::Exit as u64, 1, KERNEL, 100, 0),
    "to exit with a message nowhere" => |_| call(Call::Exit as u64, 1, NOWHERE, 100, 0),
    "to exit with a message without end" => |_| call(Call::Exit as u64, 1, KERNEL - 1, u64::MAX, 0),
    "to exit of an unknown kind" => |_| call(Call::Exit as u64, 77, 0, 0, 0),
    "to log the kernel" => |_| call(Call::Log as u64, KERNEL, 64, 0, 0),
    "to log nothing mapped" => |_| call(Call::Log as u64, NOWHERE, 64, 0, 0),
    "to log too much" => |_| call(Call::Log as u64, crate::memory::ALL.as_ptr() as u64, 1 << 20, 0, 0),
    "to drown its neighbour in signals" => drown,
    "to keep the processor" => starve,
};

fn own(task: &Task) -> u64 {
    echo(task).signal as u64
}

#[cfg(target_arch = "x86_64")]
fn call(number: u64, a: u64, b: u64, c: u64, d: u64) -> Outcome {
    // SAFETY: none: this is the misdeed; the registers are those that the kernel clobbers (ipc::abi).
    unsafe {
        core::arch::asm!("syscall", inlateout("rax") number => _, inlateout("rdx") c => _, in("rdi") a, in("rsi") b,
            in("r10") d, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    Survived
}

#[cfg(target_arch = "aarch64")]
fn call(number: u64, a: u64, b: u64, c: u64, d: u64) -> Outcome {
    // SAFETY: none: this is the misdeed; the registers are those that the kernel clobbers (ipc::abi).
    unsafe {
        core::arch::asm!("svc #0", in("x8") number, inlateout("x0") a => _, inlateout("x1") b => _, in("x2") c,
            in("x3") d, options(nostack));
    }
    Survived
}

/// A signal is one bit: any number of them costs the neighbour one look.
fn drown(task: &Task) -> Outcome {
    for _ in 0..20_000 {
        rt::signal(echo(task).signal);
    }
    Harmless
}

/// Never waits, at a higher priority than the victim's: the budget must give the victim its time all the same.
fn starve(task: &Task) -> Outcome {
    let mut link = task.end::<Desc, Desc>("echo");
    let up = rt::now_ns() + 500_000_000;
    while !link.end.is_up() && rt::now_ns() < up {
        link.poll(true);
        task.wait(&mut [&mut link], rt::now_ns() + 1_000_000);
    }
    let sent = link.end.send(&Desc { kind: 1, ..Desc::default() });
    if let (true, Some(signal)) = (sent, rt::Bell::flush(&mut link)) {
        rt::signal(signal);
    }
    let end = rt::now_ns() + 1_000_000_000;
    while rt::now_ns() < end {
        if link.end.recv().is_some() {
            return Harmless;
        }
    }
    Survived
}
