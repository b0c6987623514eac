//! SYN cookies (RFC 4987 3.6): all that a half-open connection needs stands in the sequence number of our SYN-ACK.
//!
//! From the top: 10 bits of a keyed hash over the peer's address and port and the low byte, 14 bits of one over those
//! and the peer's first sequence number; in the low byte the secret's parity, the peer's window shift and the index
//! of its MSS. Secrets live [`LIFETIME`] and are accepted for one more, so a cookie is good for 64 to 128 seconds.
//!
//! The first hash alone tells a segment of a connection-to-be that came before the one with the first sequence number (lost
//! or overtaken) from one of a connection that we don't know: only the latter is reset.

use crate::packet::SynOptions;
use crate::random::Random;
use siphasher::sip::SipHasher24;

const LIFETIME: u64 = 64_000_000_000;

/// What an MSS is rounded down to: the minimum that everybody takes, tunnels, PPPoE, Ethernet.
const MSS: [u16; 8] = [256, 536, 1200, 1300, 1360, 1400, 1440, 1460];
const NO_SHIFT: u8 = 15;

/// The connection that a cookie speaks of.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    pub ip: u32,
    pub port: u16,
    /// The peer's initial sequence number.
    pub irs: u32,
}

#[derive(Debug)]
pub struct Cookies {
    /// That of the current period and the one before, at the place of the period's lowest bit.
    secrets: [SipHasher24; 2],
    period: u64,
}

impl Cookies {
    pub fn new(random: &mut Random) -> Self {
        Cookies { secrets: [fresh(random), fresh(random)], period: 0 }
    }

    /// Follows the time. Both secrets are replaced after a long silence.
    fn rotate(&mut self, now: u64, random: &mut Random) {
        let period = now / LIFETIME;
        if period == self.period {
            return;
        }
        self.secrets[(period & 1) as usize] = fresh(random);
        if period != self.period + 1 {
            self.secrets[(!period & 1) as usize] = fresh(random);
        }
        self.period = period;
    }

    /// Our initial sequence number for a SYN.
    pub fn make(&mut self, flow: &Flow, options: &SynOptions, now: u64, random: &mut Random) -> u32 {
        self.rotate(now, random);
        let mss = MSS.iter().rposition(|m| *m <= options.mss).unwrap_or(0) as u8;
        let parity = (self.period & 1) as u8;
        let low = parity << 7 | options.shift.unwrap_or(NO_SHIFT) << 3 | mss;
        self.number(flow, low)
    }

    /// What a segment that acknowledges `isn` is to us.
    pub fn check(&mut self, flow: &Flow, isn: u32, now: u64, random: &mut Random) -> Verdict {
        self.rotate(now, random);
        let low = isn as u8;
        let differs = self.number(flow, low) ^ isn;
        let shift = low >> 3 & 15;
        match differs {
            0 => Verdict::Valid(SynOptions {
                mss: MSS[(low & 7) as usize],
                shift: (shift != NO_SHIFT).then_some(shift),
            }),
            _ if differs >> 22 == 0 => Verdict::Early,
            _ => Verdict::Foreign,
        }
    }

    fn number(&self, flow: &Flow, low: u8) -> u32 {
        let mut message = [0; 12];
        message[..4].copy_from_slice(&flow.ip.to_le_bytes());
        message[4..6].copy_from_slice(&flow.port.to_le_bytes());
        message[6] = low;
        message[8..].copy_from_slice(&flow.irs.to_le_bytes());
        let secret = &self.secrets[(low >> 7) as usize];
        let (peer, all) = (secret.hash(&message[..7]) as u32, secret.hash(&message) as u32);
        peer << 22 | (all & 0x3fff) << 8 | low as u32
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// We made it, of this SYN.
    Valid(SynOptions),
    /// We made it for this peer, but the segment isn't the one after its SYN.
    Early,
    Foreign,
}

fn fresh(random: &mut Random) -> SipHasher24 {
    let (a, b) = random.key();
    SipHasher24::new_with_keys(a, b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup() -> (Cookies, Random) {
        let mut random = Random::new(&[7; 32]);
        (Cookies::new(&mut random), random)
    }

    proptest::proptest! {
        #[test]
        fn comes_back_rounded_down(ip: u32, port: u16, irs: u32, mss in 256u16.., shift in 0u8..=15, at: u32) {
            let (mut cookies, mut random) = setup();
            let (flow, now) = (Flow { ip, port, irs }, at as u64 * 1_000_000);
            let options = SynOptions { mss, shift: (shift < 15).then_some(shift) };
            let isn = cookies.make(&flow, &options, now, &mut random);
            let verdict = cookies.check(&flow, isn, now + LIFETIME - 1, &mut random);
            let Verdict::Valid(back) = verdict else { panic!("{verdict:?}") };
            proptest::prop_assert_eq!(back.shift, options.shift);
            proptest::prop_assert!(back.mss <= mss && MSS.iter().all(|m| *m <= back.mss || *m > mss));
        }
    }

    #[test]
    fn expires_after_two_lifetimes() {
        for silence in [2 * LIFETIME, 5 * LIFETIME, 64 * 3600 * 1_000_000_000] {
            let (mut cookies, mut random) = setup();
            let flow = Flow { ip: 1, port: 2, irs: 3 };
            let isn = cookies.make(&flow, &SynOptions { mss: 1460, shift: Some(7) }, 10, &mut random);
            assert_eq!(cookies.check(&flow, isn, 10 + silence, &mut random), Verdict::Foreign);
        }
    }

    #[test]
    fn a_guess_is_refused() {
        let (mut cookies, mut random) = setup();
        let flow = Flow { ip: 1, port: 2, irs: 3 };
        let isn = cookies.make(&flow, &SynOptions { mss: 1460, shift: Some(7) }, 0, &mut random);
        for bit in 0..32 {
            let verdict = cookies.check(&flow, isn ^ 1 << bit, 0, &mut random);
            assert!(!matches!(verdict, Verdict::Valid(_)), "bit {bit}");
        }
        for other in [Flow { ip: 9, ..flow }, Flow { port: 9, ..flow }] {
            assert_eq!(cookies.check(&other, isn, 0, &mut random), Verdict::Foreign);
        }
        assert_eq!(cookies.check(&Flow { irs: 9, ..flow }, isn, 0, &mut random), Verdict::Early);
    }
}
