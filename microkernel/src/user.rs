//! Memory of a task that a system call names: checked against the task's page tables, page by page, and reached through
//! the physical map. The kernel never touches a user address, so SMAP and PAN stay on all the time.
//!
//! Mappings don't change while a task runs, so what was checked is what is used.

use crate::arch::Format;
use crate::memory::Range;
use crate::paging::{Memory, PAGE, PhysicalMap, Space};

/// A task's memory as the kernel may use it.
#[derive(Debug)]
pub struct UserMemory<'a, F> {
    pub space: Space<F>,
    pub map: PhysicalMap,
    /// What the physical map holds: memory that the kernel has handed out, and the package.
    pub reach: &'a [Range],
}

impl<F: Format> UserMemory<'_, F> {
    /// Fills `to` from the task's memory at `from`. `None`: the task may not read it all; `to` may be partly filled.
    pub fn read(&self, from: u64, to: &mut [u8]) -> Option<()> {
        self.pieces(from, to.len(), false, |phys, done, len| {
            // SAFETY: `pieces` found the bytes in mapped, reachable memory; `to` is the kernel's own.
            unsafe { core::ptr::copy_nonoverlapping(self.map.at::<u8>(phys), to[done..].as_mut_ptr(), len) }
        })
    }

    /// Copies `from` to the task's memory at `to`. `None`: the task may not write it all; a part may be written.
    pub fn write(&self, to: u64, from: &[u8]) -> Option<()> {
        self.pieces(to, from.len(), true, |phys, done, len| {
            // SAFETY: as in `read`; the task may write there, so no memory of the kernel's lies there.
            unsafe { core::ptr::copy_nonoverlapping(from[done..].as_ptr(), self.map.at::<u8>(phys), len) }
        })
    }

    /// Calls `each(phys, done, len)` for the part of every page.
    fn pieces(
        &self,
        at: u64,
        len: usize,
        write: bool,
        mut each: impl FnMut(u64, usize, usize),
    ) -> Option<()> {
        let mut done = 0;
        while done < len {
            let vaddr = at.checked_add(done as u64)?;
            if vaddr >= ipc::abi::USER_END {
                return None;
            }
            let (phys, flags) = self.space.lookup(vaddr)?;
            let piece = ((PAGE - vaddr % PAGE) as usize).min(len - done);
            let allowed = flags.user && (flags.write || !write) && flags.memory == Memory::Normal;
            let page = Range::new(phys, piece as u64);
            if !allowed || !self.reach.iter().any(|r| r.start <= page.start && page.end <= r.end) {
                return None;
            }
            each(phys, done, piece);
            done += piece;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::x86_64::X86;
    use crate::paging::testing::Arena;
    use crate::paging::{Flags, TableSource};

    const BASE: u64 = 0x100_0000;
    const DATA: u64 = 0x2000_0000;

    /// Two writable pages, a read-only one, a kernel one, a device one, one out of reach.
    fn with_task(check: impl FnOnce(UserMemory<'_, X86>)) {
        let mut arena = Arena::new(32, BASE);
        let map = arena.map();
        let root = arena.take_table().unwrap();
        // SAFETY: a zeroed table in an arena that outlives `check`.
        let space: Space<X86> = unsafe { Space::new(root, map) };
        let device = Flags { memory: Memory::Device, ..Flags::user(true, false) };
        let kernel = Flags::KERNEL_DATA;
        for (i, flags) in
            [Flags::user(true, false), Flags::user(true, false), Flags::user(false, false), kernel, device]
                .into_iter()
                .enumerate()
        {
            let phys = arena.take_table().unwrap();
            space.map(&mut arena, DATA + i as u64 * PAGE, phys, 0, flags).unwrap();
        }
        space.map(&mut arena, DATA + 5 * PAGE, 0xfee0_0000, 0, Flags::user(true, false)).unwrap();
        let reach = [Range::new(BASE, 32 * PAGE)];
        check(UserMemory { space, map, reach: &reach });
    }

    #[test]
    fn copies_across_pages() {
        with_task(|m| {
            let text = [7u8; 5000];
            m.write(DATA + 100, &text).unwrap();
            let mut back = [0; 5000];
            m.read(DATA + 100, &mut back).unwrap();
            assert_eq!(back, text);
        });
    }

    #[test]
    fn refuses_what_the_task_may_not_do() {
        with_task(|m| {
            let mut b = [0; 16];
            assert!(m.write(DATA + 2 * PAGE, &b).is_none(), "read-only page");
            assert!(m.read(DATA + 2 * PAGE, &mut b).is_some());
            assert!(m.write(DATA + 2 * PAGE - 8, &b).is_none(), "tail on a read-only page");
            for page in [3, 4, 5, 6] {
                assert!(m.read(DATA + page * PAGE, &mut b).is_none(), "page {page}");
            }
            for address in [0, u64::MAX, u64::MAX - 8, ipc::abi::USER_END - 8, crate::paging::UPPER_HALF] {
                assert!(m.read(address, &mut b).is_none());
            }
            assert!(m.read(0, &mut []).is_some(), "nothing is nowhere");
        });
    }
}
