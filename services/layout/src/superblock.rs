//! The superblock: identity, generation, regions, and what must not be guessed from the regions' own bytes.

use crate::geometry::Geometry;
use crate::regions::{Kind, Region, Sizes, TooSmall, lay_out};
use crc::{CRC_32_ISCSI, Crc, Table};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Bytes of a superblock. The rest of what a slot reserves stays zero.
pub const BLOCK: usize = 4096;
/// Offsets of the two slots: in different physical blocks, and both in the partition's first MiB.
pub const SLOTS: [u64; 2] = [0, 512 << 10];
pub const VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"urmqDATA";

/// CRC-32C.
static CRC: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);

/// As it lies on the disk; the offsets are those of docs/disk-layout.md.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    version: U32,
    logical: U32,
    generation: U64,
    identity: [u8; 16],
    used: U64,
    align: U64,
    physical: U32,
    page_bytes: U32,
    database_pages: U64,
    backup_generations: [U64; 2],
    regions: [RawRegion; 5],
    zeros: [u8; BLOCK - 212],
    /// Of all bytes before it.
    crc: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawRegion {
    kind: U16,
    zeros: [u8; 6],
    offset: U64,
    len: U64,
}

const _: () = assert!(size_of::<Raw>() == BLOCK);

/// The whole copies of the database: 0 means none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    pub a: u64,
    pub b: u64,
}

/// A superblock that keeps every rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Which of two superblocks is the newer one. From 1.
    pub generation: u64,
    /// Chosen when the partition was formatted; both slots bear it.
    pub identity: [u8; 16],
    /// Block sizes of the device that it was formatted on.
    pub logical: u32,
    pub physical: u32,
    /// Bytes of the partition that are laid out, and their alignment.
    pub used: u64,
    pub align: u64,
    /// SQLite's page, and how many of them the database has. 0 pages: it isn't formatted. (A torn first page must not
    /// look like an empty database.)
    pub page_bytes: u32,
    pub database_pages: u64,
    /// Generation of the superblock that declared each backup whole.
    pub copies: Copies,
    pub regions: [Region; 5],
}

/// Why a slot holds no superblock of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Nothing but zeros.
    Zeros,
    /// Something else's bytes.
    Magic,
    /// Ours, whole, and of this version.
    Version(u32),
    /// Ours by its magic, but damaged.
    Crc,
    /// Whole, and yet against the rules: this field.
    Rule(&'static str),
}

impl Superblock {
    /// The first one of a partition.
    pub fn format(
        geometry: &Geometry,
        sizes: &Sizes,
        identity: [u8; 16],
        page_bytes: u32,
    ) -> Result<Self, TooSmall> {
        Ok(Superblock {
            generation: 1,
            identity,
            logical: geometry.logical,
            physical: geometry.physical,
            used: geometry.usable(),
            align: geometry.align,
            page_bytes,
            database_pages: 0,
            copies: Copies::default(),
            regions: lay_out(geometry, sizes)?,
        })
    }

    /// The slot that this generation goes to: never the one of the generation before.
    pub fn slot(&self) -> usize {
        (self.generation % 2) as usize
    }

    /// The next generation, to be changed, written to its slot, and flushed before anything relies on it.
    pub fn next(&self) -> Self {
        Superblock { generation: self.generation + 1, ..self.clone() }
    }

    /// Takes in what the disk has grown by: telemetry's. `None`: it hasn't grown by a unit.
    pub fn grown(&self, partition_bytes: u64) -> Option<Self> {
        let used = partition_bytes - partition_bytes % self.align;
        (used > self.used).then(|| {
            let mut next = self.next();
            next.regions[4].len += used - self.used;
            next.used = used;
            next
        })
    }

    pub fn region(&self, kind: Kind) -> Region {
        self.regions[kind as usize - 1]
    }

