//! S-cases, and what operators read (Y-).

use super::*;

fn suback(filters: &[(&str, u8)], codes: &[u8]) {
    let mut b = bench();
    let c = device(&mut b, 0, "d1");
    b.send(c, &client::subscribe(5, filters));
    assert_eq!(got(&mut b, c), [P::Suback(5, codes.to_vec())], "{filters:?}");
}

#[test]
fn one_suback_answers_all_filters_in_order() {
    suback(
        &[("devices/d1/a", 2), ("devices/d1/b", 0), ("devices/d1/c", 1), ("devices/d1/d", 2)],
        &[2, 0, 1, 2],
    );
}

#[test]
fn malformed_subscribes_are_refused() {
    let good = client::subscribe(1, &[("devices/d1/a", 0)]);
    refused(&[&[0x80], &good[1..]].concat());
    refused(b"\x82\x02\0\x01");
    for options in [3, 0x04, 0x80] {
        refused(&client::subscribe(1, &[("devices/d1/a", options)]));
    }
    refused(&client::packet(0x82, &good[2..good.len() - 1]));
    refused(&client::subscribe(0, &[("devices/d1/a", 0)]));
    let good = client::unsubscribe(1, &["devices/d1/a"]);
    refused(&[&[0xa0], &good[1..]].concat());
    refused(b"\xa2\x02\0\x01");
    refused(&client::unsubscribe(0, &["devices/d1/a"]));
}

#[test]
fn invalid_and_foreign_filters_are_not_granted() {
    for tail in ["a#", "#/b", "a+/b", "+b", "##"] {
        suback(&[(&format!("devices/d1/{tail}"), 0)], &[0x80]);
    }
    suback(
        &[("#", 0), ("+/+/t/#", 0), ("devices/d2/#", 1), ("devices/+/t/#", 1), ("$SYS/#", 0), ("", 0)],
        &[0x80; 6],
    );
}

#[test]
fn nothing_foreign_reaches_a_device() {
    let mut b = bench();
    let (c, z) = (device(&mut b, 0, "d1"), device(&mut b, 1, "d2"));
    b.send(c, &client::subscribe(1, &[("devices/d2/#", 1), ("devices/+/t/#", 1), ("#", 0)]));
    got(&mut b, c);
    publish(&mut b, z, "devices/d2/t/x", "secret", 1, 1);
    assert_eq!(got(&mut b, c), [], "S-17, S-18");
}

#[test]
fn unsubscribe_takes_the_exact_filter_only() {
    let mut b = bench();
    let c = device(&mut b, 0, "d1");
    subscribe(&mut b, c, &[("devices/d1/b", 0)]);
    for (filter, want) in
        [("devices/d1/+", 1), ("devices/d1/none", 1), ("devices/d1/b", 0), ("devices/d1/#/x", 0)]
    {
        b.send(c, &client::unsubscribe(9, &[filter]));
        assert_eq!(got(&mut b, c), [P::Ack(kind::UNSUBACK, 9)], "S-15");
        publish(&mut b, c, "devices/d1/b", "x", 1, 1);
        assert_eq!(messages(&mut b, c).len(), want, "S-15: {filter}");
    }
}

#[test]
fn overlapping_subscriptions_deliver_once_at_the_highest_qos() {
    let mut b = bench();
    let o = operator(&mut b, 0, "op");
    subscribe(&mut b, o, &[("devices/#", 0), ("devices/+/x", 1), ("devices/d1/x", 0)]);
    let d = device(&mut b, 1, "d1");
    publish(&mut b, d, "devices/d1/x", "m", 1, 1);
    assert_eq!(messages(&mut b, o).iter().map(|m| m.qos).collect::<Vec<_>>(), [1]);
}

#[test]
fn operators_read_the_servers_figures_and_wildcards_do_not() {
    let mut b = Bench::new(Config::default());
    let (o, d) = (operator(&mut b, 0, "op"), device(&mut b, 1, "d1"));
    subscribe(&mut b, o, &[("$SYS/#", 0)]);
    let figures = messages(&mut b, o);
    assert!(figures.iter().any(|m| m.topic == "$SYS/broker/version" && m.retain), "Y-02");
    b.run_for(10_000);
    let figures = messages(&mut b, o);
    let connected =
        figures.iter().find(|m| m.topic == "$SYS/broker/clients/connected").expect("the next round");
    assert_eq!((connected.text(), connected.retain), ("2", false));
    b.send(d, &client::subscribe(1, &[("$SYS/#", 0)]));
    assert_eq!(got(&mut b, d), [P::Suback(1, vec![0x80])]);
    let all = operator(&mut b, 2, "all");
    subscribe(&mut b, all, &[("#", 0), ("+/+/+", 0)]);
    b.run_for(20_000);
    assert_eq!(got(&mut b, all), [], "Y-02: # doesn't match $SYS");
}
