//! A task's ELF file, flattened into page-aligned segments.

use ipc::abi::{INFO_VADDR, PAGE, TEXT_VADDR};
use ipc::manifest::{EXECUTE, READ, WRITE};
use ipc::package::Arch;
use object::Endianness;
use object::elf::{self, FileHeader64, ProgramHeader64};
use object::read::elf::{FileHeader, ProgramHeader};

/// Statically linked code and data of a task.
#[derive(Clone, Debug)]
pub struct Program {
    pub entry: u64,
    pub segments: Vec<Segment>,
}

/// Whole pages with equal rights.
#[derive(Clone, Debug)]
pub struct Segment {
    /// `text`, `rodata`, `data`; with a number from the second of a kind on.
    pub name: String,
    pub vaddr: u64,
    pub pages: u32,
    /// `ipc::manifest::{READ, WRITE, EXECUTE}`.
    pub flags: u32,
    /// First content; the rest of the pages is zero.
    pub bytes: Vec<u8>,
}

/// Why a file is no task.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("it is no 64-bit little-endian ELF file ({0})")]
    Format(String),
    #[error("it is for another architecture")]
    Machine,
    #[error("it is no static executable: link it without PIE and without an interpreter")]
    Dynamic,
    #[error("its segment at {0:#x} is writable and executable")]
    WriteExecute(u64),
    #[error("its segment at {0:#x} leaves the space for code and data, {TEXT_VADDR:#x} to {INFO_VADDR:#x}")]
    Address(u64),
    #[error("its segments at {0:#x} and {1:#x} share a page: link it with `-z separate-loadable-segments`")]
    SharedPage(u64, u64),
    #[error("its entry {0:#x} is in no executable segment")]
    Entry(u64),
}

impl Program {
    pub fn parse(file: &[u8], arch: Arch) -> Result<Self, Error> {
        let format = |e: object::Error| Error::Format(e.to_string());
        let header = FileHeader64::<Endianness>::parse(file).map_err(format)?;
        let endian = header.endian().map_err(format)?;
        if endian != Endianness::Little {
            return Err(Error::Format("big-endian".into()));
        }
        if u32::from(header.e_machine(endian).0) != arch as u32 {
            return Err(Error::Machine);
        }
        let headers = header.program_headers(endian, file).map_err(format)?;
        let has = |kind| headers.iter().any(|h| h.p_type(endian) == kind);
        if header.e_type(endian) != elf::ET_EXEC || has(elf::PT_INTERP) || has(elf::PT_DYNAMIC) {
            return Err(Error::Dynamic);
        }
        let mut segments = Vec::new();
        for load in headers.iter().filter(|h| h.p_type(endian) == elf::PT_LOAD && h.p_memsz(endian) > 0) {
            segments.push(segment(file, load, relro(headers, endian), endian)?);
        }
        segments.sort_by_key(|s: &Segment| s.vaddr);
        if let Some(pair) = segments.windows(2).find(|p| p[0].end() > p[1].vaddr) {
            return Err(Error::SharedPage(pair[0].vaddr, pair[1].vaddr));
        }
        let entry = header.e_entry(endian);
        if !segments.iter().any(|s| s.flags & EXECUTE != 0 && (s.vaddr..s.end()).contains(&entry)) {
            return Err(Error::Entry(entry));
        }
        name(&mut segments);
        Ok(Program { entry, segments })
    }
}

impl Segment {
    fn end(&self) -> u64 {
        self.vaddr + self.pages as u64 * PAGE as u64
    }
}

/// Addresses that are constant once the file is linked.
fn relro(headers: &[ProgramHeader64<Endianness>], endian: Endianness) -> std::ops::Range<u64> {
    let header = headers.iter().find(|h| h.p_type(endian) == elf::PT_GNU_RELRO);
    header.map_or(0..0, |h| h.p_vaddr(endian)..h.p_vaddr(endian).saturating_add(h.p_memsz(endian)))
}

fn segment(
    file: &[u8],
    load: &ProgramHeader64<Endianness>,
    relro: std::ops::Range<u64>,
    endian: Endianness,
) -> Result<Segment, Error> {
    let page = PAGE as u64;
    let start = load.p_vaddr(endian);
    let end = start.checked_add(load.p_memsz(endian)).ok_or(Error::Address(start))?;
    if start < TEXT_VADDR || end > INFO_VADDR {
        return Err(Error::Address(start));
    }
    let given = load.p_flags(endian).0;
    let flag = |on: u32, flag: u32| if given & on != 0 { flag } else { 0 };
    let mut flags = READ | flag(elf::PF_W.0, WRITE) | flag(elf::PF_X.0, EXECUTE);
    if flags & (WRITE | EXECUTE) == WRITE | EXECUTE {
        return Err(Error::WriteExecute(start));
    }
    // Nothing relocates a static file at run time, so what the linker would protect afterwards is read-only at once.
    if relro.start <= start && end <= relro.end.next_multiple_of(page) {
        flags &= !WRITE;
    }
    let vaddr = start / page * page;
    let content = load.data(endian, file).map_err(|()| Error::Format("a segment leaves the file".into()))?;
    let mut bytes = vec![0; (start - vaddr) as usize];
    bytes.extend_from_slice(content);
    Ok(Segment { name: String::new(), vaddr, pages: ((end - vaddr).div_ceil(page)) as u32, flags, bytes })
}

fn name(segments: &mut [Segment]) {
    let mut counts = std::collections::HashMap::new();
    for segment in segments {
        let kind = match segment.flags & (WRITE | EXECUTE) {
            EXECUTE => "text",
            WRITE => "data",
            _ => "rodata",
        };
        let count: &mut u32 = counts.entry(kind).or_default();
        *count += 1;
        segment.name = if *count == 1 { kind.into() } else { format!("{kind}{count}") };
    }
}
