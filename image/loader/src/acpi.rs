//! What the loader needs of ACPI (specification 6.5, chapter 5): processors and I/O APICs of the MADT, PSCI's
//! conduit of the FADT. Everything else is discovery's business, in the supervisor.

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::cpus::{Cpu, Cpus};

/// Physical memory: so many bytes at this address, if they can be read.
pub type Read<'a> = &'a dyn Fn(u64, usize) -> Option<&'a [u8]>;

/// Most bytes of a table, and most tables, that are looked at.
const MAX_TABLE: usize = 1 << 20;
const MAX_TABLES: usize = 256;

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Rsdp {
    signature: [u8; 8],
    checksum: u8,
    oem: [u8; 6],
    revision: u8,
    rsdt: U32,
    length: U32,
    xsdt: U64,
}

/// The table with this signature, whole, its checksum right.
pub fn table<'a>(read: Read<'a>, rsdp: u64, signature: &[u8; 4]) -> Option<&'a [u8]> {
    let (rsdp, _) = Rsdp::ref_from_prefix(read(rsdp, size_of::<Rsdp>())?).ok()?;
    if rsdp.signature != *b"RSD PTR " {
        return None;
    }
    let xsdt = rsdp.revision >= 2 && rsdp.xsdt.get() != 0;
    let root = if xsdt {
        whole(read, rsdp.xsdt.get(), b"XSDT")
    } else {
        whole(read, rsdp.rsdt.get().into(), b"RSDT")
    };
    let mut pointers = root?.get(36..)?.chunks_exact(if xsdt { 8 } else { 4 }).take(MAX_TABLES);
    pointers.find_map(|bytes| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        whole(read, u64::from_le_bytes(word), signature)
    })
}

fn whole<'a>(read: Read<'a>, phys: u64, signature: &[u8; 4]) -> Option<&'a [u8]> {
    let header = read(phys, 36)?;
    let len = header.get(4..8)?.try_into().map(u32::from_le_bytes).ok()? as usize;
    if header.get(..4)? != signature || !(36..=MAX_TABLE).contains(&len) {
        return None;
    }
    let table = read(phys, len)?;
    (table.iter().fold(0u8, |sum, b| sum.wrapping_add(*b)) == 0).then_some(table)
}

/// The interrupt controller structures of a MADT: type and bytes, header included.
fn structures(madt: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut rest = madt.get(44..).unwrap_or(&[]);
    core::iter::from_fn(move || {
        let (&[kind, len], _) = rest.split_first_chunk()?;
        let (entry, tail) = rest.split_at_checked(len as usize).filter(|_| len >= 2)?;
        rest = tail;
        Some((kind, entry))
    })
}

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct LocalApic {
    header: [u8; 2],
    uid: u8,
    id: u8,
    flags: U32,
}

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct LocalX2Apic {
    header: [u8; 2],
    reserved: U16,
    id: U32,
    flags: U32,
    uid: U32,
}

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Gicc {
    header: [u8; 2],
    reserved: U16,
    interface: U32,
    uid: U32,
    flags: U32,
    between: [u8; 52],
    mpidr: U64,
}

/// "Enabled", bit 0 of all three kinds' flags.
const ENABLED: u32 = 1;

/// Adds the enabled processors of a MADT.
pub fn processors(madt: &[u8], cpus: &mut Cpus) {
    for (kind, entry) in structures(madt) {
        let cpu = match kind {
            0 => LocalApic::ref_from_prefix(entry).map(|(e, _)| (e.flags, e.id.into(), e.uid.into())).ok(),
            9 => LocalX2Apic::ref_from_prefix(entry)
                .map(|(e, _)| (e.flags, e.id.get().into(), e.uid.get()))
                .ok(),
            11 => Gicc::ref_from_prefix(entry).map(|(e, _)| (e.flags, e.mpidr.get(), e.uid.get())).ok(),
            _ => None,
        };
        if let Some((flags, id, uid)) = cpu
            && flags.get() & ENABLED != 0
        {
            cpus.add(Cpu { id, uid });
        }
    }
}

/// Physical addresses of the I/O APICs.
pub fn io_apics(madt: &[u8]) -> impl Iterator<Item = u64> {
    structures(madt).filter(|(kind, _)| *kind == 1).filter_map(|(_, entry)| {
        let address = entry.get(4..8)?.try_into().ok()?;
        Some(u64::from(u32::from_le_bytes(address)))
    })
}

