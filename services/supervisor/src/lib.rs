//! The supervisor: it finds the hardware, starts the tasks, seals the system, and restarts what stops.
//!
//! This library has the logic, over bytes and values; the system calls and raw memory are in `main.rs` and beside it.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod acpi;
pub mod config;
pub mod dtb;
pub mod entropy;
pub mod function;
pub mod pci;
pub mod platform;
pub mod policy;
pub mod report;

pub use config::Config;
