//! Writes trace records into a core's buffer: two halves, each with a header that counts its uses, so that a reader sees
//! what it lost.

use core::sync::atomic::{AtomicU64, Ordering};

use ipc::trace::{HalfHeader, Record};

const RECORD: usize = size_of::<Record>();

/// The writer's end of a buffer.
#[derive(Debug)]
pub struct TraceBuffer {
    base: *mut u8,
    /// Records of a half, without the header.
    capacity: usize,
    /// Of the half that is written now: 1, 2, 3 …; odd ones are the first half.
    sequence: u64,
    filled: usize,
}

impl TraceBuffer {
    /// # Safety
    /// `base` points to `len` bytes of zeroed memory, 64-byte aligned, valid from now on and written by nobody else.
    pub unsafe fn new(base: *mut u8, len: usize) -> Option<Self> {
        let capacity = (len / 2 / RECORD).checked_sub(1).filter(|&c| c > 0)?;
        Some(TraceBuffer { base, capacity, sequence: 0, filled: capacity })
    }

    fn half(&self) -> *mut u8 {
        let index = (self.sequence + 1) as usize % 2;
        // SAFETY: both halves of `capacity + 1` records lie in the buffer.
        unsafe { self.base.add(index * (self.capacity + 1) * RECORD) }
    }

    /// Appends a record; starts the other half when this one is full.
    pub fn push(&mut self, record: Record) {
        if self.filled == self.capacity {
            self.sequence += 1;
            self.filled = 0;
            let (sequence, count) = self.header();
            // A reader that sees the new number discards what it copied of the old use.
            count.store(0, Ordering::Relaxed);
            sequence.store(self.sequence, Ordering::Release);
        }
        // SAFETY: `filled` < `capacity`, so the slot lies in the half.
        unsafe { self.half().add((self.filled + 1) * RECORD).cast::<Record>().write_volatile(record) };
        self.filled += 1;
        // Release: the record; pairs with the reader's Acquire load.
        self.header().1.store(self.filled as u64, Ordering::Release);
    }

    /// Sequence and count of the current half.
    fn header(&self) -> (&AtomicU64, &AtomicU64) {
        const { assert!(size_of::<HalfHeader>() == RECORD) };
        let at = self.half().cast::<AtomicU64>();
        // SAFETY: the header is the first record of the half, aligned; this writer uses it by atomics only.
        unsafe { (&*at, &*at.add(1)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromBytes;

    #[repr(align(64))]
    struct Memory([u8; 512]);

    fn record(a: u64) -> Record {
        Record { ticks: a, kind: 13, core: 0, task: 1, epoch: 2, a, b: 0 }
    }

    fn halves(memory: &Memory) -> [(u64, Vec<u64>); 2] {
        [0, 256].map(|at| {
            let header = HalfHeader::read_from_bytes(&memory.0[at..at + 32]).unwrap();
            let records = (0..header.count as usize)
                .map(|i| Record::read_from_bytes(&memory.0[at + 32 * (i + 1)..at + 32 * (i + 2)]).unwrap().a);
            (header.sequence, records.collect())
        })
    }

    #[test]
    fn halves_alternate_and_count() {
        let mut memory = Memory([0; 512]);
        // SAFETY: the memory outlives the buffer.
        let mut t = unsafe { TraceBuffer::new(memory.0.as_mut_ptr(), 512) }.unwrap();
        (0..9).for_each(|a| t.push(record(a)));
        assert_eq!(halves(&memory), [(1, (0..7).collect()), (2, vec![7, 8])]);
        // SAFETY: as above.
        (9..15).for_each(|a| t.push(record(a)));
        assert_eq!(halves(&memory), [(3, vec![14]), (2, (7..14).collect())]);
    }

    #[test]
    fn a_buffer_without_room_is_none() {
        let mut memory = Memory([0; 512]);
        // SAFETY: nothing is written.
        assert!(unsafe { TraceBuffer::new(memory.0.as_mut_ptr(), 64) }.is_none());
    }
}
