//! The driver of one virtio-net function (virtio 1.2, section 5.1): frames between the device and tcp.
//!
//! Received frames lie in the pool `frame.a`, where the device wrote them; frames to send lie in tcp's pool, which this task
//! doesn't even map: the device gets their physical addresses. The device is live exactly while the link to tcp is
//! up: when either side restarts it is reset first, so that no transfer of an earlier life can hit a buffer
//! of the next one.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(any(test, feature = "testing"))]
extern crate std;

pub mod config;
mod driver;
#[cfg(any(test, feature = "testing"))]
pub mod fuzz;
#[cfg(any(test, feature = "testing"))]
mod testing;

pub use config::Config;
pub use driver::{Driver, Memory};

#[cfg(test)]
mod driver_tests;
