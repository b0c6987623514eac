//! What the device says of itself, checked.

/// Regions start and end on multiples of this, and of the optimal I/O size where that is larger.
pub const MIB: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Of the partition.
    pub bytes: u64,
    /// Smallest unit that the device reads and writes: 512 to 4096, a power of two.
    pub logical: u32,
    /// What it writes without reading first, and what a power cut may tear: `logical` to 64 KiB, a power of two.
    pub physical: u32,
    /// Regions are aligned to it: 1 MiB to 64 MiB, a power of two.
    pub align: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrongGeometry {
    /// Not a power of two from 512 to 4096.
    Logical(u32),
    /// Not a power of two from the logical block to 64 KiB.
    Physical(u32),
    /// No whole logical blocks.
    Bytes(u64),
}

impl core::fmt::Display for WrongGeometry {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            WrongGeometry::Logical(n) => write!(f, "logical blocks of {n} bytes: 512 to 4096 are supported"),
            WrongGeometry::Physical(n) => {
                write!(f, "physical blocks of {n} bytes: up to 65536 are supported")
            }
            WrongGeometry::Bytes(n) => write!(f, "{n} bytes are no whole number of blocks"),
        }
    }
}

impl Geometry {
    /// `optimal`: the device's optimal I/O size in bytes, 0 where it names none; one that is odd or beyond 64 MiB is ignored.
    pub fn new(bytes: u64, logical: u32, physical: u32, optimal: u64) -> Result<Self, WrongGeometry> {
        if !logical.is_power_of_two() || !(512..=4096).contains(&logical) {
            return Err(WrongGeometry::Logical(logical));
        }
        if !physical.is_power_of_two() || !(logical..=64 << 10).contains(&physical) {
            return Err(WrongGeometry::Physical(physical));
        }
        if !bytes.is_multiple_of(logical as u64) {
            return Err(WrongGeometry::Bytes(bytes));
        }
        let sensible = optimal.is_power_of_two() && optimal <= 64 * MIB;
        Ok(Geometry { bytes, logical, physical, align: if sensible { optimal.max(MIB) } else { MIB } })
    }

    /// What of the partition can be used: whole units of alignment.
    pub fn usable(&self) -> u64 {
        self.bytes - self.bytes % self.align
    }
}
