//! The platform of the image: our kernel, which has mapped everything before the task's first instruction.

mod calls;
mod cpu;
mod serial;

pub use calls::*;
pub use cpu::{hardware_random, ticks_now};
pub use serial::Serial;

/// All regions are mapped already.
pub fn map() {}

/// The kernel holds the task to its manifest from the start.
pub fn confine() {}

#[panic_handler]
fn panic(panic: &core::panic::PanicInfo) -> ! {
    crate::entry::panicked(format_args!("{}", panic.message()), panic.location())
}

/// The kernel enters with an aligned stack; on x86_64 a function expects a return address on top of that.
#[doc(hidden)]
#[macro_export]
macro_rules! entry_point {
    ($start:ident) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        extern "C" fn _start() -> ! {
            #[cfg(target_arch = "x86_64")]
            ::core::arch::naked_asm!("call {}", "ud2", sym $start);
            #[cfg(target_arch = "aarch64")]
            ::core::arch::naked_asm!("bti c", "b {}", sym $start);
        }
    };
}
