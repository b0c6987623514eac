//! Page tables, independent of how an architecture encodes an entry.

/// Cacheability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Write-back.
    Normal,
    /// Uncached, ordered: device registers.
    Device,
}

/// Rights of a leaf. Every leaf is readable. A user leaf is never executable by the kernel and the other way round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags {
    pub write: bool,
    pub execute: bool,
    pub user: bool,
    pub memory: Memory,
}

/// A decoded entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    Empty,
    Table(u64),
    Leaf(u64, Flags),
}
