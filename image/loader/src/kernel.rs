//! The kernel's ELF file: a static executable in the top 2 GiB, with no page that is writable and executable.

use core::fmt;
use core::ops::Range;

use elf::ElfBytes;
use elf::abi::{ET_EXEC, PF_W, PF_X, PT_DYNAMIC, PT_INTERP, PT_LOAD};
use elf::endian::LittleEndian;
use elf::segment::ProgramHeader;
use ipc::package::Arch;

use crate::memory::PAGE;

/// Lowest address that the Limine protocol gives to a kernel.
pub const LOWEST: u64 = 0xffff_ffff_8000_0000;
/// Most bytes of a kernel in memory.
pub const MAX_BYTES: u64 = 64 << 20;
const MAX_SEGMENTS: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// Not a 64-bit little-endian ELF file, or its tables leave the file.
    Format,
    /// For another processor.
    Machine,
    /// Position independent or dynamically linked.
    NotStatic,
    /// A segment is out of the kernel's address range, or out of the file.
    Bounds,
    /// Segments overlap, share a page, or are out of order.
    Overlap,
    WritableAndExecutable,
    TooManySegments,
    /// The entry point isn't in an executable segment.
    Entry,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::Format => "kernel is not a well-formed ELF file",
            Error::Machine => "kernel is for another processor",
            Error::NotStatic => "kernel is not statically linked at a fixed address",
            Error::Bounds => "kernel has a segment out of bounds",
            Error::Overlap => "kernel has segments that share a page",
            Error::WritableAndExecutable => "kernel has memory that is writable and executable",
            Error::TooManySegments => "kernel has too many segments",
            Error::Entry => "kernel's entry point is not executable",
        })
    }
}

/// Whole pages with the same rights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    pub base: u64,
    pub end: u64,
    pub write: bool,
    pub execute: bool,
    /// Where its file bytes go, and where they come from.
    vaddr: u64,
    file_offset: u64,
    file_len: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct Kernel<'a> {
    file: &'a [u8],
    segments: [Segment; MAX_SEGMENTS],
    len: usize,
    pub entry: u64,
}

impl<'a> Kernel<'a> {
    pub fn parse(file: &'a [u8], arch: Arch) -> Result<Self, Error> {
        let elf = ElfBytes::<LittleEndian>::minimal_parse(file).map_err(|_| Error::Format)?;
        if elf.ehdr.class != elf::file::Class::ELF64 {
            return Err(Error::Format);
        }
        if u32::from(elf.ehdr.e_machine) != arch as u32 {
            return Err(Error::Machine);
        }
        if elf.ehdr.e_type != ET_EXEC {
            return Err(Error::NotStatic);
        }
        let headers = elf.segments().ok_or(Error::Format)?;
        let mut kernel = Kernel { file, segments: Default::default(), len: 0, entry: elf.ehdr.e_entry };
        for header in headers.iter() {
            match header.p_type {
                PT_INTERP | PT_DYNAMIC => return Err(Error::NotStatic),
                PT_LOAD if header.p_memsz > 0 => kernel.push(segment(&header, file.len() as u64)?)?,
                _ => {}
            }
        }
        let entered = |s: &&Segment| s.execute && (s.base..s.end).contains(&kernel.entry);
        kernel.segments().iter().find(entered).ok_or(Error::Entry)?;
        if kernel.bytes() > MAX_BYTES {
            return Err(Error::Bounds);
        }
        Ok(kernel)
    }

    fn push(&mut self, segment: Segment) -> Result<(), Error> {
        if self.segments().last().is_some_and(|last| segment.base < last.end) {
            return Err(Error::Overlap);
        }
        *self.segments.get_mut(self.len).ok_or(Error::TooManySegments)? = segment;
        self.len += 1;
        Ok(())
    }

    /// In ascending order; at least one.
    pub fn segments(&self) -> &[Segment] {
        &self.segments[..self.len]
    }

    pub fn base(&self) -> u64 {
        self.segments[0].base
    }

    /// Bytes from the first page to the end of the last, holes included.
    pub fn bytes(&self) -> u64 {
        self.segments().last().map_or(0, |last| last.end - self.base())
    }

    /// Copies the segments into `image`, which has [`Kernel::bytes`] bytes, and zeroes the rest of it.
    pub fn load(&self, image: &mut [u8]) {
        image.fill(0);
        for s in self.segments() {
            let from = s.file_offset as usize..(s.file_offset + s.file_len) as usize;
            let at = (s.vaddr - self.base()) as usize;
            // Both ranges were checked in `segment`.
            image[at..at + from.len()].copy_from_slice(&self.file[from]);
        }
    }
}

