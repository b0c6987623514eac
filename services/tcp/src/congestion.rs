//! Congestion control (RFC 5681, NewReno RFC 6582, limited transmit RFC 3042) and the retransmission timer (RFC 6298).

use crate::seq::{ahead, before};

/// Initial window, segments (RFC 6928).
const INITIAL: u32 = 10;
const MOST: u32 = 1 << 24;

/// All in bytes and sequence numbers.
#[derive(Clone, Copy, Debug)]
pub struct Congestion {
    pub cwnd: u32,
    pub ssthresh: u32,
    /// What was sent when loss was last noticed: acknowledgements up to there don't tell of another one.
    recover: u32,
    dup_acks: u8,
    recovering: bool,
}

impl Congestion {
    /// For a connection that was idle: starts over from the initial window.
    pub fn new(mss: u16, snd_una: u32) -> Self {
        Congestion {
            cwnd: INITIAL * mss as u32,
            ssthresh: MOST,
            recover: snd_una.wrapping_sub(1),
            dup_acks: 0,
            recovering: false,
        }
    }

    /// How much may be in flight.
    pub fn window(&self, mss: u16) -> u32 {
        let limited_transmit = if self.recovering { 0 } else { (self.dup_acks as u32).min(2) * mss as u32 };
        self.cwnd + limited_transmit
    }

    /// `acked` new bytes up to `ack`; `flight` is what was unacknowledged before. True: the segment at `ack` is lost too and
    /// goes out again.
    pub fn acked(&mut self, ack: u32, acked: u32, flight: u32, mss: u16) -> bool {
        let mss = mss as u32;
        self.dup_acks = 0;
        if self.recovering {
            if before(ack, self.recover) {
                // Partial acknowledgement: deflate, and one segment for the one that left.
                self.cwnd = self.cwnd.saturating_sub(acked).max(mss) + mss;
                return true;
            }
            self.recovering = false;
            self.cwnd = self.ssthresh.min(flight.saturating_sub(acked).max(mss) + mss);
            return false;
        }
        // A window that isn't used says nothing about the path (RFC 7661).
        if flight >= self.cwnd / 2 {
            let more = if self.cwnd < self.ssthresh {
                acked.min(2 * mss)
            } else {
                (mss as u64 * acked as u64 / self.cwnd.max(1) as u64).max(1) as u32
            };
            self.cwnd = self.cwnd.saturating_add(more).min(MOST);
        }
        false
    }

    /// A duplicate of acknowledgement `una` while `flight` bytes up to `sent` are out. True: retransmit.
    pub fn duplicate(&mut self, una: u32, sent: u32, flight: u32, mss: u16) -> bool {
        let mss = mss as u32;
        self.dup_acks = self.dup_acks.saturating_add(1);
        if self.recovering {
            self.cwnd = self.cwnd.saturating_add(mss).min(MOST);
            return false;
        }
        if self.dup_acks != 3 || ahead(una, self.recover) <= 0 {
            return false;
        }
        self.recovering = true;
        self.recover = sent;
        self.ssthresh = (flight / 2).clamp(2 * mss, MOST);
        self.cwnd = self.ssthresh + 3 * mss;
        true
    }

    /// Retransmission timeout; `first`: not yet another one for the same segment.
    pub fn timeout(&mut self, sent: u32, flight: u32, mss: u16, first: bool) {
        if first {
            self.ssthresh = (flight / 2).clamp(2 * mss as u32, MOST);
        }
        self.cwnd = mss as u32;
        self.recover = sent;
        self.recovering = false;
        self.dup_acks = 0;
    }
}

/// A peer's delayed ACK must not look like a loss.
const RTO_MIN_US: u64 = 200_000;
const RTO_INITIAL_US: u64 = 1_000_000;
const RTO_MAX_US: u64 = 60_000_000;

