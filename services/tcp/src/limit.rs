//! A budget a second for answers that anybody can provoke.

use crate::random::Random;

/// At most about `per_second` in each second. The exact number is drawn anew every second, between half and one and a
/// half times that, so that nobody can learn from its exhaustion what others did (CVE-2016-5696).
#[derive(Debug)]
pub struct Limit {
    per_second: u32,
    left: u32,
    until: u64,
}

impl Limit {
    pub fn new(per_second: u32) -> Self {
        Limit { per_second, left: 0, until: 0 }
    }

    pub fn allow(&mut self, now: u64, random: &mut Random) -> bool {
        if now >= self.until {
            self.until = now + 1_000_000_000;
            self.left = self.per_second / 2 + random.next_u32() % (self.per_second + 1);
        }
        let allowed = self.left > 0;
        self.left -= allowed as u32;
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounded_in_every_second() {
        let (mut limit, mut random) = (Limit::new(100), Random::new(&[1; 32]));
        let mut budgets = Vec::new();
        for second in 0..20 {
            let at = second * 1_000_000_000;
            budgets.push((0..1000).filter(|i| limit.allow(at + i, &mut random)).count());
        }
        assert!(budgets.iter().all(|b| (50..=150).contains(b)), "{budgets:?}");
        assert!(budgets.iter().any(|b| *b != budgets[0]), "the budget can be predicted");
    }
}
