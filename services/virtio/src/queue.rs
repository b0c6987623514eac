//! The split queue (virtio 1.2, section 2.7) with event index (section 2.7.10), one descriptor a buffer.
//!
//! The driver names buffers by a token and a physical address; what it lent stands in private memory, so a used
//! element is believed only when it names a descriptor that the device has.

use crate::DeviceFault;
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering::*, fence};

/// Most descriptors that a queue of ours has.
pub const MAX_SIZE: u16 = 1024;

/// Physical addresses of the three parts, for the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    pub size: u16,
    pub descriptors: u64,
    pub available: u64,
    pub used: u64,
}

/// Bytes of each part, and where it starts in the queue's memory.
pub(crate) const fn available_offset(size: u16) -> usize {
    16 * size as usize
}
pub(crate) const fn used_offset(size: u16) -> usize {
    (available_offset(size) + 6 + 2 * size as usize).next_multiple_of(64)
}

/// Bytes of DMA memory that a queue needs, a multiple of 64.
pub const fn bytes(size: u16) -> usize {
    (used_offset(size) + 6 + 8 * size as usize).next_multiple_of(64)
}

/// What the driver knows of a descriptor; in private memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slot {
    token: u32,
    /// Bytes that the device may write or read; 0: the device doesn't have this descriptor.
    len: u32,
}

const DEVICE_WRITES: u64 = 2;
/// Used ring flag: don't notify (section 2.7.10, only without event index).
const NO_NOTIFY: u16 = 1;

/// One queue. `N` descriptors at most; the size in use is set by [`Queue::new`].
pub struct Queue<'m> {
    size: u16,
    phys: u64,
    event_index: bool,
    /// Two words each: address; length, flags and next.
    descriptors: &'m [[AtomicU64; 2]],
    available_flags: &'m AtomicU16,
    /// Release in `publish`: pairs with the device's load, after which it reads ring and descriptors.
    available_index: &'m AtomicU16,
    available_ring: &'m [AtomicU16],
    used_event: &'m AtomicU16,
    used_flags: &'m AtomicU16,
    /// Acquire in `look`: pairs with the device's store, before which it wrote ring and buffers.
    used_index: &'m AtomicU16,
    used_ring: &'m [[AtomicU32; 2]],
    available_event: &'m AtomicU16,
    slots: &'m mut [Slot],
    free: &'m mut [u16],
    free_count: u16,
    /// Elements written, and of them published.
    added: u16,
    published: u16,
    /// Used elements taken, and those that the device has shown.
    taken: u16,
    shown: u16,
}

impl<'m> Queue<'m> {
    /// Lays a queue out in the memory; [`Queue::reset`] makes it ready.
    ///
    /// # Safety
    /// `base` points to [`bytes`]`(size)` bytes, aligned to 64, mapped writable for `'m`, which nothing in this address space
    /// uses while the queue lives; `phys` is its physical address.
    pub unsafe fn new(base: *mut u8, phys: u64, slots: &'m mut [Slot], free: &'m mut [u16]) -> Self {
        let size = slots.len() as u16;
        assert!(slots.len() == free.len() && slots.len() <= MAX_SIZE as usize && size.is_power_of_two());
        let (n, half) = (size as usize, size as usize * 2);
        let (available, used) = (available_offset(size), used_offset(size));
        // SAFETY: the caller gives `bytes(size)` bytes, and these parts are disjoint, in bounds and aligned; every field is
        // an atomic, which allows that the device writes, and valid for any bits.
        unsafe {
            let at16 = |offset: usize| &*base.add(offset).cast::<AtomicU16>();
            Queue {
                size,
                phys,
                event_index: false,
                descriptors: core::slice::from_raw_parts(base.cast(), n),
                available_flags: at16(available),
                available_index: at16(available + 2),
                available_ring: core::slice::from_raw_parts(base.add(available + 4).cast(), n),
                used_event: at16(available + 4 + half),
                used_flags: at16(used),
                used_index: at16(used + 2),
                used_ring: core::slice::from_raw_parts(base.add(used + 4).cast(), n),
                available_event: at16(used + 4 + 8 * n),
                slots,
                free,
                free_count: 0,
                added: 0,
                published: 0,
                taken: 0,
                shown: 0,
            }
        }
    }

    /// Empty and zeroed; the device must be in reset. `event_index`: whether that feature was negotiated.
    pub fn reset(&mut self, event_index: bool) {
        self.event_index = event_index;
        self.descriptors.iter().flatten().for_each(|word| word.store(0, Relaxed));
        self.used_ring.iter().flatten().for_each(|word| word.store(0, Relaxed));
        self.available_ring.iter().for_each(|entry| entry.store(0, Relaxed));
        for word in [
            self.available_flags,
            self.available_index,
            self.used_event,
            self.used_flags,
            self.used_index,
            self.available_event,
        ] {
            word.store(0, Relaxed);
        }
        self.slots.fill(Slot::default());
        for (slot, i) in self.free.iter_mut().zip((0..self.size).rev()) {
            *slot = i;
        }
        self.free_count = self.size;
        (self.added, self.published, self.taken, self.shown) = (0, 0, 0, 0);
    }

