//! What PVH hands over (Xen `public/arch-x86/hvm/start_info.h`).

use loader::memory::{Kind, MemoryMap};
use loader::x86_64::physical;
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::{Handed, Line};

const MAGIC: u32 = 0x336e_c578;
/// Most entries of the memory map that are read.
const MAX_ENTRIES: u32 = 1024;
const RAM: u32 = 1;

#[derive(FromBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C, packed)]
struct StartInfo {
    magic: u32,
    version: u32,
    flags: u32,
    modules: u32,
    module_list: u64,
    command_line: u64,
    rsdp: u64,
    memory_map: u64,
    memory_entries: u32,
    reserved: u32,
}

#[derive(FromBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C, packed)]
struct Module {
    address: u64,
    size: u64,
    command_line: u64,
    reserved: u64,
}

#[derive(FromBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C, packed)]
struct Entry {
    base: u64,
    len: u64,
    kind: u32,
    reserved: u32,
}

/// Reads it all, before anything is written to memory.
pub fn read(info: u64) -> Result<Handed, &'static str> {
    // SAFETY: `entry` maps 4 GiB; the loader writes nothing but its own image until all is read.
    let read = |at, len| unsafe { physical(at, len) };
    let info = read(info, size_of::<StartInfo>()).and_then(|b| StartInfo::read_from_bytes(b).ok());
    let info = info.filter(|i| i.magic == MAGIC && i.version >= 1).ok_or("no PVH start information")?;

    let mut memory = MemoryMap::new();
    let len = info.memory_entries.min(MAX_ENTRIES) as usize * size_of::<Entry>();
    let entries = read(info.memory_map, len).and_then(|b| <[Entry]>::ref_from_bytes(b).ok());
    let entries = entries.ok_or("no memory map")?;
    for usable in [true, false] {
        for entry in entries.iter().filter(|e| (e.kind == RAM) == usable) {
            memory
                .add(entry.base, entry.len, kind(entry.kind))
                .map_err(|_| "memory map has too many regions")?;
        }
    }
    let package = (info.modules > 0).then(|| {
        let module = Module::read_from_bytes(read(info.module_list, size_of::<Module>())?).ok()?;
        read(module.address, module.size.try_into().ok()?)
    });
    Ok(Handed {
        memory,
        package: package.flatten(),
        rsdp: Some(info.rsdp).filter(|&r| r != 0),
        firmware: None,
        line: Line::copy(read(info.command_line, 256).unwrap_or(&[])),
    })
}

/// Types of the E820 map.
pub fn kind(e820: u32) -> Kind {
    match e820 {
        RAM => Kind::Usable,
        3 => Kind::AcpiReclaimable,
        4 => Kind::AcpiNvs,
        5 => Kind::Bad,
        _ => Kind::Reserved,
    }
}
