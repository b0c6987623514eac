//! The kernel's own page tables: image with W^X, stacks with guard pages, a window to devices, and a physical map of
//! what was handed out, the page tables, and the package. Nothing else of the machine's memory is mapped.

use super::limine::Image;
use crate::arch::Arch;
use crate::layout::{DEVICES, DEVICES_END, STACK_BYTES, stack_bottom};
use crate::memory::{BootMemory, Range};
use crate::paging::{Flags, LARGE_PAGE, MapError, PAGE, PhysicalMap, Space, TableSource};

unsafe extern "C" {
    static __text_start: u8;
    static __text_end: u8;
    static __rodata_start: u8;
    static __rodata_end: u8;
    static __data_start: u8;
    static __data_end: u8;
}

/// A part of the image between two symbols of the linker script.
fn between(start: *const u8, end: *const u8) -> Range {
    Range { start: start.addr() as u64, end: end.addr() as u64 }
}

pub fn text() -> Range {
    between(&raw const __text_start, &raw const __text_end)
}

/// The image's physical pages.
pub fn image(place: Image) -> Range {
    let virt = between(&raw const __text_start, &raw const __data_end);
    Range::new(virt.start - place.virt + place.phys, virt.bytes())
}

/// Everything but the physical map.
pub fn kernel_space(
    memory: &mut BootMemory,
    map: PhysicalMap,
    place: Image,
    cores: usize,
) -> Result<Space<Arch>, MapError> {
    let root = memory.take_table().ok_or(MapError::NoTable)?;
    // SAFETY: a fresh table in the direct map.
    let space = unsafe { Space::new(root, map) };
    let parts = [
        (text(), Flags::KERNEL_TEXT),
        (between(&raw const __rodata_start, &raw const __rodata_end), Flags::KERNEL_RODATA),
        (between(&raw const __data_start, &raw const __data_end), Flags::KERNEL_DATA),
    ];
    for (part, flags) in parts {
        let phys = part.start - place.virt + place.phys;
        space.map_pages(memory, part.start, phys, part.bytes() / PAGE, flags)?;
    }
    for core in 0..cores {
        let phys = memory.take(STACK_BYTES / PAGE, PAGE).ok_or(MapError::NoTable)?;
        space.map_pages(memory, stack_bottom(core), phys, STACK_BYTES / PAGE, Flags::KERNEL_DATA)?;
    }
    space.prepare(memory, DEVICES, (DEVICES_END - DEVICES) / PAGE)?;
    Ok(space)
}

/// Adds the physical map; after this nothing may be handed out. Returns the pages that hold tables (and some that are
/// kept free between them).
pub fn physical_map(
    space: &Space<Arch>,
    memory: &mut BootMemory,
    offset: u64,
    package: Range,
) -> Result<Range, MapError> {
    let used = || memory_ranges(memory, package);
    let needed: u64 = used().map(|(r, _)| tables_for(r)).sum::<u64>() + 8;
    let ranges: [Option<(Range, Flags)>; crate::memory::MAX_RANGES + 1] = {
        let mut list = used();
        core::array::from_fn(|_| list.next())
    };
    // The tables map themselves one by one, and one leaf table must hold the entries of all leaf tables that do it
    // (`kernel::seal` turns them read-only in place), so these may not straddle a large page.
    let bytes = memory.tables().bytes() / PAGE + needed + 32;
    let leaf_tables = bytes / 512 + 8;
    while memory.tables().start / LARGE_PAGE != (memory.tables().start - leaf_tables * PAGE) / LARGE_PAGE {
        memory.take_table().ok_or(MapError::NoTable)?;
    }
    let tables = memory.tables();
    let reserve = needed + leaf_tables;
    let tables = Range { start: tables.start - reserve * PAGE, end: tables.end };
    space.map_linear(memory, tables, offset, false, Flags::KERNEL_DATA)?;
    for (range, flags) in ranges.into_iter().flatten() {
        space.map_linear(memory, range, offset, true, flags)?;
    }
    if memory.tables().start < tables.start {
        return Err(MapError::NoTable);
    }
    Ok(tables)
}

fn memory_ranges(memory: &BootMemory, package: Range) -> impl Iterator<Item = (Range, Flags)> {
    let package = Range::new(package.start, package.bytes().next_multiple_of(PAGE));
    memory.used().map(|r| (r, Flags::KERNEL_DATA)).chain([(package, Flags::KERNEL_RODATA)])
}

/// Most tables that a range of the physical map can need: two leaf tables at its edges (all, where nothing is
/// aligned), and those above.
fn tables_for(range: Range) -> u64 {
    2 + 2 * (range.bytes() / (512 * LARGE_PAGE) + 1) + 2
}
