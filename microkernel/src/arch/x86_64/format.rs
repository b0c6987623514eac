//! Page table entries (Intel SDM volume 3, 4.5; AMD APM volume 2, 5.3).

use super::X86;
use crate::arch::Format;
use crate::paging::{Entry, Flags, Memory};

const PRESENT: u64 = 1;
const WRITE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
/// Cache disable with write-through: PAT entry 3, uncached, whatever the MTRRs say (with the reset value of the PAT).
const WRITE_THROUGH: u64 = 1 << 3;
const CACHE_DISABLE: u64 = 1 << 4;
/// Set from the start, so that the processor has nothing to mark.
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
const LARGE: u64 = 1 << 7;
const GLOBAL: u64 = 1 << 8;
const NO_EXECUTE: u64 = 1 << 63;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

impl Format for X86 {
    const KERNEL_SHARES_ROOT: bool = true;

    fn table(phys: u64, user: bool) -> u64 {
        phys & ADDRESS | PRESENT | WRITE | ACCESSED | if user { USER } else { 0 }
    }

    fn leaf(phys: u64, level: u32, flags: Flags) -> u64 {
        let mut entry = phys & ADDRESS | PRESENT | ACCESSED;
        if flags.write {
            entry |= WRITE | DIRTY;
        }
        if !flags.execute {
            entry |= NO_EXECUTE;
        }
        entry |= if flags.user { USER } else { GLOBAL };
        if flags.memory == Memory::Device {
            entry |= WRITE_THROUGH | CACHE_DISABLE;
        }
        if level > 0 {
            entry |= LARGE;
        }
        entry
    }

    fn decode(entry: u64, level: u32) -> Entry {
        if entry & PRESENT == 0 {
            return Entry::Empty;
        }
        if level > 0 && entry & LARGE == 0 {
            return Entry::Table(entry & ADDRESS);
        }
        let flags = Flags {
            write: entry & WRITE != 0,
            execute: entry & NO_EXECUTE == 0,
            user: entry & USER != 0,
            memory: if entry & CACHE_DISABLE != 0 { Memory::Device } else { Memory::Normal },
        };
        Entry::Leaf(entry & ADDRESS, flags)
    }
}
