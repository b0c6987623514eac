//! Installs the tasks of the manifest: address spaces and memory. Their content comes when they are started.

use ipc::abi::USER_END;
use ipc::manifest::{self, EXECUTE, REGION_TRACE, RegionKind, Segment, System, WRITE};

use crate::arch::{Arch, Machine};
use crate::kernel::FixedPages;
use crate::kernel::task::Placed;
use crate::memory::{BootMemory, Range};
use crate::paging::{Flags, MapError, PAGE, PhysicalMap, Space, TableSource};

/// What is wrong, for the console.
#[derive(Clone, Copy, Debug)]
pub enum Error {
    Memory,
    /// Something is mapped where something else is, or a manifest's rule is broken.
    Manifest(&'static str),
}

impl From<MapError> for Error {
    fn from(e: MapError) -> Self {
        match e {
            MapError::NoTable => Error::Memory,
            MapError::Mapped | MapError::NoPath => Error::Manifest("overlapping mappings"),
        }
    }
}

/// `count` values in pages of their own, for ever.
pub fn slice<T>(
    memory: &mut BootMemory,
    map: PhysicalMap,
    count: usize,
    mut value: impl FnMut(&mut BootMemory, usize) -> Result<T, Error>,
) -> Result<&'static mut [T], Error> {
    let base: *mut T = super::room(memory, map, count)?;
    for i in 0..count {
        let value = value(memory, i)?;
        // SAFETY: fresh memory, large and aligned enough.
        unsafe { base.add(i).write(value) };
    }
    // SAFETY: all `count` values were written; the memory is nobody else's and never freed.
    Ok(unsafe { core::slice::from_raw_parts_mut(base, count) })
}

/// Physical memory for each region that has some. Trace regions and first contents are filled by the caller of `start`.
pub fn regions(
    memory: &mut BootMemory,
    map: PhysicalMap,
    system: &System<'static>,
    package: Range,
) -> Result<&'static mut [u64], Error> {
    slice(memory, map, system.regions.len(), |memory, i| {
        let region = &system.regions[i];
        let bound = [RegionKind::Device as u16, RegionKind::Firmware as u16].contains(&region.kind);
        if bound || region.pages == 0 {
            return Ok(0);
        }
        let phys = memory.take(region.pages as u64, PAGE).ok_or(Error::Memory)?;
        let room = region.pages as u64 * PAGE;
        let content =
            in_package(package, region.file_offset, region.file_len).filter(|_| region.file_len <= room);
        if region.flags & REGION_TRACE == 0 && region.file_len > 0 {
            let content = content.ok_or(Error::Manifest("a region's content"))?;
            // SAFETY: both lie in the direct map; the target is fresh.
            unsafe {
                core::ptr::copy_nonoverlapping(map.at::<u8>(content), map.at(phys), region.file_len as usize);
            }
        }
        Ok(phys)
    })
}

/// Physical address of a span of the package.
fn in_package(package: Range, offset: u64, len: u64) -> Option<u64> {
    let end = offset.checked_add(len)?;
    (end <= package.bytes()).then_some(package.start + offset)
}

/// A task's address space, with everything mapped that the manifest names. Device and firmware regions get their tables
/// and no pages.
pub fn task(
    memory: &mut BootMemory,
    map: PhysicalMap,
    system: &System<'static>,
    index: usize,
    package: Range,
    regions: &[u64],
    fixed: FixedPages,
) -> Result<(Space<Arch>, &'static [Placed]), Error> {
    let row = &system.tasks[index];
    let root = memory.take_table().ok_or(Error::Memory)?;
    // SAFETY: a fresh table in the direct map.
    let space = unsafe { Space::new(root, map) };
    let segments = system.task_segments(row);
    let placed = slice(memory, map, segments.len(), |memory, i| place(memory, map, package, &segments[i]))?;
    for p in placed.iter() {
        let flags = Flags::user(p.segment.flags & WRITE != 0, p.segment.flags & EXECUTE != 0);
        space.map_pages(memory, p.segment.vaddr, p.phys, p.segment.pages as u64, flags)?;
    }
    for m in system.task_maps(row) {
        map_region(memory, &space, system, index, m, regions)?;
    }
    let own = Flags::user(false, false);
    space.map(memory, ipc::abi::CLOCK_VADDR, fixed.clock, 0, own)?;
    space.map(memory, ipc::abi::EPOCH_VADDR, fixed.epochs, 0, own)?;
    if index == 0 {
        space.map(memory, ipc::abi::BOOT_VADDR, fixed.boot, 0, own)?;
    }
    Ok((space, placed))
}

/// Memory for a segment: the package itself where it is never written and the package has all its bytes.
fn place(
    memory: &mut BootMemory,
    map: PhysicalMap,
    package: Range,
    segment: &'static Segment,
) -> Result<Placed, Error> {
    let bytes = segment.pages as u64 * PAGE;
    let pristine = in_package(package, segment.file_offset, segment.file_len);
    let pristine =
        pristine.filter(|_| segment.file_len <= bytes).ok_or(Error::Manifest("a segment's content"))?;
    let end = segment.vaddr.checked_add(bytes).filter(|&end| end <= USER_END);
    end.ok_or(Error::Manifest("a segment's address"))?;
    let whole = segment.file_len.next_multiple_of(PAGE) == bytes && segment.file_offset.is_multiple_of(PAGE);
    if segment.flags & WRITE == 0 && whole {
        if segment.flags & EXECUTE != 0 {
            // SAFETY: the package lies in the direct map.
            unsafe { Arch::code_written(map.at(pristine), bytes as usize) };
        }
        return Ok(Placed { segment, phys: pristine, copied: false });
    }
    let phys = memory.take(segment.pages as u64, PAGE).ok_or(Error::Memory)?;
    Ok(Placed { segment, phys, copied: true })
}

fn map_region(
    memory: &mut BootMemory,
    space: &Space<Arch>,
    system: &System<'static>,
    task: usize,
    map: &manifest::Map,
    regions: &[u64],
) -> Result<(), Error> {
    let region = &system.regions[map.region as usize];
    if map.rights & WRITE != 0 && region.owner as usize != task {
        return Err(Error::Manifest("a second writer of a region"));
    }
    match regions[map.region as usize] {
        0 => space.prepare(memory, map.vaddr, region.pages as u64)?,
        phys => {
            let flags = Flags::user(map.rights & WRITE != 0, false);
            space.map_pages(memory, map.vaddr, phys, region.pages as u64, flags)?;
        }
    }
    Ok(())
}
