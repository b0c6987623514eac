//! What the fuzzers run: arbitrary frames, commands of tls and lapses of time against one service.

use crate::Config;
use crate::packet::{ACK, FIN, SYN};
use crate::peer::{Got, Peer, read};
use crate::rig::{Memory, Rig, Sizes, config};
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
    let mut peer = Peer::new(1000);
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
            7 => peer = Peer { seq: script.word(), ..Peer::new(1000 + script.byte() as u16 % 8) },
            8 => frames.push(segment(&peer, &mut script, SYN, 0)),
            _ => {
                let flags = script.byte();
                let flags = if flags & 0x80 == 0 { ACK | flags & FIN } else { flags };
                let len = script.byte() as usize * (script.byte() as usize % 8);
                frames.push(segment(&peer, &mut script, flags, len));
            }
        }
        let out = rig.exchange(&frames);
        out.iter().filter_map(|f| read(f)).for_each(|got| heard(&mut peer, &got));
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

/// A segment that mostly keeps to the sequence numbers.
fn segment(peer: &Peer, script: &mut Script, flags: u8, len: usize) -> Vec<u8> {
    let (mut peer, wild) = (*peer, script.byte());
    if wild & 1 == 1 {
        peer.seq = peer.seq.wrapping_add(script.byte() as u32 * 64);
    }
    if wild & 2 == 2 {
        peer.ack = peer.ack.wrapping_sub(script.byte() as u32 * 16);
    }
    if wild & 4 == 4 {
        peer.window = script.byte() as u16;
    }
    let mut frame = peer.frame(flags, &vec![0x55; len]);
    if wild >> 3 == 1 {
        let at = script.byte() as usize % frame.len();
        frame[at] ^= script.byte();
    }
    frame
}

/// Follows what the service says.
fn heard(peer: &mut Peer, got: &Got) {
    if got.to == peer.port {
        peer.seq = got.ack;
        peer.ack = got.seq.wrapping_add(got.len as u32 + (got.flags & (FIN | SYN) != 0) as u32);
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
