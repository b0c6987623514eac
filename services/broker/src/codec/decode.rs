//! From bytes to packets.

use super::{Frame, Malformed, Qos, kind};
use crate::topic;

/// A packet that a client may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    Connect(Connect<'a>),
    /// CONNECT of a protocol level that we don't speak (section 3.1.2.2); nothing after the level was looked at.
    ForeignConnect {
        level: u8,
    },
    Publish(Publish<'a>),
    PubAck(u16),
    PubRec(u16),
    PubRel(u16),
    PubComp(u16),
    Subscribe(Subscribe<'a>),
    Unsubscribe(Unsubscribe<'a>),
    PingReq,
    Disconnect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect<'a> {
    pub clean_session: bool,
    /// Seconds; 0: none.
    pub keep_alive: u16,
    pub client_id: &'a str,
    pub will: Option<Will<'a>>,
    pub user_name: Option<&'a str>,
    pub password: Option<&'a [u8]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Will<'a> {
    pub topic: &'a str,
    /// The same with its length in front, as on the wire.
    pub prefixed_topic: &'a [u8],
    pub payload: &'a [u8],
    pub qos: Qos,
    pub retain: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publish<'a> {
    pub dup: bool,
    pub qos: Qos,
    pub retain: bool,
    pub topic: &'a str,
    /// The same with its length in front, as on the wire.
    pub prefixed_topic: &'a [u8],
    /// 0 at QoS 0, never 0 above.
    pub id: u16,
    pub payload: &'a [u8],
}

/// Checked as a whole: [`Subscribe::filters`] yields at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscribe<'a> {
    pub id: u16,
    list: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsubscribe<'a> {
    pub id: u16,
    list: &'a [u8],
}

impl<'a> Subscribe<'a> {
    pub fn filters(&self) -> Filters<'a, true> {
        Filters { rest: Reader(self.list) }
    }
}

impl<'a> Unsubscribe<'a> {
    pub fn filters(&self) -> Filters<'a, false> {
        Filters { rest: Reader(self.list) }
    }
}

/// The filters of a SUBSCRIBE with their requested QoS, or of an UNSUBSCRIBE (with QoS 0).
#[derive(Clone, Debug)]
pub struct Filters<'a, const WITH_QOS: bool> {
    rest: Reader<'a>,
}

impl<'a, const WITH_QOS: bool> Filters<'a, WITH_QOS> {
    fn step(&mut self) -> Result<(&'a str, Qos), Malformed> {
        let filter = self.rest.string()?;
        let qos = if WITH_QOS { self.rest.u8()? } else { 0 };
        Ok((filter, Qos::from_number(qos).ok_or(Malformed("requested QoS above 2 or reserved bits set"))?))
    }

    /// Checks all of `list`, which must hold at least one filter. Whether a filter is valid is judged one by one later.
    fn check(list: &'a [u8]) -> Result<(), Malformed> {
        let mut all = Self { rest: Reader(list) };
        loop {
            all.step()?;
            if all.rest.0.is_empty() {
                return Ok(());
            }
        }
    }
}

impl<'a, const WITH_QOS: bool> Iterator for Filters<'a, WITH_QOS> {
    type Item = (&'a str, Qos);
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.0.is_empty() { None } else { self.step().ok() }
    }
}

/// Finds the end of the packet that starts `bytes`. `None`: more bytes are needed. Types and flags that a client may not
/// send are refused at the first byte.
pub fn frame(bytes: &[u8]) -> Result<Option<Frame>, Malformed> {
    let Some(&first) = bytes.first() else { return Ok(None) };
    check_first(first)?;
    let mut remaining = 0;
    for i in 0..4 {
        let Some(&digit) = bytes.get(1 + i) else { return Ok(None) };
        remaining |= ((digit & 0x7f) as usize) << (7 * i);
        if digit & 0x80 == 0 {
            return Ok(Some(Frame { first, head: 2 + i, total: 2 + i + remaining }));
        }
    }
    Err(Malformed("remaining length of more than four bytes"))
}

/// Section 2.2.2: reserved flags; and the types that only a server sends.
fn check_first(first: u8) -> Result<(), Malformed> {
    match (first >> 4, first & 0x0f) {
        (kind::PUBLISH, flags) if flags & 6 == 6 => Err(Malformed("PUBLISH of QoS 3")),
        (kind::PUBLISH, _) => Ok(()),
        (kind::PUBREL | kind::SUBSCRIBE | kind::UNSUBSCRIBE, 2) => Ok(()),
        (
            kind::CONNECT | kind::PUBACK | kind::PUBREC | kind::PUBCOMP | kind::PINGREQ | kind::DISCONNECT,
            0,
        ) => Ok(()),
        (kind::CONNACK | kind::SUBACK | kind::UNSUBACK | kind::PINGRESP | 0 | 15, _) => {
            Err(Malformed("packet type that a client may not send"))
        }
        _ => Err(Malformed("reserved flags in the fixed header")),
    }
}

