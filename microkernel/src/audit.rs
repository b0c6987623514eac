//! The walk over all page tables at `Seal`: compares what the hardware will allow with what the manifest says.

use core::cell::Cell;

use ipc::abi::Audit;

use crate::arch::Format;
use crate::memory::Range;
use crate::paging::{Entry, Flags, LARGE_PAGE, PAGE, Space, UPPER_INDEX};

/// A stretch of an address space as it must be: `pages` pages from `vaddr` on, to `phys` on, with `flags`.
#[derive(Clone, Copy, Debug)]
pub struct Stretch {
    pub vaddr: u64,
    pub phys: u64,
    pub pages: u64,
    pub flags: Flags,
}

impl Stretch {
    fn covers(&self, vaddr: u64) -> bool {
        vaddr >= self.vaddr && vaddr - self.vaddr < self.pages * PAGE
    }

    fn leaf(&self, vaddr: u64) -> (u64, Flags) {
        (self.phys + (vaddr - self.vaddr), self.flags)
    }
}

/// Adds the findings in a task's half to `audit`. `expected` names the stretch at an address; `tables` are the pages that
/// hold page tables.
pub fn task<F: Format>(
    audit: &mut Audit,
    space: &Space<F>,
    tables: Range,
    expected: &dyn Fn(u64) -> Option<Stretch>,
) {
    // Neighbouring pages mostly belong to one stretch.
    let last: Cell<Option<Stretch>> = Cell::new(None);
    space.walk(0..UPPER_INDEX, &mut |vaddr, level, entry| {
        let Some((phys, flags)) = common(audit, tables, level, entry) else { return };
        let stretch = last.get().filter(|s| s.covers(vaddr)).or_else(|| expected(vaddr));
        last.set(stretch);
        if level != 0 || !flags.user || stretch.map(|s| s.leaf(vaddr)) != Some((phys, flags)) {
            audit.shared_beyond_manifest += 1;
        }
    });
}

/// Adds the findings in the kernel's half. `text`: the only addresses that may be executed.
pub fn kernel<F: Format>(audit: &mut Audit, space: &Space<F>, tables: Range, text: Range) {
    space.walk(UPPER_INDEX..512, &mut |vaddr, level, entry| {
        let Some((_, flags)) = common(audit, tables, level, entry) else { return };
        if flags.user {
            audit.shared_beyond_manifest += 1;
        }
        if flags.execute && !(text.start <= vaddr && vaddr < text.end) {
            audit.wx_violations += 1;
        }
    });
}

/// What holds everywhere. Returns the leaf.
fn common(audit: &mut Audit, tables: Range, level: u32, entry: Entry) -> Option<(u64, Flags)> {
    match entry {
        Entry::Empty => None,
        Entry::Table(table) => {
            // A table elsewhere would not be covered by the check below.
            if !Range::new(table, PAGE).touches(tables) {
                audit.writable_tables += 1;
            }
            None
        }
        Entry::Leaf(phys, flags) => {
            let bytes = if level == 0 { PAGE } else { LARGE_PAGE };
            audit.pages += bytes / PAGE;
            if flags.write && flags.execute {
                audit.wx_violations += 1;
            }
            if flags.write && Range::new(phys, bytes).touches(tables) {
                audit.writable_tables += 1;
            }
            Some((phys, flags))
        }
    }
}

/// Every stretch of a task's half as the tables have it: neighbours that lead to neighbours with the same rights are one.
pub fn stretches<F: Format>(space: &Space<F>, each: &mut dyn FnMut(&Stretch)) {
    let mut open: Option<Stretch> = None;
    space.walk(0..UPPER_INDEX, &mut |vaddr, level, entry| {
        let Entry::Leaf(phys, flags) = entry else { return };
        let pages = if level == 0 { 1 } else { LARGE_PAGE / PAGE };
        match &mut open {
            Some(s) if vaddr == s.vaddr + s.pages * PAGE && s.leaf(vaddr) == (phys, flags) => {
                s.pages += pages
            }
            open => {
                if let Some(done) = open.replace(Stretch { vaddr, phys, pages, flags }) {
                    each(&done);
                }
            }
        }
    });
    open.iter().for_each(each);
}

/// Counts a guard page that is mapped.
pub fn guard<F: Format>(audit: &mut Audit, space: &Space<F>, vaddr: u64) {
    if space.lookup(vaddr).is_some() {
        audit.missing_guards += 1;
    }
}

