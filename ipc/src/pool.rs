//! Buffer pools: shared memory that one task writes and its neighbours read.
//!
//! The owner lends a buffer by naming it in a message, and gets it back by the peer's message. Who has which buffer
//! stands in private memory on both sides ([`OwnPool`], [`Loans`]), so a buffer returned twice, never lent, or out of
//! range is found at once. Reading a peer's pool is always a copy ([`PoolView::copy`]): its bytes may change at any time.

use crate::ring::LinkFault;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// State of a buffer, in the owner's private table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Owner {
    Free = 0,
    Mine = 1,
    Lent = 2,
}

/// A pool that this task writes. The tables are the caller's memory, one entry a buffer.
pub struct OwnPool<'m> {
    /// `state.len() * size` bytes that only this value hands out.
    base: *mut u8,
    size: usize,
    state: &'m mut [u8],
    free: &'m mut [u32],
    free_count: usize,
    lent: usize,
}

impl<'m> OwnPool<'m> {
    /// `state` and `free` have one entry a buffer.
    ///
    /// # Safety
    /// `base` points to `state.len() * size` bytes, mapped writable for `'m`, that nobody else in this address space
    /// writes. Other address spaces and devices read them (a device pool: write them) at any time.
    pub unsafe fn from_raw(base: *mut u8, size: usize, state: &'m mut [u8], free: &'m mut [u32]) -> Self {
        assert!(state.len() == free.len());
        let mut pool = OwnPool { base, size, state, free, free_count: 0, lent: 0 };
        pool.reclaim_all();
        pool
    }

    /// A pool without buffers, for the side of a link that has none.
    pub fn empty() -> Self {
        OwnPool {
            base: core::ptr::null_mut(),
            size: 0,
            state: &mut [],
            free: &mut [],
            free_count: 0,
            lent: 0,
        }
    }

    pub fn buffers(&self) -> usize {
        self.state.len()
    }
    pub fn size(&self) -> usize {
        self.size
    }
    pub fn available(&self) -> usize {
        self.free_count
    }
    pub fn lent(&self) -> usize {
        self.lent
    }

    /// A free buffer, now ours to fill.
    pub fn take(&mut self) -> Option<u32> {
        self.free_count = self.free_count.checked_sub(1)?;
        let id = self.free[self.free_count];
        self.state[id as usize] = Owner::Mine as u8;
        Some(id)
    }

    /// The bytes of a buffer that [`OwnPool::take`] gave (also while lent: the owner may always read and write it).
    pub fn bytes(&mut self, id: u32) -> &mut [u8] {
        assert!((id as usize) < self.state.len());
        // SAFETY: in range by the check, and `&mut self` keeps other slices of this pool away.
        unsafe { core::slice::from_raw_parts_mut(self.base.add(id as usize * self.size), self.size) }
    }

    /// Marks a taken buffer as named in a message to the peer.
    pub fn lend(&mut self, id: u32) {
        debug_assert_eq!(self.state[id as usize], Owner::Mine as u8);
        self.state[id as usize] = Owner::Lent as u8;
        self.lent += 1;
    }

    /// The peer returned `id`: checked, and then ours (not yet free).
    pub fn returned(&mut self, id: u32) -> Result<(), LinkFault> {
        let state = self.state.get_mut(id as usize).ok_or(LinkFault::Buffer)?;
        if *state != Owner::Lent as u8 {
            return Err(LinkFault::Buffer);
        }
        *state = Owner::Mine as u8;
        self.lent -= 1;
        Ok(())
    }

    /// Frees a buffer that is ours.
    pub fn put(&mut self, id: u32) {
        debug_assert_eq!(self.state[id as usize], Owner::Mine as u8);
        self.state[id as usize] = Owner::Free as u8;
        self.free[self.free_count] = id;
        self.free_count += 1;
    }

    /// `returned` and `put` in one.
    pub fn give_back(&mut self, id: u32) -> Result<(), LinkFault> {
        self.returned(id)?;
        self.put(id);
        Ok(())
    }

    /// The peer is gone: every buffer is free again.
    pub fn reclaim_all(&mut self) {
        self.state.fill(Owner::Free as u8);
        self.free_count = self.free.len();
        self.lent = 0;
        for (i, slot) in self.free.iter_mut().rev().enumerate() {
            *slot = i as u32;
        }
    }
}

/// Read-only view of a peer's pool.
#[derive(Clone, Copy, Debug)]
pub struct PoolView<'m> {
    /// Whole words: base and buffer size are multiples of eight.
    words: &'m [AtomicU64],
    buffers: u32,
    size: u32,
}

impl<'m> PoolView<'m> {
    /// # Safety
    /// `base` points to `buffers * size` bytes, 8-byte aligned, readable for `'m`; `size` is a multiple of 8. Other
    /// address spaces and devices may write it at any time; this one doesn't.
    pub unsafe fn from_raw(base: *const u8, buffers: u32, size: u32) -> Self {
        assert!(size.is_multiple_of(8) && (base as usize).is_multiple_of(8));
        // SAFETY: by the caller; atomics allow that somebody else writes.
        let words = unsafe { core::slice::from_raw_parts(base.cast(), buffers as usize * size as usize / 8) };
        PoolView { words, buffers, size }
    }

