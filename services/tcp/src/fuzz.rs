//! What the fuzzers run: arbitrary frames, commands of tls and lapses of time against one service.

use crate::rig::{IP, MAC, Memory, Rig, Sizes, config};
use crate::{Config, checksum::Sum};
use std::thread_local;
use std::vec;
use std::vec::Vec;

/// Reads a script from `data` and plays it. Panics mean a bug. Segments get right checksums and often fit the
/// connection, so that they get far.
pub fn run(data: &[u8]) {
    let mut script = Script { data };
    thread_local!(static MEMORY: Memory = Rig::new(small_config(), sizes()).memory);
    let mut rig = Rig::over(MEMORY.with(|m| *m), small_config());
    rig.tls.echo = script.byte() & 1 == 0;
    rig.tls.prompt = script.byte() & 1 == 0;
    let mut peer = Peer { port: 1000, seq: 1, ack: 0 };
    while !script.data.is_empty() {
        let mut frames = Vec::new();
        match script.byte() % 16 {
            0 => frames.push(script.bytes(60)),
            1 => rig.now += (script.word() as u64) << 18,
            2 => rig.tls.read(script.byte() as usize),
            3 => rig.restart_nic(),
            4 => rig.restart_tls(),
            5 => rig.tls.streams.values_mut().for_each(|s| s.finish = true),
            6 => rig.tls.streams.values_mut().for_each(|s| s.to_send.extend([7; 3000])),
            7 => peer = Peer { port: 1000 + script.byte() as u16 % 8, seq: script.word(), ack: 0 },
            8 => frames.push(peer.frame(0x800, &mut script, 2, 0)),
            _ => {
                let flags = script.byte();
                let flags = if flags & 0x80 == 0 { 16 | flags & 1 } else { flags };
                let len = script.byte() as usize * (script.byte() as usize % 8);
                frames.push(peer.frame(0x800, &mut script, flags, len));
            }
        }
        let out = rig.exchange(&frames);
        for frame in out.iter().filter(|f| f.len() >= 54 && f[23] == 6) {
            peer.heard(frame);
        }
        rig.settle();
    }
}

fn sizes() -> Sizes {
    Sizes { frames: 32, transmit: 24, ciphertext: 16 }
}

fn small_config() -> Config {
    Config { max_connections: 4, max_active: 3, window: 8192, congested: 4096, drained: 2048, ..config() }
}

struct Script<'a> {
    data: &'a [u8],
}

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        self.data.split_off_first().copied().unwrap_or(0)
    }
    fn word(&mut self) -> u32 {
        u32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }
    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let n = (self.byte() as usize).min(most);
        (0..n).map(|_| self.byte()).collect()
    }
}

/// A client that mostly keeps to the sequence numbers.
struct Peer {
    port: u16,
    seq: u32,
    ack: u32,
}

impl Peer {
    fn frame(&mut self, kind: u16, script: &mut Script, flags: u8, len: usize) -> Vec<u8> {
        let wild = script.byte();
        let seq = self.seq.wrapping_add(if wild & 1 == 1 { script.byte() as u32 * 64 } else { 0 });
        let ack = self.ack.wrapping_sub(if wild & 2 == 2 { script.byte() as u32 * 16 } else { 0 });
        let window = if wild & 4 == 4 { script.byte() as u16 } else { 60_000 };
        let mut f = vec![0x55; 54 + len];
        f[..6].copy_from_slice(&MAC);
        f[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
        f[12..14].copy_from_slice(&kind.to_be_bytes());
        f[14..34].fill(0);
        f[14] = 0x45;
        f[16..18].copy_from_slice(&(40 + len as u16).to_be_bytes());
        f[22..24].copy_from_slice(&[64, 6]);
        f[26..30].copy_from_slice(&[10, 0, 0, 9]);
        f[30..34].copy_from_slice(&IP);
        let sum = Sum::default().bytes(&f[14..34]).finish();
        f[24..26].copy_from_slice(&sum);
        f[34..36].copy_from_slice(&self.port.to_be_bytes());
        f[36..38].copy_from_slice(&8883u16.to_be_bytes());
        f[38..42].copy_from_slice(&seq.to_be_bytes());
        f[42..46].copy_from_slice(&ack.to_be_bytes());
        f[46..48].copy_from_slice(&[0x50, flags]);
        f[48..50].copy_from_slice(&window.to_be_bytes());
        f[50..54].fill(0);
        let from = u32::from_be_bytes([10, 0, 0, 9]);
        let sum = Sum::pseudo(from, u32::from_be_bytes(IP), 6, 20 + len).bytes(&f[34..]).finish();
        f[50..52].copy_from_slice(&sum);
        if wild & 8 == 8 && wild & 0xf0 == 0 {
            let at = script.byte() as usize % f.len();
            f[at] ^= script.byte();
        }
        f
    }

    /// Follows what the service says.
    fn heard(&mut self, f: &[u8]) {
        if u16::from_be_bytes([f[36], f[37]]) != self.port {
            return;
        }
        let word = |at: usize| u32::from_be_bytes([f[at], f[at + 1], f[at + 2], f[at + 3]]);
        let fin_or_syn = (f[47] & 3 != 0) as u32;
        self.seq = word(42);
        self.ack = word(38).wrapping_add(f.len() as u32 - 34 - (f[46] >> 4) as u32 * 4 + fin_or_syn);
    }
}

#[cfg(test)]
mod tests {
    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config::with_cases(400))]
        #[test]
        fn no_panic(data in proptest::collection::vec(0u8.., 0..600)) {
            super::run(&data);
        }
    }
}
