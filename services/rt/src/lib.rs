//! What each task is linked with: entry, system calls, heap, log, random numbers, and its ends of links.
//!
//! A task is one thread; the globals of this crate rely on that.
//!
//! Two platforms carry the same tasks: the microkernel ([`platform`] in `bare/`), and Linux (in `linux/`), where a task is a
//! process of the hosted platform. Each gives entry and exit, `wait`, `signal`, the raw counter, hardware's random numbers and
//! the serial line; all else is common, and neither the services nor their `main.rs` know where they run.
#![no_std]
#![cfg(any(target_vendor = "urmqtt", target_os = "linux"))]

extern crate alloc;
#[cfg(target_os = "linux")]
extern crate std;

mod entry;
mod heap;
pub mod log;
mod once;
#[cfg_attr(target_vendor = "urmqtt", path = "bare/mod.rs")]
#[cfg_attr(target_os = "linux", path = "linux/mod.rs")]
mod platform;
mod random;
mod task;
mod time;

pub use heap::Heap;
pub use ipc::link::console::Level;
pub use platform::{Serial, exit_clean, irq_ack, signal, ticks_now, wait};
#[cfg(target_os = "linux")]
pub use platform::{bell, device, wake};
#[cfg(target_vendor = "urmqtt")]
pub use platform::{sys_ctl, task_ctl, task_read};
pub use random::fill as fill_random;
pub use task::{Bell, Link, Region, Task};
pub use time::{isa, now_ns, ticks_from_ns, wall_seconds};

#[doc(hidden)]
pub use entry::start;

/// Makes `fn main(task: rt::Task) -> !` the task's entry.
#[macro_export]
macro_rules! entry {
    ($main:path) => {
        #[global_allocator]
        static HEAP: $crate::Heap = $crate::Heap;

        extern "C" fn start() -> ! {
            $crate::start($main)
        }

        $crate::entry_point!(start);
    };
}

/// `log!(Info, "address {}", a)`: one line to the console.
#[macro_export]
macro_rules! log {
    ($level:ident, $($arg:tt)*) => {
        $crate::log::write($crate::Level::$level, ::core::format_args!($($arg)*))
    };
}
