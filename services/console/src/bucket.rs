//! A token bucket: so many lines a second on average, so many at once.

#[derive(Debug)]
pub struct Bucket {
    /// Nanoseconds that one token takes to come back, and that a full bucket is worth.
    per_token: u64,
    full: u64,
    level: u64,
    filled_at: u64,
}

impl Bucket {
    pub fn new(per_second: u32, burst: u32) -> Self {
        let per_token = 1_000_000_000 / per_second.max(1) as u64;
        let full = per_token * burst.max(1) as u64;
        Bucket { per_token, full, level: full, filled_at: 0 }
    }

    /// Takes a token, if there is one at `now` (nanoseconds).
    pub fn take(&mut self, now: u64) -> bool {
        let passed = now.saturating_sub(self.filled_at);
        self.level = self.level.saturating_add(passed).min(self.full);
        self.filled_at = self.filled_at.max(now);
        match self.level.checked_sub(self.per_token) {
            Some(level) => {
                self.level = level;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burst_then_rate() {
        let mut bucket = Bucket::new(10, 5);
        assert_eq!((0..20).filter(|_| bucket.take(1)).count(), 5);
        // 100 ms a token.
        assert!(!bucket.take(90_000_000));
        assert!(bucket.take(100_000_001));
        assert!(!bucket.take(100_000_002));
        assert_eq!((0..20).filter(|_| bucket.take(u64::MAX)).count(), 5, "never more than the burst");
        assert!(!bucket.take(0), "time that goes back gives nothing");
    }
}
