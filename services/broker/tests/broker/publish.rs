//! P-cases, and retained messages (R-).

use super::*;

fn summary(list: &[Message]) -> Vec<(u8, &str, bool, bool)> {
    list.iter().map(|m| (m.qos, m.text(), m.dup, m.retain)).collect()
}

#[test]
fn each_qos_is_delivered_at_the_lower_of_both() {
    let mut b = bench();
    let c = device(&mut b, 0, "d1");
    for sub in 0..3 {
        let topic = format!("devices/d1/{sub}");
        subscribe(&mut b, c, &[(&topic, sub)]);
        for qos in 0..3 {
            publish(&mut b, c, &topic, "x", qos, 9 + qos as u16);
            let list = messages(&mut b, c);
            assert_eq!(summary(&list), [(qos.min(sub), "x", false, false)], "P-01, P-02: {sub} {qos}");
        }
    }
    assert_eq!(b.service.stats().sent, 9);
}

#[test]
fn malformed_publishes_are_refused() {
    let topic = |t: &[u8]| {
        let mut body = Vec::new();
        client::string(&mut body, t);
        body
    };
    refused(&client::packet(0x36, &[&topic(b"devices/d1/x")[..], b"\0\x01x"].concat()));
    for bad in [
        &b"devices/d1/+"[..],
        b"devices/d1/#",
        b"devices/d1/a+",
        b"",
        b"devices/d1/\xff",
        b"devices/d1/\xc0\x80",
        b"devices/d1/\0",
    ] {
        refused(&client::packet(0x32, &[&topic(bad)[..], b"\0\x01x"].concat()));
    }
    for qos in [Qos::AtLeastOnce, Qos::ExactlyOnce] {
        refused(&client::publish("devices/d1/x", b"", qos, 0, false, false));
    }
    refused(&client::packet(0x32, &topic(b"devices/d1/x")));
    refused(&client::packet(0x32, &[&topic(b"devices/d1/x")[..], b"\0"].concat()));
    refused(&client::packet(0x32, &topic(&[b'a'; 1022])));
    refused(&client::packet(0x30, b"\xff\xffdevices/"));
    refused(&client::packet(0x30, b"\0"));
    refused(&client::packet(0x30, b""));
    for bytes in ["c100", "c00100", "d000", "20020000", "9003000100", "b0020001", "0000", "f000"] {
        let bytes: Vec<u8> =
            (0..bytes.len()).step_by(2).map(|i| u8::from_str_radix(&bytes[i..i + 2], 16).unwrap()).collect();
        refused(&bytes);
    }
}

#[test]
fn qos_2_is_delivered_once() {
    let mut b = bench();
    let c = device(&mut b, 0, "d1");
    subscribe(&mut b, c, &[("devices/d1/x", 0)]);
    for round in 0..2 {
        for i in 0..4 {
            b.send(c, &client::publish("devices/d1/x", b"once", Qos::ExactlyOnce, 7, false, i > 0));
            let packets = got(&mut b, c);
            assert_eq!(packets.last(), Some(&P::Ack(kind::PUBREC, 7)), "P-11");
            assert_eq!(packets.len(), if i == 0 { 2 } else { 1 }, "P-11, P-14: round {round}");
        }
        b.send(c, &client::acknowledge(kind::PUBREL, 7));
        assert_eq!(got(&mut b, c), [P::Ack(kind::PUBCOMP, 7)]);
    }
    b.send(c, &client::acknowledge(kind::PUBREL, 99));
    assert_eq!(got(&mut b, c), [P::Ack(kind::PUBCOMP, 99)], "P-13");
    b.send(c, &client::publish("devices/d1/y", b"", Qos::ExactlyOnce, 1, false, false));
    assert_eq!(got(&mut b, c), [P::Ack(kind::PUBREC, 1)]);
    b.send(c, b"\x60\x02\0\x01");
    assert!(closed(&mut b, c), "P-20");
}