    pub fn addresses(&self) -> Addresses {
        Addresses {
            size: self.size,
            descriptors: self.phys,
            available: self.phys + available_offset(self.size) as u64,
            used: self.phys + used_offset(self.size) as u64,
        }
    }

    /// Descriptors that can be added.
    pub fn room(&self) -> u16 {
        self.free_count
    }

    /// Buffers that the device has, or has used and we haven't taken yet.
    pub fn in_flight(&self) -> u16 {
        self.size - self.free_count
    }

    /// Gives the device `len` bytes (not 0) at `phys`; it sees them with [`Queue::publish`]. False: no room.
    #[must_use]
    pub fn add(&mut self, token: u32, phys: u64, len: u32, device_writes: bool) -> bool {
        let Some(count) = self.free_count.checked_sub(1) else { return false };
        self.free_count = count;
        let slot = self.free[count as usize];
        self.slots[slot as usize] = Slot { token, len };
        let flags = if device_writes { DEVICE_WRITES } else { 0 };
        let descriptor = &self.descriptors[slot as usize];
        descriptor[0].store(phys.to_le(), Relaxed);
        descriptor[1].store((len as u64 | flags << 32).to_le(), Relaxed);
        self.available_ring[(self.added & (self.size - 1)) as usize].store(slot.to_le(), Relaxed);
        self.added = self.added.wrapping_add(1);
        true
    }

    /// Shows the device what was added. True: it wants to be notified.
    #[must_use]
    pub fn publish(&mut self) -> bool {
        let new = self.added.wrapping_sub(self.published);
        if new == 0 {
            return false;
        }
        self.available_index.store(self.added.to_le(), Release);
        self.published = self.added;
        // The device's event index or flag is read after our index is visible (section 2.7.13.4.1).
        fence(SeqCst);
        if self.event_index {
            let event = u16::from_le(self.available_event.load(Relaxed));
            self.added.wrapping_sub(event).wrapping_sub(1) < new
        } else {
            u16::from_le(self.used_flags.load(Relaxed)) & NO_NOTIFY == 0
        }
    }

    /// The next used buffer: its token and the bytes that the device wrote.
    pub fn take(&mut self) -> Result<Option<(u32, u32)>, DeviceFault> {
        if self.taken == self.shown && !self.look()? {
            return Ok(None);
        }
        let element = &self.used_ring[(self.taken & (self.size - 1)) as usize];
        let (id, written) = (u32::from_le(element[0].load(Relaxed)), u32::from_le(element[1].load(Relaxed)));
        let slot = self.slots.get_mut(id as usize).ok_or(DeviceFault::Used)?;
        if slot.len == 0 || written > slot.len {
            return Err(DeviceFault::Used);
        }
        let token = slot.token;
        slot.len = 0;
        self.free[self.free_count as usize] = id as u16;
        self.free_count += 1;
        self.taken = self.taken.wrapping_add(1);
        Ok(Some((token, written)))
    }

    /// Loads the device's index. True: there is something to take.
    fn look(&mut self) -> Result<bool, DeviceFault> {
        let index = u16::from_le(self.used_index.load(Acquire));
        if index.wrapping_sub(self.taken) > self.in_flight() {
            return Err(DeviceFault::Used);
        }
        self.shown = index;
        Ok(index != self.taken)
    }

    /// Asks for an interrupt when the device has used `after + 1` more buffers. True: so many are there already (or, without
    /// event index, any).
    pub fn ask_interrupt(&mut self, after: u16) -> Result<bool, DeviceFault> {
        self.used_event.store(self.taken.wrapping_add(after).to_le(), Relaxed);
        self.available_flags.store(0, Relaxed);
        // Pairs with the device's barrier between its index and its look at our wish (section 2.7.7.2).
        fence(SeqCst);
        let there = self.look()?;
        let shown = self.shown.wrapping_sub(self.taken);
        Ok(if self.event_index { shown > after } else { there })
    }

    /// No interrupts, as far as the device keeps to it.
    pub fn forgo_interrupts(&mut self) {
        // With event index: a wish that lies just behind is passed only after 65,535 more buffers.
        self.used_event.store(self.taken.wrapping_sub(1).to_le(), Relaxed);
        self.available_flags.store(if self.event_index { 0 } else { 1u16.to_le() }, Relaxed);
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
