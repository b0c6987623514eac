//! The scale from counter ticks to nanoseconds.

use ipc::abi::Clock;

const NS: u64 = 1_000_000_000;
/// 32 bits of fraction: an error below 1e-9 for any counter of at least 1 MHz.
const SHIFT: u32 = 32;

/// The clock page for a counter of `hz` ticks a second (at least 1000) that read `base_ticks` when the wall clock read `wall_seconds`
/// (0: unknown).
pub fn scale(hz: u64, base_ticks: u64, wall_seconds: u64) -> Clock {
    let hz = hz.max(1000);
    Clock {
        base_ticks,
        mult: (((NS as u128) << SHIFT) / hz as u128) as u64,
        shift: SHIFT,
        isa: 0,
        ticks_per_second: hz,
        wall_base_ns: wall_seconds.saturating_mul(NS),
    }
}

/// Microseconds in ticks.
pub fn ticks(hz: u64, microseconds: u64) -> u64 {
    ((hz as u128 * microseconds as u128) / 1_000_000).min(u64::MAX as u128) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ns(c: &Clock, ticks: u64) -> u64 {
        (((ticks - c.base_ticks) as u128 * c.mult as u128) >> c.shift) as u64
    }

    #[test]
    fn a_day_is_exact_to_the_microsecond() {
        for hz in [1_000_000, 24_000_000, 62_500_000, 2_399_999_999, 5_000_000_000] {
            let c = scale(hz, 12_345, 0);
            let day = ns(&c, 12_345 + 86_400 * hz);
            assert!(day.abs_diff(86_400 * NS) < 86_400 * 1000, "{hz}: {day}");
        }
    }

    #[test]
    fn extremes_do_not_overflow() {
        assert_eq!(scale(0, 0, u64::MAX).wall_base_ns, u64::MAX);
        assert_eq!(ticks(u64::MAX, u64::MAX), u64::MAX);
        assert_eq!(ticks(62_500_000, 100), 6250);
    }
}