/// How PSCI is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conduit {
    Hvc,
    Smc,
}

/// From a FADT's ARM boot architecture flags; `None`: no PSCI.
pub fn conduit(fadt: &[u8]) -> Option<Conduit> {
    let flags = u16::from_le_bytes(fadt.get(129..131)?.try_into().ok()?);
    (flags & 1 != 0).then_some(if flags & 2 != 0 { Conduit::Hvc } else { Conduit::Smc })
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A table with a right checksum.
    fn sealed(signature: &[u8; 4], body: &[u8]) -> Vec<u8> {
        let mut table = signature.to_vec();
        table.extend_from_slice(&(36 + body.len() as u32).to_le_bytes());
        table.resize(36, 0);
        table.extend_from_slice(body);
        table[9] = table.iter().fold(0u8, |sum, b| sum.wrapping_sub(*b));
        table
    }

    fn madt(entries: &[&[u8]]) -> Vec<u8> {
        sealed(b"APIC", &[&[0; 8][..], &entries.concat()].concat())
    }

    /// RSDP at 0, XSDT at 64, MADT at 256.
    fn memory(madt: &[u8]) -> Vec<u8> {
        let mut memory = vec![0; 4096];
        memory[..8].copy_from_slice(b"RSD PTR ");
        memory[15] = 2;
        memory[24..32].copy_from_slice(&64u64.to_le_bytes());
        let xsdt = sealed(b"XSDT", &[1u64 << 40, 256].map(u64::to_le_bytes).concat());
        memory[64..64 + xsdt.len()].copy_from_slice(&xsdt);
        memory[256..256 + madt.len()].copy_from_slice(madt);
        memory
    }

    fn found(memory: &[u8]) -> Option<Vec<(u64, u32)>> {
        let read = |at: u64, len: usize| memory.get(at as usize..)?.get(..len);
        let madt = table(&read, 0, b"APIC")?;
        let mut cpus = Cpus::new(0);
        processors(madt, &mut cpus);
        let _ = io_apics(madt).count();
        Some(cpus.all().iter().map(|c| (c.id, c.uid)).collect())
    }

    const X86: [&[u8]; 4] = [
        &[0, 8, 5, 0, 1, 0, 0, 0],
        &[0, 8, 6, 1, 0, 0, 0, 0],
        &[1, 12, 0, 0, 0, 0, 0xc0, 0xfe, 0, 0, 0, 0],
        &[9, 16, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0],
    ];

    #[test]
    fn finds_enabled_processors() {
        assert_eq!(found(&memory(&madt(&X86))), Some(vec![(0, 5), (256, 7)]));
        assert_eq!(io_apics(&madt(&X86)).collect::<Vec<_>>(), [0xfec0_0000]);
        let mut gicc = [0u8; 80];
        (gicc[0], gicc[1], gicc[8], gicc[12], gicc[69]) = (11, 80, 3, 1, 2);
        assert_eq!(found(&memory(&madt(&[&gicc]))), Some(vec![(0, 0), (0x200, 3)]));
    }

    #[test]
    fn wrong_checksum_is_no_table() {
        let mut memory = memory(&madt(&X86));
        memory[256 + 50] ^= 1;
        assert_eq!(found(&memory), None);
    }

    #[test]
    fn a_structure_of_no_length_ends_the_walk() {
        assert_eq!(found(&memory(&madt(&[&[0, 0], X86[0]]))), Some(vec![(0, 0)]));
    }

    #[test]
    fn reads_the_conduit() {
        let mut fadt = vec![0; 140];
        assert_eq!(conduit(&fadt), None);
        fadt[129] = 1;
        assert_eq!(conduit(&fadt), Some(Conduit::Smc));
        fadt[129] = 3;
        assert_eq!(conduit(&fadt), Some(Conduit::Hvc));
        assert_eq!(conduit(&fadt[..130]), None);
    }

    proptest! {
        #[test]
        fn any_damage_is_survived(at in proptest::collection::vec((0usize..400, any::<u8>()), 1..8), keep in 0usize..500) {
            let mut memory = memory(&madt(&X86));
            for (at, value) in at {
                memory[at] = value;
            }
            memory.truncate(keep);
            let _ = found(&memory);
        }

        #[test]
        fn any_madt_is_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            processors(&bytes, &mut Cpus::new(0));
            let _ = io_apics(&bytes).count();
        }
    }
}
