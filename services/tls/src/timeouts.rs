//! Deadlines that all lie equally far ahead: a list in order of time, with entries that can be cancelled.

use alloc::vec::Vec;

/// No entry.
pub const NONE: u32 = u32::MAX;

pub struct Timeouts {
    entries: Vec<Entry>,
    free: u32,
    first: u32,
    last: u32,
    after_ns: u64,
}

#[derive(Clone, Copy)]
struct Entry {
    slot: u32,
    before: u32,
    next: u32,
    deadline: u64,
}

impl Timeouts {
    /// Every deadline lies `after_ns` after its start.
    pub fn new(after_ns: u64) -> Self {
        Timeouts { entries: Vec::new(), free: NONE, first: NONE, last: NONE, after_ns }
    }

    /// A slot has one entry at most, which bounds the list. `now` never goes back.
    pub fn start(&mut self, slot: u32, now: u64) -> u32 {
        let entry =
            Entry { slot, before: self.last, next: NONE, deadline: now.saturating_add(self.after_ns) };
        let id = match self.free {
            NONE => {
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
            id => {
                self.free = self.entries[id as usize].next;
                self.entries[id as usize] = entry;
                id
            }
        };
        match self.last {
            NONE => self.first = id,
            last => self.entries[last as usize].next = id,
        }
        self.last = id;
        id
    }

    /// Ends an entry before its time; [`NONE`] is no entry.
    pub fn cancel(&mut self, id: u32) {
        let Some(&Entry { before, next, .. }) = self.entries.get(id as usize) else { return };
        match before {
            NONE => self.first = next,
            before => self.entries[before as usize].next = next,
        }
        match next {
            NONE => self.last = before,
            next => self.entries[next as usize].before = before,
        }
        self.entries[id as usize].next = self.free;
        self.free = id;
    }

    /// Nanoseconds at which the next entry expires; `u64::MAX`: none.
    pub fn next(&self) -> u64 {
        self.entries.get(self.first as usize).map_or(u64::MAX, |e| e.deadline)
    }

    /// Removes an expired entry: its slot.
    pub fn expired(&mut self, now: u64) -> Option<u32> {
        let entry = *self.entries.get(self.first as usize)?;
        (entry.deadline <= now).then(|| {
            self.cancel(self.first);
            entry.slot
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expires_in_order_and_reuses_entries() {
        let mut t = Timeouts::new(10);
        let ids: Vec<u32> = (0..4).map(|n| t.start(n, n as u64)).collect();
        t.cancel(ids[1]);
        t.cancel(NONE);
        assert_eq!(t.next(), 10);
        assert_eq!(t.expired(9), None);
        assert_eq!(t.expired(10), Some(0));
        assert_eq!(t.start(7, 11), ids[0]);
        t.cancel(ids[3]);
        assert_eq!((t.expired(30), t.expired(30), t.expired(30)), (Some(2), Some(7), None));
        assert_eq!(t.next(), u64::MAX);
        for n in 0..100 {
            let id = t.start(n, 40);
            t.cancel(id);
        }
        assert_eq!(t.entries.len(), 4);
    }
}
