//! Caches and TLB.
//!
//! Tasks, kernel and page-table walks all use the same attributes for RAM (write-back, inner shareable), so nothing has to be
//! cleaned between cores or for walks. Three readers are outside: instruction fetch, a GIC or device that isn't
//! coherent (only the GIC's tables: discovery refuses a PCI host that isn't), and a core whose MMU is off.

use core::arch::asm;

use aarch64_cpu::asm::barrier;

fn cache_type() -> u64 {
    let value;
    // SAFETY: reading an identification register.
    unsafe { asm!("mrs {}, ctr_el0", out(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

/// Smallest data cache line, bytes (CTR_EL0.DminLine: log2 of words).
fn data_line() -> usize {
    4 << (cache_type() >> 16 & 0xf)
}

/// Applies `operation` to each data cache line of the range.
fn each_line(at: *const u8, len: usize, operation: impl Fn(usize)) {
    let line = data_line();
    let end = at as usize + len;
    (at as usize & !(line - 1)..end).step_by(line).for_each(operation);
}

/// Writes the range back to the point of coherency. Complete with the caller's next DSB.
pub fn clean(at: *const u8, len: usize) {
    each_line(at, len, |line| {
        // SAFETY: cleaning changes no memory's value; the caller's range is mapped.
        unsafe { asm!("dc cvac, {}", in(reg) line, options(nostack, preserves_flags)) }
    });
}

/// Writes the range back and drops it from the caches, complete on return: for memory that somebody else writes from
/// now on.
pub fn clean_and_invalidate(at: *const u8, len: usize) {
    each_line(at, len, |line| {
        // SAFETY: as above; dirty lines are written back first.
        unsafe { asm!("dc civac, {}", in(reg) line, options(nostack, preserves_flags)) }
    });
    barrier::dsb(barrier::SY);
}

/// Makes what was written to the range visible to instruction fetch, on all cores once they return from an exception
/// (Arm ARM, "Concurrent modification and execution of instructions": clean to the point of unification, DSB, invalidate
/// the instruction caches, DSB, ISB; an exception return synchronises the context).
pub fn code_written(at: *const u8, len: usize) {
    let (clean_not_needed, invalidate_not_needed) =
        (cache_type() >> 28 & 1 == 1, cache_type() >> 29 & 1 == 1);
    if !clean_not_needed {
        each_line(at, len, |line| {
            // SAFETY: as for `clean`.
            unsafe { asm!("dc cvau, {}", in(reg) line, options(nostack, preserves_flags)) }
        });
    }
    barrier::dsb(barrier::ISH);
    if !invalidate_not_needed {
        // All of them, in the inner shareable domain: by address would not reach other virtual aliases of a VIPT cache.
        // SAFETY: costs time only.
        unsafe { asm!("ic ialluis", options(nostack, preserves_flags)) };
        barrier::dsb(barrier::ISH);
    }
    barrier::isb(barrier::SY);
}

/// Drops every translation of this core, of all address spaces.
pub fn flush_tlb() {
    // Table writes before (DSB ISHST), invalidation complete (DSB NSH), nothing fetched ahead with the old ones (ISB):
    // Arm ARM, "TLB maintenance instructions: ordering and completion".
    barrier::dsb(barrier::ISHST);
    // SAFETY: the tables are the truth; cached copies may go at any time.
    unsafe { asm!("tlbi vmalle1", options(nostack, preserves_flags)) };
    barrier::dsb(barrier::NSH);
    barrier::isb(barrier::SY);
}

/// Fills pages with zeros, block by block (DC ZVA), or by stores where that is forbidden.
///
/// # Safety
/// `len` bytes at `at`, both multiples of 4096, are writable normal memory and nobody's.
pub unsafe fn zero(at: *mut u8, len: usize) {
    let id: u64;
    // SAFETY: reading an identification register.
    unsafe { asm!("mrs {}, dczid_el0", out(reg) id, options(nomem, nostack, preserves_flags)) };
    if id & 1 << 4 != 0 {
        // SAFETY: the caller's promise.
        unsafe { core::ptr::write_bytes(at, 0, len) };
        return;
    }
    // At most 2 KiB (BS <= 9), so a page is a whole number of blocks.
    let block = 4usize << (id & 0xf);
    for offset in (0..len).step_by(block) {
        // SAFETY: the caller's promise; the block is aligned, for `at` is page aligned.
        unsafe { asm!("dc zva, {}", in(reg) at.wrapping_add(offset), options(nostack, preserves_flags)) };
    }
}
