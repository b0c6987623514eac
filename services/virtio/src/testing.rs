//! A device over the same memory as a queue, for tests.

use crate::queue::{Queue, Slot, available_offset, bytes, used_offset};
use core::sync::atomic::{AtomicU16, AtomicU32, Ordering::*};

/// The device's side of one queue. Its memory is leaked: tests end.
pub struct Device {
    base: *mut u8,
    pub size: u16,
    pub seen: u16,
    pub used: u16,
}

/// A queue and its device.
pub fn queue(size: u16, event_index: bool) -> (Queue<'static>, Device) {
    let memory = vec![[0u64; 8]; bytes(size) / 64 + 1].leak().as_mut_ptr().cast::<u8>();
    let base = memory.wrapping_add(memory.align_offset(64));
    let (slots, free) = (vec![Slot::default(); size as usize].leak(), vec![0; size as usize].leak());
    // SAFETY: leaked memory of that size, used by this queue and (through atomics) the device model.
    let mut queue = unsafe { Queue::new(base, 0x1000, slots, free) };
    queue.reset(event_index);
    (queue, Device { base, size, seen: 0, used: 0 })
}

impl Device {
    pub fn at16(&self, offset: usize) -> &AtomicU16 {
        assert!(offset + 2 <= bytes(self.size));
        // SAFETY: in the queue's memory, where everything is atomic.
        unsafe { &*self.base.add(offset).cast() }
    }
    pub fn at32(&self, offset: usize) -> &AtomicU32 {
        assert!(offset + 4 <= bytes(self.size));
        // SAFETY: as above.
        unsafe { &*self.base.add(offset).cast() }
    }
    /// The next available descriptor: number, address, length.
    pub fn next(&mut self) -> Option<(u16, u64, u32)> {
        if self.at16(available_offset(self.size) + 2).load(Acquire) == self.seen {
            return None;
        }
        let entry = (self.seen % self.size) as usize;
        self.seen = self.seen.wrapping_add(1);
        let id = self.at16(available_offset(self.size) + 4 + 2 * entry).load(Relaxed);
        let word = |i: usize| self.at32(16 * id as usize + 4 * i).load(Relaxed);
        Some((id, word(0) as u64 | (word(1) as u64) << 32, word(2)))
    }
    pub fn use_one(&mut self, id: u32, written: u32) {
        let entry = used_offset(self.size) + 4 + 8 * (self.used % self.size) as usize;
        self.at32(entry).store(id, Relaxed);
        self.at32(entry + 4).store(written, Relaxed);
        self.used = self.used.wrapping_add(1);
        self.at16(used_offset(self.size) + 2).store(self.used, Release);
    }
    /// The used index after which the driver wants an interrupt.
    pub fn interrupt_wish(&self) -> u16 {
        self.at16(available_offset(self.size) + 4 + 2 * self.size as usize).load(Relaxed)
    }
    pub fn ask_notification(&self, event: u16) {
        self.at16(used_offset(self.size) + 4 + 8 * self.size as usize).store(event, Relaxed);
    }
}
