//! The hosted platform: a task is a Linux process that `urmqtt host` has started with everything it may use.
//!
//! Memory is mapped once, from the descriptors of [`ipc::hosted`], at the addresses that the manifest names; then seccomp takes
//! away all system calls but the handful that the calls of this module need. What else a task tries ends it, as in the image.

mod calls;
mod confine;
mod memory;

pub use calls::{
    bell, device, early_log, exit, exit_clean, hardware_random, irq_ack, signal, signal_wait, ticks_now,
    wait, wake,
};
pub use confine::confine;
pub use memory::map;

/// Standard output, where `urmqtt host` gives it to the task. What is typed is the host command's.
pub struct Serial;

impl Serial {
    pub fn new(_: &crate::Task) -> Self {
        Serial
    }

    pub fn write(&mut self, bytes: &[u8]) {
        let serial = memory::start().header.serial;
        if serial != ipc::hosted::NONE {
            calls::write_all(serial, bytes);
        }
    }

    pub fn read(&mut self) -> Option<u8> {
        None
    }
}

/// Entered by the C library, as every process is.
#[doc(hidden)]
#[macro_export]
macro_rules! entry_point {
    ($start:ident) => {
        #[unsafe(export_name = "main")]
        extern "C" fn process() -> i32 {
            $start()
        }
    };
}
