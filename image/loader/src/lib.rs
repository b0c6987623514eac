//! From firmware to kernel: verifies the signed package, and enters the kernel in it by the Limine boot protocol.
//!
//! The front ends (`uefi/`, `pvh/`, `linux/`) turn what their firmware gives into a [`prepare::Machine`] and call
//! `handoff`. Everything above `arch` runs on the host as well: `urmqtt verify` uses [`verify`], tests use the rest.
#![cfg_attr(not(test), no_std)]

pub mod acpi;
pub mod arena;
pub mod cpus;
pub mod date;
pub mod dtb;
pub mod kernel;
pub mod limine;
pub mod memory;
pub mod paging;
pub mod prepare;
pub mod verify;
pub mod words;

#[cfg(all(target_arch = "aarch64", any(target_os = "none", target_os = "uefi")))]
pub mod aarch64;
#[cfg(all(target_arch = "x86_64", any(target_os = "none", target_os = "uefi")))]
pub mod x86_64;
