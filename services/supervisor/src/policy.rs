//! When a stopped task is started again.

use crate::config::Restart;
use alloc::collections::VecDeque;

/// The recent restarts of one task.
#[derive(Debug)]
pub struct History {
    policy: Restart,
    /// Times of restarts within the window, nanoseconds; at most `policy.limit`.
    restarts: VecDeque<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Start it at this time, nanoseconds.
    StartAt(u64),
    /// It keeps failing: reboot the machine.
    GiveUp,
}

impl History {
    pub fn new(policy: Restart) -> Self {
        History { policy, restarts: VecDeque::new() }
    }

    /// The task stopped at `now`.
    pub fn stopped(&mut self, now: u64) -> Decision {
        let window = self.policy.window_s as u64 * 1_000_000_000;
        while self.restarts.front().is_some_and(|&at| now.saturating_sub(at) > window) {
            self.restarts.pop_front();
        }
        if self.restarts.len() >= self.policy.limit as usize {
            return Decision::GiveUp;
        }
        let doublings = self.restarts.len().saturating_sub(1).min(32) as u32;
        let first = if self.restarts.is_empty() { self.policy.delay_ms } else { self.policy.delay_ms.max(1) };
        let delay_ms = ((first as u64) << doublings).min(self.policy.max_delay_ms as u64);
        let at = now.saturating_add(delay_ms * 1_000_000);
        self.restarts.push_back(at);
        Decision::StartAt(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_first_restart_is_prompt_and_the_next_ones_wait_longer() {
        let policy = Restart { delay_ms: 0, max_delay_ms: 5, limit: 7, window_s: 60 };
        let mut history = History::new(policy);
        let delays: alloc::vec::Vec<_> = (0..8).map(|_| history.stopped(100 * MS)).collect();
        let at = |ms: u64| Decision::StartAt((100 + ms) * MS);
        assert_eq!(delays, [at(0), at(1), at(2), at(4), at(5), at(5), at(5), Decision::GiveUp]);
    }

    #[test]
    fn what_lies_before_the_window_is_forgotten() {
        let mut history = History::new(Restart { delay_ms: 0, max_delay_ms: 5, limit: 1, window_s: 1 });
        assert_eq!(history.stopped(0), Decision::StartAt(0));
        assert_eq!(history.stopped(1000 * MS), Decision::GiveUp);
        assert_eq!(history.stopped(1001 * MS), Decision::StartAt(1001 * MS));
        assert!(history.restarts.len() <= 1);
    }

    #[test]
    fn no_overflow() {
        let big = Restart { delay_ms: u32::MAX, max_delay_ms: u32::MAX, limit: 100, window_s: u32::MAX };
        let mut history = History::new(big);
        for _ in 0..100 {
            assert!(matches!(history.stopped(u64::MAX), Decision::StartAt(u64::MAX)));
        }
        assert_eq!(history.stopped(u64::MAX), Decision::GiveUp);
    }
}
