//! Page tables, independent of how an architecture encodes an entry.
//!
//! Both architectures have four levels of 512 entries: level 3 is the root, level 0 holds 4 KiB leaves, level 1 may hold
//! 2 MiB leaves. Tables are reached through a linear map of physical memory, on the host as well as in the kernel.

use core::marker::PhantomData;

use crate::arch::Format;
use crate::memory::Range;

pub const PAGE: u64 = 4096;
pub const LARGE_PAGE: u64 = 2 << 20;
/// First address of the kernel's half.
pub const UPPER_HALF: u64 = 0xffff_8000_0000_0000;
/// Index in the root of the kernel's half, where the root is shared.
pub const UPPER_INDEX: usize = 256;

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

impl Flags {
    pub const KERNEL_DATA: Self = Self { write: true, execute: false, user: false, memory: Memory::Normal };
    pub const KERNEL_RODATA: Self = Self { write: false, ..Self::KERNEL_DATA };
    pub const KERNEL_TEXT: Self = Self { execute: true, ..Self::KERNEL_RODATA };
    pub const KERNEL_DEVICE: Self = Self { memory: Memory::Device, ..Self::KERNEL_DATA };

    /// Of a task's ordinary memory.
    pub const fn user(write: bool, execute: bool) -> Self {
        Self { write, execute, user: true, memory: Memory::Normal }
    }
}

/// A decoded entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    Empty,
    Table(u64),
    Leaf(u64, Flags),
}

/// The linear map of physical memory: virtual = physical + offset.
#[derive(Clone, Copy, Debug)]
pub struct PhysicalMap {
    pub offset: u64,
}

impl PhysicalMap {
    pub fn at<T>(self, phys: u64) -> *mut T {
        phys.wrapping_add(self.offset) as *mut T
    }
}

/// Where new tables come from: zeroed pages.
pub trait TableSource {
    fn take_table(&mut self) -> Option<u64>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapError {
    /// No memory for another table.
    NoTable,
    /// The address has a mapping already.
    Mapped,
    /// There is no table for the address.
    NoPath,
}

/// One tree of page tables.
#[derive(Debug)]
pub struct Space<F> {
    root: u64,
    map: PhysicalMap,
    format: PhantomData<F>,
}

impl<F> Clone for Space<F> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<F> Copy for Space<F> {}

const fn index(vaddr: u64, level: u32) -> usize {
    (vaddr >> (12 + 9 * level)) as usize & 511
}

impl<F: Format> Space<F> {
    /// # Safety
    /// `root` is a table, and it and all tables below are tables that `map` reaches, changed by nobody but the owner
    /// of this `Space` (copies of it are used one at a time).
    pub unsafe fn new(root: u64, map: PhysicalMap) -> Self {
        Space { root, map, format: PhantomData }
    }

    pub fn root(&self) -> u64 {
        self.root
    }

    fn read(&self, table: u64, index: usize) -> u64 {
        // SAFETY: `new`'s promise: `table` is a table in the map; `index` < 512 by all callers' masks and ranges.
        // Volatile, because the processor reads (and on x86 marks) these words on its own.
        unsafe { self.map.at::<u64>(table).add(index & 511).read_volatile() }
    }

    fn write(&self, table: u64, index: usize, entry: u64) {
        // SAFETY: as in `read`.
        unsafe { self.map.at::<u64>(table).add(index & 511).write_volatile(entry) }
    }

    /// The table at `level` for `vaddr`, made with all above it.
    fn make_table(&self, source: &mut dyn TableSource, vaddr: u64, level: u32) -> Result<u64, MapError> {
        let mut table = self.root;
        for upper in (level + 1..=3).rev() {
            let i = index(vaddr, upper);
            table = match F::decode(self.read(table, i), upper) {
                Entry::Table(next) => next,
                Entry::Leaf(..) => return Err(MapError::Mapped),
                Entry::Empty => {
                    let next = source.take_table().ok_or(MapError::NoTable)?;
                    self.write(table, i, F::table(next, vaddr < UPPER_HALF));
                    next
                }
            };
        }
        Ok(table)
    }

    /// Maps one leaf at `level` (0: 4 KiB, 1: 2 MiB) where nothing is mapped.
    pub fn map(
        &self,
        source: &mut dyn TableSource,
        vaddr: u64,
        phys: u64,
        level: u32,
        flags: Flags,
    ) -> Result<(), MapError> {
        let table = self.make_table(source, vaddr, level)?;
        let i = index(vaddr, level);
        if F::decode(self.read(table, i), level) != Entry::Empty {
            return Err(MapError::Mapped);
        }
        self.write(table, i, F::leaf(phys, level, flags));
        Ok(())
    }

