//! The manifest: what the builder has checked, the kernel installs and the tasks find themselves in.
//!
//! Fixed little-endian tables, read in place. Two documents: the *system* manifest (this module, read by the
//! kernel) and one *info* page a task ([`info`], mapped read-only at [`crate::abi::INFO_VADDR`]). Both come from the
//! signed package, so they are trusted; [`System::parse`] still checks every span, so that a builder's mistake is a
//! message and not a crash.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub const MAGIC: [u8; 8] = *b"urmqMF01";

/// `count` entries that start `offset` bytes into the document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Span {
    pub offset: u32,
    pub count: u32,
}

/// A slice of another table: entries `first .. first + count`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Slice {
    pub first: u32,
    pub count: u32,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Header {
    pub magic: [u8; 8],
    pub flags: u32,
    pub reserved: u32,
    pub tasks: Span,
    pub segments: Span,
    pub regions: Span,
    pub maps: Span,
    pub caps: Span,
    pub irqs: Span,
}

/// Header flags.
pub const DEVELOPMENT: u32 = 1;
/// `Call::Log` works.
pub const EARLY_LOG: u32 = 2;
/// The trace buffers are recording from the start.
pub const TRACE: u32 = 4;
/// The kernel prints every task's mappings at `Seal`, physical addresses included; with [`DEVELOPMENT`] only.
pub const MAPS: u32 = 8;

/// Task 0 is the supervisor.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Task {
    pub name: [u8; 16],
    /// Preferred core; on a machine with fewer cores, `core % cores`.
    pub core: u16,
    /// 0 lowest to 31 highest.
    pub priority: u8,
    pub flags: u8,
    /// Budget in every period, microseconds; period 0: no budget.
    pub budget_us: u32,
    pub period_us: u32,
    pub reserved: u32,
    pub entry: u64,
    pub stack_top: u64,
    pub segments: Slice,
    pub maps: Slice,
    pub caps: Slice,
    /// Set of tasks that get RESTART when this one restarts.
    pub neighbours: u64,
}

/// Task flag: SIMD state is saved and restored.
pub const TASK_SIMD: u8 = 1;
/// Task flag (x86): may use the ports of COM1 (0x3f8-0x3ff).
pub const TASK_COM1: u8 = 2;

pub const READ: u32 = 1;
pub const WRITE: u32 = 2;
pub const EXECUTE: u32 = 4;
/// Segment flag: not touched at a restart (heap).
pub const KEEP: u32 = 8;

/// Private memory of one task: text, rodata, data+bss, stack, heap.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Segment {
    /// Page aligned.
    pub vaddr: u64,
    pub pages: u32,
    /// READ, WRITE, EXECUTE, KEEP; never WRITE with EXECUTE.
    pub flags: u32,
    /// Pristine bytes: offset in the package (page aligned) and length; the rest is zero. A segment without WRITE is
    /// mapped from the package itself when `file_len` fills its pages or the package pads it with zeros.
    pub file_offset: u64,
    pub file_len: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum RegionKind {
    /// Ordinary memory.
    Ram = 0,
    /// Physically contiguous, and its address may be asked with `SysOp::Phys`.
    Dma = 1,
    /// Bound with `SysOp::Map`, uncached.
    Device = 2,
    /// Bound with `SysOp::Map`, cached, read-only.
    Firmware = 3,
}

/// Region flag: zeroed when its owner restarts.
pub const REGION_RESET: u16 = 1;
/// Region flag: unmapped everywhere at `Seal`.
pub const REGION_BOOT_ONLY: u16 = 2;
/// Region flag: the kernel fills it with trace records of core `file_offset`.
pub const REGION_TRACE: u16 = 4;

/// Memory that is mapped by [`Map`]s.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Region {
    pub name: [u8; 16],
    pub kind: u16,
    pub flags: u16,
    /// The one task that may write it.
    pub owner: u16,
    pub reserved: u16,
    pub pages: u32,
    pub reserved2: u32,
    /// First content from the package (info pages, configuration); `file_len` 0: zeros.
    pub file_offset: u64,
    pub file_len: u64,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Map {
    pub region: u32,
    /// READ or READ | WRITE.
    pub rights: u32,
    pub vaddr: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum CapKind {
    /// Absent: use of the handle is a fault.
    Null = 0,
    /// `object`: task, `bit`: which bit of its word.
    Signal = 1,
    /// `object`: interrupt.
    Irq = 2,
    /// `object`: task.
    TaskCtl = 3,
    Sys = 4,
}

impl CapKind {
    pub const fn from_number(n: u16) -> Option<Self> {
        Some(match n {
            0 => Self::Null,
            1 => Self::Signal,
            2 => Self::Irq,
            3 => Self::TaskCtl,
            4 => Self::Sys,
            _ => return None,
        })
    }
}

/// A row of a task's constant capability table; the handle is its index there.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Cap {
    pub kind: u16,
    pub object: u16,
    pub bit: u16,
    pub reserved: u16,
}

