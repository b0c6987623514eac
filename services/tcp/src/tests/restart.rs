//! Lives of the neighbours: a new nic loses no byte, a new tls resets every connection, and our own new life resets those of
//! the earlier one.

use super::wire::*;
use crate::Event;
use crate::packet::*;
use crate::peer::*;
use crate::rig::{Rig, Sizes, config};

/// Echoes over a connection while the nic restarts again and again.
#[test]
fn nic_restarts_under_traffic() {
    for seed in 0..3 {
        let mut rig = Rig::new(config(), Sizes::default());
        rig.tls.echo = true;
        // Not everything comes back at once, so that frames of the earlier life are with tls.
        rig.tls.prompt = false;
        let mut net = Net::new(rig, Faults { delay: 800, loss: 5, jitter: 200, ..Faults::default() }, seed);
        let client = net.connect(30_000);
        let data = pattern(300_000, seed);
        let (mut sent, mut got, mut restarts) = (0, Vec::new(), 0);
        net.run(300, |net| {
            let socket = net.socket(client);
            if sent < data.len() && socket.can_send() {
                sent += socket.send_slice(&data[sent..]).unwrap();
            }
            while socket.can_recv() {
                socket.recv(|bytes| (bytes.len(), got.extend_from_slice(bytes))).unwrap();
            }
            assert!(data.starts_with(&got));
            let some = net.dice.roll(40) as usize;
            net.rig.tls.read(some);
            if got.len() > (restarts + 1) * 40_000 {
                restarts += 1;
                net.rig.restart_nic();
            }
            got.len() == data.len()
        });
        assert!(restarts >= 6);
        assert_eq!((net.rig.tls.live(), net.rig.tls.opened), (1, 1));
        net.rig.tls.prompt = true;
        net.rig.tls.read(1000);
        net.rest(2);
        net.rig.assert_quiet();
    }
}

/// Whoever reads the earlier life's frames is waited for, and then what was lost goes out without delay.
#[test]
fn nic_waits_for_frames_and_hurries_after() {
    let mut rig = Rig::new(config(), Sizes::default());
    rig.tls.prompt = false;
    let mut peer = Peer::connected(&mut rig, 1);
    peer.send(&mut rig, ACK, b"held by tls");
    peer.probe(&mut rig, |p| p.seq = p.seq.wrapping_add(50), ACK, b"out of order");
    rig.tls.streams.values_mut().for_each(|s| s.to_send.extend([1; 100]));
    rig.tls.work();
    rig.drive();
    rig.restart_nic();
    rig.settle();
    assert!(!rig.frame.is_up(), "a frame is still being read");
    assert_eq!(rig.frame.loans.held(), 1);
    pass(&mut rig, 300);
    assert_eq!(rig.tls.live(), 1, "the nic's absence isn't the peer's fault");
    rig.tls.read(1);
    rig.settle();
    assert!(rig.frame.is_up());
    let got = pass(&mut rig, 1);
    assert_eq!(got[0].len, 100, "{got:?}");
    assert_eq!(got[0].ack, peer.seq);
    peer.ack = peer.ack.wrapping_add(100);
    peer.send(&mut rig, ACK, &[]);
    rig.assert_quiet();
    assert_eq!(rig.events.iter().filter(|e| matches!(e, Event::NicUp)).count(), 2);
}

#[test]
fn tls_restart_resets_every_connection() {
    // Fewer transmit buffers than connections.
    let mut rig = Rig::new(config(), Sizes { transmit: 32, ..Sizes::default() });
    rig.tls.prompt = false;
    let mut peers: Vec<_> = (0..200).map(|i| Peer::connected(&mut rig, 1000 + i)).collect();
    for peer in peers.iter_mut().take(50) {
        peer.send(&mut rig, ACK, b"unread");
    }
    for stream in rig.tls.streams.values_mut().take(20) {
        stream.to_send.extend([1; 5000]);
    }
    rig.tls.work();
    rig.drive();
    rig.restart_tls();
    let mut resets = 0;
    for _ in 0..20 {
        let out = rig.exchange(&[]);
        resets += out.iter().filter_map(|f| read(f)).filter(|g| g.flags & RST != 0).count();
    }
    assert_eq!((resets, rig.service.connections(), rig.service.busy()), (200, 0, 0));
    rig.assert_quiet();
    assert!(rig.events.contains(&Event::Reset { connections: 200 }));
    Peer::connected(&mut rig, 7);
    assert_eq!(rig.tls.live(), 1);
    rig.assert_quiet();
}

/// Clients of real stacks notice at once, and the next connect works.
#[test]
fn clients_see_the_reset() {
    let mut rig = Rig::new(config(), Sizes::default());
    rig.tls.echo = true;
    let mut net = Net::new(rig, Faults { delay: 500, ..Faults::default() }, 1);
    let clients: Vec<_> = (0..10).map(|_| net.connect(4000)).collect();
    net.run(5, |net| net.rig.tls.live() == 10);
    net.rig.restart_tls();
    net.run(1, |net| clients.iter().all(|c| !net.sockets.get::<smoltcp::socket::tcp::Socket>(*c).is_open()));
    net.connect(4000);
    net.run(5, |net| net.rig.tls.live() == 1);
}

#[test]
fn new_life_resets_connections_of_the_earlier_one() {
    let mut rig = Rig::new(config(), Sizes::default());
    let mut peer = Peer::connected(&mut rig, 1);
    let mut next = Rig::new(config(), Sizes::default());
    next.service = crate::Service::new(config(), 512, 256, &[43; 32]);
    let mut other = Rig::new(config(), Sizes::default());
    core::mem::swap(&mut other.service, &mut next.service);
    // The service of another seed doesn't know the nic yet.
    other.restart_nic();
    other.settle();
    let got = peer.send(&mut other, ACK, b"hello?");
    assert_eq!((got.len(), got[0].flags, got[0].seq), (1, RST, peer.ack));
}

/// The ready line: once, when address and both links are there.
#[test]
fn ready_is_said_once() {
    let mut rig = Rig::new(config(), Sizes::default());
    rig.restart_tls();
    rig.settle();
    rig.restart_nic();
    rig.settle();
    let ready: Vec<_> = rig.events.iter().filter(|e| matches!(e, Event::Ready { .. })).collect();
    assert_eq!(ready.len(), 1);
    assert_eq!(ready[0].to_string(), "urmqtt: ready, 10.0.0.1:8883");
}
