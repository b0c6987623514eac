//! The memory map: what firmware says, what the loader took, in order and without overlaps.

use core::fmt;

pub const PAGE: u64 = 4096;
/// Most regions that are kept.
pub const MAX_REGIONS: usize = 512;
/// End of the physical addresses that all our processors and page tables know.
pub const END: u64 = 1 << 48;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Usable,
    /// Usable after the handoff; until then firmware's page tables, stack or code may lie there.
    Firmware,
    Reserved,
    AcpiReclaimable,
    AcpiNvs,
    Bad,
    /// The loader's own, and what it leaves for the kernel to read.
    Loader,
    /// Kernel and modules.
    Executable,
}

/// `base..end`, whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    pub base: u64,
    pub end: u64,
    pub kind: Kind,
}

/// The map is full, or no memory is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    TooManyRegions,
    NoMemory,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::TooManyRegions => "memory map has too many regions",
            Error::NoMemory => "not enough memory",
        })
    }
}

/// Sorted, disjoint regions; neighbours differ in kind or don't touch.
#[derive(Clone, Debug)]
pub struct MemoryMap {
    /// With room for the pieces of one region before they are joined to their neighbours.
    regions: [Region; MAX_REGIONS + 2],
    len: usize,
}

impl Default for MemoryMap {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryMap {
    pub const fn new() -> Self {
        MemoryMap { regions: [Region { base: 0, end: 0, kind: Kind::Reserved }; MAX_REGIONS + 2], len: 0 }
    }

    pub fn regions(&self) -> &[Region] {
        &self.regions[..self.len]
    }

    /// What firmware says of `len` bytes at `base`. Add all [`Kind::Usable`] and [`Kind::Firmware`] first: what is
    /// added later wins where firmware contradicts itself. Page 0 is never usable.
    pub fn add(&mut self, base: u64, len: u64, kind: Kind) -> Result<(), Error> {
        let end = base.saturating_add(len).min(END);
        match kind {
            Kind::Usable | Kind::Firmware => {
                self.set(base.min(END).next_multiple_of(PAGE).max(PAGE), end / PAGE * PAGE, kind)
            }
            _ => self.set(base / PAGE * PAGE, end.next_multiple_of(PAGE), kind),
        }
    }

    /// Makes `base..end`, whole pages, of this kind, whatever it was.
    pub fn set(&mut self, base: u64, end: u64, kind: Kind) -> Result<(), Error> {
        if base >= end {
            return Ok(());
        }
        let first = self.regions().partition_point(|r| r.end <= base);
        let last = self.regions().partition_point(|r| r.base < end);
        let mut new = [Region { base, end, kind }; 3];
        let mut count = 0;
        if first < last && self.regions[first].base < base {
            new[count] = Region { end: base, ..self.regions[first] };
            count += 1;
        }
        new[count] = Region { base, end, kind };
        count += 1;
        if first < last && self.regions[last - 1].end > end {
            new[count] = Region { base: end, ..self.regions[last - 1] };
            count += 1;
        }
        self.replace(first, last, &new[..count])?;
        self.merge(first.saturating_sub(1), first + count + 1);
        if self.len <= MAX_REGIONS { Ok(()) } else { Err(Error::TooManyRegions) }
    }

    fn replace(&mut self, first: usize, last: usize, new: &[Region]) -> Result<(), Error> {
        let len = self.len - (last - first) + new.len();
        if len > self.regions.len() {
            return Err(Error::TooManyRegions);
        }
        self.regions.copy_within(last..self.len, first + new.len());
        self.regions[first..first + new.len()].copy_from_slice(new);
        self.len = len;
        Ok(())
    }

    /// Joins touching regions of one kind among `first..last`.
    fn merge(&mut self, first: usize, last: usize) {
        let mut at = first;
        let mut left = last.saturating_sub(first);
        while left > 0 && at + 1 < self.len {
            let (a, b) = (self.regions[at], self.regions[at + 1]);
            if a.end == b.base && a.kind == b.kind {
                self.regions[at].end = b.end;
                self.regions.copy_within(at + 2..self.len, at + 1);
                self.len -= 1;
            } else {
                at += 1;
            }
            left -= 1;
        }
    }

