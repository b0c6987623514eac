//! The contract between kernel, tasks, image builder and host tools, and nothing else.
//!
//! `no_std`, no allocation. Whatever another task, the device or the firmware can write is read through the
//! types of this crate, which check it once, on load.
#![cfg_attr(not(any(test, feature = "testing", feature = "std")), no_std)]

pub mod abi;
pub mod boot;
pub mod hosted;
pub mod link;
pub mod manifest;
pub mod package;
pub mod pool;
pub mod ring;
#[cfg(all(not(loom), any(test, feature = "testing")))]
pub mod testing;
pub mod trace;