#[test]
fn order_is_kept_through_the_window() {
    let mut b = bench();
    let c = device(&mut b, 0, "d1");
    subscribe(&mut b, c, &[("devices/d1/x", 1)]);
    let burst: Vec<u8> = (0..50)
        .flat_map(|i| {
            client::publish("devices/d1/x", format!("{i}").as_bytes(), Qos::AtLeastOnce, i + 1, false, false)
        })
        .collect();
    b.send(c, &burst);
    let packets = got(&mut b, c);
    let acks: Vec<u16> = packets
        .iter()
        .filter_map(|p| if let P::Ack(kind::PUBACK, id) = p { Some(*id) } else { None })
        .collect();
    assert_eq!(acks, (1..=50).collect::<Vec<u16>>(), "P-16");
    let mut list: Vec<Message> =
        packets.into_iter().filter_map(|p| if let P::Publish(m) = p { Some(m) } else { None }).collect();
    assert_eq!(list.len(), 32, "the window is full");
    for m in list.clone() {
        b.send(c, &client::acknowledge(kind::PUBACK, m.id));
    }
    list.extend(messages(&mut b, c));
    assert_eq!(
        list.iter().map(|m| m.text().parse().unwrap()).collect::<Vec<u32>>(),
        (0..50).collect::<Vec<u32>>()
    );
}

#[test]
fn large_payloads_come_back_byte_for_byte() {
    // Fewer buffers than the message needs, and sizes around the borders of buffers.
    for len in [0, 1, 1990, 2000, 2010, 2026, 2027, 4052, 16384, 1 << 20] {
        let mut b = Bench::with_buffers(Config::default(), 8, 4);
        let c = device(&mut b, 0, "d1");
        subscribe(&mut b, c, &[("devices/d1/x", 1)]);
        let payload: Vec<u8> = (0..len).map(|i| (i * 7 + i / 251) as u8).collect();
        send_publish(&mut b, c, "devices/d1/x", &payload, 1, 1, false);
        let list = messages(&mut b, c);
        assert!(list.len() == 1 && list[0].payload == payload, "P-21: {len}");
        send_publish(&mut b, c, "devices/d1/x", &payload, 0, 0, false);
        assert!(messages(&mut b, c)[0].payload == payload);
    }
}

#[test]
fn fan_out_reaches_everyone_with_few_buffers() {
    for len in [10, 5000] {
        let mut b = Bench::with_buffers(Config { sys_interval_s: 0, ..Config::default() }, 8, 4);
        let conns: Vec<Conn> = (0..50).map(|i| operator(&mut b, i, &format!("op{i}"))).collect();
        for c in &conns {
            subscribe(&mut b, *c, &[("devices/#", 1)]);
        }
        let d = device(&mut b, 60, "d1");
        send_publish(&mut b, d, "devices/d1/x", &vec![b'z'; len], 1, 1, false);
        for c in conns {
            assert_eq!(messages(&mut b, c).iter().map(|m| m.payload.len()).collect::<Vec<_>>(), [len]);
        }
        assert_eq!(b.link.own.lent(), 0);
    }
}

