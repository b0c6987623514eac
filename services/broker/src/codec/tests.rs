use super::*;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

/// Parses all of `bytes` as one packet.
fn parse(bytes: &[u8]) -> Result<Packet<'_>, Malformed> {
    let frame = frame(bytes)?.expect("a whole fixed header");
    assert_eq!(frame.total, bytes.len());
    packet(frame.first, &bytes[frame.head..])
}

fn refused(bytes: &[u8]) {
    assert!(parse(bytes).is_err(), "{bytes:02x?} was taken");
}

fn qos() -> impl Strategy<Value = Qos> {
    (0u8..3).prop_map(|n| Qos::from_number(n).unwrap())
}

fn text() -> impl Strategy<Value = String> {
    "[a-z0-9/é漢]{0,20}"
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(Some(f)) = frame(&bytes) {
            let body = &bytes[f.head..f.total.min(bytes.len())];
            if let Ok(Packet::Subscribe(s)) = packet(f.first, body) {
                prop_assert!(s.filters().count() > 0);
            }
        }
    }

    #[test]
    fn damaged_packets_never_panic(at in 0usize..60, with in any::<u8>(), cut in 0usize..60) {
        let will = Some(("a/b", &b"gone"[..], Qos::AtLeastOnce, true));
        let connect = client::Connect { id: "dev", will, user_name: Some("u"), password: Some(b"p"), ..Default::default() };
        for mut bytes in [connect.bytes(), client::subscribe(3, &[("a/+", 1), ("b/#", 2)])] {
            let last = bytes.len() - 1;
            bytes[at.min(last)] = with;
            bytes.truncate(cut.max(1));
            if let Ok(Some(f)) = frame(&bytes) {
                let _ = packet(f.first, &bytes[f.head.min(bytes.len())..f.total.min(bytes.len())]);
            }
        }
    }

    #[test]
    fn connect_round_trip(id in text(), clean in any::<bool>(), keep_alive in any::<u16>(),
                          will in proptest::option::of(("[a-z/]{1,9}", qos(), any::<bool>())),
                          name in proptest::option::of(text())) {
        let sent = client::Connect {
            id: &id, clean, keep_alive, level: 4,
            will: will.as_ref().map(|w| (w.0.as_str(), &b"\x00bye"[..], w.1, w.2)),
            user_name: name.as_deref(),
            password: name.as_ref().map(|_| &b"\xff"[..]),
        };
        let bytes = sent.bytes();
        let Ok(Packet::Connect(c)) = parse(&bytes) else { panic!("refused") };
        prop_assert_eq!((c.client_id, c.clean_session, c.keep_alive), (id.as_str(), clean, keep_alive));
        prop_assert_eq!(c.will.map(|w| (w.topic, w.payload, w.qos, w.retain)), sent.will);
        prop_assert_eq!((c.user_name, c.password), (sent.user_name, sent.password));
    }

    #[test]
    fn publish_round_trip(topic in "[a-zé/]{1,30}", payload in proptest::collection::vec(any::<u8>(), 0..300),
                          qos in qos(), id in 1u16.., retain in any::<bool>(), dup in any::<bool>()) {
        let dup = dup && qos != Qos::AtMostOnce;
        let bytes = client::publish(&topic, &payload, qos, id, retain, dup);
        let Ok(Packet::Publish(p)) = parse(&bytes) else { panic!("refused") };
        prop_assert_eq!((p.topic, p.payload, p.qos, p.retain, p.dup), (topic.as_str(), &payload[..], qos, retain, dup));
        // The server's encoder writes the same bytes.
        let head = PublishHead { dup, qos, retain, id: p.id };
        let (id, n) = head.identifier();
        let again = [head.fixed(2 + topic.len(), payload.len()).bytes(),
                     &(topic.len() as u16).to_be_bytes(), topic.as_bytes(), &id[..n], &payload].concat();
        prop_assert_eq!(again, bytes);
    }

    #[test]
    fn subscribe_round_trip(id in 1u16.., filters in proptest::collection::vec((text(), 0u8..3), 1..8)) {
        let list: Vec<(&str, u8)> = filters.iter().map(|(f, q)| (f.as_str(), *q)).collect();
        let bytes = client::subscribe(id, &list);
        let Ok(Packet::Subscribe(s)) = parse(&bytes) else { panic!("refused") };
        prop_assert_eq!(s.id, id);
        prop_assert_eq!(s.filters().map(|(f, q)| (f, q as u8)).collect::<Vec<_>>(), list);
    }
}

