//! Backpressure.

use super::*;

/// Pings until the broker stops reading; returns how many were sent.
fn flood(b: &mut Bench, c: Conn) -> usize {
    for n in 0..10_000 {
        if b.peer(c).paused {
            return n;
        }
        b.send(c, &client::PINGREQ);
        b.run();
    }
    panic!("never paused");
}

#[test]
fn answers_to_a_client_that_reads_nothing_are_bounded() {
    let mut b = bench();
    let c = device(&mut b, 0, "d1");
    b.congest(c, true);
    b.run();
    let sent = flood(&mut b, c);
    assert!(sent < 600, "{sent} answers kept");
    // Input that was on its way is kept, in order, and handled when answers can go out.
    b.congest(c, false);
    assert_eq!(got(&mut b, c), vec![P::Pingresp; sent]);
    assert!(!b.peer(c).paused);
    // One that never reads again is closed.
    b.congest(c, true);
    b.run();
    flood(&mut b, c);
    b.run_for(62_000);
    assert!(closed(&mut b, c));
}

#[test]
fn buffers_that_do_not_come_back_stop_nobody_for_ever() {
    let mut b = Bench::with_buffers(Config { sys_interval_s: 0, ..Config::default() }, 8, 4);
    let (slow, quick) = (device(&mut b, 0, "d1"), device(&mut b, 1, "d2"));
    subscribe(&mut b, slow, &[("devices/d1/x", 0)]);
    b.peer(slow).keeps = true;
    publish(&mut b, slow, "devices/d1/x", &"z".repeat(20_000), 0, 0);
    assert_eq!(b.link.own.available(), 0);
    b.send(quick, &client::PINGREQ);
    assert_eq!(got(&mut b, quick), []);
    b.drain(slow);
    assert_eq!(got(&mut b, quick), [P::Pingresp]);
    assert_eq!(messages(&mut b, slow)[0].payload.len(), 20_000);
}

#[test]
fn large_messages_take_turns() {
    let mut b = Bench::with_buffers(Config { sys_interval_s: 0, ..Config::default() }, 64, 16);
    let conns: Vec<Conn> = (0..4).map(|i| operator(&mut b, i, &format!("op{i}"))).collect();
    for c in &conns {
        subscribe(&mut b, *c, &[("#", 0)]);
        b.peer(*c).keeps = true;
    }
    let d = device(&mut b, 9, "d1");
    publish(&mut b, d, "devices/d1/x", &"z".repeat(100_000), 0, 0);
    for _ in 0..4 {
        for c in &conns {
            b.drain(*c);
            b.peer(*c).keeps = true;
        }
        b.run();
    }
    let sent: Vec<usize> = conns.iter().map(|c| b.peer(*c).received.len()).collect();
    let (least, most) = (sent.iter().min().unwrap(), sent.iter().max().unwrap());
    assert!(*least > 0 && most - least <= 2 * 8 * broker::MAX_CHUNK, "{sent:?}");
}

#[test]
fn a_publisher_waits_for_a_receiver_that_is_a_little_slow() {
    let mut b = Bench::new(Config { queue_messages: 100, sys_interval_s: 0, ..Config::default() });
    let (c, o) = (device(&mut b, 0, "d1"), operator(&mut b, 1, "op"));
    subscribe(&mut b, o, &[("#", 0)]);
    b.congest(o, true);
    b.run();
    let burst: Vec<u8> = (0..1000u16)
        .flat_map(|i| client::publish("devices/d1/x", &i.to_be_bytes(), Qos::AtMostOnce, 0, false, false))
        .collect();
    b.send(c, &burst);
    b.run();
    assert!(b.peer(c).paused, "the receiver's queue is half full");
    // It takes its messages in time, now and then: nothing is lost, and order is kept.
    let mut list = Vec::new();
    for _ in 0..100 {
        b.run_for(250);
        b.congest(o, false);
        list.extend(messages(&mut b, o));
        b.congest(o, true);
        b.run();
    }
    assert_eq!(b.service.stats().dropped, 0);
    let numbers: Vec<u16> = list.iter().map(|m| u16::from_be_bytes([m.payload[0], m.payload[1]])).collect();
    assert_eq!(numbers, (0..1000).collect::<Vec<u16>>());
    assert!(!b.peer(c).paused);
}

#[test]
fn a_publisher_waits_for_a_stuck_receiver_only_once() {
    let mut b =
        Bench::new(Config { queue_messages: 10, patience_ms: 1000, sys_interval_s: 0, ..Config::default() });
    let (c, o) = (device(&mut b, 0, "d1"), operator(&mut b, 1, "op"));
    subscribe(&mut b, o, &[("#", 0)]);
    b.congest(o, true);
    b.run();
    for i in 0..8 {
        b.send(c, &client::publish("devices/d1/x", b"", Qos::AtLeastOnce, i + 1, false, false));
    }
    b.run();
    assert!(b.peer(c).paused);
    assert_eq!(got(&mut b, c).len(), 5);
    b.run_for(1300);
    assert!(!b.peer(c).paused, "patience is over");
    assert_eq!(got(&mut b, c).len(), 3);
    b.send(c, &client::publish("devices/d1/x", b"", Qos::AtLeastOnce, 9, false, false));
    assert_eq!(got(&mut b, c).len(), 1, "and doesn't begin again");
}

#[test]
fn a_receiver_may_leave_while_it_holds_publishers_back() {
    let mut b = Bench::new(Config { queue_messages: 10, sys_interval_s: 0, ..Config::default() });
    // The last session stands alone in its part of the table, which goes with it.
    let conns: Vec<Conn> = (0..65).map(|i| operator(&mut b, i, &format!("op{i}"))).collect();
    subscribe(&mut b, conns[64], &[("#", 1)]);
    b.congest(conns[64], true);
    b.run();
    let burst: Vec<u8> =
        (0..8).flat_map(|i| client::publish("x", b"", Qos::AtLeastOnce, i + 1, false, false)).collect();
    b.send(conns[0], &burst);
    b.run();
    assert!(b.peer(conns[0]).paused);
    b.lose(conns[64], ipc::link::stream::Reason::Reset);
    b.run_for(2000);
    assert_eq!(got(&mut b, conns[0]).len(), 8);
}

#[test]
fn a_publisher_that_waits_is_released_when_the_receiver_leaves() {
    let mut b = Bench::new(Config { queue_messages: 10, sys_interval_s: 0, ..Config::default() });
    let (c, o) = (device(&mut b, 0, "d1"), operator(&mut b, 1, "op"));
    subscribe(&mut b, o, &[("#", 0)]);
    b.congest(o, true);
    b.run();
    for i in 0..8 {
        b.send(c, &client::publish("devices/d1/x", b"", Qos::AtLeastOnce, i + 1, false, false));
    }
    b.run();
    assert!(b.peer(c).paused);
    b.lose(o, ipc::link::stream::Reason::Reset);
    b.run();
    assert!(!b.peer(c).paused);
    assert_eq!(got(&mut b, c).len(), 8);
}