/// Nothing was found.
pub fn is_clean(audit: &Audit) -> bool {
    (audit.wx_violations, audit.writable_tables, audit.shared_beyond_manifest, audit.missing_guards)
        == (0, 0, 0, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::x86_64::X86;
    use crate::paging::testing::Arena;
    use crate::paging::{TableSource, UPPER_HALF};

    const BASE: u64 = 0x100_0000;
    const TABLES: Range = Range { start: BASE, end: BASE + 24 * PAGE };
    const DATA: u64 = 0x2000_0000;
    const RW: Flags = Flags::user(true, false);

    /// A space with two expected pages, changed by `spoil`, and its audit.
    fn audited(spoil: impl FnOnce(&Space<X86>, &mut Arena)) -> Audit {
        let mut arena = Arena::new(24, BASE);
        let map = arena.map();
        let root = arena.take_table().unwrap();
        // SAFETY: a zeroed table in an arena that outlives this function's use.
        let space: Space<X86> = unsafe { Space::new(root, map) };
        space.map_pages(&mut arena, DATA, 0x900_0000, 2, RW).unwrap();
        space.map_pages(&mut arena, UPPER_HALF, 0xa00_0000, 2, Flags::KERNEL_TEXT).unwrap();
        spoil(&space, &mut arena);
        let stretch = Stretch { vaddr: DATA, phys: 0x900_0000, pages: 2, flags: RW };
        let mut audit = Audit::default();
        task(&mut audit, &space, TABLES, &|vaddr| stretch.covers(vaddr).then_some(stretch));
        kernel(&mut audit, &space, TABLES, Range { start: UPPER_HALF, end: UPPER_HALF + 2 * PAGE });
        guard(&mut audit, &space, DATA - PAGE);
        guard(&mut audit, &space, DATA + 2 * PAGE);
        audit
    }

    #[test]
    fn a_good_space_is_clean() {
        let audit = audited(|_, _| ());
        assert!(is_clean(&audit));
        assert_eq!(audit.pages, 4);
    }

    #[test]
    fn neighbours_are_one_stretch() {
        let mut arena = Arena::new(24, BASE);
        let (map, root) = (arena.map(), arena.take_table().unwrap());
        // SAFETY: a zeroed table in an arena that outlives this function's use.
        let space: Space<X86> = unsafe { Space::new(root, map) };
        space.map_pages(&mut arena, DATA, 0x900_0000, 2, RW).unwrap();
        let read = Flags::user(false, false);
        space.map_pages(&mut arena, DATA + 2 * PAGE, 0x900_2000, 1, read).unwrap();
        space.map_pages(&mut arena, DATA + 3 * PAGE, 0xa00_0000, 1, read).unwrap();
        space.map_pages(&mut arena, DATA + 5 * PAGE, 0xa00_2000, 1, read).unwrap();
        space.map(&mut arena, 2 * DATA, 0, 1, read).unwrap();
        let mut found = Vec::new();
        stretches(&space, &mut |s| found.push((s.vaddr, s.phys, s.pages, s.flags)));
        let expected = [
            (DATA, 0x900_0000, 2, RW),
            (DATA + 2 * PAGE, 0x900_2000, 1, read),
            (DATA + 3 * PAGE, 0xa00_0000, 1, read),
            (DATA + 5 * PAGE, 0xa00_2000, 1, read),
            (2 * DATA, 0, 512, read),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn every_kind_of_violation_is_found() {
        let wx = Flags { write: true, execute: true, ..RW };
        assert_eq!(audited(|s, _| s.set(DATA, Some((0x900_0000, wx))).unwrap()).wx_violations, 1);
        let elsewhere = audited(|s, _| s.set(DATA, Some((0x901_0000, RW))).unwrap());
        assert_eq!(elsewhere.shared_beyond_manifest, 1);
        let more =
            audited(|s, a| s.map(a, DATA + 8 * PAGE, 0xb00_0000, 0, Flags::user(false, false)).unwrap());
        assert_eq!(more.shared_beyond_manifest, 1);
        let guard = audited(|s, a| s.map(a, DATA + 2 * PAGE, 0xb00_0000, 0, RW).unwrap());
        assert_eq!(guard.missing_guards, 1);
        let table =
            audited(|s, a| s.map(a, UPPER_HALF + 8 * PAGE, BASE + PAGE, 0, Flags::KERNEL_DATA).unwrap());
        assert_eq!(table.writable_tables, 1);
        let readable =
            audited(|s, a| s.map(a, UPPER_HALF + 8 * PAGE, BASE + PAGE, 0, Flags::KERNEL_RODATA).unwrap());
        assert!(is_clean(&readable));
        let text =
            audited(|s, a| s.map(a, UPPER_HALF + 8 * PAGE, 0xb00_0000, 0, Flags::KERNEL_TEXT).unwrap());
        assert_eq!(text.wx_violations, 1);
        let user = audited(|s, a| {
            s.map(a, UPPER_HALF + 8 * PAGE, 0xb00_0000, 0, Flags::user(false, false)).unwrap()
        });
        assert_eq!(user.shared_beyond_manifest, 1);
        let large = audited(|s, a| s.map(a, UPPER_HALF + LARGE_PAGE, 0, 1, Flags::KERNEL_DATA).unwrap());
        assert_eq!((large.pages, large.writable_tables), (516, 0));
    }
}
