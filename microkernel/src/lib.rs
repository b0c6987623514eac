//! The kernel: memory, scheduling, IPC, and nothing else.
//!
//! Parses nothing from outside the signed package, allocates nothing after boot, holds no lock that spans cores. The
//! machine is behind [`arch`]; what is pure logic is compiled and tested on the host.
#![cfg_attr(not(test), no_std)]

pub mod arch;
pub mod audit;
#[cfg(target_os = "none")]
pub mod boot;
pub mod clock;
#[cfg(target_os = "none")]
pub mod kernel;
pub mod layout;
pub mod memory;
pub mod paging;
#[cfg(target_os = "none")]
pub mod panic;
pub mod sched;
pub mod trace;
pub mod user;