    /// Maps `pages` pages where nothing is mapped.
    pub fn map_pages(
        &self,
        source: &mut dyn TableSource,
        vaddr: u64,
        phys: u64,
        pages: u64,
        flags: Flags,
    ) -> Result<(), MapError> {
        let mut table = 0;
        for page in 0..pages {
            let at = vaddr + page * PAGE;
            let i = index(at, 0);
            if page == 0 || i == 0 {
                table = self.make_table(source, at, 0)?;
            }
            if F::decode(self.read(table, i), 0) != Entry::Empty {
                return Err(MapError::Mapped);
            }
            self.write(table, i, F::leaf(phys + page * PAGE, 0, flags));
        }
        Ok(())
    }

    /// Maps `start..end` of physical memory at `offset` + physical address, with large leaves where they fit if `large`.
    pub fn map_linear(
        &self,
        source: &mut dyn TableSource,
        range: Range,
        offset: u64,
        large: bool,
        flags: Flags,
    ) -> Result<(), MapError> {
        let mut phys = range.start;
        while phys < range.end {
            let vaddr = phys.wrapping_add(offset);
            let fits = phys.is_multiple_of(LARGE_PAGE) && vaddr.is_multiple_of(LARGE_PAGE);
            let level = u32::from(large && fits && range.end - phys >= LARGE_PAGE);
            self.map(source, vaddr, phys, level, flags)?;
            phys += PAGE << (9 * level);
        }
        Ok(())
    }

    /// Makes the tables for `pages` pages and leaves their entries as they are, for [`Space::set`].
    pub fn prepare(&self, source: &mut dyn TableSource, vaddr: u64, pages: u64) -> Result<(), MapError> {
        let mut at = vaddr;
        let end = vaddr + pages * PAGE;
        while at < end {
            self.make_table(source, at, 0)?;
            at = (at / LARGE_PAGE + 1) * LARGE_PAGE;
        }
        Ok(())
    }

    /// Gives a task's root the kernel's half: copies the root entries, which therefore must not change any more.
    pub fn share_upper_half(&self, kernel: &Space<F>) {
        for i in UPPER_INDEX..512 {
            self.write(self.root, i, kernel.read(kernel.root, i));
        }
    }

    /// The root's upper half is `kernel`'s.
    pub fn shares_upper_half(&self, kernel: &Space<F>) -> bool {
        (UPPER_INDEX..512).all(|i| self.read(self.root, i) == kernel.read(kernel.root, i))
    }

    /// The table that holds the 4 KiB leaf of `vaddr` (physical), if there is one.
    pub fn leaf_table(&self, vaddr: u64) -> Option<u64> {
        let mut table = self.root;
        for upper in (1..=3).rev() {
            match F::decode(self.read(table, index(vaddr, upper)), upper) {
                Entry::Table(next) => table = next,
                _ => return None,
            }
        }
        Some(table)
    }

    /// Replaces the 4 KiB leaf at `vaddr`; needs no memory. `None` unmaps.
    pub fn set(&self, vaddr: u64, leaf: Option<(u64, Flags)>) -> Result<(), MapError> {
        let table = self.leaf_table(vaddr).ok_or(MapError::NoPath)?;
        self.write(table, index(vaddr, 0), leaf.map_or(0, |(phys, flags)| F::leaf(phys, 0, flags)));
        Ok(())
    }

    /// Where `vaddr` leads, and with which rights.
    pub fn lookup(&self, vaddr: u64) -> Option<(u64, Flags)> {
        let mut table = self.root;
        for level in (0..=3).rev() {
            match F::decode(self.read(table, index(vaddr, level)), level) {
                Entry::Empty => return None,
                Entry::Table(next) => table = next,
                Entry::Leaf(phys, flags) => {
                    let offset = vaddr & ((PAGE << (9 * level)) - 1);
                    return Some((phys + offset, flags));
                }
            }
        }
        None
    }

    /// Visits every table and leaf whose root index is in `indices`, in the order of addresses. The root is not visited.
    /// Arguments: virtual address, level, entry (never empty).
    pub fn walk(&self, indices: core::ops::Range<usize>, visit: &mut dyn FnMut(u64, u32, Entry)) {
        for i in indices {
            self.walk_entry(self.root, i, 0, 3, visit);
        }
    }

