//! Links over heap memory, so that a service's tests drive it through real rings. Memory is leaked: tests end.

use crate::abi::MAX_TASKS;
use crate::link::End;
use crate::pool::{Loans, OwnPool, PoolView};
use crate::ring::{Epochs, Half, Message, Port, half_bytes};
use core::sync::atomic::{AtomicU32, Ordering::Release};
use std::alloc::{Layout, alloc_zeroed};

/// The kernel's epoch page.
#[derive(Clone, Copy)]
pub struct Kernel(&'static [AtomicU32; MAX_TASKS]);

impl Default for Kernel {
    /// Every task is in its first epoch.
    fn default() -> Self {
        Kernel(Box::leak(Box::new(core::array::from_fn(|_| AtomicU32::new(1)))))
    }
}

impl Kernel {
    pub fn epochs(&self) -> Epochs<'static> {
        Epochs::new(self.0)
    }

    /// What the kernel does when it restarts `task`, after it zeroed the task's halves ([`HalfMemory::reset`]).
    pub fn restart(&self, task: u16) {
        self.0[task as usize].fetch_add(1, Release);
    }
}

fn zeroed(bytes: usize) -> *mut u8 {
    let layout = Layout::from_size_align(bytes.max(4096), 4096).expect("layout");
    // SAFETY: the layout has a size above zero.
    unsafe { alloc_zeroed(layout) }
}

#[derive(Clone, Copy)]
pub struct HalfMemory {
    base: *mut u8,
    capacity: u32,
}

impl HalfMemory {
    pub fn new(capacity: u32) -> Self {
        HalfMemory { base: zeroed(half_bytes(capacity)), capacity }
    }

    pub fn half(&self) -> Half<'static> {
        // SAFETY: zeroed, page aligned, never freed, and accessed only through these types.
        unsafe { Half::from_raw(self.base, self.capacity) }
    }

    /// Zeroes the half as the kernel does when its owner restarts.
    pub fn reset(&self) {
        self.scribble(|word, _| *word = 0);
    }

    /// Lets `f` change every 4-byte word (value, byte offset): a hostile peer.
    pub fn scribble(&self, mut f: impl FnMut(&mut u32, usize)) {
        for at in (0..half_bytes(self.capacity)).step_by(4) {
            // SAFETY: in bounds and aligned; atomic, as is every other access.
            let word = unsafe { &*self.base.add(at).cast::<AtomicU32>() };
            let mut value = word.load(core::sync::atomic::Ordering::Relaxed);
            f(&mut value, at);
            word.store(value, core::sync::atomic::Ordering::Relaxed);
        }
    }
}

#[derive(Clone, Copy)]
pub struct PoolMemory {
    base: *mut u8,
    pub buffers: u32,
    pub size: u32,
}

impl PoolMemory {
    pub fn new(buffers: u32, size: u32) -> Self {
        PoolMemory { base: zeroed(buffers as usize * size as usize), buffers, size }
    }

    /// The owner's side; make one only.
    pub fn own(&self) -> OwnPool<'static> {
        let state = vec![0; self.buffers as usize].leak();
        let free = vec![0; self.buffers as usize].leak();
        // SAFETY: the memory has this size, lives for ever, and the test makes one owner.
        unsafe { OwnPool::from_raw(self.base, self.size as usize, state, free) }
    }

    pub fn view(&self) -> PoolView<'static> {
        // SAFETY: the memory has this size and lives for ever.
        unsafe { PoolView::from_raw(self.base, self.buffers, self.size) }
    }

    pub fn loans(&self) -> Loans<'static> {
        Loans::new(vec![0; self.buffers.div_ceil(64) as usize].leak(), self.buffers)
    }
}

/// One end from its parts. `theirs` need not be the peer's own (tls reads the nic's frames).
pub fn end<Out: Message, In: Message>(
    kernel: &Kernel,
    mine: HalfMemory,
    theirs: HalfMemory,
    (me, peer): (u16, u16),
    own: PoolMemory,
    view: PoolMemory,
) -> End<'static, Out, In> {
    let port = Port::new(mine.half(), theirs.half(), kernel.epochs(), me, peer);
    End::new(port, own.own(), view.view(), view.loans())
}

/// Both ends of a link between task `a` and task `b`; polled until up.
pub fn link<ToB: Message, ToA: Message>(
    kernel: &Kernel,
    capacity: u32,
    (a, b): (u16, u16),
    pool_a: PoolMemory,
    pool_b: PoolMemory,
) -> (End<'static, ToB, ToA>, End<'static, ToA, ToB>) {
    let (half_a, half_b) = (HalfMemory::new(capacity), HalfMemory::new(capacity));
    let mut end_a = end(kernel, half_a, half_b, (a, b), pool_a, pool_b);
    let mut end_b = end(kernel, half_b, half_a, (b, a), pool_b, pool_a);
    for _ in 0..2 {
        end_a.poll(true);
        end_b.poll(true);
    }
    assert!(end_a.is_up() && end_b.is_up());
    (end_a, end_b)
}
