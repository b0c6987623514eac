//! One timer a connection: a wheel of lists, O(1) to set, move and cancel.
//!
//! A due time beyond the wheel's turn is cut to the turn's end; the owner sees that it isn't due yet and sets it again. So a
//! timer that is pushed back by every packet costs nothing until it fires.

use crate::slab::{NONE, Slab};
use alloc::vec::Vec;

/// The clock of all timers.
pub const TICK_MS: u64 = 250;
const SLOTS: u32 = 512;

#[derive(Clone, Copy)]
struct Link {
    next: u32,
    prev: u32,
    due: u32,
}

impl Default for Link {
    fn default() -> Self {
        Link { next: NONE, prev: NONE, due: NONE }
    }
}

pub struct Wheel {
    links: Slab<Link>,
    heads: [u32; SLOTS as usize],
    occupied: [u64; SLOTS as usize / 64],
    /// All slots up to this tick are empty.
    now: u32,
}

impl Wheel {
    pub fn new() -> Self {
        Wheel {
            links: Slab::new(),
            heads: [NONE; SLOTS as usize],
            occupied: [0; SLOTS as usize / 64],
            now: 0,
        }
    }

    /// Fires at tick `due`, in place of what was set before.
    pub fn set(&mut self, id: u32, due: u32) {
        self.cancel(id);
        let due = due.clamp(self.now + 1, self.now + SLOTS - 1);
        let slot = (due % SLOTS) as usize;
        let next = core::mem::replace(&mut self.heads[slot], id);
        self.occupied[slot / 64] |= 1 << (slot % 64);
        self.links.occupy(id, Link { next, prev: NONE, due });
        if next != NONE {
            self.links[next].prev = id;
        }
    }

    /// Like `set`, but leaves a timer that fires sooner.
    pub fn set_sooner(&mut self, id: u32, due: u32) {
        if self.links.get(id).is_none_or(|l| due < l.due) {
            self.set(id, due);
        }
    }

    pub fn cancel(&mut self, id: u32) {
        let Some(&Link { next, prev, due }) = self.links.get(id) else { return };
        let slot = (due % SLOTS) as usize;
        match prev {
            NONE => self.heads[slot] = next,
            prev => self.links[prev].next = next,
        }
        if next != NONE {
            self.links[next].prev = prev;
        }
        if self.heads[slot] == NONE {
            self.occupied[slot / 64] &= !(1 << (slot % 64));
        }
        self.links.remove(id);
    }

    /// Goes to tick `now`; whose time has come is appended to `fired` and no longer set.
    pub fn advance(&mut self, now: u32, fired: &mut Vec<u32>) {
        while let Some(due) = self.next().filter(|&due| due <= now) {
            self.now = due - 1;
            let slot = (due % SLOTS) as usize;
            let mut id = core::mem::replace(&mut self.heads[slot], NONE);
            self.occupied[slot / 64] &= !(1 << (slot % 64));
            while id != NONE {
                fired.push(id);
                id = self.links.remove(id).next;
            }
        }
        self.now = self.now.max(now);
    }

    /// The first tick at which something is due.
    pub fn next(&self) -> Option<u32> {
        let from = self.now + 1;
        let mut ahead = 0;
        while ahead < SLOTS {
            let slot = (from + ahead) % SLOTS;
            let word = self.occupied[slot as usize / 64] >> (slot % 64);
            if word != 0 {
                return Some(from + ahead + word.trailing_zeros())
                    .filter(|_| ahead + word.trailing_zeros() < SLOTS);
            }
            ahead += 64 - slot % 64;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn timers_fire_once_at_their_tick(steps in proptest::collection::vec((0u32..20, 0u32..900, 0u32..120, any::<bool>()), 1..200)) {
            let (mut wheel, mut model, mut now) = (Wheel::new(), BTreeMap::new(), 0u32);
            for (id, delay, pass, cancel) in steps {
                if cancel {
                    wheel.cancel(id);
                    model.remove(&id);
                } else {
                    wheel.set(id, now + delay);
                    model.insert(id, (now + delay).clamp(now + 1, now + SLOTS - 1));
                }
                prop_assert_eq!(wheel.next(), model.values().min().copied());
                now += pass;
                let mut fired = Vec::new();
                wheel.advance(now, &mut fired);
                fired.sort();
                let want: Vec<u32> = model.iter().filter(|(_, due)| **due <= now).map(|(id, _)| *id).collect();
                model.retain(|_, due| *due > now);
                prop_assert_eq!(fired, want);
            }
        }
    }

    #[test]
    fn a_long_pause_fires_everything() {
        let mut wheel = Wheel::new();
        (0..600).for_each(|id| wheel.set(id, id * 7));
        let mut fired = Vec::new();
        wheel.advance(1_000_000, &mut fired);
        assert_eq!((fired.len(), wheel.next()), (600, None));
    }
}
