//! Timers.

use super::*;

#[test]
fn keep_alive_is_one_and_a_half_times_what_the_client_said() {
    let mut b = bench();
    let c = b.connect(0, "d1", false, client::Connect { id: "d1", keep_alive: 2, ..Default::default() });
    for _ in 0..6 {
        b.run_for(1900);
        b.send(c, &client::PINGREQ);
        assert_eq!(got(&mut b, c), [P::Pingresp], "K-02");
    }
    b.run_for(2900);
    assert!(!b.peer(c).finished, "K-02: too early");
    b.run_for(900);
    assert!(closed(&mut b, c), "K-02: too late");
}

#[test]
fn without_keep_alive_a_silent_client_stays() {
    let mut b = bench();
    let c = b.connect(0, "d1", false, client::Connect { id: "d1", keep_alive: 0, ..Default::default() });
    b.now_ns += 3_600_000_000_000 * 24;
    b.send(c, &client::PINGREQ);
    assert_eq!(got(&mut b, c), [P::Pingresp]);
}

#[test]
fn connect_must_come_in_time() {
    let mut b = bench();
    let (silent, slow) = (b.open(0, "d1", false), b.open(1, "d2", false));
    let connect = client::Connect { id: "d2", ..Default::default() }.bytes();
    for byte in connect.into_iter().take(12) {
        b.send(slow, &[byte]);
        b.run_for(1000);
    }
    assert!(closed(&mut b, silent) && closed(&mut b, slow));
}

#[test]
fn a_packet_must_become_whole_in_time() {
    let mut b = bench();
    let c = device(&mut b, 0, "d1");
    let packet = client::publish("devices/d1/x", &[7; 1000], Qos::AtMostOnce, 0, false, false);
    for byte in &packet[..62] {
        b.send(c, &[*byte]);
        b.run_for(1000);
    }
    assert!(closed(&mut b, c));
}

#[test]
fn three_pings_are_three_answers() {
    let mut b = bench();
    let c = device(&mut b, 0, "d1");
    b.send(c, &[0xc0, 0, 0xc0, 0, 0xc0, 0]);
    assert_eq!(got(&mut b, c), [P::Pingresp, P::Pingresp, P::Pingresp], "K-01");
}

#[test]
fn sessions_expire() {
    let mut b = Bench::new(Config { session_expiry_s: 100, sys_interval_s: 0, ..Config::default() });
    for wait in [90_000, 110_000] {
        let (c, _) = returning(&mut b, 0, "d1");
        b.send(c, &client::DISCONNECT);
        assert!(closed(&mut b, c));
        b.now_ns += wait * 1_000_000;
        b.run();
        assert_eq!(returning(&mut b, 1, "d1").1, wait == 90_000);
        let (c, _) = returning(&mut b, 2, "d1");
        b.send(c, &client::DISCONNECT);
        assert!(closed(&mut b, c));
    }
}

#[test]
fn drive_says_when_it_wants_to_be_called() {
    let mut b = bench();
    let idle = b.service.drive(b.now_ns, &mut b.link);
    assert_eq!(idle, u64::MAX, "nothing to wait for");
    b.connect(0, "d1", false, client::Connect { id: "d1", keep_alive: 60, ..Default::default() });
    let deadline = b.service.drive(b.now_ns, &mut b.link);
    assert!((90..92).contains(&(deadline / 1_000_000_000)), "{deadline}");
}
