//! What happens at each bound of the configuration (see its table).

use super::*;
use ipc::link::stream::Reason;

fn with(change: impl Fn(&mut Config)) -> Bench {
    let mut config = Config { sys_interval_s: 0, ..Config::default() };
    change(&mut config);
    Bench::new(config)
}

fn lost(b: &mut Bench, client: &str) -> bool {
    b.events().iter().any(|e| e.starts_with(&format!("session of {client:?} discarded")))
}

#[test]
fn connections() {
    let mut b = with(|c| (c.connections, c.sessions) = (2, 2));
    device(&mut b, 0, "d1");
    let last = device(&mut b, 1, "d2");
    let beyond = b.open(2, "d3", false);
    b.send(beyond, &client::Connect { id: "d3", ..Default::default() }.bytes());
    b.run();
    assert!(b.peer(beyond).aborted && b.peer(beyond).released);
    b.lose(last, Reason::Reset);
    device(&mut b, 1, "d3");
}

#[test]
fn sessions() {
    let mut b = with(|c| (c.connections, c.sessions) = (3, 3));
    for (slot, id) in [(0, "d1"), (1, "d2"), (2, "d3")] {
        let (c, _) = returning(&mut b, slot, id);
        b.send(c, &client::DISCONNECT);
        b.run();
    }
    // The one that was left first has to go.
    returning(&mut b, 0, "d4");
    assert!(lost(&mut b, "d1"));
    assert!(returning(&mut b, 1, "d3").1);
    assert!(!returning(&mut b, 2, "d1").1);
    assert!(lost(&mut b, "d2"));
}

#[test]
fn packet_size() {
    let mut b = with(|c| c.max_packet = 1000);
    let fits = |n: usize| client::publish("devices/d1/x", &vec![0; n], Qos::AtLeastOnce, 1, false, false);
    let overhead = fits(900).len() - 900;
    let c = device(&mut b, 0, "d1");
    b.send(c, &fits(1000 - overhead));
    assert_eq!(got(&mut b, c), [P::Ack(kind::PUBACK, 1)]);
    // Refused as soon as its length is known.
    b.send(c, &fits(1001 - overhead)[..10]);
    assert!(closed(&mut b, c));
}

#[test]
fn input_memory() {
    let mut b = with(|c| (c.max_packet, c.input_bytes) = (100_000, 150_000));
    let (c, d) = (device(&mut b, 0, "d1"), device(&mut b, 1, "d2"));
    let half = |id: &str| {
        client::publish(&format!("devices/{id}/x"), &[0; 90_000], Qos::AtMostOnce, 0, false, false)[..80_000]
            .to_vec()
    };
    b.send(c, &half("d1"));
    b.run();
    b.send(d, &half("d2"));
    assert!(closed(&mut b, d) && !b.peer(c).finished);
    // What the first one holds is given back with it.
    b.lose(c, Reason::Reset);
    let d = device(&mut b, 1, "d2");
    b.send(d, &half("d2"));
    assert!(!closed(&mut b, d));
}

#[test]
fn topics() {
    let publish = |topic: &str| client::publish(topic, b"", Qos::AtLeastOnce, 1, false, false);
    for (topic, fits) in [
        ("devices/d1/45678901", true),
        ("devices/d1/456789012", false),
        ("devices/d1/3/4", true),
        ("devices/d1/3/4/5", false),
    ] {
        let mut b = with(|c| (c.topic_bytes, c.topic_levels) = (19, 4));
        let c = device(&mut b, 0, "d1");
        b.send(c, &client::subscribe(1, &[(topic, 0)]));
        assert_eq!(got(&mut b, c), [P::Suback(1, vec![if fits { 0 } else { 0x80 }])]);
        b.send(c, &publish(topic));
        assert_eq!(closed(&mut b, c), !fits, "{topic}");
    }
}

