//! W-cases.

use super::*;
use ipc::link::stream::Reason;

fn with_will(b: &mut Bench, slot: u32, id: &str, clean: bool, topic: &str, retain: bool) -> Conn {
    let will = Some((topic, &b"gone"[..], Qos::AtLeastOnce, retain));
    b.connect(slot, id, false, client::Connect { id, clean, will, ..Default::default() })
}

/// What the device finds in its session after its connection with a will ended as `end` does it.
fn after(end: impl Fn(&mut Bench, Conn)) -> Vec<String> {
    let mut b = bench();
    let c = with_will(&mut b, 0, "d1", false, "devices/d1/will", false);
    subscribe(&mut b, c, &[("devices/d1/will", 1)]);
    end(&mut b, c);
    b.run();
    b.packets(c);
    let (c, present) = returning(&mut b, 1, "d1");
    assert!(present);
    let list = messages(&mut b, c);
    assert!(list.iter().all(|m| !m.retain && m.qos == 1));
    list.iter().map(|m| m.text().to_string()).collect()
}

#[test]
fn the_will_is_published_whenever_a_connection_ends_without_disconnect() {
    assert_eq!(after(|b, c| b.lose(c, Reason::Reset)), ["gone"], "W-01");
    assert_eq!(after(|b, c| b.lose(c, Reason::Timeout)), ["gone"]);
    assert_eq!(after(|b, c| b.send(c, b"\x36\x0a\0\x06devicesx")), ["gone"], "W-05");
    assert_eq!(
        after(|b, c| b.send(c, &client::publish("devices/d2/x", b"", Qos::AtMostOnce, 0, false, false))),
        ["gone"]
    );
    assert_eq!(after(|b, _| b.run_for(120_000)), ["gone"], "keep alive");
    assert_eq!(after(|b, _| b.restart_tls()), ["gone"], "the link went down");
    assert_eq!(after(|_, _| {}), ["gone"], "taken over");
    assert_eq!(after(|b, c| b.send(c, &client::DISCONNECT)), [""; 0], "W-02");
}

#[test]
fn a_retained_will_is_stored() {
    for keep in [true, false] {
        let mut b = bench();
        let c = with_will(&mut b, 0, "d1", true, "devices/d1/will", keep);
        b.lose(c, Reason::Reset);
        b.run();
        let c = device(&mut b, 0, "d1");
        subscribe(&mut b, c, &[("devices/d1/will", 1)]);
        assert_eq!(
            messages(&mut b, c).iter().map(|m| m.retain).collect::<Vec<_>>(),
            vec![true; keep as usize],
            "W-03"
        );
    }
}

#[test]
fn a_will_needs_a_valid_topic_and_the_right_to_publish_there() {
    for topic in ["devices/d1/+", "devices/d1/#", ""] {
        let mut b = bench();
        let c = b.open(0, "d1", false);
        let will = Some((topic, &b"w"[..], Qos::AtMostOnce, false));
        b.send(c, &client::Connect { id: "d1", will, ..Default::default() }.bytes());
        assert_eq!(got(&mut b, c), [], "C-20");
        assert!(closed(&mut b, c));
    }
    let mut b = bench();
    let c = b.open(0, "d1", false);
    let will = Some(("devices/d2/x", &b"w"[..], Qos::AtMostOnce, false));
    b.send(c, &client::Connect { id: "d1", will, ..Default::default() }.bytes());
    assert_eq!(got(&mut b, c), [P::Connack { present: false, code: 5 }]);
    assert!(closed(&mut b, c));
}
