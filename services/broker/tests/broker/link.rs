//! The link: restart of tls, and a tls that breaks the rules.

use super::*;
use ipc::link::stream::{IdentityRef, Reason, SLOT_BITS, Up};
use ipc::ring::LinkFault;

#[test]
fn sessions_survive_a_restart_of_tls() {
    let mut b = bench();
    let (c, _) = returning(&mut b, 0, "d1");
    subscribe(&mut b, c, &[("devices/d1/x", 1)]);
    let o = operator(&mut b, 1, "op");
    retain(&mut b, o, "devices/d1/r", "kept", 1, 1);
    b.congest(c, true);
    b.run();
    publish(&mut b, o, "devices/d1/x", "waits", 1, 2);
    b.restart_tls();
    assert_eq!((b.service.stats().connected, b.link.own.lent()), (0, 0));
    let (c, present) = returning(&mut b, 0, "d1");
    assert!(present);
    assert_eq!(texts(&mut b, c), ["waits"]);
    subscribe(&mut b, c, &[("devices/d1/r", 0)]);
    assert_eq!(texts(&mut b, c), ["kept"]);
    assert!(b.events().iter().any(|e| e == "link to tls lost with 2 connections"));
}

/// What the link is blamed for when tls sends `message` beside a good connection.
fn blamed(message: impl Fn(Conn) -> Up<IdentityRef>) -> Option<LinkFault> {
    let mut b = bench();
    let c = device(&mut b, 0, "d1");
    assert!(b.tls.send(&message(c)));
    b.run();
    let fault = b.link.port.fault();
    assert_eq!(b.service.stats().connected, fault.is_none() as u32, "a faulted link has no connections");
    // A new life of tls is served again.
    b.restart_tls();
    device(&mut b, 0, "d1");
    fault
}

#[test]
fn lies_of_tls_are_link_faults() {
    let unknown = 7 | 3 << SLOT_BITS;
    assert_eq!(blamed(|_| Up::Sent { buf: 0 }), Some(LinkFault::Buffer), "never lent");
    assert_eq!(blamed(|_| Up::Sent { buf: 9999 }), Some(LinkFault::Buffer));
    assert_eq!(blamed(|_| Up::Data { conn: unknown, buf: 0, off: 0, len: 1 }), Some(LinkFault::Reference));
    assert_eq!(blamed(|c| Up::Data { conn: c, buf: 9999, off: 0, len: 1 }), Some(LinkFault::Buffer));
    assert_eq!(blamed(|c| Up::Data { conn: c, buf: 0, off: 2000, len: 100 }), Some(LinkFault::Buffer));
    assert_eq!(blamed(|c| Up::Data { conn: c, buf: 0, off: 0, len: 4000 }), Some(LinkFault::Buffer));
    assert_eq!(blamed(|_| Up::Finished { conn: unknown }), Some(LinkFault::Reference));
    assert_eq!(blamed(|_| Up::Closed { conn: unknown, reason: Reason::Reset }), Some(LinkFault::Reference));
    assert_eq!(blamed(|_| Up::Congested { conn: unknown }), Some(LinkFault::Reference));
    assert_eq!(
        blamed(|c| Up::Opened { conn: c, opening: IdentityRef { buf: 9999 } }),
        Some(LinkFault::Buffer)
    );
    // An identity without a name.
    assert_eq!(
        blamed(|_| Up::Opened { conn: unknown, opening: IdentityRef { buf: 63 } }),
        Some(LinkFault::Message)
    );
    assert_eq!(blamed(|c| Up::Drained { conn: c }), None);
}

#[test]
fn a_slot_is_used_once_at_a_time_and_its_number_is_checked() {
    let mut b = bench();
    let c = device(&mut b, 0, "d1");
    let successor = c + (1 << SLOT_BITS);
    assert!(b.tls.send(&Up::Finished { conn: successor }));
    b.run();
    assert_eq!(b.link.port.fault(), Some(LinkFault::Reference));
    let mut b = bench();
    device(&mut b, 0, "d1");
    b.open(0, "d2", false);
    b.run();
    assert_eq!(b.link.port.fault(), Some(LinkFault::Reference));
}

#[test]
fn a_connection_that_does_not_end_is_aborted() {
    let mut b = bench();
    let c = device(&mut b, 0, "d1");
    b.peer(c).holds_end = true;
    b.send(c, &client::DISCONNECT);
    b.run_for(4000);
    assert!(b.peer(c).finished && !b.peer(c).aborted);
    b.run_for(2000);
    assert!(b.peer(c).aborted);
    // What still comes meanwhile is ignored.
    b.send(c, &client::PINGREQ);
    b.run();
    b.lose(c, Reason::Aborted);
    b.run();
    assert!(b.peer(c).released && b.link.is_up());
    device(&mut b, 0, "d1");
}

#[test]
fn half_closed_connections_are_ended() {
    let mut b = bench();
    let c = device(&mut b, 0, "d1");
    assert!(b.tls.send(&Up::Finished { conn: c }));
    assert!(closed(&mut b, c));
    assert_eq!(b.service.stats().connected, 0);
}
