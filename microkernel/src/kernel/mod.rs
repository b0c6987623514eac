//! What runs after boot: tasks, system calls, interrupts, faults.
//!
//! [`Kernel`] is what all cores share: constants, and a few atomics. Everything that changes belongs to one core
//! ([`core::Core`]). A core that wants something of another one's task sets an atomic in the [`Task`], the task's bit in
//! that core's `attention` word, and sends an interrupt: no lock spans cores.

pub mod boot_phase;
pub mod call;
pub mod control;
pub mod core;
pub mod entry;
pub mod seal;
pub mod task;

use ::core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use ipc::abi::MAX_TASKS;
use ipc::manifest::System;

use crate::arch::{Arch, Machine};
use crate::memory::{MAX_RANGES, Range};
use crate::paging::{PhysicalMap, Space};
use crate::user::UserMemory;
use task::Task;

/// Constants of the running system, and what all cores may touch.
#[derive(Debug)]
pub struct Kernel {
    pub map: PhysicalMap,
    pub system: System<'static>,
    pub tasks: &'static [Task],
    pub cores: &'static [Gate],
    pub irqs: &'static [IrqLine],
    /// The package's payload.
    pub package: Range,
    /// Physical base of each region of the manifest; 0 for those that `SysOp::Map` binds.
    pub regions: &'static [u64],
    /// The page at `EPOCH_VADDR`. Stored with Release by the core of the task; pairs with `Epochs::of` in tasks.
    pub epochs: &'static [AtomicU32; MAX_TASKS],
    pub pages: FixedPages,
    pub root: u64,
    /// Of the kernel's text, virtual.
    pub text: Range,
    /// The pages that hold page tables: contiguous, mapped one by one, read-only after `Seal`.
    pub tables: Range,
    /// What the physical map holds besides: handed-out memory and the package.
    pub reach: &'static [Range],
    /// The loader's memory map, for what `SysOp::Map` must refuse.
    pub memory_map: MemoryMap,
    pub boot: BootTimes,
    pub tracing: AtomicBool,
    /// Set once, with Release, by `Seal`; pairs with the Acquire loads of `Core::see_seal`.
    pub sealed: AtomicBool,
}

/// Physical addresses of the pages that every task maps.
#[derive(Clone, Copy, Debug)]
pub struct FixedPages {
    pub clock: u64,
    pub epochs: u64,
    /// Supervisor only.
    pub boot: u64,
}

/// The wall clock at boot.
#[derive(Clone, Copy, Debug)]
pub struct BootTimes {
    pub wall_seconds: u64,
    pub wall_ticks: u64,
}

/// What `SysOp::Map` must not bind; empty ranges fill the rows.
#[derive(Clone, Copy, Debug)]
pub struct MemoryMap {
    /// Memory that the kernel owns, its image and the package: no region at all.
    pub owned: [Range; MAX_RANGES + 2],
    /// Other memory of the loader's map that is RAM (firmware tables, the loader's own): no device.
    pub other: [Range; 2 * MAX_RANGES],
}

impl MemoryMap {
    pub fn is_owned(&self, range: Range) -> bool {
        self.owned.iter().any(|r| r.touches(range))
    }

    pub fn is_ram(&self, range: Range) -> bool {
        self.is_owned(range) || self.other.iter().any(|r| r.touches(range))
    }
}

/// What other cores may touch of a core.
#[derive(Debug)]
pub struct Gate {
    /// Bit t: look at task t. Set by `Kernel::attend`, taken by the core's `Ipi` handler, both SeqCst.
    pub attention: AtomicU64,
    /// The core runs. Release by the core, Acquire by the boot core.
    pub online: AtomicBool,
    pub core: AtomicPtr<core::Core>,
    pub stack_top: u64,
}

/// An interrupt of the manifest. Only its task's core touches it, besides the boot phase.
#[derive(Debug, Default)]
pub struct IrqLine {
    /// Signalled and not acknowledged.
    pub masked: AtomicBool,
    /// Came while masked (controllers that can't mask).
    pub pending: AtomicBool,
}

impl Kernel {
    pub fn space(&self, root: u64) -> Space<Arch> {
        // SAFETY: every root was built at boot from tables in the physical map. They are changed in the boot phase only,
        // by the boot core.
        unsafe { Space::new(root, self.map) }
    }

    pub fn memory_of(&self, task: &Task) -> UserMemory<'static, Arch> {
        UserMemory { space: self.space(task.root), map: self.map, reach: self.reach }
    }

    /// Makes the core of `task` look at it.
    pub fn attend(&self, task: &Task) {
        let gate = &self.cores[task.core];
        // SeqCst: what the caller stored before is visible to the core that takes the bit. If the word was not zero, the
        // interrupt of whoever set it first is still under way.
        if gate.attention.fetch_or(1 << task.index, Ordering::SeqCst) == 0 {
            Arch::ipi(task.core);
        }
    }

    pub fn has_flag(&self, flag: u32) -> bool {
        self.system.header.flags & flag != 0
    }
}

static KERNEL: AtomicPtr<Kernel> = AtomicPtr::new(::core::ptr::null_mut());

/// Publishes the kernel; once, by the boot core, before any other core runs.
pub fn publish(kernel: &'static Kernel) {
    KERNEL.store((&raw const *kernel).cast_mut(), Ordering::Release);
}

pub fn get() -> Option<&'static Kernel> {
    let kernel = KERNEL.load(Ordering::Acquire);
    // SAFETY: `publish` stored a reference that is valid for ever, and nobody has a mutable one since.
    unsafe { kernel.as_ref() }
}