    pub fn encode(&self) -> [u8; BLOCK] {
        let mut raw = Raw {
            magic: MAGIC,
            version: VERSION.into(),
            logical: self.logical.into(),
            generation: self.generation.into(),
            identity: self.identity,
            used: self.used.into(),
            align: self.align.into(),
            physical: self.physical.into(),
            page_bytes: self.page_bytes.into(),
            database_pages: self.database_pages.into(),
            backup_generations: [self.copies.a.into(), self.copies.b.into()],
            regions: self.regions.map(|r| RawRegion {
                kind: (r.kind as u16).into(),
                zeros: [0; 6],
                offset: r.offset.into(),
                len: r.len.into(),
            }),
            ..Raw::new_zeroed()
        };
        raw.crc = checksum(raw.as_bytes()).into();
        let mut block = [0; BLOCK];
        block.copy_from_slice(raw.as_bytes());
        block
    }

    /// `partition_bytes`: no region may leave the partition.
    pub fn decode(block: &[u8; BLOCK], partition_bytes: u64) -> Result<Self, Wrong> {
        if block.iter().all(|&b| b == 0) {
            return Err(Wrong::Zeros);
        }
        let raw = Raw::read_from_bytes(block).expect("of this size");
        if raw.magic != MAGIC {
            return Err(Wrong::Magic);
        }
        if raw.crc.get() != checksum(block) {
            return Err(Wrong::Crc);
        }
        // Every version keeps magic, version and CRC where they are.
        if raw.version.get() != VERSION {
            return Err(Wrong::Version(raw.version.get()));
        }
        let superblock = Superblock {
            generation: raw.generation.get(),
            identity: raw.identity,
            logical: raw.logical.get(),
            physical: raw.physical.get(),
            used: raw.used.get(),
            align: raw.align.get(),
            page_bytes: raw.page_bytes.get(),
            database_pages: raw.database_pages.get(),
            copies: Copies { a: raw.backup_generations[0].get(), b: raw.backup_generations[1].get() },
            regions: regions(&raw)?,
        };
        superblock.check(partition_bytes)?;
        match superblock.encode() == *block {
            true => Ok(superblock),
            false => Err(Wrong::Rule("bytes that must be zero")),
        }
    }

    fn check(&self, partition_bytes: u64) -> Result<(), Wrong> {
        let geometry = Geometry::new(self.used, self.logical, self.physical, self.align);
        let sized = geometry.is_ok_and(|g| g.align == self.align && g.usable() == self.used);
        let lies =
            |r: &Region| r.offset.is_multiple_of(self.align) && r.len.is_multiple_of(self.align) && r.len > 0;
        // Each begins where the one before it ends: none overlaps, none is lost.
        let ends = self
            .regions
            .iter()
            .try_fold(self.align, |at, r| if r.offset == at { at.checked_add(r.len) } else { None });
        let database = self.region(Kind::Database).len;
        let backups = [Kind::BackupA, Kind::BackupB].iter().all(|&k| self.region(k).len == database);
        let paged = self.page_bytes.is_power_of_two() && (512..=65536).contains(&self.page_bytes);
        let fits =
            self.database_pages.checked_mul(self.page_bytes as u64).is_some_and(|bytes| bytes <= database);
        let rules = [
            (self.generation > 0 && self.generation < u64::MAX, "generation"),
            (sized, "block sizes, alignment or used bytes"),
            (self.used <= partition_bytes, "used bytes beyond the partition"),
            (self.regions.iter().all(lies) && ends == Some(self.used), "regions"),
            (backups, "sizes of the backups"),
            (paged && fits, "pages of the database"),
            (
                self.copies.a <= self.generation && self.copies.b <= self.generation,
                "generations of the backups",
            ),
        ];
        rules.iter().find(|(holds, _)| !holds).map_or(Ok(()), |&(_, rule)| Err(Wrong::Rule(rule)))
    }
}

/// In their order.
fn regions(raw: &Raw) -> Result<[Region; 5], Wrong> {
    let mut regions = Kind::ALL.map(|kind| Region { kind, offset: 0, len: 0 });
    for (region, raw) in regions.iter_mut().zip(&raw.regions) {
        if Kind::from_number(raw.kind.get()) != Some(region.kind) {
            return Err(Wrong::Rule("kinds of the regions"));
        }
        (region.offset, region.len) = (raw.offset.get(), raw.len.get());
    }
    Ok(regions)
}

fn checksum(block: &[u8]) -> u32 {
    CRC.checksum(&block[..BLOCK - 4])
}

#[cfg(test)]
#[path = "superblock_tests.rs"]
mod tests;
