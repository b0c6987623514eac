//! Boot pages: what the supervisor tells a task, one page each (region `boot.<task>`, named `boot` at the task).
//!
//! Written by the supervisor before each start of the task, read-only for the task.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub const MAGIC: [u8; 8] = *b"urmqBP01";

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Boot {
    pub magic: [u8; 8],
    /// Fresh for every start.
    pub seed: [u8; 32],
    pub device: Device,
}

/// A PCI function for a driver task. All zero where the task has no device.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Device {
    /// 1 when the rest is valid.
    pub present: u32,
    pub pci_vendor_device: u32,
    /// Virtio structures, as offsets in the task's `bar` region.
    pub common: Window,
    pub notify: Window,
    pub isr: Window,
    pub config: Window,
    pub notify_multiplier: u32,
    /// MSI-X table entries to use for queues; `0xffff`: none.
    pub queue_vector: u16,
    pub config_vector: u16,
    /// Physical bases of the DMA regions that the device may use.
    pub dma: [Dma; 6],
}

#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Window {
    pub offset: u32,
    pub len: u32,
}

#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Dma {
    /// Region name as in the system manifest; empty: unused entry.
    pub name: [u8; 16],
    pub phys: u64,
    pub len: u64,
}

impl Device {
    pub fn dma(&self, name: &str) -> Option<&Dma> {
        self.dma.iter().find(|d| crate::manifest::name(&d.name) == name)
    }
}
