//! Globals of a task that has one thread.

use core::cell::UnsafeCell;

/// A value that the task's only thread uses, never re-entrantly.
pub struct Global<T>(UnsafeCell<Option<T>>);

// SAFETY: a task is one thread, and signal handlers don't exist.
unsafe impl<T> Sync for Global<T> {}

impl<T> Global<T> {
    pub const fn new() -> Self {
        Global(UnsafeCell::new(None))
    }

    /// Runs `f` on the value, if it was set. `f` must not come back here (it returns `None` then).
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        // SAFETY: one thread; while `f` runs the value is taken out, so that a re-entrant call finds none.
        let mut value = unsafe { (*self.0.get()).take() }?;
        let result = f(&mut value);
        self.set(value);
        Some(result)
    }

    pub fn set(&self, value: T) {
        // SAFETY: one thread, and no reference into the cell outlives a call.
        unsafe { *self.0.get() = Some(value) };
    }
}
