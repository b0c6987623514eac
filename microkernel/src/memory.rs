//! Boot memory: hands out pages of the loader's memory map, once, and never takes them back.
//!
//! Page tables come from the top of the largest range downwards, everything else from the bottom of each range
//! upwards. So tables lie together and can be made read-only together, and what is not handed out at the end is not
//! even mapped.

use crate::paging::{PAGE, PhysicalMap, TableSource};

/// Ranges that are kept of the loader's map; the smallest of more are dropped.
pub const MAX_RANGES: usize = 32;
/// Nothing below is used: on x86 the firmware's and the loader's low memory.
const LOWEST: u64 = 1 << 20;

/// `start..end` of physical memory, whole pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    pub start: u64,
    pub end: u64,
}

impl Range {
    pub fn new(start: u64, len: u64) -> Self {
        Range { start, end: start.saturating_add(len) }
    }

    pub fn bytes(self) -> u64 {
        self.end - self.start
    }

    pub fn touches(self, other: Range) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// The allocator. Pages are zeroed when they are handed out.
#[derive(Debug)]
pub struct BootMemory {
    map: PhysicalMap,
    /// What is free of each range now; `used` of it has been handed out from below.
    free: [Range; MAX_RANGES],
    bottoms: [u64; MAX_RANGES],
    count: usize,
    /// Index of the range whose top holds the tables, and that top.
    tables: usize,
    tables_end: u64,
}

impl BootMemory {
    /// # Safety
    /// `usable` are ranges of ordinary memory that nobody uses and that `map` reaches.
    pub unsafe fn new(map: PhysicalMap, usable: impl Iterator<Item = Range>) -> Self {
        let mut memory = BootMemory {
            map,
            free: [Range::default(); MAX_RANGES],
            bottoms: [0; MAX_RANGES],
            count: 0,
            tables: 0,
            tables_end: 0,
        };
        usable.for_each(|r| memory.add(r));
        for i in 0..memory.count {
            memory.bottoms[i] = memory.free[i].start;
            if memory.free[i].bytes() > memory.free[memory.tables].bytes() {
                memory.tables = i;
            }
        }
        memory.tables_end = memory.free[memory.tables].end;
        memory
    }

    fn add(&mut self, range: Range) {
        let start = range.start.max(LOWEST).next_multiple_of(PAGE);
        let end = range.end / PAGE * PAGE;
        if start >= end {
            return;
        }
        let range = Range { start, end };
        if self.count < MAX_RANGES {
            self.free[self.count] = range;
            self.count += 1;
        } else if let Some(smallest) = self.free.iter_mut().min_by_key(|r| r.bytes())
            && smallest.bytes() < range.bytes()
        {
            *smallest = range;
        }
    }

    /// `pages` contiguous zeroed pages at a multiple of `align` (a power of two, at least a page).
    pub fn take(&mut self, pages: u64, align: u64) -> Option<u64> {
        let len = pages.checked_mul(PAGE)?;
        for range in &mut self.free[..self.count] {
            let at = range.start.next_multiple_of(align);
            let Some(end) = at.checked_add(len) else { continue };
            if end <= range.end {
                range.start = end;
                self.zero(at, len);
                return Some(at);
            }
        }
        None
    }

    fn zero(&self, phys: u64, len: u64) {
        // SAFETY: `new`'s promise, and the pages were just taken out of `free`.
        unsafe { zero_pages(self.map.at(phys), len as usize) }
    }

    /// Bytes that are not handed out.
    pub fn free_bytes(&self) -> u64 {
        self.free[..self.count].iter().map(|r| r.bytes()).sum()
    }

    /// The pages handed out as tables so far.
    pub fn tables(&self) -> Range {
        Range { start: self.free[self.tables].end, end: self.tables_end }
    }

    /// The pages handed out from the bottom of each range so far.
    pub fn used(&self) -> impl Iterator<Item = Range> {
        (0..self.count)
            .map(|i| Range { start: self.bottoms[i], end: self.free[i].start })
            .filter(|r| r.bytes() > 0)
    }