#[test]
fn a_device_reaches_nobody_elses_topics() {
    let foreign = [
        "devices/d2/t",
        "devices/d1x/a",
        "devices",
        "/devices/d1/a",
        "devices//d1/a",
        "Devices/d1/a",
        "devices/d",
        "$SYS/x",
    ];
    for topic in foreign {
        let mut b = bench();
        let (z, o) = (device(&mut b, 1, "d2"), operator(&mut b, 2, "op"));
        subscribe(&mut b, z, &[("devices/d2/#", 1)]);
        subscribe(&mut b, o, &[("#", 1), ("$SYS/#", 1)]);
        let c = device(&mut b, 0, "d1");
        publish(&mut b, c, topic, "foreign", 1, 1);
        // Nothing is acknowledged that isn't done.
        assert_eq!(got(&mut b, c), [], "P-25, Y-03: {topic}");
        assert!(closed(&mut b, c));
        assert_eq!((got(&mut b, z), got(&mut b, o)), (vec![], vec![]), "{topic}");
    }
    let mut b = bench();
    let (c, o) = (device(&mut b, 0, "d1"), operator(&mut b, 1, "op"));
    subscribe(&mut b, o, &[("#", 1)]);
    publish(&mut b, c, "devices/d1/../x", "own", 1, 1);
    assert_eq!(texts(&mut b, o), ["own"], "Y-03");
    publish(&mut b, o, "$SYS/broker/version", "mine", 0, 0);
    assert!(closed(&mut b, o), "the server's topics are the server's");
}

#[test]
fn retained_messages_are_kept_replaced_and_cleared() {
    let mut b = bench();
    let c = device(&mut b, 0, "d1");
    subscribe(&mut b, c, &[("devices/d1/x", 0)]);
    for (payload, stored) in [("m1", &["m1"][..]), ("m2", &["m2"]), ("", &[])] {
        retain(&mut b, c, "devices/d1/x", payload, 1, 3);
        assert_eq!(summary(&messages(&mut b, c)), [(0, payload, false, false)], "R-01, R-03: live");
        b.send(c, &client::unsubscribe(4, &["devices/d1/x"]));
        assert_eq!(got(&mut b, c), [P::Ack(kind::UNSUBACK, 4)]);
        subscribe(&mut b, c, &[("devices/d1/x", 0)]);
        let list = messages(&mut b, c);
        assert_eq!(
            list.iter().map(|m| (m.text(), m.retain)).collect::<Vec<_>>(),
            stored.iter().map(|s| (*s, true)).collect::<Vec<_>>(),
            "R-03: stored"
        );
    }
    retain(&mut b, c, "devices/d1/x", "r", 1, 3);
    publish(&mut b, c, "devices/d1/x", "n", 1, 3);
    publish(&mut b, c, "devices/d1/x", "", 1, 3);
    b.send(c, &client::DISCONNECT);
    assert!(closed(&mut b, c));
    let c = device(&mut b, 0, "d1");
    subscribe(&mut b, c, &[("devices/d1/#", 1)]);
    assert_eq!(summary(&messages(&mut b, c)), [(1, "r", false, true)], "R-04");
}

#[test]
fn stored_copies_come_at_the_lower_qos_and_on_each_subscribe() {
    let mut b = bench();
    let c = device(&mut b, 0, "d1");
    for qos in 0..3 {
        retain(&mut b, c, &format!("devices/d1/q{qos}"), "r", qos, 9);
    }
    messages(&mut b, c);
    for sub in 0..3 {
        for qos in 0..3 {
            subscribe(&mut b, c, &[(&format!("devices/d1/q{qos}"), sub)]);
            assert_eq!(summary(&messages(&mut b, c)), [(qos.min(sub), "r", false, true)], "R-06, S-13");
        }
    }
    publish(&mut b, c, "devices/d1/q1", "n", 1, 5);
    assert_eq!(summary(&messages(&mut b, c)), [(1, "n", false, false)], "S-13: once");
}

#[test]
fn many_retained_messages_all_arrive() {
    let mut b = Bench::with_buffers(Config::default(), 8, 4);
    let c = device(&mut b, 0, "d1");
    for i in 0..300u16 {
        retain(&mut b, c, &format!("devices/d1/k{i}"), &format!("{i}"), 1, i + 1);
    }
    messages(&mut b, c);
    subscribe(&mut b, c, &[("devices/d1/#", 1)]);
    let mut numbers: Vec<u32> = texts(&mut b, c).iter().map(|t| t.parse().unwrap()).collect();
    numbers.sort();
    assert_eq!(numbers, (0..300).collect::<Vec<_>>(), "R-09");
}