/// Takes a measurement of the round-trip time into account; all microseconds.
pub fn measured(srtt: &mut u32, rttvar: &mut u32, rtt: u32) {
    let rtt = rtt.clamp(1, 1 << 26);
    if *srtt == 0 {
        (*srtt, *rttvar) = (rtt, rtt / 2);
    } else {
        *rttvar = (3 * *rttvar + srtt.abs_diff(rtt)) / 4;
        *srtt = ((7 * *srtt as u64 + rtt as u64) / 8) as u32;
    }
}

/// The retransmission timeout in nanoseconds, doubled `backoff` times.
pub fn timeout(srtt: u32, rttvar: u32, backoff: u8) -> u64 {
    let base = if srtt == 0 { RTO_INITIAL_US } else { (srtt as u64 + 4 * rttvar as u64).max(RTO_MIN_US) };
    (base << backoff.min(16)).min(RTO_MAX_US) * 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u16 = 1000;

    #[test]
    fn slow_start_then_avoidance() {
        let mut c = Congestion::new(MSS, 0);
        c.ssthresh = 20_000;
        for i in 1..=10 {
            c.acked(i * 1000, 1000, c.cwnd, MSS);
        }
        assert_eq!(c.cwnd, 20_000, "doubled in a round trip");
        for i in 11..=30 {
            c.acked(i * 1000, 1000, c.cwnd, MSS);
        }
        assert!((20_900..=21_100).contains(&c.cwnd), "one segment a round trip: {}", c.cwnd);
    }

    #[test]
    fn an_unused_window_does_not_grow() {
        let mut c = Congestion::new(MSS, 0);
        c.acked(100, 100, 100, MSS);
        assert_eq!(c.cwnd, 10_000);
    }

    #[test]
    fn third_duplicate_retransmits_once_then_partial_acks_do() {
        let mut c = Congestion::new(MSS, 0);
        let dup = |c: &mut Congestion| c.duplicate(0, 10_000, 10_000, MSS);
        assert_eq!([dup(&mut c), dup(&mut c)], [false, false]);
        assert_eq!(c.window(MSS), 12_000, "limited transmit");
        assert!(dup(&mut c));
        assert_eq!((c.ssthresh, c.cwnd), (5_000, 8_000));
        assert!(!dup(&mut c));
        assert!(c.acked(4_000, 4_000, 10_000, MSS), "partial");
        assert!(!c.acked(10_000, 6_000, 6_000, MSS), "full");
        assert!(c.cwnd <= c.ssthresh && !c.recovering);
        assert!(![dup(&mut c), dup(&mut c), dup(&mut c)][2], "duplicates of before the recovery's end");
    }

    #[test]
    fn retransmission_timeout() {
        let (mut srtt, mut var) = (0, 0);
        assert_eq!(timeout(srtt, var, 0), 1_000_000_000);
        measured(&mut srtt, &mut var, 100_000);
        assert_eq!(timeout(srtt, var, 0), 300_000_000);
        for _ in 0..100 {
            measured(&mut srtt, &mut var, 1000);
        }
        assert_eq!(timeout(srtt, var, 0), 200_000_000, "lower bound");
        assert_eq!(timeout(srtt, var, 3), 1_600_000_000, "backed off");
        assert_eq!(timeout(srtt, var, 200), 60_000_000_000, "upper bound");
    }

    proptest::proptest! {
        #[test]
        fn never_overflows_nor_starves(steps in proptest::collection::vec((0u8..3, 0u32.., 0u32..), 0..200)) {
            let mut c = Congestion::new(MSS, 5);
            for (what, a, b) in steps {
                match what {
                    0 => { c.acked(a, b, a, MSS); }
                    1 => { c.duplicate(a, b, a, MSS); }
                    _ => c.timeout(a, b, MSS, true),
                }
                proptest::prop_assert!(c.cwnd >= MSS as u32 && c.window(MSS) < 1 << 30);
            }
        }
    }
}