#[test]
fn subscriptions() {
    let mut b = with(|c| (c.subscriptions_per_session, c.subscriptions) = (2, 3));
    let (c, d) = (device(&mut b, 0, "d1"), device(&mut b, 1, "d2"));
    b.send(
        c,
        &client::subscribe(
            1,
            &[("devices/d1/a", 0), ("devices/d1/b", 0), ("devices/d1/c", 0), ("devices/d1/a", 1)],
        ),
    );
    assert_eq!(got(&mut b, c), [P::Suback(1, vec![0, 0, 0x80, 1])]);
    b.send(d, &client::subscribe(1, &[("devices/d2/a", 0), ("devices/d2/b", 0)]));
    assert_eq!(got(&mut b, d), [P::Suback(1, vec![0, 0x80])]);
    b.send(c, &client::unsubscribe(2, &["devices/d1/a"]));
    b.send(c, &client::subscribe(3, &[("devices/d1/c", 0)]));
    assert_eq!(got(&mut b, c), [P::Ack(kind::UNSUBACK, 2), P::Suback(3, vec![0])]);
    let many: Vec<(&str, u8)> = vec![("devices/d1/a", 0); 1025];
    b.send(c, &client::subscribe(1, &many));
    assert!(closed(&mut b, c));
}

#[test]
fn unreleased_qos_2_messages() {
    let mut b = with(|c| c.receive_maximum = 3);
    let c = device(&mut b, 0, "d1");
    for id in 1..=3 {
        publish(&mut b, c, "devices/d1/x", "", 2, id);
    }
    assert_eq!(got(&mut b, c).len(), 3);
    publish(&mut b, c, "devices/d1/x", "", 2, 4);
    assert!(closed(&mut b, c));
}

/// A device away with a subscription of each QoS, and an operator.
fn away(b: &mut Bench) -> Conn {
    let (c, _) = returning(b, 0, "d1");
    subscribe(b, c, &[("devices/d1/q1", 1), ("devices/d1/q0", 0)]);
    b.send(c, &client::DISCONNECT);
    operator(b, 1, "op")
}

#[test]
fn queued_messages_of_a_client_that_is_away() {
    let mut b = with(|c| c.queue_messages = 3);
    let o = away(&mut b);
    for i in 0..3 {
        publish(&mut b, o, "devices/d1/q1", &format!("{i}"), 1, 1);
    }
    let (c, present) = returning(&mut b, 2, "d1");
    assert!(present && texts(&mut b, c) == ["0", "1", "2"]);
    b.send(c, &client::DISCONNECT);
    for i in 0..4 {
        publish(&mut b, o, "devices/d1/q1", &format!("{i}"), 1, 1);
    }
    assert!(lost(&mut b, "d1"));
    // The publisher's messages were acknowledged, and the receiver is told that its session is gone.
    assert!(!returning(&mut b, 3, "d1").1);
    assert_eq!(b.service.stats().sessions_lost, 1);
}

#[test]
fn queued_bytes_and_the_store() {
    for small_store in [false, true] {
        let mut b = with(|c| {
            (c.max_packet, c.queue_bytes) = (4000, if small_store { 40_000 } else { 10_000 });
            c.store_bytes = if small_store { 10_000.max(c.queue_bytes / 4) } else { 40_000 };
            c.queue_bytes = c.queue_bytes.min(c.store_bytes);
        });
        let o = away(&mut b);
        for i in 0..3 {
            send_publish(&mut b, o, "devices/d1/q1", &[i; 3000], 1, 1, false);
        }
        assert!(!lost(&mut b, "d1"));
        send_publish(&mut b, o, "devices/d1/q1", &[3; 3000], 1, 1, false);
        assert!(lost(&mut b, "d1"));
        assert!(!returning(&mut b, 2, "d1").1);
    }
}

#[test]
fn queued_messages_of_a_client_that_reads_too_slowly() {
    let mut b = with(|c| (c.queue_messages, c.patience_ms) = (4, 250));
    let (c, o) = (returning(&mut b, 0, "d1").0, operator(&mut b, 1, "op"));
    subscribe(&mut b, c, &[("devices/d1/q1", 1), ("devices/d1/q0", 0)]);
    b.congest(c, true);
    b.run();
    // QoS 0 is dropped and counted.
    for i in 0..7 {
        publish(&mut b, o, "devices/d1/q0", &format!("{i}"), 0, 0);
        b.run_for(1000);
    }
    assert_eq!(b.service.stats().dropped, 3);
    assert!(!b.peer(c).finished && !b.peer(o).paused);
    b.congest(c, false);
    assert_eq!(texts(&mut b, c), ["0", "1", "2", "3"]);
    // QoS 1 ends the session.
    b.congest(c, true);
    for i in 0..5 {
        publish(&mut b, o, "devices/d1/q1", "x", 1, i + 1);
        b.run_for(1000);
    }
    assert!(closed(&mut b, c) && lost(&mut b, "d1"));
    assert_eq!(got(&mut b, o).len(), 5, "the publisher isn't the one to suffer");
    assert!(!returning(&mut b, 2, "d1").1);
}

