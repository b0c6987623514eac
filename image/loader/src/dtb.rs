//! What the loader needs of a device tree (Devicetree Specification 0.4). Everything else is discovery's business.

use dtoolkit::fdt::{Fdt, FdtNode};
use dtoolkit::{Node, Property};

use crate::acpi::Conduit;
use crate::cpus::{Cpu, Cpus};
use crate::memory::{Error, Kind, MemoryMap};

/// Most bytes of a tree.
pub const MAX_BYTES: usize = 2 << 20;
/// Affinity fields of MPIDR: what `reg` of a processor holds.
const AFFINITY: u64 = 0xff_00ff_ffff;

/// A validated tree.
#[derive(Clone, Copy, Debug)]
pub struct Tree<'a> {
    fdt: Fdt<'a>,
}

/// Bytes of the tree whose first 8 bytes these are.
pub fn size(header: &[u8; 8]) -> Option<usize> {
    let [a, b, c, d, len @ ..] = *header;
    let len = u32::from_be_bytes(len) as usize;
    ([a, b, c, d] == [0xd0, 0x0d, 0xfe, 0xed] && (40..=MAX_BYTES).contains(&len)).then_some(len)
}

impl<'a> Tree<'a> {
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        Fdt::new(bytes).ok().map(|fdt| Tree { fdt })
    }

    fn children(&self, parent: &str) -> impl Iterator<Item = FdtNode<'a>> {
        self.fdt.find_node(parent).into_iter().flat_map(|node| node.children())
    }

    /// Adds all memory, then takes out what is reserved.
    pub fn memory(&self, map: &mut MemoryMap) -> Result<(), Error> {
        for node in self.fdt.root().children().filter(|n| text(n, "device_type") == Some("memory")) {
            for (base, len) in reg(node) {
                map.add(base, len, Kind::Usable)?;
            }
        }
        for area in self.fdt.memory_reservations() {
            map.add(area.address(), area.size(), Kind::Reserved)?;
        }
        for node in self.children("/reserved-memory") {
            for (base, len) in reg(node) {
                map.add(base, len, Kind::Reserved)?;
            }
        }
        Ok(())
    }

    pub fn processors(&self, cpus: &mut Cpus) {
        for node in self.children("/cpus").filter(|n| text(n, "device_type") == Some("cpu")) {
            // A processor that is "disabled" may still be one that PSCI starts: the specification says so for PSCI.
            if let Some((id, _)) = reg(node).next() {
                cpus.add(Cpu { id: id & AFFINITY, uid: 0 });
            }
        }
    }

    pub fn conduit(&self) -> Option<Conduit> {
        match text(&self.fdt.find_node("/psci")?, "method")? {
            "hvc" => Some(Conduit::Hvc),
            "smc" => Some(Conduit::Smc),
            _ => None,
        }
    }

    /// Start and end of what the boot loader left as initial RAM disk.
    pub fn initrd(&self) -> Option<(u64, u64)> {
        let chosen = self.fdt.find_node("/chosen")?;
        Some((number(&chosen, "linux,initrd-start")?, number(&chosen, "linux,initrd-end")?))
    }

    /// Boot arguments; unsigned.
    pub fn bootargs(&self) -> &'a [u8] {
        self.chosen("bootargs")
    }

    /// Random bytes for us: `rng-seed`, else `kaslr-seed`, else none.
    pub fn seed(&self) -> &'a [u8] {
        let seed = self.chosen("rng-seed");
        if seed.is_empty() { self.chosen("kaslr-seed") } else { seed }
    }

    fn chosen(&self, name: &str) -> &'a [u8] {
        self.fdt.find_node("/chosen").and_then(|node| bytes(&node, name)).unwrap_or(&[])
    }

    /// Registers of the PL011 that `stdout-path` names.
    pub fn uart(&self) -> Option<u64> {
        let path = core::str::from_utf8(self.chosen("stdout-path").strip_suffix(b"\0")?).ok()?;
        let path = path.split(':').next()?;
        let path = if path.starts_with('/') { path } else { text(&self.fdt.find_node("/aliases")?, path)? };
        self.device(self.fdt.find_node(path)?, "arm,pl011")
    }

    /// Registers of a PL031 clock.
    pub fn clock(&self) -> Option<u64> {
        self.fdt.root().children().find_map(|node| self.device(node, "arm,pl031"))
    }

    fn device(&self, node: FdtNode<'a>, kind: &str) -> Option<u64> {
        let fits = node.compatible()?.any(|c| c == kind);
        fits.then(|| reg(node).next()).flatten().map(|(base, _)| base)
    }
}

/// Addresses and sizes of a node; those that don't fit 64 bits are left out.
fn reg(node: FdtNode<'_>) -> impl Iterator<Item = (u64, u64)> {
    let pairs = node.reg().ok().flatten();
    pairs.into_iter().flatten().filter_map(|r| Some((r.address().ok()?, r.size().unwrap_or(0))))
}

fn bytes<'a>(node: &FdtNode<'a>, name: &str) -> Option<&'a [u8]> {
    node.properties().find(|p| p.name() == name).and_then(|p| p.value_as().ok())
}

fn text<'a>(node: &FdtNode<'a>, name: &str) -> Option<&'a str> {
    core::str::from_utf8(bytes(node, name)?.strip_suffix(b"\0")?).ok()
}

/// A number of one or two cells.
fn number(node: &FdtNode<'_>, name: &str) -> Option<u64> {
    match *bytes(node, name)? {
        [a, b, c, d] => Some(u32::from_be_bytes([a, b, c, d]).into()),
        [a, b, c, d, e, f, g, h] => Some(u64::from_be_bytes([a, b, c, d, e, f, g, h])),
        _ => None,
    }
}
