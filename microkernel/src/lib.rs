//! The kernel: memory, scheduling, IPC, and nothing else.
//!
//! Parses nothing from outside the signed package, allocates nothing after boot, holds no lock that spans cores. The
//! machine is behind [`arch`]; what is pure logic is compiled and tested on the host.
#![cfg_attr(not(test), no_std)]

pub mod arch;
pub mod audit;
pub mod clock;
pub mod memory;
pub mod paging;
pub mod sched;
pub mod trace;
pub mod user;
