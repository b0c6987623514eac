//! A virtio function of the modern PCI transport (virtio 1.2, section 4.1.4): where its structures lie.

use crate::pci::{Bar, Capability, ConfigSpace, Found, Function, capabilities};
use alloc::vec::Vec;

const VENDOR_VIRTIO: u16 = 0x1af4;
pub const NET: u16 = 1;
pub const ENTROPY: u16 = 4;

/// The device type, if it is a virtio function (section 4.1.2): its modern number, or the subsystem of a transitional one.
pub fn device_type(found: &Found) -> Option<u16> {
    match (found.vendor, found.device) {
        (VENDOR_VIRTIO, device @ 0x1040..=0x107f) => Some(device - 0x1040),
        (VENDOR_VIRTIO, 0x1000..=0x103f) => Some(found.subsystem),
        _ => None,
    }
}

/// A range of physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub phys: u64,
    pub len: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Structures {
    pub common: Place,
    pub notify: Place,
    pub notify_multiplier: u32,
    pub isr: Option<Place>,
    pub config: Option<Place>,
    pub msix: Option<Msix>,
}

/// PCI Express 5.0, section 7.7.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Msix {
    /// Offset of the capability.
    pub capability: u8,
    /// The table: 16 bytes an entry.
    pub table: Place,
}

/// What is wrong with the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// No common configuration or no notification structure: a legacy device.
    NotModern,
    /// A structure leaves its BAR, or lies at an odd address.
    Structure,
}

const VENDOR_SPECIFIC: u8 = 0x09;
const MSIX: u8 = 0x11;
/// cfg_type values (section 4.1.4).
const COMMON: u8 = 1;
const NOTIFY: u8 = 2;
const ISR: u8 = 3;
const DEVICE: u8 = 4;

pub fn structures(
    space: &mut impl ConfigSpace,
    function: Function,
    bars: &[Bar],
) -> Result<Structures, Error> {
    let list = capabilities(space, function);
    let virtio: Vec<Capability> = list.iter().copied().filter(|c| c.id == VENDOR_SPECIFIC).collect();
    // The first capability of a type counts (section 4.1.4.1).
    let mut find = |kind: u8, align: u64| -> Result<Option<(Place, u8)>, Error> {
        let Some(c) = virtio.iter().find(|c| (c.upper >> 8) as u8 == kind) else { return Ok(None) };
        let mut word = |at: u8| space.read(function, c.offset.wrapping_add(at) & !3);
        let (bar, offset, len) = (word(4) as u8, word(8), word(12));
        let place = place(bars, bar, offset, len).filter(|p| p.phys.is_multiple_of(align));
        place.map(|p| Some((p, c.offset))).ok_or(Error::Structure)
    };
    let (common, _) = find(COMMON, 4)?.filter(|(p, _)| p.len >= 56).ok_or(Error::NotModern)?;
    let (notify, notify_at) = find(NOTIFY, 2)?.ok_or(Error::NotModern)?;
    let (isr, config) = (find(ISR, 1)?, find(DEVICE, 4)?);
    let notify_multiplier = space.read(function, notify_at.wrapping_add(16));
    let msix = match list.iter().find(|c| c.id == MSIX) {
        Some(c) => Some(msix(space, function, bars, *c)?),
        None => None,
    };
    Ok(Structures {
        common,
        notify,
        notify_multiplier,
        isr: isr.map(|(p, _)| p),
        config: config.map(|(p, _)| p),
        msix,
    })
}

fn place(bars: &[Bar], index: u8, offset: u32, len: u32) -> Option<Place> {
    let bar = bars.iter().find(|b| b.index == index)?;
    let inside = len > 0 && offset as u64 + len as u64 <= bar.len;
    let phys =
        bar.address.checked_add(offset as u64).filter(|&p| inside && p.checked_add(len as u64).is_some())?;
    Some(Place { phys, len })
}

fn msix(
    space: &mut impl ConfigSpace,
    function: Function,
    bars: &[Bar],
    c: Capability,
) -> Result<Msix, Error> {
    let entries = (c.upper & 0x7ff) as u32 + 1;
    let table = space.read(function, c.offset.wrapping_add(4));
    let table = place(bars, table as u8 & 7, table & !7, entries * 16).ok_or(Error::Structure)?;
    Ok(Msix { capability: c.offset, table })
}

/// Sets the function's interrupts to MSI-X. All entries of the table are masked after a reset; the caller has written those
/// that it uses.
pub fn enable_msix(space: &mut impl ConfigSpace, function: Function, msix: &Msix) {
    const ENABLE: u32 = 1 << 31;
    const MASK_ALL: u32 = 1 << 30;
    let word = space.read(function, msix.capability);
    space.write(function, msix.capability, word & !MASK_ALL | ENABLE);
}

/// Whole pages that are mapped for a driver, and where they start in its region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub first_page: u32,
    pub pages: u32,
    pub phys: u64,
}

/// How a function's structures are laid out in a region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    pub mappings: Vec<Mapping>,
    used: u32,
}

const PAGE: u64 = ipc::abi::PAGE as u64;

impl Layout {
    /// A place in a region of `pages` pages, as offset and length (cut where the region ends). `None`: no room.
    pub fn add(&mut self, place: Place, pages: u32) -> Option<ipc::boot::Window> {
        let (start, within) = (place.phys & !(PAGE - 1), place.phys % PAGE);
        let wanted = (within + place.len as u64).div_ceil(PAGE) as u32;
        let known = self.mappings.iter().find(|m| m.phys == start && m.pages >= wanted).copied();
        let mapping = match known {
            Some(mapping) => mapping,
            None => {
                let free = pages.checked_sub(self.used).filter(|&free| free > 0)?;
                let mapping = Mapping { first_page: self.used, pages: wanted.min(free), phys: start };
                self.used += mapping.pages;
                self.mappings.push(mapping);
                mapping
            }
        };
        let len = (place.len as u64).min(mapping.pages as u64 * PAGE - within);
        Some(ipc::boot::Window {
            offset: (mapping.first_page as u64 * PAGE + within) as u32,
            len: len as u32,
        })
    }

    /// True when a page of `place` is mapped here.
    pub fn touches(&self, place: Place) -> bool {
        let (start, end) = (place.phys & !(PAGE - 1), place.phys.saturating_add(place.len as u64));
        self.mappings.iter().any(|m| start < m.phys.saturating_add(m.pages as u64 * PAGE) && m.phys < end)
    }
}
