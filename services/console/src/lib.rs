//! Log lines of all tasks to the serial line, and commands from it in development images.
//!
//! Every other task is a stranger here: a line's length and buffer are checked, what is not printable is escaped, and
//! a task that floods its log loses its own lines and nobody else's.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(any(test, feature = "testing"))]
extern crate std;

mod bucket;
pub mod command;
pub mod config;
#[cfg(any(test, feature = "testing"))]
pub mod fuzz;
mod log;

pub use config::Config;
pub use log::{Log, Source};

/// The line to the outside.
pub trait Serial {
    fn write(&mut self, bytes: &[u8]);
    fn read(&mut self) -> Option<u8>;
}