/// An interrupt, and the bit that it sets.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Irq {
    pub task: u16,
    pub bit: u16,
    pub reserved: u32,
}

/// A system manifest whose spans are in bounds.
#[derive(Clone, Copy, Debug)]
pub struct System<'a> {
    pub header: &'a Header,
    pub tasks: &'a [Task],
    pub segments: &'a [Segment],
    pub regions: &'a [Region],
    pub maps: &'a [Map],
    pub caps: &'a [Cap],
    pub irqs: &'a [Irq],
}

/// What is wrong with a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    TooShort,
    Magic,
    /// The named table leaves the document or is misaligned.
    Table(&'static str),
    /// Entry `1` of the named table refers to something that is not there, or breaks a rule.
    Entry(&'static str, u32),
}

pub(crate) fn table<'a, T: FromBytes + Immutable + KnownLayout>(
    bytes: &'a [u8],
    span: Span,
    name: &'static str,
) -> Result<&'a [T], Error> {
    let rest = bytes.get(span.offset as usize..).ok_or(Error::Table(name))?;
    let (slice, _) =
        <[T]>::ref_from_prefix_with_elems(rest, span.count as usize).map_err(|_| Error::Table(name))?;
    Ok(slice)
}

impl<'a> System<'a> {
    /// `bytes` must be 8-byte aligned. Checks all spans, slices and references.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        let (header, _) = Header::ref_from_prefix(bytes).map_err(|_| Error::TooShort)?;
        if header.magic != MAGIC {
            return Err(Error::Magic);
        }
        let system = System {
            header,
            tasks: table(bytes, header.tasks, "tasks")?,
            segments: table(bytes, header.segments, "segments")?,
            regions: table(bytes, header.regions, "regions")?,
            maps: table(bytes, header.maps, "maps")?,
            caps: table(bytes, header.caps, "caps")?,
            irqs: table(bytes, header.irqs, "irqs")?,
        };
        system.check()?;
        Ok(system)
    }

    fn check(&self) -> Result<(), Error> {
        let fits = |s: Slice, len: usize| (s.first as u64 + s.count as u64) <= len as u64;
        if self.tasks.is_empty() || self.tasks.len() > crate::abi::MAX_TASKS {
            return Err(Error::Table("tasks"));
        }
        if self.header.flags & (DEVELOPMENT | MAPS) == MAPS {
            return Err(Error::Entry("flags", 0));
        }
        let tasks = self.tasks.len();
        for (i, t) in self.tasks.iter().enumerate() {
            let known = tasks == 64 || t.neighbours >> tasks == 0;
            if !fits(t.segments, self.segments.len())
                || !fits(t.maps, self.maps.len())
                || !fits(t.caps, self.caps.len())
                || t.priority > 31
                || t.budget_us > t.period_us
                || !known
            {
                return Err(Error::Entry("tasks", i as u32));
            }
        }
        for (i, s) in self.segments.iter().enumerate() {
            let wx = s.flags & (WRITE | EXECUTE) == WRITE | EXECUTE;
            let end = s.vaddr.checked_add(s.pages as u64 * crate::abi::PAGE as u64);
            if wx
                || !s.vaddr.is_multiple_of(crate::abi::PAGE as u64)
                || end.is_none_or(|e| e > crate::abi::USER_END)
            {
                return Err(Error::Entry("segments", i as u32));
            }
        }
        for (i, m) in self.maps.iter().enumerate() {
            let region = self.regions.get(m.region as usize).ok_or(Error::Entry("maps", i as u32))?;
            let end = m.vaddr.checked_add(region.pages as u64 * crate::abi::PAGE as u64);
            let aligned = m.vaddr.is_multiple_of(crate::abi::PAGE as u64);
            if !aligned || m.rights & EXECUTE != 0 || end.is_none_or(|e| e > crate::abi::USER_END) {
                return Err(Error::Entry("maps", i as u32));
            }
        }
        for (i, r) in self.regions.iter().enumerate() {
            if r.owner as usize >= tasks || r.kind > 3 {
                return Err(Error::Entry("regions", i as u32));
            }
        }
        for (i, c) in self.caps.iter().enumerate() {
            let good = match CapKind::from_number(c.kind) {
                Some(CapKind::Signal) => (c.object as usize) < tasks && c.bit < 62,
                Some(CapKind::TaskCtl) => (c.object as usize) < tasks,
                Some(CapKind::Irq) => (c.object as usize) < self.irqs.len(),
                Some(CapKind::Null | CapKind::Sys) => true,
                None => false,
            };
            if !good {
                return Err(Error::Entry("caps", i as u32));
            }
        }
        for (i, q) in self.irqs.iter().enumerate() {
            if q.task as usize >= tasks || q.bit >= 62 {
                return Err(Error::Entry("irqs", i as u32));
            }
        }
        Ok(())
    }

    pub fn task_segments(&self, t: &Task) -> &'a [Segment] {
        &self.segments[t.segments.first as usize..][..t.segments.count as usize]
    }

    pub fn task_maps(&self, t: &Task) -> &'a [Map] {
        &self.maps[t.maps.first as usize..][..t.maps.count as usize]
    }

    pub fn task_caps(&self, t: &Task) -> &'a [Cap] {
        &self.caps[t.caps.first as usize..][..t.caps.count as usize]
    }
}

