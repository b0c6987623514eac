//! What discovery finds out, whichever tables said it.

use alloc::vec::Vec;
use ipc::abi::PlatformDesc;

#[derive(Clone, Debug, Default)]
pub struct Platform {
    /// For the kernel.
    pub desc: PlatformDesc,
    pub pci: Option<PciHost>,
    /// Console UART, physical; 0 where the tables name none.
    pub uart: u64,
    /// Random bytes that the firmware left.
    pub seed: Vec<u8>,
    /// The machine has an IOMMU (which this version doesn't use).
    pub iommu: bool,
}

/// A PCI Express host bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciHost {
    /// Physical address of the configuration space of bus 0 (though the first bus may be a later one).
    pub ecam: u64,
    pub first_bus: u8,
    pub last_bus: u8,
    /// Where BARs can be placed; empty where the firmware has placed them.
    pub windows: Vec<Window>,
}

/// Memory that the bridge passes on to its buses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// As the bus sees it, and as the processor does.
    pub bus: u64,
    pub phys: u64,
    pub len: u64,
}

/// Why the tables are of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// Neither ACPI nor a device tree was handed over.
    NoTables,
    /// A table leaves memory that can be mapped, or is too long.
    Unreadable,
    Signature,
    Checksum,
    /// A structure leaves its table, or a value makes no sense.
    Malformed(&'static str),
    /// What the machine can't run without is not described.
    Missing(&'static str),
}