#[test]
fn a_frame_needs_its_whole_header() {
    assert_eq!(frame(&[]), Ok(None));
    assert_eq!(frame(&[0x30, 0x80, 0x80]), Ok(None));
    assert_eq!(
        frame(&[0x30, 0xff, 0xff, 0xff, 0x7f]),
        Ok(Some(Frame { first: 0x30, head: 5, total: 5 + MAX_REMAINING }))
    );
    assert!(frame(&[0x30, 0xff, 0xff, 0xff, 0xff]).is_err());
}

#[test]
fn reserved_flags_and_server_packets_are_refused_at_the_first_byte() {
    for first in [
        0x00, 0x0f, 0x11, 0x1f, 0x20, 0x36, 0x37, 0x41, 0x60, 0x63, 0x80, 0x90, 0xa0, 0xb0, 0xc1, 0xd0, 0xe1,
        0xf0,
    ] {
        assert!(frame(&[first]).is_err(), "{first:02x}");
    }
}

#[test]
fn malformed_packets_are_refused() {
    let qos1 = |topic: &[u8]| {
        let mut body = vec![];
        client::string(&mut body, topic);
        body.extend_from_slice(b"\x00\x01x");
        client::packet(0x32, &body)
    };
    assert!(parse(&qos1(b"a/b")).is_ok());
    for topic in
        [&b""[..], b"a/+", b"a#", b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"a\0b", b"\xf4\x90\x80\x80"]
    {
        refused(&qos1(topic));
    }
    refused(&client::publish("a", b"x", Qos::AtLeastOnce, 0, false, false));
    refused(&client::publish("a", b"x", Qos::AtMostOnce, 0, false, true));
    refused(&[0x32, 3, 0, 1, b'a']);
    refused(&[0x32, 4, 0, 1, b'a', 0]);
    refused(&[0x30, 4, 0xff, 0xff, b'a', b'b']);
    refused(&[0x30, 0]);
    refused(&[0x82, 2, 0, 1]);
    refused(&[0x82, 6, 0, 1, 0, 1, b'a', 3]);
    refused(&[0x82, 6, 0, 1, 0, 1, b'a', 0x80]);
    refused(&[0x82, 5, 0, 1, 0, 1, b'a']);
    refused(&[0xa2, 2, 0, 1]);
    refused(&[0xa2, 5, 0, 0, 0, 1, b'a']);
    refused(&[0xc0, 1, 0]);
    refused(&[0x40, 1, 0]);
    refused(&[0x40, 3, 0, 1, 0]);
}

#[test]
fn connect_flags_are_checked() {
    let with_flags = |flags: u8, tail: &[u8]| {
        let mut body = vec![0, 4, b'M', b'Q', b'T', b'T', 4, flags, 0, 60];
        client::string(&mut body, b"dev");
        body.extend_from_slice(tail);
        client::packet(0x10, &body)
    };
    assert!(parse(&with_flags(2, b"")).is_ok());
    for flags in [0x03, 0x0a, 0x12, 0x22, 0x1e, 0x42] {
        refused(&with_flags(flags, b"\0\x01t\0\x01p"));
    }
    refused(&with_flags(2, b"\0"));
    refused(&with_flags(4, b"\0\x01+\0\0"));
    refused(&with_flags(4, b"\0\0\0\0"));
}

#[test]
fn a_foreign_protocol_level_is_told_from_garbage() {
    let five = client::Connect { level: 5, ..Default::default() }.bytes();
    assert_eq!(parse(&five), Ok(Packet::ForeignConnect { level: 5 }));
    refused(&client::packet(0x10, b"\x00\x04MQTU\x04\x02\x00\x3c\x00\x00"));
}
