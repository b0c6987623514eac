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
        let memory = |n: &FdtNode<'_>| text(n, "device_type") == Some("memory") && enabled(n);
        for node in self.fdt.root().children().filter(memory) {
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

/// Not "disabled": memory of the secure world is, for us.
fn enabled(node: &FdtNode<'_>) -> bool {
    matches!(text(node, "status"), None | Some("okay" | "ok"))
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `qemu-system-aarch64 -M virt,dumpdtb=virt.dtb -cpu cortex-a72 -smp 3 -m 512M -append "diag quiet" -kernel ...`,
    /// without the room after its end.
    const VIRT: &[u8] = include_bytes!("../testdata/virt.dtb");

    fn look(bytes: &[u8]) -> Option<Tree<'_>> {
        let tree = Tree::parse(bytes)?;
        let _ = tree.memory(&mut MemoryMap::new());
        tree.processors(&mut Cpus::new(0));
        let _ = (tree.conduit(), tree.initrd(), tree.bootargs(), tree.seed(), tree.uart(), tree.clock());
        Some(tree)
    }

    #[test]
    fn reads_the_tree_of_qemu() {
        let tree = look(VIRT).unwrap();
        let mut memory = MemoryMap::new();
        tree.memory(&mut memory).unwrap();
        let usable: Vec<_> = memory.regions().iter().map(|r| (r.base, r.end, r.kind)).collect();
        assert_eq!(usable, [(0x4000_0000, 0x6000_0000, Kind::Usable)]);
        let mut cpus = Cpus::new(0);
        tree.processors(&mut cpus);
        assert_eq!(cpus.all().iter().map(|c| c.id).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(tree.conduit(), Some(Conduit::Hvc));
        assert_eq!(tree.bootargs(), b"diag quiet\0");
        assert_eq!((tree.uart(), tree.clock()), (Some(0x900_0000), Some(0x901_0000)));
        assert_eq!(tree.initrd(), None);
        assert_eq!(tree.seed().len(), 32);
    }

    #[test]
    fn knows_its_size() {
        assert_eq!(size(VIRT.first_chunk().unwrap()), Some(VIRT.len()));
        assert_eq!(size(b"\xd0\x0d\xfe\xed\xff\xff\xff\xff"), None);
        assert_eq!(size(b"\xd0\x0d\xfe\xee\x00\x00\x20\x00"), None);
    }

    proptest! {
        #[test]
        fn a_damaged_tree_is_refused_or_read(at in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
            let mut bytes = VIRT.to_vec();
            for (at, value) in at {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            let _ = look(&bytes);
        }

        #[test]
        fn a_cut_tree_is_refused(keep: prop::sample::Index) {
            prop_assert!(look(&VIRT[..keep.index(VIRT.len())]).is_none());
        }
    }
}
