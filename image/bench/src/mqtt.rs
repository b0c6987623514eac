//! The few MQTT 3.1.1 packets that a load generator needs.
//!
//! An own codec, because the generator shares its processors with the server: packets are looked at where they were received
//! and written into the buffer that is sent, without an allocation for each, which the crates for this don't offer.

use bytes::{BufMut, BytesMut};

pub const DISCONNECT: [u8; 2] = [0xe0, 0];
pub const PUBACK: u8 = 0x40;
pub const PUBREC: u8 = 0x50;
pub const PUBREL: u8 = 0x62;
pub const PUBCOMP: u8 = 0x70;

/// The longest packet that is accepted: far above what is ever sent here.
const LONGEST: usize = 1 << 20;

/// A received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    ConnAck { code: u8 },
    Publish { qos: u8, identifier: u16, payload: &'a [u8] },
    PubAck(u16),
    PubRec(u16),
    PubRel(u16),
    PubComp(u16),
    SubAck { code: u8 },
    Other(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the server sent a malformed packet: {}", self.0)
    }
}

impl std::error::Error for Malformed {}

/// The first packet in `bytes` and its length, when all of it is there.
pub fn first(bytes: &[u8]) -> Result<Option<(Packet<'_>, usize)>, Malformed> {
    let Some((header, body)) = lengths(bytes)? else { return Ok(None) };
    let end = header + body;
    if bytes.len() < end {
        return Ok(None);
    }
    Ok(Some((packet(bytes[0], &bytes[header..end])?, end)))
}

/// Lengths of header and body.
fn lengths(bytes: &[u8]) -> Result<Option<(usize, usize)>, Malformed> {
    let mut body = 0;
    for at in 1..5 {
        let Some(&digit) = bytes.get(at) else { return Ok(None) };
        body |= (digit as usize & 0x7f) << (7 * (at - 1));
        if digit & 0x80 == 0 {
            return if body <= LONGEST { Ok(Some((at + 1, body))) } else { Err(Malformed("too long")) };
        }
    }
    Err(Malformed("remaining length"))
}

fn packet(first: u8, body: &[u8]) -> Result<Packet<'_>, Malformed> {
    Ok(match first >> 4 {
        2 => Packet::ConnAck { code: *body.get(1).ok_or(Malformed("CONNACK"))? },
        3 => return publish_of(first >> 1 & 3, body),
        4 => Packet::PubAck(identifier(body)?),
        5 => Packet::PubRec(identifier(body)?),
        6 => Packet::PubRel(identifier(body)?),
        7 => Packet::PubComp(identifier(body)?),
        9 => Packet::SubAck { code: *body.get(2).ok_or(Malformed("SUBACK"))? },
        other => Packet::Other(other),
    })
}

fn publish_of(qos: u8, body: &[u8]) -> Result<Packet<'_>, Malformed> {
    let topic = identifier(body)? as usize;
    let rest = body.get(2 + topic..).ok_or(Malformed("topic of a PUBLISH"))?;
    if qos == 0 {
        return Ok(Packet::Publish { qos, identifier: 0, payload: rest });
    }
    Ok(Packet::Publish { qos, identifier: identifier(rest)?, payload: &rest[2..] })
}

fn identifier(body: &[u8]) -> Result<u16, Malformed> {
    body.first_chunk().map(|b| u16::from_be_bytes(*b)).ok_or(Malformed("shorter than its identifier"))
}

pub fn connect(out: &mut BytesMut, id: &str, keep_alive: u16) {
    header(out, 0x10, 10 + 2 + id.len());
    string(out, "MQTT");
    // Level 4 (3.1.1), clean session.
    out.put_slice(&[4, 2]);
    out.put_u16(keep_alive);
    string(out, id);
}

pub fn subscribe(out: &mut BytesMut, identifier: u16, filter: &str, qos: u8) {
    header(out, 0x82, 2 + 2 + filter.len() + 1);
    out.put_u16(identifier);
    string(out, filter);
    out.put_u8(qos);
}

