//! The heap: one arena from the manifest, zeroed on free so that no secret outlives its owner.

use core::alloc::{GlobalAlloc, Layout};
use talc::{ErrOnOom, Span, Talc, Talck};

/// The task's allocator, which [`crate::entry`] declares.
pub struct Heap;

static ARENA: Talck<spin::Mutex<()>, ErrOnOom> = Talc::new(ErrOnOom).lock();

// SAFETY: allocation is talc's; zeroing touches only the block that is being freed.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by the caller.
        unsafe { ARENA.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the block is the caller's until `dealloc` returns. Volatile is not needed: the allocator reads and
        // writes the block next, through another pointer, so the stores can't be left out.
        unsafe {
            at.write_bytes(0, layout.size());
            core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
            ARENA.dealloc(at, layout)
        }
    }
}

/// # Safety
/// `base..base + len` is mapped, writable, and used by nothing else. Called once.
pub(crate) unsafe fn init(base: u64, len: u64) {
    let span = Span::from_base_size(base as *mut u8, len as usize);
    // SAFETY: by the caller. A span that is too small leaves an empty heap, and the first allocation says so.
    let _ = unsafe { ARENA.lock().claim(span) };
}
