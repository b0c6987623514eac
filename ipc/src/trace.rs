//! Trace records: 32 bytes, little-endian, one buffer a core, two halves with a wrap counter each.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Record {
    pub ticks: u64,
    /// A [`Kind`].
    pub kind: u8,
    pub core: u8,
    pub task: u16,
    pub epoch: u32,
    pub a: u64,
    pub b: u64,
}

/// What happened; the meaning of `a` and `b` stands beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// a: task switched from (`u64::MAX`: idle).
    Switch = 1,
    /// a: mask, b: deadline.
    WaitIn = 2,
    /// a: bits.
    WaitOut = 3,
    /// a: task signalled, b: bit.
    Signal = 4,
    /// a: interrupt of the manifest.
    Irq = 5,
    /// a: ticks until the period ends.
    Budget = 6,
    /// a: fault kind, b: address.
    Fault = 7,
    /// a: new epoch.
    Restart = 8,
    /// a: link, b: peer's epoch.
    LinkUp = 9,
    LinkDown = 10,
    /// a: link << 32 | index, b: elements.
    Publish = 11,
    Consume = 12,
    /// a, b: the task's own.
    Mark = 13,
}

/// First 32 bytes of each half of a core's buffer; the half's records follow. The kernel writes the halves in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct HalfHeader {
    /// Which use of a half this is: 1, 2, 3 …; the first half has the odd numbers. 0: never used. A reader loads it
    /// (Acquire), copies, and loads it again: another number means that the copy is lost. A gap between the two halves'
    /// numbers and what was read before counts the lost halves.
    pub sequence: u64,
    /// Records that are complete.
    pub count: u64,
    pub reserved: [u64; 2],
}