fn segment(header: &ProgramHeader, file_len: u64) -> Result<Segment, Error> {
    let within = |start: u64, len: u64, bounds: Range<u64>| {
        let end = start.checked_add(len)?;
        (start >= bounds.start && end <= bounds.end).then_some(end)
    };
    let highest = u64::MAX / PAGE * PAGE;
    let end = within(header.p_vaddr, header.p_memsz, LOWEST..highest).ok_or(Error::Bounds)?;
    within(header.p_offset, header.p_filesz, 0..file_len).ok_or(Error::Bounds)?;
    if header.p_filesz > header.p_memsz {
        return Err(Error::Bounds);
    }
    let (write, execute) = (header.p_flags & PF_W != 0, header.p_flags & PF_X != 0);
    if write && execute {
        return Err(Error::WritableAndExecutable);
    }
    Ok(Segment {
        base: header.p_vaddr / PAGE * PAGE,
        end: end.next_multiple_of(PAGE),
        write,
        execute,
        vaddr: header.p_vaddr,
        file_offset: header.p_offset,
        file_len: header.p_filesz,
    })
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An ELF executable with these `(vaddr, flags, bytes, memsz)`, entered at the first.
    pub fn elf(machine: u16, segments: &[(u64, u32, &[u8], u64)]) -> Vec<u8> {
        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.resize(16, 0);
        let mut put = |bytes: &[u8]| file.extend_from_slice(bytes);
        put(&ET_EXEC.to_le_bytes());
        put(&machine.to_le_bytes());
        put(&1u32.to_le_bytes());
        put(&segments.first().map_or(0, |s| s.0).to_le_bytes());
        put(&64u64.to_le_bytes());
        put(&0u64.to_le_bytes());
        put(&0u32.to_le_bytes());
        for half in [64u16, 56, segments.len() as u16, 0, 0, 0] {
            put(&half.to_le_bytes());
        }
        let mut offset = 64 + 56 * segments.len() as u64;
        for (vaddr, flags, bytes, memsz) in segments {
            put(&PT_LOAD.to_le_bytes());
            put(&flags.to_le_bytes());
            for word in [offset, *vaddr, 0, bytes.len() as u64, *memsz, PAGE] {
                put(&word.to_le_bytes());
            }
            offset += bytes.len() as u64;
        }
        for (_, _, bytes, _) in segments {
            put(bytes);
        }
        file
    }

    const X: u32 = PF_X;
    const W: u32 = PF_W;

    fn parse(segments: &[(u64, u32, &[u8], u64)]) -> Result<(), Error> {
        Kernel::parse(&elf(62, segments), Arch::X86_64).map(|_| ())
    }

    #[test]
    fn loads_what_the_file_says() {
        let file = elf(62, &[(LOWEST, X, b"text", 4), (LOWEST + 0x2010, W, b"data", 0x1000)]);
        let kernel = Kernel::parse(&file, Arch::X86_64).unwrap();
        assert_eq!((kernel.entry, kernel.base(), kernel.bytes()), (LOWEST, LOWEST, 0x4000));
        let mut image = vec![0xaa; 0x4000];
        kernel.load(&mut image);
        assert_eq!((&image[..4], &image[0x2010..0x2014]), (&b"text"[..], &b"data"[..]));
        assert_eq!(image.iter().map(|&b| b as usize).filter(|&b| b != 0).count(), 8);
    }

    #[test]
    fn refuses() {
        let text: (u64, u32, &[u8], u64) = (LOWEST, X, b"text", 4);
        assert_eq!(Kernel::parse(&elf(183, &[text]), Arch::X86_64).unwrap_err(), Error::Machine);
        assert_eq!(parse(&[(LOWEST, X | W, b"text", 4)]), Err(Error::WritableAndExecutable));
        assert_eq!(parse(&[text, (LOWEST + 0xff0, W, b"data", 4)]), Err(Error::Overlap));
        assert_eq!(parse(&[(LOWEST - PAGE, X, b"text", 4)]), Err(Error::Bounds));
        assert_eq!(parse(&[(u64::MAX - 10, X, b"text", 4)]), Err(Error::Bounds));
        assert_eq!(parse(&[(LOWEST, X, b"text", 3)]), Err(Error::Bounds));
        assert_eq!(parse(&[(LOWEST, X, b"text", MAX_BYTES + 1)]), Err(Error::Bounds));
        assert_eq!(parse(&[(LOWEST, W, b"text", 4)]), Err(Error::Entry));
        assert_eq!(parse(&[]), Err(Error::Entry));
        let many: Vec<_> = (0..17).map(|i| (LOWEST + i * PAGE, X, &b"x"[..], 1)).collect();
        assert_eq!(parse(&many), Err(Error::TooManySegments));
        assert_eq!(parse(&many[..16]), Ok(()));
        let mut pie = elf(62, &[text]);
        pie[16] = 3;
        assert_eq!(Kernel::parse(&pie, Arch::X86_64).unwrap_err(), Error::NotStatic);
    }

    proptest! {
        #[test]
        fn any_damage_is_refused_or_loads_in_bounds(
            at in proptest::collection::vec((0usize..260, any::<u8>()), 1..4),
            keep in 0usize..400,
        ) {
            let mut file = elf(62, &[(LOWEST, X, b"text", 4), (LOWEST + PAGE, W, b"data", 0x2000)]);
            for (at, value) in at {
                if let Some(byte) = file.get_mut(at) {
                    *byte = value;
                }
            }
            file.truncate(keep.max(64));
            if let Ok(kernel) = Kernel::parse(&file, Arch::X86_64) {
                kernel.load(&mut vec![0; kernel.bytes() as usize]);
            }
        }
    }
}
