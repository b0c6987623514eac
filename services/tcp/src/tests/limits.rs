//! Every bound, reached.

use super::wire::*;
use crate::Config;
use crate::packet::*;
use crate::peer::*;
use crate::rig::{Rig, Sizes, config};
use ipc::link::stream::Reason;

fn rig(change: impl FnOnce(&mut Config)) -> Rig {
    let mut config = config();
    change(&mut config);
    Rig::new(config, Sizes::default())
}

fn closed(rig: &Rig) -> Vec<Reason> {
    rig.tls.streams.values().filter_map(|s| s.closed).collect()
}

#[test]
fn full_table() {
    let mut rig = rig(|c| c.max_connections = 3);
    let mut peers: Vec<_> = (0..3).map(|i| Peer::connected(&mut rig, 10 + i)).collect();
    assert!(Peer::new(20).send(&mut rig, SYN, &[]).is_empty(), "not answered");
    assert_eq!(rig.service.counters.refused, 1);
    // As long as tls hasn't released the number, the place isn't free.
    rig.tls.releases = false;
    peers[0].send(&mut rig, RST, &[]);
    assert!(Peer::new(20).send(&mut rig, SYN, &[]).is_empty());
    let conn = *rig.tls.streams.iter().find(|(_, s)| s.closed.is_some()).unwrap().0;
    rig.tls.end.send(&ipc::link::stream::Down::Released { conn });
    rig.settle();
    Peer::connected(&mut rig, 20);
    assert_eq!(rig.tls.live(), 3);
    assert!(rig.tls.streams[&conn].closed.is_some(), "another number for the same place");
}

/// More SYNs answered than there are places: who comes late gets a reset.
#[test]
fn full_between_syn_and_ack() {
    let mut rig = rig(|c| c.max_connections = 1);
    let (mut a, mut b) = (Peer::new(1), Peer::new(2));
    for peer in [&mut a, &mut b] {
        peer.ack = peer.send(&mut rig, SYN, &[])[0].seq.wrapping_add(1);
    }
    assert!(a.send(&mut rig, ACK, &[]).is_empty());
    assert_eq!(b.send(&mut rig, ACK, &[])[0].flags, RST);
    assert_eq!(rig.tls.live(), 1);
}

#[test]
fn idle_connections_have_no_timer() {
    let mut rig = rig(|_| {});
    rig.tls.echo = true;
    for i in 0..100 {
        let mut peer = Peer::connected(&mut rig, 100 + i);
        let got = peer.send(&mut rig, ACK, b"ping");
        assert_eq!(got.last().unwrap().len, 4);
        peer.ack = peer.ack.wrapping_add(4);
        peer.send(&mut rig, ACK, &[]);
    }
    assert_eq!(rig.service.busy(), 0);
    assert_eq!(rig.deadline, ipc::abi::NEVER);
}

#[test]
fn silent_peer_is_given_up() {
    let mut rig = rig(|c| c.retries = 4);
    let mut peer = Peer::connected(&mut rig, 1);
    peer.send(&mut rig, ACK, b"x");
    rig.tls.streams.values_mut().for_each(|s| s.to_send.extend([1; 100]));
    rig.settle();
    let got = pass(&mut rig, 100);
    let data: Vec<_> = got.iter().filter(|g| g.len == 100).collect();
    assert_eq!(data.len(), 1 + 4, "retransmissions");
    assert_eq!(got.last().unwrap().flags, RST | ACK);
    assert_eq!(closed(&rig), [Reason::Timeout]);
    rig.assert_quiet();
}

#[test]
fn peer_that_never_finishes() {
    let mut rig = rig(|c| c.finish_timeout_s = 5);
    let mut peer = Peer::connected(&mut rig, 1);
    rig.tls.streams.values_mut().for_each(|s| s.finish = true);
    let fin = peer.exchange(&mut rig, &[])[0];
    assert_eq!(fin.flags, FIN | ACK);
    peer.ack = fin.seq.wrapping_add(1);
    peer.send(&mut rig, ACK, &[]);
    pass(&mut rig, 4);
    assert_eq!(closed(&rig), []);
    pass(&mut rig, 2);
    assert_eq!(closed(&rig), [Reason::Timeout]);
    rig.assert_quiet();
}

