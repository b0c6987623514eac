//! Who may begin a handshake: decided before any cryptography, before a byte is read.

use crate::config::Limits;
use alloc::collections::BTreeMap;

pub struct Admission {
    most: u32,
    most_per_source: u32,
    under_way: u32,
    /// Sources with handshakes under way, at most `most` of them.
    sources: BTreeMap<[u8; 4], u32>,
}

impl Admission {
    pub fn new(limits: &Limits) -> Self {
        Admission {
            most: limits.handshakes,
            most_per_source: limits.handshakes_per_source,
            under_way: 0,
            sources: BTreeMap::new(),
        }
    }

    pub fn under_way(&self) -> u32 {
        self.under_way
    }

    /// False: a bound is reached.
    #[must_use]
    pub fn enter(&mut self, source: [u8; 4]) -> bool {
        let here = self.sources.get(&source).copied().unwrap_or(0);
        if self.under_way >= self.most || here >= self.most_per_source {
            return false;
        }
        self.under_way += 1;
        self.sources.insert(source, here + 1);
        true
    }

    /// A handshake that had entered is over.
    pub fn leave(&mut self, source: [u8; 4]) {
        self.under_way -= 1;
        if let Some(here) = self.sources.get_mut(&source) {
            *here -= 1;
            if *here == 0 {
                self.sources.remove(&source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_hold_and_are_given_back() {
        let limits = Limits { handshakes: 3, handshakes_per_source: 2, ..Limits::default() };
        let (a, b, c) = ([10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 3]);
        let mut admission = Admission::new(&limits);
        assert!(admission.enter(a) && admission.enter(a));
        assert!(!admission.enter(a), "source bound");
        assert!(admission.enter(b));
        assert!(!admission.enter(c), "bound of all");
        admission.leave(a);
        assert!(admission.enter(c));
        admission.leave(a);
        admission.leave(b);
        admission.leave(c);
        assert_eq!((admission.under_way(), admission.sources.len()), (0, 0));
    }
}
