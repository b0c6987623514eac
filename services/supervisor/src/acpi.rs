//! Discovery by ACPI's static tables (ACPI 6.5): MADT, MCFG, FADT, GTDT, SPCR. No AML is run; of the DSDT only the constant
//! `\_S5_` is looked for.
//!
//! The bytes are the firmware's: every offset is checked, every loop is bounded by a table's length.

use crate::platform::{Error, PciHost, Platform};
use alloc::vec::Vec;

/// Physical memory that holds tables, mapped for reading as it is asked for.
pub trait Memory<'a> {
    /// `None`: not there, or more than can be mapped.
    fn bytes(&self, phys: u64, len: usize) -> Option<&'a [u8]>;
}

/// Longest table that is read.
const MAX_TABLE: usize = 1 << 20;
/// Most tables that are looked at.
const MAX_TABLES: usize = 64;
/// Bytes of the header that all tables have.
const HEADER: usize = 36;

/// `rsdp`: physical address of the root pointer.
pub fn discover<'a>(memory: &impl Memory<'a>, rsdp: u64) -> Result<Platform, Error> {
    let mut platform = Platform::default();
    for table in tables(memory, rsdp)? {
        match &table[..4] {
            b"APIC" => madt(table, &mut platform)?,
            b"MCFG" => platform.pci = mcfg(table),
            b"FACP" => fadt(memory, table, &mut platform),
            b"GTDT" => platform.desc.timer_intid = u32_at(table, 64).unwrap_or(0),
            b"SPCR" => platform.uart = spcr(table).unwrap_or(0),
            b"DMAR" | b"IVRS" | b"VIOT" => platform.iommu = true,
            _ => {}
        }
    }
    platform.desc.uart = platform.uart;
    Ok(platform)
}

/// All tables that the root table names and that are sound; one that is not is as good as absent.
fn tables<'a>(memory: &impl Memory<'a>, rsdp: u64) -> Result<Vec<&'a [u8]>, Error> {
    let root = memory.bytes(rsdp, 20).ok_or(Error::Unreadable)?;
    if &root[..8] != b"RSD PTR " {
        return Err(Error::Signature);
    }
    if sum(root) != 0 {
        return Err(Error::Checksum);
    }
    let (address, width) = match root[15] {
        0 | 1 => (u32_at(root, 16).unwrap_or(0) as u64, 4),
        _ => {
            let root = memory.bytes(rsdp, 36).ok_or(Error::Unreadable)?;
            if sum(root) != 0 {
                return Err(Error::Checksum);
            }
            (u64_at(root, 24).unwrap_or(0), 8)
        }
    };
    let list = table(memory, address)?;
    let entries = list[HEADER..].chunks_exact(width).take(MAX_TABLES);
    let addresses = entries.map(|e| e.iter().rev().fold(0, |n, &byte| n << 8 | byte as u64));
    Ok(addresses.filter_map(|address| table(memory, address).ok()).collect())
}

/// The whole table at `address`, header included; at least [`HEADER`] bytes.
fn table<'a>(memory: &impl Memory<'a>, address: u64) -> Result<&'a [u8], Error> {
    let header = memory.bytes(address, HEADER).ok_or(Error::Unreadable)?;
    let len = u32_at(header, 4).unwrap_or(0) as usize;
    if !(HEADER..=MAX_TABLE).contains(&len) {
        return Err(Error::Malformed("table length"));
    }
    let table = memory.bytes(address, len).ok_or(Error::Unreadable)?;
    if sum(table) != 0 { Err(Error::Checksum) } else { Ok(table) }
}

