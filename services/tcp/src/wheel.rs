//! A hierarchical timer wheel: arm, cancel and expire in O(1), whatever the number of timers.
//!
//! Four levels of 64 slots. A timer stands on the level where its tick first differs from the present, so it moves at
//! most three times before it fires. Slots are doubly linked lists through one row a timer; timers are numbers, their
//! rows allocated when a number is first used.

use alloc::vec::Vec;

/// One tick: 2^22 ns, about 4.2 ms.
pub const TICK_SHIFT: u32 = 22;
const LEVELS: usize = 4;
/// The farthest a timer can lie ahead, about 19 hours: one slot of the top level short of its whole round.
pub const HORIZON: u64 = (1 << (6 * LEVELS)) - (1 << (6 * (LEVELS - 1)));

const NONE: u32 = u32::MAX;
/// `slot` of a timer that isn't armed.
const IDLE: u16 = u16::MAX;

#[derive(Clone, Copy, Debug)]
struct Row {
    due: u64,
    previous: u32,
    next: u32,
    slot: u16,
}

#[derive(Debug)]
pub struct Wheel {
    rows: Vec<Row>,
    heads: [[u32; 64]; LEVELS],
    /// Which slots have timers, a bit each.
    occupied: [u64; LEVELS],
    /// All timers due before this tick have fired.
    now: u64,
}

impl Wheel {
    /// For timers 0 to `capacity - 1`.
    pub fn new(capacity: usize) -> Self {
        Wheel {
            rows: Vec::with_capacity(capacity),
            heads: [[NONE; 64]; LEVELS],
            occupied: [0; LEVELS],
            now: 0,
        }
    }

    /// Fires at the first tick that is not before `at`; replaces what was armed. It is `now` (both ns).
    pub fn arm(&mut self, timer: u32, now: u64, at: u64) {
        self.cancel(timer);
        if self.occupied == [0; LEVELS] {
            // Nobody had to call `expire` for a while.
            self.now = self.now.max(now >> TICK_SHIFT);
        }
        while self.rows.len() <= timer as usize {
            self.rows.push(Row { due: 0, previous: NONE, next: NONE, slot: IDLE });
        }
        let due = at.div_ceil(1 << TICK_SHIFT).clamp(self.now, self.now + HORIZON);
        self.rows[timer as usize].due = due;
        self.link(timer);
    }

    pub fn cancel(&mut self, timer: u32) {
        if self.is_armed(timer) {
            self.unlink(timer);
        }
    }

    pub fn is_armed(&self, timer: u32) -> bool {
        self.rows.get(timer as usize).is_some_and(|r| r.slot != IDLE)
    }

    /// When to call [`Wheel::expire`] next, in nanoseconds: never later than the next timer.
    pub fn deadline(&self) -> Option<u64> {
        self.next_slot().map(|(_, _, tick)| tick << TICK_SHIFT)
    }

    /// A timer that is due at `at` (nanoseconds), now no longer armed. Call until `None`.
    pub fn expire(&mut self, at: u64) -> Option<u32> {
        let present = at >> TICK_SHIFT;
        while let Some((level, slot, tick)) = self.next_slot().filter(|(_, _, tick)| *tick <= present) {
            self.now = tick;
            if level == 0 {
                let timer = self.heads[level][slot];
                self.unlink(timer);
                return Some(timer);
            }
            // All of it moves down to where it differs from the present now.
            while self.heads[level][slot] != NONE {
                let timer = self.heads[level][slot];
                self.unlink(timer);
                self.link(timer);
            }
        }
        self.now = self.now.max(present);
        None
    }

    /// Level, slot and tick of the slot that comes next. A lower level's slots all come before a higher level's.
    fn next_slot(&self) -> Option<(usize, usize, u64)> {
        let level = self.occupied.iter().position(|slots| *slots != 0)?;
        let shift = 6 * level as u32;
        let here = self.now >> shift & 63;
        let ahead = self.occupied[level].rotate_right(here as u32).trailing_zeros() as u64;
        let tick = ((self.now >> shift) + ahead) << shift;
        Some((level, ((here + ahead) & 63) as usize, tick.max(self.now)))
    }

