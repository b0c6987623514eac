//! Page tables of both architectures: four levels of 512 entries, 4 KiB pages and 2 MiB blocks. Only the bits differ.

use core::marker::PhantomData;

use ipc::package::Arch;

use crate::arena::{Arena, Full};
use crate::memory::PAGE;

const BLOCK: u64 = 2 << 20;

/// Rights and cache type of a mapping; always readable, never for user mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    pub write: bool,
    pub execute: bool,
    /// Device memory: uncached, and never executable.
    pub device: bool,
}

impl Access {
    pub const ALL: Access = Access { write: true, execute: true, device: false };
    pub const CODE: Access = Access { write: false, execute: true, device: false };
    pub const DEVICE: Access = Access { write: true, execute: false, device: true };
}

/// The bits of an architecture's entries.
pub trait Format {
    const ARCH: Arch;
    /// Low and high addresses have a root of their own.
    const SPLIT: bool;
    /// An entry that leads to the next level's table.
    fn table(phys: u64) -> u64;
    /// An entry that maps a page, or a block.
    fn leaf(phys: u64, block: bool, access: Access) -> u64;
    /// What [`Format::table`] was made from; `None`: nothing there, or a leaf.
    fn next(entry: u64) -> Option<u64>;
}

const ADDRESS: u64 = 0x0000_ffff_ffff_f000;

/// Intel SDM volume 3, 4.5 "4-level paging".
#[derive(Clone, Copy, Debug)]
pub struct X86;

impl X86 {
    const PRESENT: u64 = 1;
    const WRITE: u64 = 1 << 1;
    /// Write-through and cache-disable: PAT entry 3, uncacheable.
    const UNCACHED: u64 = 3 << 3;
    const BLOCK: u64 = 1 << 7;
    const NO_EXECUTE: u64 = 1 << 63;
}

impl Format for X86 {
    const ARCH: Arch = Arch::X86_64;
    const SPLIT: bool = false;

    fn table(phys: u64) -> u64 {
        phys | Self::PRESENT | Self::WRITE
    }

    fn leaf(phys: u64, block: bool, access: Access) -> u64 {
        phys | Self::PRESENT
            | if access.write { Self::WRITE } else { 0 }
            | if access.execute { 0 } else { Self::NO_EXECUTE }
            | if access.device { Self::UNCACHED } else { 0 }
            | if block { Self::BLOCK } else { 0 }
    }

    fn next(entry: u64) -> Option<u64> {
        (entry & Self::PRESENT != 0 && entry & Self::BLOCK == 0).then_some(entry & ADDRESS)
    }
}

/// Arm ARM D8.3 "Translation table descriptor formats", 4 KiB granule.
#[derive(Clone, Copy, Debug)]
pub struct Aarch64;

impl Aarch64 {
    /// Indices in `MAIR_EL1`: normal write-back memory, and Device-nGnRnE.
    pub const NORMAL: u64 = 0;
    pub const DEVICE: u64 = 1;

    const VALID: u64 = 1;
    /// At levels 0 to 2 a table, at level 3 a page.
    const TABLE_OR_PAGE: u64 = 1 << 1;
    const READ_ONLY: u64 = 1 << 7;
    const INNER_SHAREABLE: u64 = 3 << 8;
    const ACCESSED: u64 = 1 << 10;
    const NO_EXECUTE: u64 = 3 << 53;
}

impl Format for Aarch64 {
    const ARCH: Arch = Arch::Aarch64;
    const SPLIT: bool = true;

    fn table(phys: u64) -> u64 {
        phys | Self::VALID | Self::TABLE_OR_PAGE
    }

    fn leaf(phys: u64, block: bool, access: Access) -> u64 {
        let index = if access.device { Self::DEVICE } else { Self::NORMAL };
        phys | Self::VALID
            | Self::ACCESSED
            | Self::INNER_SHAREABLE
            | index << 2
            | if block { 0 } else { Self::TABLE_OR_PAGE }
            | if access.write { 0 } else { Self::READ_ONLY }
            | if access.execute { 0 } else { Self::NO_EXECUTE }
    }

    fn next(entry: u64) -> Option<u64> {
        let table = Self::VALID | Self::TABLE_OR_PAGE;
        (entry & table == table).then_some(entry & ADDRESS)
    }
}

/// A set of page tables in an arena.
#[derive(Clone, Copy, Debug)]
pub struct Tables<F> {
    /// Physical address of the root for high addresses, and for low ones.
    pub high: u64,
    pub low: u64,
    format: PhantomData<F>,
}

/// Most tables that mappings need which lie below `top` and have so many edges altogether, a kernel of `kernel` bytes
/// and a few single pages: one for every GiB, and one for each edge inside of a block.
pub fn most_tables(top: u64, edges: u64, kernel: u64) -> u64 {
    (top >> 30) + (top >> 39) + edges + (kernel >> 21) + 24
}

impl<F: Format> Tables<F> {
    pub fn new(arena: &mut Arena<'_>) -> Result<Self, Full> {
        let high = arena.pages(1)?;
        let low = if F::SPLIT { arena.pages(1)? } else { high };
        Ok(Tables { high, low, format: PhantomData })
    }

