//! Discovery by a flattened device tree (Devicetree Specification 0.4, and Linux's bindings for what is named here).
//!
//! The crate `dtoolkit` checks the blob's structure; what the properties say is checked here. Buses are taken to map
//! addresses one to one, which holds for all nodes that are looked at.

use crate::platform::{Error, PciHost, Platform, Window};
use alloc::vec::Vec;
use dtoolkit::fdt::{Fdt, FdtNode};
use dtoolkit::standard::NodeStandard;
use dtoolkit::{Cells, Node, Property};

/// Most nodes that are looked at, and how deep they may lie.
const MAX_NODES: usize = 4096;
const MAX_DEPTH: usize = 6;

pub fn discover(blob: &[u8]) -> Result<Platform, Error> {
    let tree = Fdt::new(blob).map_err(|_| Error::Malformed("device tree"))?;
    let mut platform = Platform::default();
    let mut nodes = MAX_NODES;
    visit(tree.root(), MAX_DEPTH, &mut nodes, &mut |node| look_at(node, &mut platform));
    if let Some(chosen) = tree.find_node("/chosen") {
        platform.seed = bytes(&chosen, "rng-seed").unwrap_or(&[]).iter().copied().take(64).collect();
    }
    platform.desc.uart = platform.uart;
    Ok(platform)
}

fn visit<'a>(node: FdtNode<'a>, depth: usize, left: &mut usize, look: &mut impl FnMut(FdtNode<'a>)) {
    if depth == 0 {
        return;
    }
    for child in node.children() {
        if *left == 0 {
            return;
        }
        *left -= 1;
        look(child);
        visit(child, depth - 1, left, look);
    }
}

fn look_at(node: FdtNode, platform: &mut Platform) {
    let desc = &mut platform.desc;
    let first = || reg(node, 0).map_or(0, |(address, _)| address);
    let is = |name: &str| node.is_compatible(name);
    if is("pci-host-ecam-generic") {
        platform.pci = platform.pci.take().or_else(|| pci_host(node));
    } else if is("arm,cortex-a15-gic") || is("arm,gic-400") {
        (desc.gic_version, desc.gicd) = (2, first());
        desc.gicc = reg(node, 1).map_or(0, |(address, _)| address);
    } else if is("arm,gic-v3") {
        (desc.gic_version, desc.gicd) = (3, first());
        (desc.gicr, desc.gicr_len) = reg(node, 1).unwrap_or((0, 0));
    } else if is("arm,gic-v2m-frame") {
        desc.v2m = first();
        desc.v2m_first_spi = u32_of(&node, "arm,msi-base-spi").unwrap_or(0);
        desc.v2m_spis = u32_of(&node, "arm,msi-num-spis").unwrap_or(0);
    } else if is("arm,gic-v3-its") {
        desc.its = first();
    } else if is("arm,armv8-timer") {
        desc.timer_intid = virtual_timer(&node).unwrap_or(0);
    } else if is("arm,pl011") && platform.uart == 0 {
        platform.uart = first();
    } else if is("arm,psci-1.0") || is("arm,psci-0.2") || is("arm,psci") {
        desc.psci_conduit = match bytes(&node, "method") {
            Some(b"hvc\0") => 1,
            Some(b"smc\0") => 2,
            _ => 0,
        };
    } else if is("arm,smmu-v3") || is("virtio,pci-iommu") {
        platform.iommu = true;
    }
}

/// Address and length of entry `n` of the node's `reg`.
fn reg(node: FdtNode, n: usize) -> Option<(u64, u64)> {
    let entry = node.reg().ok()??.nth(n)?;
    Some((entry.address().ok()?, entry.size().ok()?))
}

fn bytes<'a>(node: &FdtNode<'a>, name: &str) -> Option<&'a [u8]> {
    node.property(name)?.value_as::<&'a [u8]>().ok()
}

fn u32_of(node: &FdtNode, name: &str) -> Option<u32> {
    node.property(name)?.value_as().ok()
}

/// Binding arm,arch_timer: secure, non-secure, virtual, hypervisor; three cells each: 1 for a PPI, its number, flags.
fn virtual_timer(node: &FdtNode) -> Option<u32> {
    const PPI: u32 = 1;
    const FIRST_PPI: u32 = 16;
    let interrupts = bytes(node, "interrupts")?;
    let cell = |n: usize| Some(u32::from_be_bytes(interrupts.get(n * 4..n * 4 + 4)?.try_into().ok()?));
    (cell(6)? == PPI).then_some(())?;
    cell(7).filter(|&n| n < 16).map(|n| FIRST_PPI + n)
}

/// Binding pci-host-ecam-generic.
fn pci_host(node: FdtNode) -> Option<PciHost> {
    let (ecam, len) = reg(node, 0)?;
    let range: [u32; 2] = node.property("bus-range").map_or(Some([0, 255]), |p| p.value_as().ok())?;
    let [first, last] = range.map(u8::try_from);
    let (first_bus, last_bus) = (first.ok()?, last.ok()?);
    // `reg` starts at the first bus.
    let ecam = ecam.checked_sub((first_bus as u64) << 20)?;
    let buses = (last_bus as u64 + 1).checked_sub(first_bus as u64)?;
    if ecam % (1 << 20) != 0 || len < buses << 20 {
        return None;
    }
    Some(PciHost { ecam, first_bus, last_bus, windows: windows(node) })
}

/// IEEE 1275 PCI binding: the first cell of a child address says which space (bits 24, 25: 2 is 32-bit memory, 3 is 64-bit
/// memory), the others the bus address.
fn windows(node: FdtNode) -> Vec<Window> {
    const SPACE_SHIFT: u32 = 24;
    const MAX_WINDOWS: usize = 8;
    let Ok(Some(ranges)) = node.ranges() else { return Vec::new() };
    let window = |range: dtoolkit::standard::Range| {
        let [space, high, low] = *cells(&range.child_bus_address) else { return None };
        if space >> SPACE_SHIFT & 3 < 2 {
            return None;
        }
        let bus = (high as u64) << 32 | low as u64;
        let (phys, len): (u64, u64) = (range.parent_bus_address().ok()?, range.length().ok()?);
        let sound = bus.checked_add(len).is_some() && phys.checked_add(len).is_some() && len > 0;
        sound.then_some(Window { bus, phys, len })
    };
    ranges.filter_map(window).take(MAX_WINDOWS).collect()
}

fn cells(cells: &Cells) -> Vec<u32> {
    cells.as_ref().iter().map(|c| c.get()).collect()
}