#[test]
fn retained_messages() {
    let mut b = with(|c| (c.retained, c.retained_per_client) = (4, 2));
    let c = device(&mut b, 0, "d1");
    for topic in ["devices/d1/a", "devices/d1/b", "devices/d1/b"] {
        retain(&mut b, c, topic, "r", 1, 1);
    }
    assert_eq!(got(&mut b, c).len(), 3);
    retain(&mut b, c, "devices/d1/c", "r", 1, 1);
    assert!(closed(&mut b, c) && got(&mut b, c).is_empty(), "nothing is acknowledged that isn't stored");
    // Room is made by clearing one, also in a later connection.
    let c = device(&mut b, 0, "d1");
    retain(&mut b, c, "devices/d1/a", "", 1, 1);
    retain(&mut b, c, "devices/d1/c", "r", 1, 1);
    assert_eq!(got(&mut b, c).len(), 2);
    for (slot, id) in [(1, "d2"), (2, "d3")] {
        let d = device(&mut b, slot, id);
        retain(&mut b, d, &format!("devices/{id}/a"), "r", 1, 1);
        assert!(!closed(&mut b, d));
    }
    let d = device(&mut b, 3, "d4");
    retain(&mut b, d, "devices/d4/a", "r", 1, 1);
    assert!(closed(&mut b, d));
}

#[test]
fn repeated_subscriptions_to_many_retained_messages_stay_bounded() {
    let mut b = with(|c| (c.retained, c.queue_messages) = (20, 10));
    let c = device(&mut b, 0, "d1");
    for i in 0..20 {
        retain(&mut b, c, &format!("devices/d1/{i}"), "r", 1, 1);
    }
    let o = operator(&mut b, 1, "op");
    b.congest(o, true);
    for _ in 0..10 {
        b.send(o, &client::subscribe(1, &[("#", 0)]));
    }
    b.run();
    assert_eq!(b.service.stats().dropped, 200 - 30);
    for _ in 0..10 {
        b.send(o, &client::subscribe(1, &[("#", 1)]));
    }
    assert!(closed(&mut b, o));
}

#[test]
fn memory_of_the_topic_tree() {
    let mut b = with(|c| {
        (c.subscriptions_per_session, c.subscriptions) = (1000, 1000);
        (c.retained, c.retained_per_client) = (10, 10);
    });
    let c = device(&mut b, 0, "d1");
    // Every level is a long name of its own.
    let deep =
        |i: usize| (0..12).fold("devices/d1".to_string(), |path, level| format!("{path}/{level:02}-{i:027}"));
    let mut granted = 0;
    for i in 0..1000 {
        b.send(c, &client::subscribe(1, &[(&deep(i), 0)]));
        granted += got(&mut b, c).iter().filter(|p| **p == P::Suback(1, vec![0])).count();
    }
    assert!((400..1000).contains(&granted), "{granted}");
    retain(&mut b, c, &deep(5000), "r", 1, 1);
    assert!(closed(&mut b, c));
    // With the session its part of the tree has gone.
    let c = device(&mut b, 0, "d1");
    retain(&mut b, c, &deep(5000), "r", 1, 1);
    assert_eq!(got(&mut b, c), [P::Ack(kind::PUBACK, 1)]);
}

#[test]
fn a_broadcast_to_many_who_are_away_is_counted() {
    let mut b = with(|c| {
        (c.max_packet, c.queue_bytes, c.store_bytes) = (1000, 1000, 10_000);
        c.queue_messages = 1000;
    });
    for i in 0..10 {
        let (c, _) = returning(&mut b, i, &format!("d{i}"));
        subscribe(&mut b, c, &[(&format!("devices/d{i}/x"), 1)]);
        b.send(c, &client::DISCONNECT);
        b.run();
    }
    let o = operator(&mut b, 20, "op");
    for _ in 0..100 {
        for i in 0..10 {
            publish(&mut b, o, &format!("devices/d{i}/x"), "", 1, 1);
        }
    }
    assert!(b.service.stats().sessions_lost > 0);
}
