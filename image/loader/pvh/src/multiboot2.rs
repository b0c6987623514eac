//! What a multiboot2 loader hands over (Multiboot2 specification 3.6, "Boot information format").

use loader::memory::{Kind, MemoryMap};
use loader::x86_64::physical;

use crate::pvh::kind;
use crate::{Handed, Line};

const COMMAND_LINE: u32 = 1;
const MODULE: u32 = 3;
const MEMORY_MAP: u32 = 6;
const RSDP_OLD: u32 = 14;
const RSDP_NEW: u32 = 15;
/// Most bytes that are read.
const MAX_BYTES: u32 = 1 << 20;
/// Limine's name for BIOS.
const BIOS: u64 = 0;

/// Reads it all, before anything is written to memory. The information itself is kept for the kernel: the RSDP is in it.
pub fn read(info: u64) -> Result<Handed, &'static str> {
    // SAFETY: `entry` maps 4 GiB; the loader writes nothing but its own image until all is read.
    let read = |at, len| unsafe { physical(at, len) };
    let len = read(info, 8).and_then(|b| word(b, 0)).filter(|&l| l <= MAX_BYTES);
    let bytes = len.and_then(|len| read(info, len as usize)).ok_or("no multiboot2 information")?;

    let mut handed = Handed {
        memory: MemoryMap::new(),
        package: None,
        rsdp: None,
        firmware: Some(BIOS),
        line: Line::copy(&[]),
    };
    for (tag, body, at) in tags(bytes) {
        match tag {
            COMMAND_LINE => handed.line = Line::copy(body),
            MODULE if handed.package.is_none() => {
                handed.package = word(body, 0)
                    .zip(word(body, 4))
                    .and_then(|(start, end)| read(start.into(), end.checked_sub(start)? as usize));
            }
            MEMORY_MAP => fill(&mut handed.memory, body).ok_or("memory map is malformed or too long")?,
            RSDP_NEW => handed.rsdp = Some(info + at as u64),
            RSDP_OLD if handed.rsdp.is_none() => handed.rsdp = Some(info + at as u64),
            _ => {}
        }
    }
    let end = (info + bytes.len() as u64).next_multiple_of(4096);
    handed
        .memory
        .set(info / 4096 * 4096, end, Kind::Loader)
        .map_err(|_| "memory map has too many regions")?;
    Ok(handed)
}

/// Type, body, and the body's offset of each tag.
fn tags(info: &[u8]) -> impl Iterator<Item = (u32, &[u8], usize)> {
    let mut at = 8usize;
    core::iter::from_fn(move || {
        let (tag, len) = (word(info, at)?, word(info, at + 4)? as usize);
        let body = info.get(at + 8..at.checked_add(len)?)?;
        let body_at = at + 8;
        at = (at + len).next_multiple_of(8);
        (tag != 0).then_some((tag, body, body_at))
    })
}

fn fill(memory: &mut MemoryMap, body: &[u8]) -> Option<()> {
    let size = word(body, 0).filter(|&s| s >= 24)? as usize;
    for usable in [true, false] {
        for entry in body.get(8..)?.chunks_exact(size) {
            let (base, len) = (long(entry, 0)?, long(entry, 8)?);
            let kind = kind(word(entry, 16)?);
            if (kind == Kind::Usable) == usable {
                memory.add(base, len, kind).ok()?;
            }
        }
    }
    Some(())
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|b| u64::from_le_bytes(*b))
}
