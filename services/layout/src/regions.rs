//! Which part of the partition holds what.

use crate::geometry::{Geometry, MIB};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Kind {
    Database = 1,
    Wal = 2,
    BackupA = 3,
    BackupB = 4,
    /// Last on the partition: what the disk grows by is its.
    Telemetry = 5,
}

impl Kind {
    /// In the order in which they lie.
    pub const ALL: [Kind; 5] = [Kind::Database, Kind::Wal, Kind::BackupA, Kind::BackupB, Kind::Telemetry];

    pub const fn from_number(n: u16) -> Option<Self> {
        Some(match n {
            1 => Kind::Database,
            2 => Kind::Wal,
            3 => Kind::BackupA,
            4 => Kind::BackupB,
            5 => Kind::Telemetry,
            _ => return None,
        })
    }

    pub const fn name(self) -> &'static str {
        match self {
            Kind::Database => "database",
            Kind::Wal => "wal",
            Kind::BackupA => "backup-a",
            Kind::BackupB => "backup-b",
            Kind::Telemetry => "telemetry",
        }
    }
}

/// Bytes from the partition's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    pub kind: Kind,
    pub offset: u64,
    pub len: u64,
}

impl Region {
    pub fn end(&self) -> u64 {
        self.offset + self.len
    }
}

/// What the configuration asks for, in bytes. Each is rounded up to the alignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    pub database: u64,
    pub wal: u64,
    /// At least; it gets all that is left.
    pub telemetry: u64,
}

impl Default for Sizes {
    fn default() -> Self {
        Sizes { database: 256 * MIB, wal: 32 * MIB, telemetry: 64 * MIB }
    }
}

/// The partition has less than the regions need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooSmall {
    pub needed: u64,
    pub there: u64,
}

impl core::fmt::Display for TooSmall {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "the data partition has {} MiB, the regions need {} MiB",
            self.there / MIB,
            self.needed.div_ceil(MIB)
        )
    }
}

/// Lays the regions out behind the superblocks: database, WAL, two backups of the database's size, and telemetry to the end.
pub fn lay_out(geometry: &Geometry, sizes: &Sizes) -> Result<[Region; 5], TooSmall> {
    let there = geometry.usable();
    let rounded = |bytes: u64| bytes.max(1).div_ceil(geometry.align).checked_mul(geometry.align);
    let layout = || {
        let (database, wal) = (rounded(sizes.database)?, rounded(sizes.wal)?);
        let mut at = geometry.align;
        let mut next = |kind, len: u64| {
            let region = Region { kind, offset: at, len };
            at = at.checked_add(len)?;
            Some(region)
        };
        Some([
            next(Kind::Database, database)?,
            next(Kind::Wal, wal)?,
            next(Kind::BackupA, database)?,
            next(Kind::BackupB, database)?,
            next(Kind::Telemetry, rounded(sizes.telemetry)?)?,
        ])
    };
    let Some(mut regions) = layout() else { return Err(TooSmall { needed: u64::MAX, there }) };
    let needed = regions[4].end();
    if needed > there {
        return Err(TooSmall { needed, there });
    }
    regions[4].len += there - needed;
    Ok(regions)
}