    /// A view of nothing.
    pub fn empty() -> Self {
        PoolView { words: &[], buffers: 0, size: 0 }
    }

    pub fn buffers(&self) -> u32 {
        self.buffers
    }
    pub fn size(&self) -> u32 {
        self.size
    }

    /// True when `off .. off + len` lies in buffer `id`.
    pub fn holds(&self, id: u32, off: usize, len: usize) -> bool {
        id < self.buffers && off.checked_add(len).is_some_and(|end| end <= self.size as usize)
    }

    /// Copies `into.len()` bytes from `off` of buffer `id`.
    pub fn copy(&self, id: u32, off: usize, into: &mut [u8]) -> Result<(), LinkFault> {
        if !self.holds(id, off, into.len()) {
            return Err(LinkFault::Buffer);
        }
        let at = id as usize * self.size as usize + off;
        copy_shared(&self.words[at / 8..], at % 8, into);
        Ok(())
    }
}

/// Copies memory that may change under our eyes, from byte `skip` (0 to 7) of the first word: relaxed loads of whole
/// words, of which the first and the last may count in part. `from` covers `skip + into.len()` bytes.
fn copy_shared(mut from: &[AtomicU64], skip: usize, mut into: &mut [u8]) {
    if let (Some((first, rest)), 1..) = (from.split_first(), skip) {
        let part = &first.load(Relaxed).to_ne_bytes()[skip..];
        let (to, to_rest) = into.split_at_mut(part.len().min(into.len()));
        to.copy_from_slice(&part[..to.len()]);
        (from, into) = (rest, to_rest);
    }
    // Four words a step: this is the hot path of every task.
    let (blocks, into_rest) = into.as_chunks_mut::<32>();
    let (from_blocks, _) = from.as_chunks::<4>();
    for (to, [a, b, c, d]) in blocks.iter_mut().zip(from_blocks) {
        to[..8].copy_from_slice(&a.load(Relaxed).to_ne_bytes());
        to[8..16].copy_from_slice(&b.load(Relaxed).to_ne_bytes());
        to[16..24].copy_from_slice(&c.load(Relaxed).to_ne_bytes());
        to[24..].copy_from_slice(&d.load(Relaxed).to_ne_bytes());
    }
    let from_rest = from.get(blocks.len() * 4..).unwrap_or(&[]);
    let (single, last) = into_rest.as_chunks_mut::<8>();
    for (to, from) in single.iter_mut().zip(from_rest) {
        *to = from.load(Relaxed).to_ne_bytes();
    }
    if let (Some(from), false) = (from_rest.get(single.len()), last.is_empty()) {
        last.copy_from_slice(&from.load(Relaxed).to_ne_bytes()[..last.len()]);
    }
}

/// Which of a peer's buffers we hold: finds one that is named twice. One bit a buffer, in the caller's memory.
pub struct Loans<'m> {
    bits: &'m mut [u64],
    buffers: u32,
    held: u32,
}

impl<'m> Loans<'m> {
    pub fn new(bits: &'m mut [u64], buffers: u32) -> Self {
        assert!(bits.len() * 64 >= buffers as usize);
        bits.fill(0);
        Loans { bits, buffers, held: 0 }
    }

    pub fn held(&self) -> u32 {
        self.held
    }

    /// The peer named `id`: now we hold it.
    pub fn accept(&mut self, id: u32) -> Result<(), LinkFault> {
        if id >= self.buffers || self.bits[id as usize / 64] >> (id % 64) & 1 == 1 {
            return Err(LinkFault::Buffer);
        }
        self.bits[id as usize / 64] |= 1 << (id % 64);
        self.held += 1;
        Ok(())
    }

    /// We give it back. False: we didn't hold it (our own mistake, or it belongs to an earlier epoch).
    #[must_use]
    pub fn release(&mut self, id: u32) -> bool {
        let held = id < self.buffers && self.bits[id as usize / 64] >> (id % 64) & 1 == 1;
        if held {
            self.bits[id as usize / 64] &= !(1 << (id % 64));
            self.held -= 1;
        }
        held
    }

    pub fn forget_all(&mut self) {
        self.bits.fill(0);
        self.held = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        /// Every alignment and length, at the end of the pool too.
        #[test]
        fn copies_what_is_there(id in 0u32..3, off in 0usize..260, len in 0usize..260) {
            let memory: Vec<u64> = (0..96u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
            // SAFETY: 3 * 256 bytes, aligned, and nobody writes them.
            let view = unsafe { PoolView::from_raw(memory.as_ptr().cast(), 3, 256) };
            let bytes: Vec<u8> = memory.iter().flat_map(|w| w.to_ne_bytes()).collect();
            let mut into = vec![0xee; len];
            let result = view.copy(id, off, &mut into);
            proptest::prop_assert_eq!(result.is_ok(), off + len <= 256);
            if result.is_ok() {
                let at = id as usize * 256 + off;
                proptest::prop_assert_eq!(&into[..], &bytes[at..at + len]);
            }
        }
    }
}
