//! Scheduling decisions of one core: fixed priorities, first in first out in a level, budgets. Pure.
//!
//! Tasks are named by their *slot*: the index among the tasks of the core.

use ipc::abi::MAX_TASKS;

pub const LEVELS: usize = 32;
const NONE: u8 = u8::MAX;

/// The tasks that are ready and not running.
#[derive(Debug)]
pub struct ReadyQueue {
    /// Bit p: level p is not empty.
    levels: u32,
    first: [u8; LEVELS],
    last: [u8; LEVELS],
    /// The slot behind each slot.
    next: [u8; MAX_TASKS],
}

impl Default for ReadyQueue {
    fn default() -> Self {
        ReadyQueue { levels: 0, first: [NONE; LEVELS], last: [NONE; LEVELS], next: [NONE; MAX_TASKS] }
    }
}

impl ReadyQueue {
    /// The highest level with a ready task.
    #[inline(always)]
    pub fn top(&self) -> Option<u8> {
        (self.levels != 0).then(|| 31 - self.levels.leading_zeros() as u8)
    }

    /// Behind all of its level. The slot must not be queued.
    #[inline(always)]
    pub fn push_back(&mut self, slot: u8, priority: u8) {
        let level = priority as usize % LEVELS;
        self.next[slot as usize] = NONE;
        match self.last[level] {
            NONE => self.first[level] = slot,
            last => self.next[last as usize] = slot,
        }
        self.last[level] = slot;
        self.levels |= 1 << level;
    }

    /// Before all of its level: a preempted task goes on where it was. The slot must not be queued.
    pub fn push_front(&mut self, slot: u8, priority: u8) {
        let level = priority as usize % LEVELS;
        self.next[slot as usize] = self.first[level];
        if self.last[level] == NONE {
            self.last[level] = slot;
        }
        self.first[level] = slot;
        self.levels |= 1 << level;
    }

    /// Takes the first task of the highest level.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<u8> {
        let level = self.top()? as usize;
        let slot = self.first[level];
        self.first[level] = self.next[slot as usize];
        if self.first[level] == NONE {
            self.last[level] = NONE;
            self.levels &= !(1 << level);
        }
        Some(slot)
    }

    /// Takes a task out, wherever it stands in its level; nothing when it isn't there.
    pub fn remove(&mut self, slot: u8, priority: u8) {
        let level = priority as usize % LEVELS;
        let mut at = core::mem::replace(&mut self.first[level], NONE);
        self.last[level] = NONE;
        self.levels &= !(1 << level);
        while at != NONE {
            let next = self.next[at as usize];
            if at != slot {
                self.push_back(at, priority);
            }
            at = next;
        }
    }
}

/// Processor time in each period, in ticks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Budget {
    budget: u64,
    /// 0: no limit.
    period: u64,
    left: u64,
    /// When the current period ends.
    end: u64,
}

impl Budget {
    /// `period` 0: no limit.
    pub fn new(budget: u64, period: u64) -> Self {
        Budget { budget, period, left: budget, end: 0 }
    }

    /// The task is about to run: starts a new period when the last one is over. Returns when it must stop.
    #[inline(always)]
    pub fn begin(&mut self, now: u64) -> u64 {
        if self.period == 0 {
            return u64::MAX;
        }
        if now >= self.end {
            self.left = self.budget;
            self.end = now.saturating_add(self.period);
        }
        now.saturating_add(self.left)
    }

    /// The task ran for `ticks`.
    #[inline(always)]
    pub fn charge(&mut self, ticks: u64) {
        if self.period != 0 {
            self.left = self.left.saturating_sub(ticks);
        }
    }

    /// When the task may run again, if it may not now.
    pub fn depleted_until(&self, now: u64) -> Option<u64> {
        (self.period != 0 && self.left == 0 && now < self.end).then_some(self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[test]
    fn a_budget_limits_a_period_and_comes_back() {
        let mut b = Budget::new(100, 400);
        assert_eq!(b.begin(1000), 1100);
        b.charge(60);
        assert_eq!(b.depleted_until(1060), None);
        assert_eq!(b.begin(1200), 1240);
        b.charge(45);
        assert_eq!(b.depleted_until(1245), Some(1400));
        assert_eq!(b.depleted_until(1400), None);
        assert_eq!(b.begin(1400), 1500);
    }

    #[test]
    fn no_period_means_no_limit() {
        let mut b = Budget::new(0, 0);
        assert_eq!(b.begin(7), u64::MAX);
        b.charge(1 << 60);
        assert_eq!(b.depleted_until(8), None);
    }

    #[derive(Clone, Debug)]
    enum Op {
        Back(u8),
        Front(u8),
        Pop,
        Remove(u8),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            (0u8..64).prop_map(Op::Back),
            (0u8..64).prop_map(Op::Front),
            Just(Op::Pop),
            (0u8..64).prop_map(Op::Remove),
        ]
    }

    proptest! {
        /// Against a plain model. A slot's priority is fixed, as a task's is.
        #[test]
        fn queue_is_what_its_model_is(ops in prop::collection::vec(op(), 0..200)) {
            let priority = |slot: u8| slot.wrapping_mul(37) % 5 * 7;
            let mut queue = ReadyQueue::default();
            let mut model: Vec<VecDeque<u8>> = vec![VecDeque::new(); LEVELS];
            for op in ops {
                match op {
                    Op::Back(s) | Op::Front(s) if model.iter().any(|l| l.contains(&s)) => (),
                    Op::Back(s) => {
                        queue.push_back(s, priority(s));
                        model[priority(s) as usize].push_back(s);
                    }
                    Op::Front(s) => {
                        queue.push_front(s, priority(s));
                        model[priority(s) as usize].push_front(s);
                    }
                    Op::Pop => prop_assert_eq!(queue.pop(), model.iter_mut().rev().find_map(|l| l.pop_front())),
                    Op::Remove(s) => {
                        queue.remove(s, priority(s));
                        model[priority(s) as usize].retain(|&x| x != s);
                    }
                }
                prop_assert_eq!(queue.top(), model.iter().rposition(|l| !l.is_empty()).map(|p| p as u8));
            }
        }
    }
}