    fn link(&mut self, timer: u32) {
        let due = self.rows[timer as usize].due;
        let differs = 63 - ((due ^ self.now) | 1).leading_zeros();
        let level = (differs as usize / 6).min(LEVELS - 1);
        let slot = (due >> (6 * level) & 63) as usize;
        let head = self.heads[level][slot];
        if head != NONE {
            self.rows[head as usize].previous = timer;
        }
        let row = &mut self.rows[timer as usize];
        (row.previous, row.next, row.slot) = (NONE, head, (level * 64 + slot) as u16);
        self.heads[level][slot] = timer;
        self.occupied[level] |= 1 << slot;
    }

    fn unlink(&mut self, timer: u32) {
        let Row { previous, next, slot, .. } = self.rows[timer as usize];
        let (level, slot) = (slot as usize / 64, slot as usize % 64);
        if next != NONE {
            self.rows[next as usize].previous = previous;
        }
        if previous != NONE {
            self.rows[previous as usize].next = next;
        } else {
            self.heads[level][slot] = next;
            if next == NONE {
                self.occupied[level] &= !(1 << slot);
            }
        }
        self.rows[timer as usize].slot = IDLE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const TICK: u64 = 1 << TICK_SHIFT;

    #[test]
    fn fires_in_order_and_not_early() {
        let mut wheel = Wheel::new(8);
        for (timer, at) in [(0, 5 * TICK), (1, 70 * TICK + 1), (2, 5000 * TICK), (3, 300_000 * TICK), (4, 1)]
        {
            wheel.arm(timer, 0, at);
        }
        wheel.cancel(2);
        assert_eq!(wheel.deadline(), Some(TICK));
        assert_eq!(wheel.expire(TICK - 1), None);
        assert_eq!(
            (wheel.expire(5 * TICK), wheel.expire(5 * TICK), wheel.expire(5 * TICK)),
            (Some(4), Some(0), None)
        );
        assert_eq!(wheel.expire(70 * TICK), None);
        assert_eq!(wheel.expire(71 * TICK), Some(1));
        assert_eq!(wheel.expire(299_999 * TICK), None);
        assert_eq!(wheel.expire(u64::MAX), Some(3));
        assert_eq!((wheel.expire(u64::MAX), wheel.deadline()), (None, None));
    }

    proptest::proptest! {
        /// Against a sorted map: everything due fires in one call, nothing else does, the deadline is never late.
        #[test]
        fn like_a_sorted_map(steps in proptest::collection::vec((0u32..40, 0u64..4, 0u64..1 << 24, 0u64..1 << 20), 1..300)) {
            let mut wheel = Wheel::new(40);
            let mut model = BTreeMap::new();
            let mut now = 0u64;
            for (timer, kind, delta, forward) in steps {
                match kind {
                    0 => { wheel.cancel(timer); model.remove(&timer); }
                    1 | 2 => {
                        let delta = if kind == 1 { delta & 0xff } else { delta };
                        let at = now + delta * TICK / 3;
                        wheel.arm(timer, now, at);
                        let due = at.div_ceil(TICK).max(now / TICK);
                        model.insert(timer, due);
                    }
                    _ => now += forward * TICK / 7,
                }
                let mut fired = Vec::new();
                // Not called before the deadline, as the service does it.
                if wheel.deadline().is_some_and(|d| d <= now) {
                    while let Some(t) = wheel.expire(now) { fired.push(t); }
                }
                let mut due: Vec<_> = model.iter().filter(|(_, d)| **d <= now / TICK).map(|(t, _)| *t).collect();
                model.retain(|_, d| *d > now / TICK);
                fired.sort(); due.sort();
                proptest::prop_assert_eq!(fired, due);
                let next = model.values().min().map(|d| d * TICK);
                proptest::prop_assert_eq!(wheel.deadline().is_some(), next.is_some());
                proptest::prop_assert!(wheel.deadline() <= next || next.is_none());
                // Not an idle loop: the deadline lies ahead.
                proptest::prop_assert!(wheel.deadline().is_none_or(|d| d > now));
            }
        }
    }
}