/// A name as text; names are ASCII, padded with zeros.
pub fn name(bytes: &[u8; 16]) -> &str {
    let len = bytes.iter().position(|&b| b == 0).unwrap_or(16);
    core::str::from_utf8(&bytes[..len]).unwrap_or("?")
}

/// What a task knows of itself: its constants, at [`crate::abi::INFO_VADDR`].
pub mod info {
    use super::*;

    pub const MAGIC: [u8; 8] = *b"urmqTI01";

    #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
    #[repr(C)]
    pub struct Header {
        pub magic: [u8; 8],
        pub name: [u8; 16],
        pub task: u16,
        pub flags: u16,
        pub reserved: u32,
        pub heap_vaddr: u64,
        pub heap_len: u64,
        /// The service's configuration, postcard; inside this document.
        pub config: Span,
        pub links: Span,
        pub regions: Span,
        pub caps: Span,
    }

    /// One side's view of a link. A link is two halves (rings) and up to two pools, each with one writer.
    #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
    #[repr(C)]
    pub struct Link {
        pub name: [u8; 16],
        /// 0: this task is side A, 1: side B.
        pub side: u16,
        pub peer: u16,
        /// Handle of the signal that wakes the peer.
        pub signal: u16,
        /// The bit of our own word that the peer sets.
        pub bit: u16,
        /// Elements of each ring, a power of two.
        pub capacity: u32,
        pub reserved: u32,
        /// Our half, writable; the peer's half, read-only.
        pub mine: u64,
        pub theirs: u64,
        pub pool_mine: PoolDesc,
        pub pool_theirs: PoolDesc,
    }

    /// `buffers` 0: no pool.
    #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
    #[repr(C)]
    pub struct PoolDesc {
        pub vaddr: u64,
        pub buffers: u32,
        pub size: u32,
    }

    /// A region that the task maps besides its links' halves.
    #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
    #[repr(C)]
    pub struct Region {
        pub name: [u8; 16],
        pub vaddr: u64,
        pub len: u64,
        /// Index in the system manifest, for the supervisor's `Map` and `Phys`.
        pub index: u32,
        pub rights: u32,
        pub kind: u16,
        pub flags: u16,
        pub owner: u16,
        pub reserved: u16,
    }

    /// A capability by name: `irq`, `task:NAME`, `sys`. Links carry theirs in [`Link::signal`].
    #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
    #[repr(C)]
    pub struct NamedCap {
        pub name: [u8; 16],
        pub handle: u16,
        pub kind: u16,
        pub object: u16,
        pub bit: u16,
    }

    #[derive(Clone, Copy, Debug)]
    pub struct Info<'a> {
        pub header: &'a Header,
        pub config: &'a [u8],
        pub links: &'a [Link],
        pub regions: &'a [Region],
        pub caps: &'a [NamedCap],
    }

    /// Length of the document whose first page is `first`: the end of its last table.
    pub fn document_len(first: &[u8]) -> Option<usize> {
        let (h, _) = Header::ref_from_prefix(first).ok()?;
        let end = |s: Span, size: usize| s.offset as usize + s.count as usize * size;
        let tables = [
            end(h.config, 1),
            end(h.links, size_of::<Link>()),
            end(h.regions, size_of::<Region>()),
            end(h.caps, size_of::<NamedCap>()),
        ];
        tables.into_iter().max()
    }

    impl<'a> Info<'a> {
        pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
            let (header, _) = Header::ref_from_prefix(bytes).map_err(|_| Error::TooShort)?;
            if header.magic != MAGIC {
                return Err(Error::Magic);
            }
            Ok(Info {
                header,
                config: table(bytes, header.config, "config")?,
                links: table(bytes, header.links, "links")?,
                regions: table(bytes, header.regions, "regions")?,
                caps: table(bytes, header.caps, "caps")?,
            })
        }
    }
}
