//! aarch64: EL1 and EL0, Armv8.0 and later.

#[cfg(not(target_os = "none"))]
#[path = "gic/command.rs"]
#[allow(dead_code, reason = "the host only tests it")]
mod command;
#[cfg_attr(
    not(all(target_os = "none", target_arch = "aarch64")),
    allow(dead_code, reason = "elsewhere it is only tested")
)]
mod fault;
mod format;

#[cfg(all(target_os = "none", target_arch = "aarch64"))]
mod cache;
#[cfg(all(target_os = "none", target_arch = "aarch64"))]
mod context;
#[cfg(all(target_os = "none", target_arch = "aarch64"))]
mod cpu;
#[cfg(all(target_os = "none", target_arch = "aarch64"))]
mod gic;
#[cfg(all(target_os = "none", target_arch = "aarch64"))]
mod identity;
#[cfg(all(target_os = "none", target_arch = "aarch64"))]
mod interrupts;
#[cfg(all(target_os = "none", target_arch = "aarch64"))]
mod keys;
#[cfg(all(target_os = "none", target_arch = "aarch64"))]
mod machine;
#[cfg(all(target_os = "none", target_arch = "aarch64"))]
mod mmio;
#[cfg(all(target_os = "none", target_arch = "aarch64"))]
mod psci;
#[cfg(all(target_os = "none", target_arch = "aarch64"))]
mod simd;
#[cfg(all(target_os = "none", target_arch = "aarch64"))]
mod start;
#[cfg(all(target_os = "none", target_arch = "aarch64"))]
mod timer;
#[cfg(all(target_os = "none", target_arch = "aarch64"))]
mod uart;

/// The architecture: [`crate::arch::Format`] everywhere, [`crate::arch::Machine`] on the machine itself.
#[derive(Clone, Copy, Debug)]
pub struct Aarch64;
