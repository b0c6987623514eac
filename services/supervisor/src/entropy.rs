//! Where random numbers start: all sources are hashed into one key, which a ChaCha20 generator stretches into a seed for each
//! start of each task.

use alloc::vec::Vec;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use sha2::{Digest, Sha256};

/// Bytes that a source must give to count.
const ENOUGH: usize = 16;

#[derive(Default)]
pub struct Entropy {
    hash: Sha256,
    sources: Vec<(&'static str, usize)>,
    strong: bool,
}

/// Nothing but the clock: not good enough for keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weak;

impl Entropy {
    /// A source made for the purpose: instruction, device, firmware.
    pub fn absorb(&mut self, source: &'static str, bytes: &[u8]) {
        self.mix(source, bytes);
        if bytes.len() >= ENOUGH && bytes.iter().any(|&b| b != bytes[0]) {
            self.sources.push((source, bytes.len()));
            self.strong = true;
        }
    }

    /// What differs from boot to boot and may be guessed: it can only help.
    pub fn stir(&mut self, source: &'static str, value: u64) {
        self.mix(source, &value.to_le_bytes());
    }

    fn mix(&mut self, source: &str, bytes: &[u8]) {
        // Lengths first, so that two different inputs never hash the same bytes.
        self.hash.update((source.len() as u64).to_le_bytes());
        self.hash.update(source);
        self.hash.update((bytes.len() as u64).to_le_bytes());
        self.hash.update(bytes);
    }

    /// Sources that count, with their bytes.
    pub fn sources(&self) -> &[(&'static str, usize)] {
        &self.sources
    }

    /// `weak_allowed`: for development images.
    pub fn finish(self, weak_allowed: bool) -> Result<Seeds, Weak> {
        if !self.strong && !weak_allowed {
            return Err(Weak);
        }
        Ok(Seeds(ChaCha20Rng::from_seed(self.hash.finalize().into())))
    }
}

/// Gives seeds.
pub struct Seeds(ChaCha20Rng);

impl Seeds {
    pub fn next(&mut self) -> [u8; 32] {
        let mut seed = [0; 32];
        self.0.fill_bytes(&mut seed);
        seed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_seed(sources: &[(&'static str, &[u8])]) -> [u8; 32] {
        let mut entropy = Entropy::default();
        sources.iter().for_each(|(name, bytes)| entropy.absorb(name, bytes));
        entropy.finish(true).expect("weak is allowed").next()
    }

    #[test]
    fn a_production_image_needs_a_real_source() {
        let mut entropy = Entropy::default();
        entropy.stir("clock", 0x1234_5678_9abc_def0);
        entropy.absorb("short", &[1, 2, 3]);
        entropy.absorb("stuck", &[0xff; 64]);
        assert_eq!(entropy.sources(), []);
        assert_eq!(entropy.finish(false).err(), Some(Weak));
        let mut entropy = Entropy::default();
        entropy.absorb("device", &core::array::from_fn::<u8, 32, _>(|i| i as u8));
        assert_eq!(entropy.sources(), [("device", 32)]);
        assert!(entropy.finish(false).is_ok());
    }

    #[test]
    fn every_source_and_its_place_count() {
        let (a, b) = (&b"0123456789abcdef"[..], &b"fedcba9876543210"[..]);
        let seeds = [
            first_seed(&[]),
            first_seed(&[("x", a)]),
            first_seed(&[("y", a)]),
            first_seed(&[("x", a), ("x", b)]),
            first_seed(&[("x", b), ("x", a)]),
        ];
        for (i, seed) in seeds.iter().enumerate() {
            assert!(!seeds[..i].contains(seed));
        }
        assert_eq!(first_seed(&[("x", a)]), first_seed(&[("x", a)]));
    }

    #[test]
    fn no_seed_twice() {
        let mut seeds = Entropy::default().finish(true).expect("weak is allowed");
        let mut all: Vec<_> = (0..1000).map(|_| seeds.next()).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 1000);
    }
}
