//! x86_64: ring 0 and ring 3. Needs NX and a local APIC; uses what else the processor has.
//!
//! References: Intel SDM (volume 3 unless said otherwise), AMD APM volume 2.

mod format;

#[cfg(all(target_os = "none", target_arch = "x86_64"))]
mod apic;
#[cfg(all(target_os = "none", target_arch = "x86_64"))]
mod context;
#[cfg(all(target_os = "none", target_arch = "x86_64"))]
mod cpu;
#[cfg(all(target_os = "none", target_arch = "x86_64"))]
mod descriptors;
#[cfg(all(target_os = "none", target_arch = "x86_64"))]
mod entry;
#[cfg(all(target_os = "none", target_arch = "x86_64"))]
mod machine;
#[cfg(all(target_os = "none", target_arch = "x86_64"))]
mod power;
#[cfg(all(target_os = "none", target_arch = "x86_64"))]
mod serial;
#[cfg(all(target_os = "none", target_arch = "x86_64"))]
mod simd;
#[cfg(all(target_os = "none", target_arch = "x86_64"))]
mod tsc;

/// The architecture: [`crate::arch::Format`] everywhere, [`crate::arch::Machine`] on the machine itself.
#[derive(Clone, Copy, Debug)]
pub struct X86;