/// A window that stays shut is probed, and not for ever; one that opens goes on at once.
#[test]
fn shut_window() {
    for opens in [true, false] {
        let mut rig = rig(|c| c.stall_timeout_s = 60);
        let mut peer = Peer { window: 0, ..Peer::new(1) };
        peer.connect(&mut rig);
        rig.tls.streams.values_mut().for_each(|s| s.to_send.extend([1; 3000]));
        assert!(peer.exchange(&mut rig, &[]).iter().all(|g| g.len == 0));
        let probes = pass(&mut rig, 20);
        assert!((3..8).contains(&probes.len()), "{} probes", probes.len());
        assert!(probes.iter().all(|g| g.len == 0 && g.seq == peer.ack.wrapping_sub(1)));
        if opens {
            peer.window = 2000;
            let got = peer.send(&mut rig, ACK, &[]);
            assert_eq!(
                got.iter().map(|g| g.len).sum::<usize>(),
                536 * 3,
                "as much as fits in whole segments"
            );
        } else {
            pass(&mut rig, 120);
            assert_eq!(closed(&rig), [Reason::Timeout]);
            rig.assert_quiet();
        }
    }
}

/// tls doesn't read: the window closes, the peer's probes are answered, and it opens again.
#[test]
fn our_window_shuts_and_opens() {
    let mut rig = rig(|c| c.window = 4096);
    rig.tls.prompt = false;
    let mut peer = Peer::connected(&mut rig, 1);
    let mut last = Vec::new();
    for _ in 0..4 {
        last = peer.send(&mut rig, ACK, &[5; 1024]);
    }
    assert_eq!(last.last().map(|g| g.window), Some(0));
    let probe = peer.probe(&mut rig, |_| {}, ACK, b"p");
    assert_eq!((probe[0].ack, probe[0].window), (peer.seq, 0), "the byte is refused");
    rig.tls.read(1);
    assert!(peer.exchange(&mut rig, &[]).is_empty(), "not for a silly window");
    rig.tls.read(3);
    rig.drive();
    let update = peer.exchange(&mut rig, &[]);
    assert_eq!((update.len(), update[0].window), (1, 4096));
    rig.assert_quiet();
}

#[test]
fn pause_and_resume() {
    use ipc::link::stream::Down;
    let mut rig = rig(|c| c.window = 4096);
    let mut peer = Peer::connected(&mut rig, 1);
    let conn = *rig.tls.streams.keys().next().unwrap();
    rig.tls.end.send(&Down::Pause { conn });
    rig.settle();
    let mut windows = Vec::new();
    for _ in 0..4 {
        windows.extend(peer.send(&mut rig, ACK, &[5; 1024]).iter().map(|g| g.window));
    }
    assert_eq!(windows, [3072, 2048, 1024, 0], "what was offered is taken");
    rig.tls.end.send(&Down::Resume { conn });
    rig.tls.work();
    assert_eq!(peer.exchange(&mut rig, &[])[0].window, 4096);
}

#[test]
fn congested_and_drained() {
    let mut rig = rig(|c| (c.congested, c.drained) = (8000, 4000));
    let mut peer = Peer { options: &[2, 4, 5, 180], ..Peer::new(1) };
    peer.connect(&mut rig);
    rig.tls.streams.values_mut().for_each(|s| s.to_send.extend([1; 10_000]));
    let mut got: usize = peer.exchange(&mut rig, &[]).iter().map(|g| g.len).sum();
    rig.tls.work();
    rig.tls.streams.values_mut().for_each(|s| s.to_send.extend([1; 20_000]));
    rig.tls.work();
    let stream = |rig: &Rig| rig.tls.streams.values().map(|s| (s.congested, s.to_send.len())).next().unwrap();
    assert!(stream(&rig).0);
    assert_eq!(stream(&rig).1, 20_000, "held back");
    let start = peer.ack;
    while got < 30_000 {
        peer.ack = start.wrapping_add(got as u32);
        got += peer.send(&mut rig, ACK, &[]).iter().map(|g| g.len).sum::<usize>();
        got += peer.exchange(&mut rig, &[]).iter().map(|g| g.len).sum::<usize>();
    }
    assert_eq!(got, 30_000);
    assert!(stream(&rig).1 == 0);
}

/// More busy connections than there may be: they are reset, idle ones stay.
#[test]
fn too_many_busy() {
    let mut rig = rig(|c| c.max_active = 2);
    let peers: Vec<_> = (0..4).map(|i| Peer::connected(&mut rig, 10 + i)).collect();
    for stream in rig.tls.streams.values_mut().take(3) {
        stream.to_send.extend([1; 10]);
    }
    rig.exchange(&[]);
    rig.settle();
    assert_eq!(closed(&rig), [Reason::Aborted]);
    assert_eq!((rig.service.busy(), rig.tls.live()), (2, 3));
    drop(peers);
}

