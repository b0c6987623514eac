//! The broker behind a stand-in for tls, through real rings. Case numbers (C-01 …) are those of the project's raw-packet
//! suite for MQTT brokers.

mod bounds;
mod connect;
mod flow;
mod link;
mod publish;
mod session;
mod stream;
mod subscribe;
mod time;
mod will;

use broker::Config;
use broker::codec::{Qos, client, kind};
use broker::testing::Bench;
use ipc::link::stream::Conn;

/// What came to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum P {
    Connack {
        present: bool,
        code: u8,
    },
    Publish(Message),
    /// PUBACK, PUBREC, PUBREL, PUBCOMP, UNSUBACK.
    Ack(u8, u16),
    Suback(u16, Vec<u8>),
    Pingresp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub topic: String,
    pub payload: Vec<u8>,
    pub qos: u8,
    pub retain: bool,
    pub dup: bool,
    pub id: u16,
}

impl Message {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.payload).unwrap()
    }
}

fn parse((first, body): (u8, Vec<u8>)) -> P {
    let word = |at: usize| u16::from_be_bytes([body[at], body[at + 1]]);
    match first >> 4 {
        kind::CONNACK => P::Connack { present: body[0] == 1, code: body[1] },
        kind::PUBLISH => {
            let qos = first >> 1 & 3;
            let topic = 2 + word(0) as usize;
            let (id, payload) = if qos > 0 { (word(topic), topic + 2) } else { (0, topic) };
            P::Publish(Message {
                topic: String::from_utf8(body[2..topic].to_vec()).unwrap(),
                payload: body[payload..].to_vec(),
                qos,
                retain: first & 1 == 1,
                dup: first & 8 == 8,
                id,
            })
        }
        kind::SUBACK => P::Suback(word(0), body[2..].to_vec()),
        kind::PINGRESP => P::Pingresp,
        kind => P::Ack(kind, word(0)),
    }
}

/// Runs, and takes what has come to the client.
pub fn got(b: &mut Bench, c: Conn) -> Vec<P> {
    b.run();
    b.packets(c).into_iter().map(parse).collect()
}

/// Runs, takes what has come, and finishes every QoS 1 and 2 exchange until nothing more comes.
pub fn messages(b: &mut Bench, c: Conn) -> Vec<Message> {
    let mut out = Vec::new();
    loop {
        let packets = got(b, c);
        if packets.is_empty() {
            return out;
        }
        for p in packets {
            match p {
                P::Publish(m) => {
                    match m.qos {
                        1 => b.send(c, &client::acknowledge(kind::PUBACK, m.id)),
                        2 => b.send(c, &client::acknowledge(kind::PUBREC, m.id)),
                        _ => {}
                    }
                    out.push(m);
                }
                P::Ack(kind::PUBREL, id) => b.send(c, &client::acknowledge(kind::PUBCOMP, id)),
                P::Ack(kind::PUBREC, id) => b.send(c, &client::acknowledge(kind::PUBREL, id)),
                _ => {}
            }
        }
    }
}

pub fn texts(b: &mut Bench, c: Conn) -> Vec<String> {
    messages(b, c).iter().map(|m| m.text().to_string()).collect()
}

pub fn bench() -> Bench {
    Bench::new(Config { sys_interval_s: 0, ..Config::default() })
}

/// Device `name` in slot `slot`, clean session.
pub fn device(b: &mut Bench, slot: u32, name: &str) -> Conn {
    b.connect(slot, name, false, client::Connect { id: name, ..Default::default() })
}

/// Device with its session kept; and whether that was there.
pub fn returning(b: &mut Bench, slot: u32, name: &str) -> (Conn, bool) {
    let c = b.open(slot, name, false);
    b.send(c, &client::Connect { id: name, clean: false, ..Default::default() }.bytes());
    match first(b, c) {
        P::Connack { present, code: 0 } => (c, present),
        other => panic!("{other:?}"),
    }
}

/// Runs, and takes the first packet only.
fn first(b: &mut Bench, c: Conn) -> P {
    b.run();
    let mut packets = b.packets(c);
    let rest = packets.split_off(1);
    for (first, body) in rest.into_iter().rev() {
        let packet = client::packet(first, &body);
        b.peer(c).received.splice(0..0, packet);
    }
    parse(packets.remove(0))
}

pub fn operator(b: &mut Bench, slot: u32, id: &str) -> Conn {
    b.connect(slot, "op1", true, client::Connect { id, ..Default::default() })
}

/// Subscribes, expecting what is asked for; retained messages that come with it stay to be taken.
pub fn subscribe(b: &mut Bench, c: Conn, filters: &[(&str, u8)]) {
    b.send(c, &client::subscribe(77, filters));
    assert_eq!(first(b, c), P::Suback(77, filters.iter().map(|f| f.1).collect()));
}

pub fn publish(b: &mut Bench, c: Conn, topic: &str, payload: &str, qos: u8, id: u16) {
    send_publish(b, c, topic, payload.as_bytes(), qos, id, false);
}

pub fn retain(b: &mut Bench, c: Conn, topic: &str, payload: &str, qos: u8, id: u16) {
    send_publish(b, c, topic, payload.as_bytes(), qos, id, true);
}

fn send_publish(b: &mut Bench, c: Conn, topic: &str, payload: &[u8], qos: u8, id: u16, retain: bool) {
    b.send(c, &client::publish(topic, payload, Qos::from_number(qos).unwrap(), id, retain, false));
    b.run();
}

/// The broker has closed the connection after the packets that `got` would return.
pub fn closed(b: &mut Bench, c: Conn) -> bool {
    b.run();
    let peer = b.peer(c);
    peer.finished && peer.released
}

/// Sends bytes on a good connection; the broker must close, answering nothing.
pub fn refused(bytes: &[u8]) {
    let mut b = bench();
    let c = device(&mut b, 0, "d1");
    b.send(c, bytes);
    assert_eq!(got(&mut b, c), vec![], "{bytes:02x?}");
    assert!(closed(&mut b, c), "{bytes:02x?} was taken");
    device(&mut b, 0, "d1");
}
