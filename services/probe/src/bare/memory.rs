//! Memory that isn't ours, isn't writable, or isn't code; and the rings of our neighbour.

use crate::misdeed::{Misdeed, Outcome, Outcome::*};
use alloc::boxed::Box;
use alloc::vec;
use core::hint::black_box;
use ipc::abi::{CLOCK_VADDR, EPOCH_VADDR, INFO_VADDR};
use ipc::manifest::info::Link;
use ipc::ring::{Desc, half_bytes};
use rt::Task;

macro_rules! misdeeds {
    ($($name:literal => $run:expr,)*) => { &[$(Misdeed { name: $name, run: $run }),*] };
}
pub(crate) use misdeeds;

#[cfg(target_arch = "x86_64")]
const KERNEL: [u64; 3] = [0xffff_ffff_8000_0000, 0xffff_8000_0000_0000, 0xffff_ffff_ffff_fff8];
#[cfg(target_arch = "aarch64")]
const KERNEL: [u64; 3] = [0xffff_ffff_8000_0000, 0xffff_0000_0000_0000, 0xffff_ffff_ffff_fff8];

/// A region that only the victim maps (`image/systems/probe.toml`).
const VICTIMS: u64 = 0x3f00_0000;
/// Neither mapped nor near anything.
const NOWHERE: u64 = 0x5555_5000;
const NON_CANONICAL: u64 = 0x1234_0000_0000_0000;

pub const ALL: &[Misdeed] = misdeeds! {
    "to read the kernel's code" => |_| read(KERNEL[0]),
    "to read the kernel's lowest address" => |_| read(KERNEL[1]),
    "to read the last address" => |_| read(KERNEL[2]),
    "to write the kernel" => |_| write(KERNEL[0]),
    "to read a non-canonical address" => |_| read(NON_CANONICAL),
    "to read the victim's memory" => |_| read(VICTIMS),
    "to write the victim's memory" => |_| write(VICTIMS),
    "to read nothing" => |_| read(NOWHERE),
    "to read null" => |_| read(8),
    "to write its constants" => |_| write(CONSTANT.as_ptr() as u64),
    "to write its code" => |_| write(read as *const () as u64 & !7),
    "to write its info page" => |_| write(INFO_VADDR),
    "to write the clock page" => |_| write(CLOCK_VADDR),
    "to write the epoch page" => |_| write(EPOCH_VADDR),
    "to write its boot page" => |task| write(task.region("boot").map_or(0, |r| r.base as u64)),
    "to write its neighbour's half" => |task| write(echo(task).theirs),
    "to write its neighbour's pool" => |task| write(echo(task).pool_theirs.vaddr),
    "to read behind a region" => |task| read(echo(task).mine + half_bytes(echo(task).capacity) as u64),
    "to execute its data" => |_| execute((&raw const WRITABLE).cast()),
    "to execute its stack" => |_| execute([RETURN; 4].as_ptr()),
    "to execute its heap" => |_| execute(Box::leak(Box::new([RETURN; 4])).as_ptr()),
    "to execute its neighbour's pool" => |task| execute(echo(task).pool_theirs.vaddr as *const u32),
    "to jump to null" => |_| execute(core::ptr::null()),
    "to jump into the kernel" => |_| execute(KERNEL[0] as *const u32),
    "to overflow its stack" => |_| overflow(),
    "to take all of the heap" => |_| exhaust(),
    "to scribble in its rings" => scribble,
};

static CONSTANT: [u64; 2] = [1, 2];
static mut WRITABLE: [u32; 4] = [RETURN; 4];

/// An instruction that returns.
#[cfg(target_arch = "x86_64")]
const RETURN: u32 = 0xc3c3_c3c3;
#[cfg(target_arch = "aarch64")]
const RETURN: u32 = 0xd65f_03c0;

fn read(address: u64) -> Outcome {
    // SAFETY: none: this is the misdeed. The kernel stops the task.
    black_box(unsafe { (address as *const u64).read_volatile() });
    Survived
}

fn write(address: u64) -> Outcome {
    // SAFETY: none: this is the misdeed. The kernel stops the task.
    unsafe { (address as *mut u64).write_volatile(0x6464_6464_6464_6464) };
    Survived
}

fn execute(code: *const u32) -> Outcome {
    // SAFETY: none: this is the misdeed. The kernel stops the task.
    let function: extern "C" fn() = unsafe { core::mem::transmute(black_box(code)) };
    function();
    Survived
}

fn overflow() -> Outcome {
    #[inline(never)]
    fn deeper(depth: u64) -> u64 {
        let frame = black_box([depth; 64]);
        if depth == u64::MAX { 0 } else { deeper(depth + 1) + frame[depth as usize % 64] }
    }
    black_box(deeper(0));
    Survived
}

/// Ends in a panic of the allocator: the task's own affair.
fn exhaust() -> Outcome {
    loop {
        vec![1u8; 64 << 10].leak();
    }
}

/// The link to the victim.
pub fn echo(task: &Task) -> &'static Link {
    let named = |l: &&Link| ipc::manifest::name(&l.name) == "echo";
    task.info.links.iter().find(named).expect("the manifest gives the probe the link echo")
}

/// Every word of our half becomes every kind of nonsense, while the victim looks. What it may do is blame the link.
fn scribble(task: &Task) -> Outcome {
    let mut link = task.end::<Desc, Desc>("echo");
    let up = rt::now_ns() + 200_000_000;
    while !link.end.is_up() && rt::now_ns() < up {
        link.poll(true);
        task.wait(&mut [&mut link], rt::now_ns() + 1_000_000);
    }
    let desc = echo(task);
    for value in [0, 1, 0x7fff_ffff, 0x8000_0000, u32::MAX, 0x5555_5555] {
        for at in (0..half_bytes(desc.capacity)).step_by(4) {
            // SAFETY: our own half, which the manifest lets us write as we like.
            unsafe { ((desc.mine + at as u64) as *mut u32).write_volatile(value) };
        }
        rt::signal(desc.signal);
        crate::pause(task, 5);
    }
    Harmless
}