    fn walk_entry(
        &self,
        table: u64,
        i: usize,
        base: u64,
        level: u32,
        visit: &mut dyn FnMut(u64, u32, Entry),
    ) {
        let mut vaddr = base | (i as u64) << (12 + 9 * level);
        if level == 3 && i >= UPPER_INDEX {
            vaddr |= UPPER_HALF;
        }
        let entry = F::decode(self.read(table, i), level);
        if entry == Entry::Empty {
            return;
        }
        visit(vaddr, level, entry);
        if let Entry::Table(next) = entry
            && level > 0
        {
            (0..512).for_each(|j| self.walk_entry(next, j, vaddr, level - 1, visit));
        }
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// Page-aligned host memory that plays physical memory from address `base` on.
    pub struct Arena {
        pages: Vec<Page>,
        pub base: u64,
        next: u64,
    }

    #[repr(align(4096))]
    #[derive(Clone)]
    struct Page(#[allow(dead_code)] [u8; 4096]);

    impl Arena {
        pub fn new(pages: usize, base: u64) -> Self {
            Arena { pages: vec![Page([0; 4096]); pages], base, next: base }
        }

        pub fn map(&mut self) -> PhysicalMap {
            PhysicalMap { offset: (self.pages.as_mut_ptr() as u64).wrapping_sub(self.base) }
        }
    }

    impl TableSource for Arena {
        fn take_table(&mut self) -> Option<u64> {
            let page = self.next;
            self.next += PAGE;
            (page < self.base + self.pages.len() as u64 * PAGE).then_some(page)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::Arena;
    use super::*;
    use crate::arch::{aarch64::Aarch64, x86_64::X86};
    use proptest::prelude::*;

    fn space<F: Format>(arena: &mut Arena) -> Space<F> {
        let root = arena.take_table().unwrap();
        let map = arena.map();
        // SAFETY: a zeroed table of an arena that outlives the test's use of it.
        unsafe { Space::new(root, map) }
    }

    fn maps_and_finds<F: Format>() {
        let mut arena = Arena::new(64, 0x10_0000);
        let s: Space<F> = space(&mut arena);
        let rw = Flags::user(true, false);
        s.map_pages(&mut arena, 0x2000_0000, 0x5000_0000, 3, rw).unwrap();
        let across = 0x3000_0000 - PAGE;
        s.map_pages(&mut arena, across, 0x6000_0000, 2, rw).unwrap();
        assert_eq!(s.lookup(across + PAGE), Some((0x6000_1000, rw)));
        assert_eq!(s.map_pages(&mut arena, across - PAGE, 0, 2, rw), Err(MapError::Mapped));
        assert_eq!(s.lookup(0x2000_2abc), Some((0x5000_2abc, rw)));
        assert_eq!(s.lookup(0x2000_3000), None);
        assert_eq!(s.lookup(0x1fff_ffff), None);
        assert_eq!(s.map(&mut arena, 0x2000_1000, 0, 0, rw), Err(MapError::Mapped));
        s.set(0x2000_1000, None).unwrap();
        assert_eq!(s.lookup(0x2000_1000), None);
        assert_eq!(s.set(0x7000_0000_0000, None), Err(MapError::NoPath));
    }

    fn linear_map_uses_large_leaves<F: Format>() {
        let mut arena = Arena::new(64, 0x10_0000);
        let s: Space<F> = space(&mut arena);
        let range = Range { start: LARGE_PAGE - PAGE, end: 3 * LARGE_PAGE + PAGE };
        s.map_linear(&mut arena, range, UPPER_HALF, true, Flags::KERNEL_DATA).unwrap();
        let mut count = [0; 2];
        s.walk(UPPER_INDEX..512, &mut |_, level, entry| {
            if let Entry::Leaf(_, flags) = entry {
                assert_eq!(flags, Flags::KERNEL_DATA);
                count[level as usize] += 1;
            }
        });
        assert_eq!(count, [2, 2]);
        assert_eq!(s.lookup(UPPER_HALF + 2 * LARGE_PAGE + 5), Some((2 * LARGE_PAGE + 5, Flags::KERNEL_DATA)));
        assert_eq!(
            s.leaf_table(UPPER_HALF + 3 * LARGE_PAGE),
            s.leaf_table(UPPER_HALF + 3 * LARGE_PAGE + 7 * PAGE)
        );
        assert_eq!(s.leaf_table(UPPER_HALF + LARGE_PAGE), None);
    }

    #[test]
    fn x86_64_tables() {
        maps_and_finds::<X86>();
        linear_map_uses_large_leaves::<X86>();
    }

    #[test]
    fn aarch64_tables() {
        maps_and_finds::<Aarch64>();
        linear_map_uses_large_leaves::<Aarch64>();
    }

    #[test]
    fn exhausted_tables_are_an_error() {
        let mut arena = Arena::new(2, 0x10_0000);
        let s: Space<X86> = space(&mut arena);
        assert_eq!(s.map(&mut arena, 0x40_0000, 0, 0, Flags::user(false, true)), Err(MapError::NoTable));
    }

    fn any_flags() -> impl Strategy<Value = Flags> {
        (any::<[bool; 3]>(), any::<bool>()).prop_map(|([write, execute, user], device)| Flags {
            write,
            execute: execute && !write && !device,
            user,
            memory: if device { Memory::Device } else { Memory::Normal },
        })
    }

    proptest! {
        #[test]
        fn entries_decode_to_what_was_encoded(page in 0u64..1 << 36, flags in any_flags(), large: bool) {
            let level = u32::from(large);
            let phys = (page << 12) & ((1 << 48) - 1) & !((PAGE << (9 * level)) - 1);
            prop_assert_eq!(X86::decode(X86::leaf(phys, level, flags), level), Entry::Leaf(phys, flags));
            let table = page << 12 & ((1 << 48) - 1);
            prop_assert_eq!(X86::decode(X86::table(table, flags.user), 1), Entry::Table(table));
        }
    }
}
