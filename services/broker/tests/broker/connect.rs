//! C- and T-cases.

use super::*;
use client::{Connect, packet, string};

/// What comes of `bytes` as the first bytes of device d1.
fn opening(bytes: &[u8]) -> Vec<P> {
    let mut b = bench();
    let c = b.open(0, "d1", false);
    b.send(c, bytes);
    let answer = got(&mut b, c);
    if answer.first() != Some(&P::Connack { present: false, code: 0 }) {
        assert!(closed(&mut b, c), "{bytes:02x?} left the connection open");
    }
    device(&mut b, 1, "d1");
    answer
}

fn code(code: u8) -> Vec<P> {
    vec![P::Connack { present: false, code }]
}

#[test]
fn the_first_packet_is_connect() {
    assert_eq!(opening(&client::PINGREQ), vec![], "C-01");
    assert_eq!(
        opening(&client::publish("devices/d1/x", b"x", Qos::AtLeastOnce, 1, false, false)),
        vec![],
        "C-02"
    );
    // Refused at the first byte, before the packet is whole.
    assert_eq!(opening(&[0x30]), vec![]);
}

#[test]
fn a_second_connect_is_refused() {
    refused(&Connect { id: "d1", ..Default::default() }.bytes());
}

#[test]
fn malformed_connects_are_refused() {
    let good = Connect { id: "d1", ..Default::default() }.bytes();
    assert_eq!(opening(&good), code(0));
    let mut name = good.clone();
    name[7] = b'U';
    assert_eq!(opening(&name), vec![], "C-04");
    for first in [0x1f, 0x11, 0x18] {
        assert_eq!(opening(&[&[first], &good[1..]].concat()), vec![], "C-07");
    }
    for flags in [0x03, 0x1e, 0x0a, 0x22, 0x42] {
        let mut bad = good.clone();
        bad[9] = flags;
        assert_eq!(opening(&bad), vec![], "C-06, C-08 to C-10: {flags:02x}");
    }
    assert_eq!(opening(&packet(0x10, &[&good[2..], &[0]].concat())), vec![], "C-14");
    for n in [0, 1, 6, 7, 8, 10, 11, good.len() - 3] {
        assert_eq!(opening(&packet(0x10, &good[2..2 + n])), vec![], "C-15: {n}");
    }
    assert_eq!(opening(&[&[0x10, 0xff, 0xff, 0xff, 0xff, 0x7f], &good[2..]].concat()), vec![], "C-16");
}

#[test]
fn identifiers_that_are_no_text_are_refused() {
    for id in [&b"\xff\xfe"[..], b"a\xc3", b"\xed\xa0\x80", b"d1\0a"] {
        let mut body = b"\0\x04MQTT\x04\x02\0\x3c".to_vec();
        string(&mut body, id);
        assert_eq!(opening(&packet(0x10, &body)), vec![], "C-18, C-19");
    }
}

#[test]
fn foreign_levels_are_told_so() {
    for level in [3, 5, 0x7f] {
        assert_eq!(opening(&Connect { id: "d1", level, ..Default::default() }.bytes()), code(1), "C-05");
    }
}

#[test]
fn a_device_has_the_identifier_of_its_certificate() {
    for id in ["d2", "d1x", "D1", "op1", ""] {
        assert_eq!(opening(&Connect { id, ..Default::default() }.bytes()), code(2), "X-05: {id}");
    }
    assert_eq!(opening(&Connect { id: "", clean: false, ..Default::default() }.bytes()), code(2), "C-12");
    // What stands behind a refused CONNECT isn't looked at.
    let publish = client::publish("devices/d1/x", b"x", Qos::AtLeastOnce, 1, false, false);
    assert_eq!(
        opening(&[Connect { id: "d2", ..Default::default() }.bytes(), publish].concat()),
        code(2),
        "X-05"
    );
}

#[test]
fn certificates_that_name_no_topic_level_are_refused() {
    for name in ["+", "#", "a/b", "$SYS"] {
        let mut b = bench();
        let c = b.open(0, name, false);
        b.send(c, &Connect { id: name, ..Default::default() }.bytes());
        assert_eq!(got(&mut b, c), vec![], "{name}");
        assert!(closed(&mut b, c));
    }
}

#[test]
fn operators_choose_identifiers_or_get_one() {
    let mut b = bench();
    let d = device(&mut b, 0, "d1");
    let same = operator(&mut b, 1, "d1");
    let other = operator(&mut b, 2, "second");
    let (one, two) = (operator(&mut b, 3, ""), operator(&mut b, 4, ""));
    for c in [d, same, other, one, two] {
        b.send(c, &client::PINGREQ);
        assert_eq!(got(&mut b, c), vec![P::Pingresp], "an operator took a session over that isn't its own");
    }
    let c = b.open(5, "op1", true);
    b.send(c, &Connect { id: "", clean: false, ..Default::default() }.bytes());
    assert_eq!(got(&mut b, c), code(2), "C-12");
}

#[test]
fn names_and_passwords_are_taken_and_not_looked_at() {
    let connect = Connect { id: "d1", user_name: Some("u"), password: Some(b"\0\xff"), ..Default::default() };
    assert_eq!(opening(&connect.bytes()), code(0));
}

#[test]
fn what_follows_connect_in_the_same_write_is_handled_after_it() {
    let mut b = bench();
    let c = b.open(0, "d1", false);
    let early = client::publish("devices/d1/x", b"early", Qos::AtLeastOnce, 2, false, false);
    b.send(
        c,
        &[
            Connect { id: "d1", ..Default::default() }.bytes(),
            client::subscribe(1, &[("devices/d1/x", 1)]),
            early,
        ]
        .concat(),
    );
    let packets = got(&mut b, c);
    assert_eq!(packets[..2], [P::Connack { present: false, code: 0 }, P::Suback(1, vec![1])], "C-25");
    assert!(
        matches!(&packets[2..], [P::Publish(m), P::Ack(kind::PUBACK, 2)] if m.payload == b"early"),
        "{packets:?}"
    );
}

#[test]
fn packets_may_come_byte_by_byte() {
    let mut b = bench();
    let c = b.open(0, "d1", false);
    for byte in [&Connect { id: "d1", ..Default::default() }.bytes()[..], &client::PINGREQ].concat() {
        b.send(c, &[byte]);
        b.run();
    }
    assert_eq!(got(&mut b, c), vec![P::Connack { present: false, code: 0 }, P::Pingresp], "C-26");
}

#[test]
fn a_second_connection_takes_over() {
    let mut b = bench();
    let conns: Vec<Conn> = (0..12).map(|slot| returning(&mut b, slot, "d1").0).collect();
    for c in &conns[..11] {
        assert!(closed(&mut b, *c), "T-01, T-03");
    }
    subscribe(&mut b, conns[11], &[("devices/d1/x", 1)]);
    publish(&mut b, conns[11], "devices/d1/x", "x", 1, 1);
    assert_eq!(texts(&mut b, conns[11]), ["x"]);
    assert_eq!(b.service.stats().connected, 1);
}
