//! What a server sends.

use super::{Qos, kind};

/// Return code of CONNACK (section 3.2.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    Accepted = 0,
    UnacceptableProtocol = 1,
    IdentifierRejected = 2,
    ServerUnavailable = 3,
    NotAuthorized = 5,
}

pub const fn connack(session_present: bool, code: Code) -> [u8; 4] {
    [kind::CONNACK << 4, 2, session_present as u8, code as u8]
}

/// The packets that hold nothing but a packet identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Ack {
    PubAck = kind::PUBACK << 4,
    PubRec = kind::PUBREC << 4,
    PubRel = kind::PUBREL << 4 | 2,
    PubComp = kind::PUBCOMP << 4,
    UnsubAck = kind::UNSUBACK << 4,
}

pub const fn ack(kind: Ack, id: u16) -> [u8; 4] {
    let [high, low] = id.to_be_bytes();
    [kind as u8, 2, high, low]
}

/// What stands before the return codes of a SUBACK, one byte each.
pub fn suback_head(id: u16, codes: usize) -> Head {
    let mut head = Head::new(kind::SUBACK << 4, 2 + codes);
    head.push_u16(id);
    head
}

/// Fixed header of up to five bytes, and an identifier.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    bytes: [u8; 7],
    len: u8,
}

impl Head {
    /// `remaining` is at most [`super::MAX_REMAINING`].
    fn new(first: u8, remaining: usize) -> Self {
        let mut head = Head { bytes: [0; 7], len: 1 };
        head.bytes[0] = first;
        let mut rest = remaining;
        loop {
            let digit = (rest & 0x7f) as u8;
            rest >>= 7;
            head.bytes[head.len as usize & 7] = digit | if rest > 0 { 0x80 } else { 0 };
            head.len += 1;
            if rest == 0 || head.len == 5 {
                return head;
            }
        }
    }

    fn push_u16(&mut self, n: u16) {
        let at = self.len as usize;
        self.bytes[at..at + 2].copy_from_slice(&n.to_be_bytes());
        self.len += 2;
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len as usize]
    }
}

/// A PUBLISH as it goes out; topic and payload lie elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishHead {
    pub dup: bool,
    pub qos: Qos,
    pub retain: bool,
    /// Not 0 above QoS 0.
    pub id: u16,
}

impl PublishHead {
    fn identifier_len(&self) -> usize {
        if self.qos == Qos::AtMostOnce { 0 } else { 2 }
    }

    /// The fixed header of a packet whose length-prefixed topic and payload have these sizes.
    pub fn fixed(&self, topic: usize, payload: usize) -> Head {
        let first = kind::PUBLISH << 4 | (self.dup as u8) << 3 | (self.qos as u8) << 1 | self.retain as u8;
        Head::new(first, topic + self.identifier_len() + payload)
    }

    /// What stands between topic and payload.
    pub fn identifier(&self) -> ([u8; 2], usize) {
        (self.id.to_be_bytes(), self.identifier_len())
    }
}
