//! Pointer authentication keys: a fresh one for each start of a task.
//!
//! They make it hard for a task's own bug to forge its return addresses; no isolation rests on them. They come from the
//! processor's generator where it has one, else from the counter, hashed along with all that came before.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use aarch64_cpu::asm::random::ArmRng;

use super::timer;

/// State of the fallback. Only its own readers: any interleaving gives different values.
static STATE: AtomicU64 = AtomicU64::new(0x6a09_e667_f3bc_c908);

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