    /// Address space that can be or has been handed out.
    pub fn owned(&self) -> impl Iterator<Item = Range> {
        (0..self.count).map(|i| {
            let end = if i == self.tables { self.tables_end } else { self.free[i].end };
            Range { start: self.bottoms[i], end }
        })
    }
}

impl TableSource for BootMemory {
    fn take_table(&mut self) -> Option<u64> {
        let range = &mut self.free[self.tables];
        if range.bytes() < PAGE {
            return None;
        }
        range.end -= PAGE;
        let table = range.end;
        self.zero(table, PAGE);
        Some(table)
    }
}

/// # Safety
/// As `Machine::zero_pages`.
unsafe fn zero_pages(at: *mut u8, len: usize) {
    #[cfg(target_os = "none")]
    // SAFETY: the caller's promise.
    unsafe {
        <crate::arch::Arch as crate::arch::Machine>::zero_pages(at, len)
    }
    #[cfg(not(target_os = "none"))]
    // SAFETY: the caller's promise.
    unsafe {
        core::ptr::write_bytes(at, 0, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paging::testing::Arena;
    use proptest::prelude::*;

    const BASE: u64 = 0x200_0000;

    fn memory(arena: &mut Arena, ranges: &[(u64, u64)]) -> BootMemory {
        let map = arena.map();
        let ranges: Vec<_> =
            ranges.iter().map(|&(first, pages)| Range::new(BASE + first * PAGE, pages * PAGE)).collect();
        // SAFETY: the ranges lie in the arena, which outlives the test's use.
        unsafe { BootMemory::new(map, ranges.into_iter()) }
    }

    #[test]
    fn tables_come_from_the_top_of_the_largest_range() {
        let mut arena = Arena::new(40, BASE);
        let mut m = memory(&mut arena, &[(0, 4), (8, 20), (30, 10)]);
        assert_eq!(m.take_table(), Some(BASE + 27 * PAGE));
        assert_eq!(m.take_table(), Some(BASE + 26 * PAGE));
        assert_eq!(m.tables(), Range { start: BASE + 26 * PAGE, end: BASE + 28 * PAGE });
        assert_eq!(m.take(5, PAGE), Some(BASE + 8 * PAGE));
        assert_eq!(m.take(4, PAGE), Some(BASE));
        let used: Vec<_> = m.used().map(|r| r.bytes() / PAGE).collect();
        assert_eq!(used, [4, 5]);
        assert_eq!(m.free_bytes(), (20 - 2 - 5 + 10) * PAGE);
    }

    #[test]
    fn low_memory_and_partial_pages_are_left_alone() {
        let map = PhysicalMap { offset: 0 };
        let ranges = [
            Range { start: 0, end: LOWEST + PAGE - 1 },
            Range { start: LOWEST + 1, end: LOWEST + 3 * PAGE - 1 },
        ];
        // SAFETY: nothing is taken.
        let m = unsafe { BootMemory::new(map, ranges.into_iter()) };
        assert_eq!(m.owned().collect::<Vec<_>>(), [Range { start: LOWEST + PAGE, end: LOWEST + 2 * PAGE }]);
    }

    #[test]
    fn exhaustion_is_none() {
        let mut arena = Arena::new(4, BASE);
        let mut m = memory(&mut arena, &[(0, 4)]);
        assert_eq!(m.take(5, PAGE), None);
        assert_eq!(m.take(u64::MAX, PAGE), None);
        assert!(m.take(3, PAGE).is_some() && m.take_table().is_some());
        assert_eq!((m.take_table(), m.take(1, PAGE)), (None, None));
    }

    proptest! {
        #[test]
        fn nothing_is_handed_out_twice(asks in prop::collection::vec((1u64..6, 0u32..4, any::<bool>()), 1..40)) {
            let mut arena = Arena::new(128, BASE);
            let mut m = memory(&mut arena, &[(0, 60), (64, 64)]);
            let mut given: Vec<Range> = Vec::new();
            for (pages, align, table) in asks {
                let got = if table { m.take_table().map(|at| Range::new(at, PAGE)) } else {
                    m.take(pages, PAGE << align).map(|at| Range::new(at, pages * PAGE))
                };
                if let Some(range) = got {
                    prop_assert!(table || range.start.is_multiple_of(PAGE << align));
                    prop_assert!(given.iter().all(|g| !g.touches(range)));
                    prop_assert!(m.owned().any(|o| o.start <= range.start && range.end <= o.end));
                    given.push(range);
                }
            }
        }
    }
}