/// Parses the packet of which `frame` was found; `body` is what follows the fixed header.
pub fn packet(first: u8, body: &[u8]) -> Result<Packet<'_>, Malformed> {
    check_first(first)?;
    let mut r = Reader(body);
    let packet = match first >> 4 {
        kind::PUBLISH => return publish(first, r).map(Packet::Publish),
        kind::PUBACK => Packet::PubAck(r.identifier()?),
        kind::PUBREC => Packet::PubRec(r.identifier()?),
        kind::PUBREL => Packet::PubRel(r.identifier()?),
        kind::PUBCOMP => Packet::PubComp(r.identifier()?),
        kind::SUBSCRIBE => {
            let id = r.identifier()?;
            Filters::<true>::check(r.0)?;
            return Ok(Packet::Subscribe(Subscribe { id, list: r.0 }));
        }
        kind::UNSUBSCRIBE => {
            let id = r.identifier()?;
            Filters::<false>::check(r.0)?;
            return Ok(Packet::Unsubscribe(Unsubscribe { id, list: r.0 }));
        }
        kind::CONNECT => match connect(&mut r)? {
            foreign @ Packet::ForeignConnect { .. } => return Ok(foreign),
            packet => packet,
        },
        kind::PINGREQ => Packet::PingReq,
        _ => Packet::Disconnect,
    };
    r.end()?;
    Ok(packet)
}

/// Section 3.3.
fn publish(first: u8, mut r: Reader<'_>) -> Result<Publish<'_>, Malformed> {
    let qos = Qos::from_number(first >> 1 & 3).ok_or(Malformed("PUBLISH of QoS 3"))?;
    let dup = first & 8 != 0;
    if dup && qos == Qos::AtMostOnce {
        return Err(Malformed("PUBLISH of QoS 0 with DUP"));
    }
    let (topic, prefixed_topic) = r.topic_name()?;
    let id = if qos == Qos::AtMostOnce { 0 } else { r.identifier()? };
    Ok(Publish { dup, qos, retain: first & 1 != 0, topic, prefixed_topic, id, payload: r.0 })
}

/// Section 3.1.
fn connect<'a>(r: &mut Reader<'a>) -> Result<Packet<'a>, Malformed> {
    if r.binary()? != b"MQTT" {
        return Err(Malformed("protocol name is not MQTT"));
    }
    let level = r.u8()?;
    if level != 4 {
        return Ok(Packet::ForeignConnect { level });
    }
    let flags = r.u8()?;
    let flag = |bit: u8| flags >> bit & 1 == 1;
    let (has_name, has_password, has_will) = (flag(7), flag(6), flag(2));
    if flag(0) {
        return Err(Malformed("reserved connect flag set"));
    }
    if !has_will && flags & 0b0011_1000 != 0 {
        return Err(Malformed("will QoS or will retain without a will"));
    }
    if has_password && !has_name {
        return Err(Malformed("password without user name"));
    }
    let will_qos = Qos::from_number(flags >> 3 & 3).ok_or(Malformed("will of QoS 3"))?;
    let keep_alive = r.u16()?;
    let client_id = r.string()?;
    let will = if has_will {
        let ((topic, prefixed_topic), payload) = (r.topic_name()?, r.binary()?);
        Some(Will { topic, prefixed_topic, payload, qos: will_qos, retain: flag(5) })
    } else {
        None
    };
    let user_name = if has_name { Some(r.string()?) } else { None };
    let password = if has_password { Some(r.binary()?) } else { None };
    Ok(Packet::Connect(Connect { clean_session: flag(1), keep_alive, client_id, will, user_name, password }))
}

/// Takes fields off the front.
#[derive(Clone, Copy, Debug)]
struct Reader<'a>(&'a [u8]);

const SHORT: Malformed = Malformed("packet ends inside a field");

impl<'a> Reader<'a> {
    fn u8(&mut self) -> Result<u8, Malformed> {
        let (&byte, rest) = self.0.split_first().ok_or(SHORT)?;
        self.0 = rest;
        Ok(byte)
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(SHORT)?;
        self.0 = rest;
        Ok(u16::from_be_bytes(*bytes))
    }

    /// A packet identifier, which is never 0 (section 2.3.1).
    fn identifier(&mut self) -> Result<u16, Malformed> {
        match self.u16()? {
            0 => Err(Malformed("packet identifier 0")),
            id => Ok(id),
        }
    }

    fn binary(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.u16()? as usize;
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(SHORT)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// Section 1.5.3: well-formed UTF-8 without U+0000.
    fn string(&mut self) -> Result<&'a str, Malformed> {
        let text = self.utf8()?;
        if text.as_bytes().contains(&0) {
            return Err(Malformed("U+0000 in a string"));
        }
        Ok(text)
    }

    fn utf8(&mut self) -> Result<&'a str, Malformed> {
        core::str::from_utf8(self.binary()?).map_err(|_| Malformed("ill-formed UTF-8"))
    }

    /// A topic name to publish to, and the same with its two bytes of length.
    fn topic_name(&mut self) -> Result<(&'a str, &'a [u8]), Malformed> {
        let whole = self.0;
        let text = self.utf8()?;
        if !topic::is_name(text) {
            return Err(Malformed("topic name empty, with a wildcard or with U+0000"));
        }
        Ok((text, &whole[..2 + text.len()]))
    }

    fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed("bytes after the last field")) }
    }
}
