//! Neighbours that restart, lie, or cross our messages with theirs.

mod common;

use common::certs::{Certs, device};
use common::{BROKER, Bench, Clients, TCP, fresh, write};
use ipc::link::stream::{Down, PeerAddress, Reason, Up};
use ipc::ring::{Change, LinkFault};
use std::collections::BTreeMap;

/// What a restarted task's own end does: forgets, and polls until the link is up.
fn reconnect(bench: &mut Bench) {
    for _ in 0..4 {
        bench.tcp.poll(true);
        bench.broker.poll(true);
        bench.service.drive(bench.now, bench.wall, &mut bench.stream, &mut bench.session);
        let _ = (bench.stream.flush(), bench.session.flush());
    }
    assert!(bench.tcp.is_up() && bench.broker.is_up());
}

/// The new life of a task whose end the bench keeps: its private state starts from nothing.
fn forget_broker(bench: &mut Bench) {
    bench.broker.own.reclaim_all();
    bench.broker.loans.forget_all();
    bench.held_above.clear();
    bench.outbox.clear();
    bench.clients = BTreeMap::new();
}

fn forget_tcp(bench: &mut Bench) {
    bench.tcp.own.reclaim_all();
    bench.tcp.loans.forget_all();
    bench.held_below.clear();
    bench.wires = BTreeMap::new();
}

#[test]
fn a_broker_that_restarts_finds_no_old_connection() {
    let certs = Certs::new();
    let party = certs.issue(device("d"));
    let mut bench = fresh(&certs);
    let mut a = bench.connect(1, certs.client(Some(&party), &[]));
    bench.connect(2, certs.client(Some(&party), &[]));
    bench.open(3);
    // Buffers are out in all directions when it happens.
    bench.broker_holds = true;
    bench.tcp_holds = true;
    let out = write(&mut a, &[1; 3000]);
    bench.receive(1, &out);
    bench.tcp.send(&Up::Congested { conn: 2 });
    let _ = bench.tcp.flush();
    bench.settle();
    bench.send(2, &[2; 3000]);
    bench.settle();
    assert!(bench.session.loans.held() > 0 && bench.session.own.lent() > 0);
    bench.kernel.restart(BROKER);
    forget_broker(&mut bench);
    bench.settle();
    assert!(bench.wires[&1].finished && bench.wires[&2].finished && bench.wires[&3].aborted);
    let error = bench.pump(1, &mut a);
    assert!(error.is_ok() && a.process_new_packets().unwrap().peer_has_closed(), "closed in order");
    bench.tcp_holds = false;
    bench.broker_holds = false;
    bench.close(1, Reason::Finished);
    bench.close(2, Reason::Finished);
    bench.settle();
    // The bench's broker end is the old life's; a new one starts from nothing, as here by way of its epoch.
    assert_eq!(bench.service.connections(), 0);
}

#[test]
fn a_tcp_that_restarts_takes_its_connections_along() {
    let certs = Certs::new();
    let party = certs.issue(device("d"));
    let mut bench = fresh(&certs);
    let mut a = bench.connect(1, certs.client(Some(&party), &[]));
    bench.connect(2, certs.client(Some(&party), &[]));
    bench.open(3);
    bench.broker_holds = true;
    let out = write(&mut a, &[1; 3000]);
    bench.receive(1, &out[..2000]);
    bench.settle();
    bench.broker_releases = false;
    bench.kernel.restart(TCP);
    forget_tcp(&mut bench);
    bench.settle();
    assert_eq!(bench.clients[&1].closed, Some(Reason::Restart));
    assert_eq!(bench.clients[&2].closed, Some(Reason::Restart));
    assert_eq!(bench.service.connections(), 2, "until the broker has released them");
    assert!(!bench.stream.is_up());
    assert_eq!(bench.session.port.fault(), None);
    bench.broker_holds = false;
    bench.tell(Down::Released { conn: 1 });
    bench.tell(Down::Released { conn: 2 });
    bench.settle();
    assert_eq!(bench.service.connections(), 0);
    assert_eq!((bench.session.own.lent(), bench.stream.own.lent()), (0, 0));
}

#[test]
fn both_links_come_up_again() {
    let certs = Certs::new();
    let party = certs.issue(device("d"));
    let mut bench = fresh(&certs);
    bench.connect(1, certs.client(Some(&party), &[]));
    // The tls task itself restarts: for the neighbours it is the one that changes its epoch.
    bench.kernel.restart(common::TLS);
    assert_eq!(bench.tcp.poll(true), Change::Down);
    assert_eq!(bench.broker.poll(true), Change::Down);
    let mut other = fresh(&certs);
    reconnect(&mut other);
    other.connect(1, certs.client(Some(&party), &[]));
}

