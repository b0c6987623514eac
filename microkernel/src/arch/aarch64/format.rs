//! Page table entries: VMSAv8-64 with the 4 KiB granule (Arm ARM, "VMSAv8-64 translation table format descriptors").
//!
//! Pure, so that the host tests it. Attribute 0 of MAIR_EL1 is normal memory, attribute 1 device registers (`start` loads it).

use crate::arch::Format;
use crate::paging::{Entry, Flags, Memory};

const VALID: u64 = 1;
/// A table (levels 1 to 3 of ours) or a page (level 0); a block has 0 here.
const TABLE_OR_PAGE: u64 = 1 << 1;
/// Attribute 1.
const DEVICE: u64 = 1 << 2;
const ATTRIBUTE: u64 = 7 << 2;
/// AP[1]: EL0 may access. AP[2]: read-only.
const EL0: u64 = 1 << 6;
const READ_ONLY: u64 = 1 << 7;
const INNER_SHAREABLE: u64 = 3 << 8;
/// Always set: no fault on first use, and no hardware update of a table.
const ACCESSED: u64 = 1 << 10;
const NOT_GLOBAL: u64 = 1 << 11;
/// FEAT_BTI: an indirect branch must land on a `bti`. Ignored by a processor without it.
const GUARDED: u64 = 1 << 50;
const PXN: u64 = 1 << 53;
const UXN: u64 = 1 << 54;
const ADDRESS: u64 = 0x0000_ffff_ffff_f000;

impl Format for super::Aarch64 {
    const KERNEL_SHARES_ROOT: bool = false;

    fn table(phys: u64, _user: bool) -> u64 {
        // The hierarchical attributes (APTable, PXNTable, UXNTable) stay 0: no restriction.
        phys & ADDRESS | TABLE_OR_PAGE | VALID
    }

    fn leaf(phys: u64, level: u32, flags: Flags) -> u64 {
        let mut entry = phys & ADDRESS | ACCESSED | VALID;
        if level == 0 {
            entry |= TABLE_OR_PAGE;
        }
        entry |= match flags.memory {
            Memory::Normal => INNER_SHAREABLE,
            Memory::Device => DEVICE,
        };
        if !flags.write {
            entry |= READ_ONLY;
        }
        entry |= match (flags.user, flags.execute) {
            (true, true) => EL0 | NOT_GLOBAL | PXN | GUARDED,
            (true, false) => EL0 | NOT_GLOBAL | PXN | UXN,
            (false, true) => UXN,
            (false, false) => PXN | UXN,
        };
        entry
    }

    fn decode(entry: u64, level: u32) -> Entry {
        let table_or_page = entry & TABLE_OR_PAGE != 0;
        if entry & VALID == 0 || (level == 0 && !table_or_page) {
            return Entry::Empty;
        }
        let phys = entry & ADDRESS;
        if level > 0 && table_or_page {
            return Entry::Table(phys);
        }
        // Execution needs no right to read: without UXN, EL0 can run a page that AP keeps it from reading.
        let user_executes = entry & UXN == 0;
        let kernel_executes = entry & PXN == 0;
        let memory = if entry & ATTRIBUTE == 0 { Memory::Normal } else { Memory::Device };
        Entry::Leaf(
            phys,
            Flags {
                write: entry & READ_ONLY == 0,
                execute: user_executes || kernel_executes,
                user: entry & EL0 != 0 || user_executes,
                memory,
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::aarch64::Aarch64;
    use proptest::prelude::*;

    const TEXT: Flags = Flags { write: false, execute: true, user: true, memory: Memory::Normal };

    #[test]
    fn rights_have_their_bits() {
        let text = Aarch64::leaf(0x4020_0000, 0, TEXT);
        assert_eq!(text, 0x4020_0000 | 3 | 1 << 6 | 1 << 7 | 3 << 8 | 1 << 10 | 1 << 11 | 1 << 50 | 1 << 53);
        let kernel_data = Flags { write: true, execute: false, user: false, memory: Memory::Normal };
        assert_eq!(Aarch64::leaf(0x4020_0000, 1, kernel_data), 0x4020_0000 | 1 | 3 << 8 | 1 << 10 | 3 << 53);
        let bar = Flags { write: true, execute: false, user: true, memory: Memory::Device };
        assert_eq!(
            Aarch64::leaf(0x1000_0000, 0, bar),
            0x1000_0000 | 3 | 1 << 2 | 1 << 6 | 1 << 10 | 1 << 11 | 3 << 53
        );
    }

    #[test]
    fn the_audit_sees_what_the_hardware_allows() {
        // A kernel page that EL0 may run though it can't read it.
        let entry = Aarch64::leaf(0x1000, 0, Flags { user: false, ..TEXT }) & !UXN;
        assert!(matches!(Aarch64::decode(entry, 0), Entry::Leaf(_, Flags { user: true, execute: true, .. })));
        // A user page that the kernel may run.
        let entry = Aarch64::leaf(0x1000, 0, Flags { execute: false, ..TEXT }) & !PXN;
        assert!(matches!(Aarch64::decode(entry, 0), Entry::Leaf(_, Flags { execute: true, .. })));
        // A reserved encoding at the last level is no entry.
        assert_eq!(Aarch64::decode(0x1001, 0), Entry::Empty);
    }

    proptest! {
        #[test]
        fn decode_inverts_encode(
            page in 0u64..1 << 36, level in 0u32..2, write: bool, execute: bool, user: bool, device: bool,
        ) {
            let memory = if device { Memory::Device } else { Memory::Normal };
            let flags = Flags { write, execute, user, memory };
            prop_assert_eq!(Aarch64::decode(Aarch64::leaf(page << 12, level, flags), level), Entry::Leaf(page << 12, flags));
            prop_assert_eq!(Aarch64::decode(Aarch64::table(page << 12, user), level + 1), Entry::Table(page << 12));
        }

        #[test]
        fn decode_is_total(entry: u64, level in 0u32..4) {
            let empty = Aarch64::decode(entry, level) == Entry::Empty;
            prop_assert_eq!(empty, entry & 1 == 0 || (level == 0 && entry & 2 == 0));
        }
    }
}
