//! Q-cases: sessions across connections.

use super::*;
use ipc::link::stream::Reason;

#[test]
fn session_present_tells_whether_there_was_one() {
    let mut b = bench();
    let mut seen = Vec::new();
    for (slot, clean) in [true, false, false, true, false].into_iter().enumerate() {
        let c = b.open(slot as u32, "d1", false);
        b.send(c, &client::Connect { id: "d1", clean, ..Default::default() }.bytes());
        seen.push(got(&mut b, c) == [P::Connack { present: true, code: 0 }]);
        b.send(c, &client::DISCONNECT);
        assert!(closed(&mut b, c));
    }
    assert_eq!(seen, [false, false, true, false, false], "C-22");
}

#[test]
fn subscriptions_and_messages_wait_for_the_client() {
    let mut b = bench();
    let (c, _) = returning(&mut b, 0, "d1");
    subscribe(&mut b, c, &[("devices/d1/x", 2), ("devices/d1/y", 0)]);
    b.send(c, &client::DISCONNECT);
    assert!(closed(&mut b, c));
    let o = operator(&mut b, 1, "op");
    for i in 0..10 {
        publish(&mut b, o, "devices/d1/x", &format!("{i}"), 1, i + 1);
    }
    publish(&mut b, o, "devices/d1/x", "10", 2, 20);
    publish(&mut b, o, "devices/d1/y", "not kept", 0, 0);
    publish(&mut b, o, "devices/d1/x", "not kept", 0, 0);
    let (c, present) = returning(&mut b, 2, "d1");
    assert!(present);
    let list = messages(&mut b, c);
    assert_eq!(
        list.iter().map(|m| m.text()).collect::<Vec<_>>(),
        (0..11).map(|i| i.to_string()).collect::<Vec<_>>(),
        "Q-07"
    );
    assert_eq!(list.iter().map(|m| m.qos).collect::<Vec<_>>(), [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2]);
    for qos in 0..3 {
        publish(&mut b, o, "devices/d1/y", "live", qos, 30);
    }
    assert_eq!(messages(&mut b, c).len(), 3, "Q-03");
}

#[test]
fn what_was_not_acknowledged_comes_again_in_order_with_dup() {
    let mut b = bench();
    let (c, _) = returning(&mut b, 0, "d1");
    subscribe(&mut b, c, &[("devices/d1/x", 2)]);
    let o = operator(&mut b, 1, "op");
    for (i, qos) in [1, 2, 1, 2].into_iter().enumerate() {
        publish(&mut b, o, "devices/d1/x", &format!("{i}"), qos, i as u16 + 1);
    }
    let sent: Vec<Message> =
        got(&mut b, c).into_iter().map(|p| if let P::Publish(m) = p { m } else { panic!("{p:?}") }).collect();
    assert_eq!(sent.len(), 4);
    // The third is acknowledged, the second is half-way.
    b.send(c, &client::acknowledge(kind::PUBACK, sent[2].id));
    b.send(c, &client::acknowledge(kind::PUBREC, sent[1].id));
    assert_eq!(got(&mut b, c), [P::Ack(kind::PUBREL, sent[1].id)]);
    b.lose(c, Reason::Reset);
    publish(&mut b, o, "devices/d1/x", "new", 1, 9);
    let (c, present) = returning(&mut b, 2, "d1");
    assert!(present);
    let again = got(&mut b, c);
    let dup = |m: &Message| P::Publish(Message { dup: true, ..m.clone() });
    assert_eq!(again[..3], [dup(&sent[0]), P::Ack(kind::PUBREL, sent[1].id), dup(&sent[3])]);
    assert!(
        matches!(&again[3..], [P::Publish(m)] if m.text() == "new" && !m.dup && sent.iter().all(|s| s.id != m.id))
    );
}

#[test]
fn qos_2_state_survives_the_connection() {
    let mut b = bench();
    let (c, _) = returning(&mut b, 0, "d1");
    subscribe(&mut b, c, &[("devices/d1/x", 0)]);
    b.send(c, &client::publish("devices/d1/x", b"once", Qos::ExactlyOnce, 4, false, false));
    assert_eq!(got(&mut b, c).len(), 2);
    b.lose(c, Reason::Reset);
    let (c, _) = returning(&mut b, 1, "d1");
    b.send(c, &client::publish("devices/d1/x", b"once", Qos::ExactlyOnce, 4, false, true));
    assert_eq!(got(&mut b, c), [P::Ack(kind::PUBREC, 4)]);
    b.send(c, &client::acknowledge(kind::PUBREL, 4));
    assert_eq!(got(&mut b, c), [P::Ack(kind::PUBCOMP, 4)]);
}

#[test]
fn a_clean_session_leaves_nothing() {
    let mut b = bench();
    let (c, _) = returning(&mut b, 0, "d1");
    subscribe(&mut b, c, &[("devices/d1/x", 1)]);
    b.send(c, &client::DISCONNECT);
    assert!(closed(&mut b, c));
    let o = operator(&mut b, 1, "op");
    publish(&mut b, o, "devices/d1/x", "old", 1, 1);
    let c = device(&mut b, 2, "d1");
    assert_eq!(got(&mut b, c), []);
    publish(&mut b, o, "devices/d1/x", "new", 1, 2);
    assert_eq!(got(&mut b, c), [], "subscribed no more");
    b.send(c, &client::DISCONNECT);
    assert!(!returning(&mut b, 3, "d1").1);
}