/// Section 5.2.12: the interrupt controllers.
fn madt(table: &[u8], platform: &mut Platform) -> Result<(), Error> {
    const GICC: u8 = 0xb;
    const GICD: u8 = 0xc;
    const MSI_FRAME: u8 = 0xd;
    const GICR: u8 = 0xe;
    const ITS: u8 = 0xf;
    let desc = &mut platform.desc;
    let mut rest = &table[HEADER..];
    rest = rest.get(8..).ok_or(Error::Malformed("MADT"))?;
    while let [kind, len, ..] = *rest {
        let entry =
            rest.get(..len as usize).filter(|e| e.len() >= 2).ok_or(Error::Malformed("MADT entry"))?;
        rest = &rest[len as usize..];
        let word = |at| u64_at(entry, at).unwrap_or(0);
        match kind {
            GICC => {
                desc.gicc = word(32);
                // Only where the redistributors are not one region (section 5.2.12.14): this one's address.
                if desc.gicr == 0 && word(60) != 0 {
                    (desc.gicr, desc.gicr_len) = (word(60), 0x2_0000);
                }
            }
            GICD => {
                desc.gicd = word(8);
                desc.gic_version = entry.get(20).copied().unwrap_or(0) as u32;
            }
            MSI_FRAME => {
                desc.v2m = word(8);
                // Flag 0: these numbers count, and not the frame's own register.
                if u32_at(entry, 16).unwrap_or(0) & 1 == 1 {
                    desc.v2m_spis = u16_at(entry, 20).unwrap_or(0) as u32;
                    desc.v2m_first_spi = u16_at(entry, 22).unwrap_or(0) as u32;
                }
            }
            GICR => (desc.gicr, desc.gicr_len) = (word(4), u32_at(entry, 12).unwrap_or(0) as u64),
            ITS => desc.its = word(8),
            _ => {}
        }
    }
    Ok(())
}

/// PCI Firmware Specification 3.3, section 4.1.2: segment 0.
fn mcfg(table: &[u8]) -> Option<PciHost> {
    let entries = table.get(44..)?.chunks_exact(16);
    let hosts = entries.filter(|e| u16_at(e, 8) == Some(0) && e[10] <= e[11]);
    hosts
        .map(|e| (u64_at(e, 0).unwrap_or(0), e[10], e[11]))
        .find(|&(ecam, ..)| ecam != 0 && ecam % (1 << 20) == 0)
        .map(|(ecam, first_bus, last_bus)| PciHost { ecam, first_bus, last_bus, windows: Vec::new() })
}

/// Section 5.2.9: how the machine is reset and switched off, and the timer of known frequency.
fn fadt<'a>(memory: &impl Memory<'a>, table: &[u8], platform: &mut Platform) {
    const RESET_SUPPORTED: u32 = 1 << 10;
    const SYSTEM_IO: u8 = 1;
    let desc = &mut platform.desc;
    let port = |at| u32_at(table, at).filter(|&p| p <= 0xffff).unwrap_or(0);
    desc.pm_timer_port = port(76);
    desc.pm1a_control_port = port(64);
    if u32_at(table, 112).unwrap_or(0) & RESET_SUPPORTED != 0 && table.len() > 128 {
        desc.reset_space = (table[116] == SYSTEM_IO) as u32;
        desc.reset_address = u64_at(table, 120).unwrap_or(0);
        desc.reset_value = table[128] as u32;
    }
    // Section 5.2.9.4: bit 0 PSCI, bit 1 by HVC.
    desc.psci_conduit = match u16_at(table, 129).unwrap_or(0) & 3 {
        3 => 1,
        1 => 2,
        _ => 0,
    };
    let wide = u64_at(table, 140).unwrap_or(0);
    let address = if wide != 0 { wide } else { u32_at(table, 40).unwrap_or(0) as u64 };
    desc.s5_sleep_type = self::table(memory, address).ok().and_then(s5_sleep_type).unwrap_or(0);
}

/// The first number of `Name (\_S5_, Package {..})`, as a compiler writes it (sections 20.2.5.1 and 20.2.5.4). A package of
/// another shape reads as absent, and then the machine isn't switched off but halted.
fn s5_sleep_type(dsdt: &[u8]) -> Option<u32> {
    const PACKAGE: u8 = 0x12;
    const BYTE: u8 = 0x0a;
    let at = dsdt.windows(5).position(|w| w == b"_S5_\x12")? + 4;
    debug_assert_eq!(dsdt[at], PACKAGE);
    // PkgLength: the two highest bits of its first byte count the bytes that follow.
    let length_bytes = 1 + (*dsdt.get(at + 1)? >> 6) as usize;
    let elements = dsdt.get(at + 1 + length_bytes..)?;
    match *elements {
        [_, BYTE, value, ..] => Some(value as u32),
        [_, value @ (0 | 1), ..] => Some(value as u32),
        _ => None,
    }
}

/// Serial Port Console Redirection Table: the base address, when it is memory.
fn spcr(table: &[u8]) -> Option<u64> {
    const SYSTEM_MEMORY: u8 = 0;
    (*table.get(40)? == SYSTEM_MEMORY).then(|| u64_at(table, 44)).flatten()
}

fn sum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, &b| sum.wrapping_add(b))
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}
fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_le_bytes)
}
fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}
fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u64::from_le_bytes)
}