/// tls and nic give no buffers back: the service stops asking, and goes on when they do.
#[test]
fn no_transmit_buffers() {
    let mut rig = Rig::new(config(), Sizes { transmit: 12, ..Sizes::default() });
    let mut peer = Peer::connected(&mut rig, 1);
    rig.tls.streams.values_mut().for_each(|s| s.to_send.extend(pattern(9000, 1)));
    rig.tls.work();
    // The nic doesn't collect: nothing but the reserve is left.
    rig.drive();
    assert_eq!(rig.frame.own.available(), 8);
    let mut got = 0;
    for _ in 0..20 {
        let more: usize = peer.send(&mut rig, ACK, &[]).iter().map(|g| g.len).sum();
        peer.ack = peer.ack.wrapping_add(more as u32);
        got += more;
    }
    assert_eq!(got, 9000);
    rig.settle();
    rig.assert_quiet();
}

/// Every second segment is acknowledged at once, a single one soon, and one that data answers not at all.
#[test]
fn acks_are_few() {
    let mut rig = rig(|_| {});
    let mut peer = Peer::connected(&mut rig, 1);
    let quick: usize = (0..16).map(|_| peer.send(&mut rig, ACK, b"x").len()).sum();
    assert_eq!(quick, 16, "at first, for the peer's slow start");
    let later: usize = (0..16).map(|_| peer.send(&mut rig, ACK, b"x").len()).sum();
    assert_eq!(later, 8);
    assert!(peer.send(&mut rig, ACK, b"x").is_empty());
    let waited = pass(&mut rig, 1);
    assert_eq!(waited.len(), 1);
    rig.tls.echo = true;
    let got = peer.send(&mut rig, ACK, b"x");
    assert_eq!((got.len(), got[0].len), (1, 1), "on the data");
    peer.ack = peer.ack.wrapping_add(1);
    peer.send(&mut rig, ACK, &[]);
    assert_eq!(pass(&mut rig, 1), []);
}

/// RFC 5681: fast retransmit, without waiting for the timer.
#[test]
fn third_duplicate_ack() {
    let mut rig = rig(|_| {});
    let mut peer = Peer::connected(&mut rig, 1);
    rig.tls.streams.values_mut().for_each(|s| s.to_send.extend([1; 3000]));
    let sent = peer.exchange(&mut rig, &[]);
    assert_eq!(sent.len(), 6);
    let again: Vec<_> = (0..3).flat_map(|_| peer.send(&mut rig, ACK, &[])).collect();
    assert_eq!(again.iter().map(|g| (g.seq, g.len)).collect::<Vec<_>>(), [(peer.ack, 536)]);
    peer.ack = peer.ack.wrapping_add(3000);
    peer.send(&mut rig, ACK, &[]);
    rig.assert_quiet();
    assert_eq!(rig.service.busy(), 0);
}

#[test]
fn delayed_acks_overflow_into_quick_ones() {
    let sizes = Sizes { frames: 2048, transmit: 2048, ..Sizes::default() };
    let mut rig = Rig::new(Config { max_connections: 1100, ..config() }, sizes);
    let mut peers: Vec<_> = (0..1100).map(|i| Peer::connected(&mut rig, 2000 + i)).collect();
    let mut round = || {
        let frames: Vec<_> = peers.iter().map(|p| p.frame(ACK, b"x")).collect();
        peers.iter_mut().for_each(|p| p.seq += 1);
        rig.exchange(&frames).len()
    };
    assert_eq!((0..16).map(|_| round()).sum::<usize>(), 16 * 1100);
    assert_eq!(round(), 1100 - crate::service::MAX_DELAYED);
    assert_eq!(pass(&mut rig, 1).len(), crate::service::MAX_DELAYED);
}

/// The peer counts duplicate ACKs, so segments that come out of order in one batch get one each.
#[test]
fn duplicate_acks_are_not_merged() {
    let mut rig = rig(|_| {});
    let mut peer = Peer::connected(&mut rig, 1);
    let mut frames = Vec::new();
    for i in 1..6 {
        let ahead = Peer { seq: peer.seq.wrapping_add(i * 100), ..peer };
        frames.push(ahead.frame(ACK, &[1; 100]));
    }
    let got = peer.exchange(&mut rig, &frames);
    assert_eq!(got.len(), 3);
    assert!(got.iter().all(|g| (g.ack, g.window, g.flags) == (peer.seq, got[0].window, ACK)));
    let got = peer.send(&mut rig, ACK, &[1; 100]);
    assert_eq!(got.iter().map(|g| g.ack).collect::<Vec<_>>(), [peer.seq.wrapping_add(500)]);
}