/// With an identifier unless `qos` is 0.
pub fn publish(out: &mut BytesMut, topic: &str, payload: &[u8], qos: u8, identifier: u16) {
    let own = if qos > 0 { 2 } else { 0 };
    header(out, 0x30 | qos << 1, 2 + topic.len() + own + payload.len());
    string(out, topic);
    if qos > 0 {
        out.put_u16(identifier);
    }
    out.put_slice(payload);
}

/// PUBACK, PUBREC, PUBREL or PUBCOMP.
pub fn acknowledge(out: &mut BytesMut, kind: u8, identifier: u16) {
    out.put_slice(&[kind, 2]);
    out.put_u16(identifier);
}

fn header(out: &mut BytesMut, first: u8, mut length: usize) {
    out.put_u8(first);
    loop {
        let digit = (length % 128) as u8;
        length /= 128;
        out.put_u8(if length > 0 { digit | 0x80 } else { digit });
        if length == 0 {
            return;
        }
    }
}

fn string(out: &mut BytesMut, text: &str) {
    out.put_u16(text.len() as u16);
    out.put_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(write: impl FnOnce(&mut BytesMut)) -> Vec<u8> {
        let mut out = BytesMut::new();
        write(&mut out);
        out.to_vec()
    }

    #[test]
    fn connect_is_as_the_specification_has_it() {
        let expected = [&[0x10, 21][..], b"\0\x04MQTT", &[4, 2, 0, 60], b"\0\x09dev-00001"].concat();
        assert_eq!(bytes(|out| connect(out, "dev-00001", 60)), expected);
    }

    #[test]
    fn publish_comes_back_with_every_quality_of_service() {
        for (qos, identifier) in [(0, 0), (1, 7), (2, 65535)] {
            let payload = [b'x'; 300];
            let sent = bytes(|out| publish(out, "devices/a/t", &payload, qos, identifier));
            let expected = Packet::Publish { qos, identifier, payload: &payload };
            assert_eq!(first(&sent), Ok(Some((expected, sent.len()))));
        }
    }

    #[test]
    fn subscribe_is_as_the_specification_has_it() {
        assert_eq!(bytes(|out| subscribe(out, 1, "a/#", 1)), b"\x82\x08\0\x01\0\x03a/#\x01");
    }

    #[test]
    fn a_part_of_a_packet_is_none() {
        let whole = bytes(|out| publish(out, "t", &[0; 200], 1, 9));
        for end in 0..whole.len() {
            assert_eq!(first(&whole[..end]), Ok(None), "{end} bytes");
        }
        let two = [&whole[..], &[0x40, 2, 0, 9]].concat();
        assert_eq!(first(&two[whole.len()..]), Ok(Some((Packet::PubAck(9), 4))));
    }

    #[test]
    fn acknowledgements() {
        let kinds: [(u8, fn(u16) -> Packet<'static>); 4] = [
            (PUBACK, Packet::PubAck),
            (PUBREC, Packet::PubRec),
            (PUBREL, Packet::PubRel),
            (PUBCOMP, Packet::PubComp),
        ];
        for (kind, packet) in kinds {
            assert_eq!(first(&bytes(|out| acknowledge(out, kind, 513))), Ok(Some((packet(513), 4))));
        }
        assert_eq!(first(&[0x20, 2, 0, 5]), Ok(Some((Packet::ConnAck { code: 5 }, 4))));
        assert_eq!(first(&[0x90, 3, 0, 1, 0x80]), Ok(Some((Packet::SubAck { code: 0x80 }, 5))));
    }

    #[test]
    fn malformed_packets_are_refused() {
        let cases: [&[u8]; 5] = [
            &[0x30, 0xff, 0xff, 0xff, 0xff, 1],
            &[0x30, 0xff, 0xff, 0xff, 0x7f],
            &[0x30, 3, 0, 9, b'x'],
            &[0x32, 3, 0, 1, b'x'],
            &[0x20, 1, 0],
        ];
        for case in cases {
            assert!(first(case).is_err(), "{case:x?}");
        }
    }
}
