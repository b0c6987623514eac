//! The manifest, a task's info document and the package header.
#![no_main]

use ipc::manifest::{self, System, info::Info};
use ipc::package::Package;

/// The documents are read in place, so they must be aligned.
#[repr(align(4096))]
struct Aligned([u8; 16384]);

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut memory = Aligned([0; 16384]);
    let len = data.len().min(memory.0.len());
    memory.0[..len].copy_from_slice(&data[..len]);
    let bytes = &memory.0[..len];
    if let Ok(system) = System::parse(bytes) {
        for task in system.tasks {
            let _ = (manifest::name(&task.name), system.task_segments(task), system.task_maps(task), system.task_caps(task));
        }
    }
    let _ = (Info::parse(bytes), manifest::info::document_len(bytes));
    if let Ok(package) = Package::parse(bytes) {
        let _ = (package.command_line(), package.kernel(), package.manifest());
    }
});
