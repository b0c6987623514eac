//! What stands in for hardware where the tasks run as Linux processes.
//!
//! - [`sockets`]: Linux's TCP, in place of `nic` and `tcp`: side A of the link `stream`.
//! - [`tap`]: a TAP device, in place of `nic`: side A of the link `frame`.
#![forbid(unsafe_code)]

pub mod sockets;
pub mod tap;