    /// Takes `pages` from the highest usable place that ends at or below `limit`, and makes it of this kind. Gives the
    /// physical address.
    pub fn take(&mut self, pages: u64, limit: u64, kind: Kind) -> Result<u64, Error> {
        let bytes = pages.checked_mul(PAGE).ok_or(Error::NoMemory)?;
        let base = (self.regions().iter().rev())
            .filter(|r| r.kind == Kind::Usable)
            .find_map(|r| r.end.min(limit / PAGE * PAGE).checked_sub(bytes).filter(|&b| b >= r.base))
            .ok_or(Error::NoMemory)?;
        self.set(base, base + bytes, kind)?;
        Ok(base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    fn kinds(map: &MemoryMap) -> Vec<(u64, u64, Kind)> {
        map.regions().iter().map(|r| (r.base, r.end, r.kind)).collect()
    }

    #[test]
    fn later_wins_and_neighbours_join() {
        let mut map = MemoryMap::new();
        map.add(0, 640 << 10, Kind::Usable).unwrap();
        map.add(MIB, 127 * MIB, Kind::Usable).unwrap();
        map.add(2 * MIB + 1, MIB - 2, Kind::Reserved).unwrap();
        map.add(3 * MIB, MIB, Kind::Reserved).unwrap();
        assert_eq!(
            kinds(&map),
            [
                (4096, 640 << 10, Kind::Usable),
                (MIB, 2 * MIB, Kind::Usable),
                (2 * MIB, 4 * MIB, Kind::Reserved),
                (4 * MIB, 128 * MIB, Kind::Usable)
            ]
        );
    }

    #[test]
    fn takes_from_the_top_below_the_limit() {
        let mut map = MemoryMap::new();
        map.add(MIB, MIB, Kind::Usable).unwrap();
        map.add(4 << 30, MIB, Kind::Usable).unwrap();
        assert_eq!(map.take(1, 4 << 30, Kind::Loader), Ok(2 * MIB - PAGE));
        assert_eq!(map.take(2, 4 << 30, Kind::Loader), Ok(2 * MIB - 3 * PAGE));
        assert_eq!(map.take(1, u64::MAX, Kind::Executable), Ok((4 << 30) + MIB - PAGE));
        assert_eq!(map.take(257, u64::MAX, Kind::Loader), Err(Error::NoMemory));
        assert_eq!(map.take(u64::MAX, u64::MAX, Kind::Loader), Err(Error::NoMemory));
        assert_eq!(kinds(&map)[1], (2 * MIB - 3 * PAGE, 2 * MIB, Kind::Loader));
    }

    #[test]
    fn refuses_more_than_it_holds() {
        let mut map = MemoryMap::new();
        for i in 0..MAX_REGIONS as u64 {
            map.add((2 * i + 1) * PAGE, PAGE, Kind::Usable).unwrap();
        }
        // Room comes back where regions join.
        map.add(2 * PAGE, PAGE, Kind::Usable).unwrap();
        assert_eq!(map.add(1 << 40, PAGE, Kind::Usable), Ok(()));
        for i in 0..9 {
            assert_eq!(map.add((1 << 41) + 2 * i * PAGE, PAGE, Kind::Usable), Err(Error::TooManyRegions));
        }
    }

    fn any_kind() -> impl Strategy<Value = Kind> {
        prop_oneof![Just(Kind::Usable), Just(Kind::Reserved), Just(Kind::Loader), Just(Kind::Bad)]
    }

    proptest! {
        /// Against a map with one entry a page.
        #[test]
        fn is_a_painting(strokes in proptest::collection::vec((0u64..64, 0u64..64, any_kind()), 0..40)) {
            let mut map = MemoryMap::new();
            let mut model = [None; 64];
            for (a, b, kind) in strokes {
                let (first, last) = (a.min(b), a.max(b));
                map.set(first * PAGE, last * PAGE, kind).unwrap();
                model[first as usize..last as usize].fill(Some(kind));
            }
            for (page, kind) in model.iter().enumerate() {
                let at = page as u64 * PAGE;
                let found = map.regions().iter().find(|r| r.base <= at && at < r.end).map(|r| r.kind);
                prop_assert_eq!(found, *kind);
            }
            for pair in map.regions().windows(2) {
                prop_assert!(pair[0].end < pair[1].base || (pair[0].end == pair[1].base && pair[0].kind != pair[1].kind));
            }
        }

        #[test]
        fn any_firmware_is_survived(entries in proptest::collection::vec((any::<u64>(), any::<u64>(), any_kind()), 0..80)) {
            let mut map = MemoryMap::new();
            for (base, len, kind) in entries {
                map.add(base, len, kind).unwrap();
            }
            prop_assert!(map.regions().iter().all(|r| r.base < r.end && r.base % PAGE == 0 && r.end <= END));
            prop_assert!(map.regions().iter().all(|r| r.kind != Kind::Usable || r.base > 0));
            let _ = map.take(5, 4 << 30, Kind::Loader);
        }
    }
}