    /// Maps whole pages; what was mapped there before is replaced, a block by a block only.
    pub fn map(
        &self,
        arena: &mut Arena<'_>,
        virt: u64,
        phys: u64,
        len: u64,
        access: Access,
    ) -> Result<(), Full> {
        let mut done = 0;
        while done < len {
            let (at, to) = (virt + done, phys + done);
            let block = at.is_multiple_of(BLOCK) && to.is_multiple_of(BLOCK) && len - done >= BLOCK;
            let table = self.walk(arena, at, if block { 2 } else { 3 })?;
            let (size, shift) = if block { (BLOCK, 21) } else { (PAGE, 12) };
            // Fill up to the end of this table.
            let first = (at >> shift & 511) as usize;
            let count = (512 - first).min(((len - done) / size) as usize);
            for (i, entry) in arena.table(table)[first..first + count].iter_mut().enumerate() {
                *entry = F::leaf(to + i as u64 * size, block, access);
            }
            done += count as u64 * size;
        }
        Ok(())
    }

    /// The table of this level (0 root to 3) that has the address's entry; makes those that are missing.
    fn walk(&self, arena: &mut Arena<'_>, virt: u64, level: u32) -> Result<u64, Full> {
        let mut table = if virt >> 63 == 1 { self.high } else { self.low };
        for above in 0..level {
            let index = (virt >> (39 - 9 * above) & 511) as usize;
            table = match F::next(arena.table(table)[index]) {
                Some(next) => next,
                None => {
                    let next = arena.pages(1)?;
                    arena.table(table)[index] = F::table(next);
                    next
                }
            };
        }
        Ok(table)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Walks as the processor does: the leaf that maps the address, and the physical address.
    pub fn lookup<F: Format>(tables: &Tables<F>, arena: &mut Arena<'_>, virt: u64) -> Option<(u64, u64)> {
        let mut table = if virt >> 63 == 1 { tables.high } else { tables.low };
        for level in 0..4 {
            let shift = 39 - 9 * level;
            let entry = arena.table(table)[(virt >> shift & 511) as usize];
            if entry & 1 == 0 {
                return None;
            }
            match F::next(entry) {
                Some(next) if level < 3 => table = next,
                _ => {
                    return Some((
                        entry,
                        (entry & ADDRESS & !((1 << shift) - 1)) | (virt & ((1 << shift) - 1)),
                    ));
                }
            }
        }
        None
    }

    fn check<F: Format>(pages: &[(u64, u64)]) -> Result<(), TestCaseError> {
        let mut words = vec![0u64; 512 * 64];
        let mut arena = Arena::new(1 << 20, zerocopy::IntoBytes::as_mut_bytes(&mut words[..]));
        let tables = Tables::<F>::new(&mut arena).unwrap();
        const HIGH: u64 = 0xffff_8000_0000_0000;
        let mut end = 0;
        for &(gap, len) in pages {
            let phys = end + gap * PAGE;
            tables.map(&mut arena, HIGH + phys, phys, len * PAGE, Access::ALL).unwrap();
            prop_assert!(gap == 0 || lookup(&tables, &mut arena, HIGH + phys - 1).is_none());
            end = phys + len * PAGE;
            for at in [phys, phys + len / 2 * PAGE, end - 1] {
                prop_assert_eq!(lookup(&tables, &mut arena, HIGH + at).map(|l| l.1), Some(at));
            }
            prop_assert!(lookup(&tables, &mut arena, HIGH + end).is_none());
        }
        let most = most_tables(end, 2 * pages.len() as u64, 0);
        prop_assert!(arena.used() / PAGE <= most, "{} tables, estimated {}", arena.used() / PAGE, most);
        Ok(())
    }

    proptest! {
        #[test]
        fn maps_what_it_is_told(pages in proptest::collection::vec((1u64..2000, 1u64..3000), 1..8)) {
            check::<X86>(&pages)?;
            check::<Aarch64>(&pages)?;
        }
    }

    #[test]
    fn entries_have_the_manuals_bits() {
        assert_eq!(X86::leaf(0x1000, false, Access::CODE), 0x1001);
        assert_eq!(X86::leaf(0x20_0000, true, Access::ALL), 0x20_0083);
        assert_eq!(X86::leaf(0x1000, false, Access::DEVICE), 0x8000_0000_0000_101b);
        assert_eq!(Aarch64::leaf(0x1000, false, Access::CODE), 0x1783);
        assert_eq!(Aarch64::leaf(0x20_0000, true, Access::ALL), 0x20_0701);
        assert_eq!(Aarch64::leaf(0x1000, false, Access::DEVICE), 0x0060_0000_0000_1707);
    }

    #[test]
    fn says_when_the_arena_is_full() {
        let mut words = vec![0u64; 512 * 3];
        let mut arena = Arena::new(0, zerocopy::IntoBytes::as_mut_bytes(&mut words[..]));
        let tables = Tables::<Aarch64>::new(&mut arena).unwrap();
        assert_eq!(tables.map(&mut arena, 0, 0, PAGE, Access::ALL), Err(Full));
    }
}
