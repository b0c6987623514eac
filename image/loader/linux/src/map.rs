//! Our own identity map: a block of 1 GiB each, up to 512 GiB.

use core::arch::asm;

use loader::paging::{Aarch64, Access, Format};

/// End of the addresses that can be mapped.
pub const LIMIT: u64 = 512 << 30;
const GIB: u64 = 1 << 30;

unsafe extern "C" {
    /// The root, and the table of the first 512 GiB, made by `entry`.
    static mut boot_tables: [[u64; 512]; 2];
}

/// Maps what is not mapped yet of memory.
pub fn memory(base: u64, end: u64) {
    let data = Access { write: true, execute: false, device: false };
    (base / GIB..end.min(LIMIT).div_ceil(GIB)).for_each(|gib| {
        block(gib, data);
    });
}

/// Maps the registers of a device. False: there is memory in the same GiB, or it is too far away.
pub fn device(at: u64) -> bool {
    at < LIMIT && block(at / GIB, Access::DEVICE)
}

/// Maps a GiB, or says whether it is mapped like that.
fn block(gib: u64, access: Access) -> bool {
    let (Some(offset), true) = (usize::try_from(gib).ok(), gib < 512) else { return false };
    let entry = Aarch64::leaf(gib * GIB, true, access);
    // SAFETY: one processor runs and nobody else holds a reference; an entry of the live table goes from invalid to
    // valid, which asks for no invalidation.
    unsafe {
        let at = (&raw mut boot_tables[1]).cast::<u64>().add(offset);
        if at.read_volatile() == 0 {
            at.write_volatile(entry);
            asm!("dsb ishst", "isb", options(nostack, preserves_flags));
        }
        at.read_volatile() == entry
    }
}
