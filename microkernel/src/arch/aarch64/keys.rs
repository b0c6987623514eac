//! Random numbers of the processor (FEAT_RNG), and pointer authentication keys: a fresh one for each start of a task.
//!
//! The keys make it hard for a task's own bug to forge its return addresses; no isolation rests on them. They come from the
//! processor's generator where it has one, else from the counter, hashed along with all that came before.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use aarch64_cpu::asm::random::ArmRng;

use super::timer;

/// State of the fallback. Only its own readers: any interleaving gives different values.
static STATE: AtomicU64 = AtomicU64::new(0x6a09_e667_f3bc_c908);

/// Fills `into` from the processor's generator, as far as it has one and that delivers; returns how many bytes.
pub fn hardware_random(into: &mut [u8]) -> usize {
    let Some(generator) = ArmRng::new() else { return 0 };
    let mut filled = 0;
    for chunk in into.chunks_mut(8) {
        let Some(word) = (0..10).find_map(|_| generator.rndr()) else { break };
        chunk.copy_from_slice(&word.to_ne_bytes()[..chunk.len()]);
        filled += chunk.len();
    }
    filled
}

/// A key, low half first.
pub fn fresh() -> [u64; 2] {
    match ArmRng::new() {
        Some(generator) => [word(generator.rndr()), word(generator.rndr())],
        None => [word(None), word(None)],
    }
}

fn word(hardware: Option<u64>) -> u64 {
    let state = STATE.fetch_add(timer::now() | 1, Relaxed);
    hardware.unwrap_or(0) ^ mix(state ^ timer::now().rotate_left(32))
}

/// SplitMix64's finaliser: a bijection in which each bit of the input changes half of the output.
const fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}
