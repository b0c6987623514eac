//! Packets as a client writes them, well-formed or not: for tests, benchmarks and fuzzers.

use super::{Qos, kind};
use alloc::vec::Vec;

pub fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::from([first]);
    let mut rest = body.len();
    loop {
        let digit = (rest % 128) as u8;
        rest /= 128;
        out.push(digit | if rest > 0 { 0x80 } else { 0 });
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(body);
    out
}

pub fn string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
    out.extend_from_slice(bytes);
}

/// Fields of a CONNECT; `Default` is a clean session with keep alive 60.
#[derive(Clone, Debug)]
pub struct Connect<'a> {
    pub id: &'a str,
    pub clean: bool,
    pub keep_alive: u16,
    /// Topic, payload, QoS, retain.
    pub will: Option<(&'a str, &'a [u8], Qos, bool)>,
    pub user_name: Option<&'a str>,
    pub password: Option<&'a [u8]>,
    pub level: u8,
}

impl Default for Connect<'_> {
    fn default() -> Self {
        Connect { id: "", clean: true, keep_alive: 60, will: None, user_name: None, password: None, level: 4 }
    }
}

impl Connect<'_> {
    pub fn bytes(&self) -> Vec<u8> {
        let mut body = Vec::new();
        string(&mut body, b"MQTT");
        let will = self.will.map_or(0, |w| 4 | (w.2 as u8) << 3 | (w.3 as u8) << 5);
        let names = (self.user_name.is_some() as u8) << 7 | (self.password.is_some() as u8) << 6;
        body.extend_from_slice(&[self.level, will | names | (self.clean as u8) << 1]);
        body.extend_from_slice(&self.keep_alive.to_be_bytes());
        string(&mut body, self.id.as_bytes());
        if let Some((topic, payload, ..)) = self.will {
            string(&mut body, topic.as_bytes());
            string(&mut body, payload);
        }
        if let Some(name) = self.user_name {
            string(&mut body, name.as_bytes());
        }
        if let Some(password) = self.password {
            string(&mut body, password);
        }
        packet(kind::CONNECT << 4, &body)
    }
}

pub fn publish(topic: &str, payload: &[u8], qos: Qos, id: u16, retain: bool, dup: bool) -> Vec<u8> {
    let mut body = Vec::new();
    string(&mut body, topic.as_bytes());
    if qos != Qos::AtMostOnce {
        body.extend_from_slice(&id.to_be_bytes());
    }
    body.extend_from_slice(payload);
    packet(kind::PUBLISH << 4 | (dup as u8) << 3 | (qos as u8) << 1 | retain as u8, &body)
}

pub fn subscribe(id: u16, filters: &[(&str, u8)]) -> Vec<u8> {
    let mut body = Vec::from(id.to_be_bytes());
    for (filter, qos) in filters {
        string(&mut body, filter.as_bytes());
        body.push(*qos);
    }
    packet(kind::SUBSCRIBE << 4 | 2, &body)
}

pub fn unsubscribe(id: u16, filters: &[&str]) -> Vec<u8> {
    let mut body = Vec::from(id.to_be_bytes());
    for filter in filters {
        string(&mut body, filter.as_bytes());
    }
    packet(kind::UNSUBSCRIBE << 4 | 2, &body)
}

/// PUBACK, PUBREC, PUBREL or PUBCOMP.
pub fn acknowledge(kind: u8, id: u16) -> Vec<u8> {
    packet(kind << 4 | if kind == self::kind::PUBREL { 2 } else { 0 }, &id.to_be_bytes())
}

pub const PINGREQ: [u8; 2] = [kind::PINGREQ << 4, 0];
pub const DISCONNECT: [u8; 2] = [kind::DISCONNECT << 4, 0];