#[test]
fn messages_that_cross_a_close_are_ignored_and_their_buffers_returned() {
    let certs = Certs::new();
    let mut bench = fresh(&certs);
    bench.connect(1, certs.client(Some(&certs.issue(device("d"))), &[]));
    bench.broker_releases = false;
    bench.close(1, Reason::Reset);
    bench.send(1, &[1; 100]);
    bench.tell(Down::Pause { conn: 1 });
    bench.tell(Down::Finish { conn: 1 });
    bench.tell(Down::Abort { conn: 1 });
    bench.settle();
    assert_eq!(bench.clients[&1].closed, Some(Reason::Reset));
    assert_eq!(bench.broker.own.lent(), 0);
    assert!(!bench.wires[&1].released, "not before the broker has released it");
    bench.tell(Down::Released { conn: 1 });
    bench.assert_clean();
    // The number may be used again, in its next generation.
    bench.broker_releases = true;
    bench.connect(1 | 1 << 20, certs.client(Some(&certs.issue(device("d"))), &[]));
}

#[test]
fn a_brokers_abort_resets() {
    let certs = Certs::new();
    let mut bench = fresh(&certs);
    bench.connect(1, certs.client(Some(&certs.issue(device("d"))), &[]));
    bench.tell(Down::Abort { conn: 1 });
    bench.settle();
    assert!(bench.wires[&1].aborted);
    assert_eq!(bench.clients[&1].closed, Some(Reason::Aborted));
    bench.assert_clean();
}

/// Every lie of tcp's is a fault of its link, and what it had opened is closed above.
#[test]
fn tcp_may_not_lie() {
    let certs = Certs::new();
    let opening = PeerAddress { ip: [1; 4], port: 1 };
    let lies: [(Up<PeerAddress>, LinkFault); 9] = [
        (Up::Opened { conn: 1, opening }, LinkFault::Reference),
        (Up::Opened { conn: 64, opening }, LinkFault::Reference),
        (Up::Data { conn: 9, buf: 0, off: 0, len: 1 }, LinkFault::Reference),
        (Up::Data { conn: 1, buf: 64, off: 0, len: 1 }, LinkFault::Buffer),
        (Up::Data { conn: 1, buf: 0, off: 2040, len: 9 }, LinkFault::Buffer),
        (Up::Sent { buf: 3 }, LinkFault::Buffer),
        (Up::Closed { conn: 1 | 1 << 20, reason: Reason::Reset }, LinkFault::Reference),
        (Up::Finished { conn: 2 }, LinkFault::Reference),
        (Up::Congested { conn: u32::MAX }, LinkFault::Reference),
    ];
    for (lie, fault) in lies {
        let mut bench = fresh(&certs);
        bench.connect(1, certs.client(Some(&certs.issue(device("d"))), &[]));
        bench.tcp.send(&lie);
        let _ = bench.tcp.flush();
        bench.settle();
        assert_eq!(bench.stream.port.fault(), Some(fault), "{lie:?}");
        assert_eq!(bench.clients[&1].closed, Some(Reason::Restart), "{lie:?}");
        assert_eq!(bench.service.connections(), 0);
        assert_eq!(bench.session.port.fault(), None);
    }
}

#[test]
fn the_broker_may_not_lie() {
    let certs = Certs::new();
    let lies = [
        (Down::Free { buf: 1 }, LinkFault::Buffer),
        (Down::Free { buf: 1000 }, LinkFault::Buffer),
        (Down::Send { conn: 1, buf: 64, len: 1 }, LinkFault::Buffer),
        (Down::Send { conn: 1, buf: 0, len: 2027 }, LinkFault::Buffer),
        (Down::Released { conn: 1 }, LinkFault::Reference),
        (Down::Released { conn: 5 }, LinkFault::Reference),
    ];
    for (lie, fault) in lies {
        let mut bench = fresh(&certs);
        bench.connect(1, certs.client(Some(&certs.issue(device("d"))), &[]));
        bench.tell(lie);
        bench.settle();
        assert_eq!(bench.session.port.fault(), Some(fault), "{lie:?}");
        assert!(bench.wires[&1].finished, "{lie:?}");
        assert_eq!(bench.stream.port.fault(), None);
    }
}
