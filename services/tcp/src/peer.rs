//! A hand-made client: each segment as the test wants it.

use crate::emit::{self, Header};
use crate::packet::*;
use crate::rig::{IP, MAC, Rig};
use std::vec;
use std::vec::Vec;

#[derive(Clone, Copy, Debug)]
pub struct Peer {
    pub ip: u32,
    pub port: u16,
    pub seq: u32,
    pub ack: u32,
    pub window: u16,
    /// TCP options of what it sends.
    pub options: &'static [u8],
}

/// A segment from the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Got {
    pub to: u16,
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    pub len: usize,
}

pub fn read(frame: &[u8]) -> Option<Got> {
    let be = |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().unwrap());
    (frame.len() >= 54 && frame[12..14] == [8, 0] && frame[23] == 6).then(|| {
        assert!(checksum_holds(frame), "wrong checksum");
        Got {
            to: be(34) as u16,
            seq: be(38),
            ack: be(42),
            flags: frame[47],
            window: (be(48) >> 16) as u16,
            len: frame.len() - 34 - (frame[46] >> 4) as usize * 4,
        }
    })
}

impl Peer {
    pub fn new(port: u16) -> Self {
        Peer { ip: 0x0a00_0009, port, seq: 1000, ack: 0, window: 60_000, options: &[] }
    }

    /// A frame with the current numbers.
    pub fn frame(&self, flags: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; HEADERS + self.options.len() + payload.len()];
        let at = HEADERS + self.options.len();
        frame[at..].copy_from_slice(payload);
        let header = Header {
            from: [2, 0, 0, 0, 0, 9],
            to: MAC,
            from_ip: self.ip,
            to_ip: u32::from_be_bytes(IP),
            from_port: self.port,
            to_port: 8883,
            seq: self.seq,
            ack: self.ack,
            flags,
            window: self.window,
            ident: 0,
        };
        emit::segment(&mut frame, &header, self.options, payload.len());
        frame
    }

    /// Sends a segment, advances the numbers, returns what came for us.
    pub fn send(&mut self, rig: &mut Rig, flags: u8, payload: &[u8]) -> Vec<Got> {
        let frame = self.frame(flags, payload);
        self.seq = self.seq.wrapping_add(payload.len() as u32 + (flags & (SYN | FIN) != 0) as u32);
        self.exchange(rig, &[frame])
    }

    /// Sends a segment that changes nothing in our own state.
    pub fn probe(
        &self,
        rig: &mut Rig,
        change: impl FnOnce(&mut Peer),
        flags: u8,
        payload: &[u8],
    ) -> Vec<Got> {
        let mut other = *self;
        change(&mut other);
        other.exchange(rig, &[other.frame(flags, payload)])
    }

    pub fn exchange(&self, rig: &mut Rig, frames: &[Vec<u8>]) -> Vec<Got> {
        let out = rig.exchange(frames);
        out.iter().filter_map(|f| read(f)).filter(|g| g.to == self.port).collect()
    }

    /// SYN, SYN-ACK, ACK.
    pub fn connect(&mut self, rig: &mut Rig) {
        let [syn_ack] = self.send(rig, SYN, &[])[..] else { panic!("no SYN-ACK") };
        assert_eq!((syn_ack.flags, syn_ack.ack), (SYN | ACK, self.seq));
        self.ack = syn_ack.seq.wrapping_add(1);
        self.options = &[];
        self.send(rig, ACK, &[]);
    }

    pub fn connected(rig: &mut Rig, port: u16) -> Self {
        let mut peer = Peer::new(port);
        peer.connect(rig);
        peer
    }
}

/// Lets time pass in steps, while the service is driven when it wants to be; what it sends meanwhile.
pub fn pass(rig: &mut Rig, seconds: u64) -> Vec<Got> {
    let end = rig.now + seconds * 1_000_000_000;
    let mut got = Vec::new();
    while rig.now < end {
        rig.now = rig.deadline.clamp(rig.now, end);
        loop {
            let frames = rig.exchange(&[]);
            if frames.is_empty() {
                break;
            }
            got.extend(frames.iter().filter_map(|f| read(f)));
        }
        if rig.deadline <= rig.now {
            rig.now += 1_000_000;
        }
    }
    got
}
