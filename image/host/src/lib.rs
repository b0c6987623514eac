//! The task graph of an image as Linux processes: the same services, manifest and links, for auditing a service alone (debugger,
//! strace, perf, sanitizers), for conformance suites and for measuring at the processor's own speed.
//!
//! What the kernel does in the image is done here by this process, which is the supervisor too: regions are memfds, mapped with the
//! manifest's protections; words are eventfds; a restart is a kill, zeroed ring halves, a new epoch, a signal to the neighbours and
//! a new process. What holds a task to its manifest is seccomp and the absence of other descriptors: `services/rt/src/linux`.

mod device;
mod memory;
mod process;
pub mod record;
mod supervise;

pub use device::{Device, HOST, SERVED, is_root, listener, tap};
pub use supervise::{Supervisor, Why};

use builder::plan::Plan;
use rustix::fd::OwnedFd;
use std::path::PathBuf;

/// What is run.
pub struct System {
    pub plan: Plan,
    /// The tasks' info documents, in order.
    pub infos: Vec<Vec<u8>>,
    /// Folder of the tasks' programs.
    pub programs: PathBuf,
    /// The task that drives the device, and the device, if there is one.
    pub driver: String,
    pub device: Option<Device>,
}

/// Rings an eventfd that doesn't block.
fn wake(bell: &OwnedFd) {
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}
