//! What each task is linked with: entry, system calls, heap, log, random numbers, and its ends of links.
//!
//! A task is one thread; the globals of this crate rely on that. On any target but the bare ones the crate is empty, so that
//! services build and run their tests on the host.
#![no_std]
#![cfg(target_vendor = "urmqtt")]

extern crate alloc;

mod entry;
mod heap;
pub mod log;
mod once;
mod random;
mod sys;
mod task;
mod time;

pub use ipc::link::console::Level;
pub use random::fill as fill_random;
pub use sys::{exit_clean, irq_ack, signal, sys_ctl, task_ctl, task_read, wait};
pub use task::{Bell, Link, Region, Task};
pub use time::{isa, now_ns, ticks_from_ns, ticks_now, wall_seconds};

#[doc(hidden)]
pub use entry::start;

/// Makes `fn main(task: rt::Task) -> !` the task's entry.
#[macro_export]
macro_rules! entry {
    ($main:path) => {
        extern "C" fn start() -> ! {
            $crate::start($main)
        }

        /// The kernel enters with an aligned stack; on x86_64 a function expects a return address on top of that.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        extern "C" fn _start() -> ! {
            #[cfg(target_arch = "x86_64")]
            ::core::arch::naked_asm!("call {}", "ud2", sym start);
            #[cfg(target_arch = "aarch64")]
            ::core::arch::naked_asm!("bti c", "b {}", sym start);
        }
    };
}

/// `log!(Info, "address {}", a)`: one line to the console.
#[macro_export]
macro_rules! log {
    ($level:ident, $($arg:tt)*) => {
        $crate::log::write($crate::Level::$level, ::core::format_args!($($arg)*))
    };
}
