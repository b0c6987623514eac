//! Random numbers: ChaCha20, seeded from the supervisor's boot page (fresh at each start), the CPU and the clock.

use crate::once::Global;
use crate::platform::hardware_random as hardware;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

static GENERATOR: Global<ChaCha20Rng> = Global::new();

/// `seed` is the boot page's; `unique` differs between two lives of the task even where the seed does not.
pub(crate) fn init(mut seed: [u8; 32], unique: [u64; 2]) {
    for (i, word) in unique.into_iter().chain([hardware(), hardware()]).enumerate() {
        for (byte, mix) in seed[i * 8..].iter_mut().zip(word.to_le_bytes()) {
            *byte ^= mix;
        }
    }
    GENERATOR.set(ChaCha20Rng::from_seed(seed));
}

/// Fills `bytes`; panics when the task has no boot page.
pub fn fill(bytes: &mut [u8]) {
    GENERATOR.with(|g| g.fill_bytes(bytes)).expect("random numbers before the boot page")
}
