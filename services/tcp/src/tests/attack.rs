//! Peers that lie: forged resets, SYNs, ACKs, floods, tiny segments, lies of the neighbours' tasks.

use crate::packet::*;
use crate::peer::*;
use crate::rig::{Rig, Sizes, config};
use crate::{Config, Event};
use ipc::link::frame;
use ipc::link::stream::{Down, Reason};
use ipc::ring::LinkFault;

fn rig() -> Rig {
    Rig::new(config(), Sizes::default())
}

fn closed(rig: &Rig) -> Vec<Reason> {
    rig.tls.streams.values().filter_map(|s| s.closed).collect()
}

#[test]
fn syn_flood_keeps_nothing() {
    let mut rig = rig();
    let mut answers = 0;
    for i in 0..20_000u32 {
        let mut peer = Peer { ip: 0x0a00_0100 + i % 1000, seq: i, ..Peer::new(1000 + (i % 50_000) as u16) };
        answers += peer.send(&mut rig, SYN, &[]).len();
    }
    assert_eq!(answers, 20_000, "each is answered");
    assert_eq!((rig.service.connections(), rig.service.busy(), rig.tls.opened), (0, 0, 0));
    rig.assert_quiet();
    Peer::connected(&mut rig, 77);
    assert_eq!(rig.tls.live(), 1, "and a real one gets through");
}

#[test]
fn guessed_acks_open_nothing() {
    let mut rig = rig();
    for i in 0..20_000u32 {
        let peer = Peer { seq: i, ack: i.wrapping_mul(0x9e37_79b9), ..Peer::new(1000 + i as u16 % 1000) };
        peer.exchange(&mut rig, &[peer.frame(ACK, b"x")]);
    }
    assert_eq!(rig.tls.opened, 0);
}

/// RFC 5961 3: only a reset at exactly the next byte is believed.
#[test]
fn blind_reset() {
    let mut rig = rig();
    let mut peer = Peer::connected(&mut rig, 1);
    for offset in [1u32, 100, 60_000] {
        let got = peer.probe(&mut rig, |p| p.seq = p.seq.wrapping_add(offset), RST, &[]);
        assert_eq!(got.len(), 1, "a challenge");
        assert_eq!((got[0].flags, got[0].ack), (ACK, peer.seq));
    }
    for offset in [-1i32 as u32, 70_000, 1 << 31] {
        assert!(peer.probe(&mut rig, |p| p.seq = p.seq.wrapping_add(offset), RST, &[]).is_empty());
    }
    assert_eq!(closed(&rig), []);
    peer.send(&mut rig, RST, &[]);
    assert_eq!(closed(&rig), [Reason::Reset]);
    rig.assert_quiet();
}

/// RFC 5961 4: a SYN in a connection is asked about; a client that really started anew then resets, and comes back.
#[test]
fn syn_in_a_connection() {
    let mut rig = rig();
    let peer = Peer::connected(&mut rig, 1);
    let got = peer.probe(&mut rig, |p| p.seq = 7_000_000, SYN, &[]);
    assert_eq!((got[0].flags, got[0].ack), (ACK, peer.seq));
    assert_eq!(closed(&rig), []);
    peer.probe(&mut rig, |p| p.seq = got[0].ack, RST, &[]);
    assert_eq!(closed(&rig), [Reason::Reset]);
    let mut again = Peer { seq: 7_000_000, ..Peer::new(1) };
    again.connect(&mut rig);
    assert_eq!(rig.tls.live(), 1);
}

/// RFC 5961 5: an ACK of what was never sent, or of long ago, doesn't carry data in.
#[test]
fn blind_data() {
    let mut rig = rig();
    let peer = Peer::connected(&mut rig, 1);
    for offset in [1i32, 100_000, i32::MAX, -70_000, i32::MIN] {
        let got = peer.probe(&mut rig, |p| p.ack = p.ack.wrapping_add(offset as u32), ACK, b"evil");
        assert_eq!(got.len(), 1, "a challenge for {offset}");
    }
    peer.probe(&mut rig, |_| {}, 0, b"evil");
    assert!(rig.tls.streams.values().all(|s| s.received.is_empty()));
}

#[test]
fn challenges_are_bounded() {
    let mut rig = rig();
    let peer = Peer::connected(&mut rig, 1);
    let got: usize =
        (0..5000).map(|_| peer.probe(&mut rig, |p| p.seq = p.seq.wrapping_add(9), RST, &[]).len()).sum();
    assert!((500..=1500).contains(&got), "{got} challenges in a second");
}

#[test]
fn resets_for_strangers_are_bounded() {
    let mut rig = rig();
    let got: usize = (0..40_000u32)
        .map(|i| {
            let peer = Peer { ack: i << 8, ..Peer::new(i as u16 | 1) };
            peer.exchange(&mut rig, &[peer.frame(ACK, &[])]).len()
        })
        .sum();
    assert!((4_000..=15_500).contains(&got), "{got} resets in a second");
}

/// Frames of one byte each take a buffer each: there is a limit of its own.
#[test]
fn tiny_segments_do_not_eat_the_pool() {
    let mut rig = rig();
    rig.tls.prompt = false;
    let mut peer = Peer::connected(&mut rig, 1);
    for _ in 0..200 {
        peer.send(&mut rig, ACK, b"x");
    }
    let most = config().frames_per_connection + config().reorder_per_connection;
    assert_eq!(rig.frame.loans.held(), most as u32);
    rig.tls.read(1000);
    rig.settle();
    let lost = 200 - config().frames_per_connection as usize;
    let got = peer.probe(&mut rig, |p| p.seq = p.seq.wrapping_sub(lost as u32), ACK, &vec![b'x'; lost]);
    assert_eq!(got.last().unwrap().ack, peer.seq, "goes on where it stopped");
    rig.tls.read(1000);
    rig.settle();
    rig.assert_quiet();
}

#[test]
fn wild_reordering_is_bounded() {
    let mut rig = rig();
    let peers: Vec<_> = (0..50).map(|i| Peer::connected(&mut rig, 100 + i)).collect();
    for i in (1..60u32).rev() {
        for peer in &peers {
            peer.probe(&mut rig, |p| p.seq = p.seq.wrapping_add(i * 100), ACK, &[1; 100]);
        }
    }
    assert!(rig.frame.loans.held() <= Sizes::default().frames / 4, "{}", rig.frame.loans.held());
    assert!(rig.service.actives.slots().all(|(n, _)| rig.service.actives.row(n).held_count <= 16));
    for peer in &peers {
        peer.probe(&mut rig, |_| {}, RST, &[]);
    }
    assert_eq!(rig.tls.live(), 0);
    rig.assert_quiet();
}

/// What tls can't mean is a fault of its link; its connections are reset, and its next life works.
#[test]
fn lies_of_tls() {
    let lies: [fn(u32) -> Down; 9] = [
        |_| Down::Free { buf: 3 },
        |_| Down::Free { buf: u32::MAX },
        |conn| Down::Send { conn, buf: u32::MAX, len: 1 },
        |conn| Down::Send { conn, buf: 0, len: 2049 },
        |conn| Down::Send { conn, buf: 0, len: 0 },
        |conn| Down::Send { conn: conn ^ 1 << 20, buf: 0, len: 1 },
        |conn| Down::Released { conn },
        |conn| Down::Finish { conn: conn + 1 },
        |_| Down::Abort { conn: u32::MAX },
    ];
    for lie in lies {
        let mut rig = rig();
        let peer = Peer::connected(&mut rig, 1);
        let conn = *rig.tls.streams.keys().next().unwrap();
        rig.tls.end.send(&lie(conn));
        let got = peer.exchange(&mut rig, &[]);
        assert!(rig.stream.port.fault().is_some(), "{:?}", lie(conn));
        assert!(rig.events.iter().any(|e| matches!(e, Event::Fault { link: "stream", .. })));
        assert_eq!(got[0].flags, RST | ACK);
        assert!(Peer::new(2).send(&mut rig, SYN, &[]).is_empty(), "nobody can be served");
        rig.restart_tls();
        rig.settle();
        Peer::connected(&mut rig, 3);
        assert_eq!(rig.tls.live(), 1);
    }
}

#[test]
fn lies_of_the_nic() {
    let mac = [2, 0, 0, 0, 0, 1];
    let lies = [
        (frame::Up::Received { buf: u32::MAX, off: 0, len: 60, checked: true }, LinkFault::Buffer),
        (frame::Up::Received { buf: 0, off: 2000, len: 60, checked: true }, LinkFault::Buffer),
        (frame::Up::Received { buf: 0, off: 0, len: 2049, checked: false }, LinkFault::Buffer),
        (frame::Up::Sent { buf: 0 }, LinkFault::Buffer),
        (frame::Up::Hello { mac, max_frame: 1514 }, LinkFault::Message),
    ];
    for (lie, fault) in lies {
        let mut rig = rig();
        Peer::connected(&mut rig, 1);
        rig.nic.end.send(&lie);
        rig.drive();
        assert_eq!(rig.frame.port.fault(), Some(fault), "{lie:?}");
        rig.restart_nic();
        rig.settle();
        Peer::connected(&mut rig, 2);
        assert_eq!(rig.tls.live(), 2, "the connections stay");
    }
}

/// Each word of what the neighbours share with us, scribbled over: a fault or nothing.
#[test]
fn scribbled_rings() {
    for value in [0u32, 1, 0xffff, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff] {
        for side in 0..2 {
            let mut rig = Rig::new(
                Config { max_connections: 4, ..config() },
                Sizes { frames: 8, transmit: 16, ciphertext: 4 },
            );
            Peer::connected(&mut rig, 1);
            let half = if side == 0 { rig.memory.nic_half } else { rig.memory.tls_half };
            half.scribble(|word, at| {
                if at % 4096 >= 64 || at >= 4096 {
                    *word = value ^ at as u32;
                }
            });
            for _ in 0..4 {
                rig.now += 1_000_000_000;
                rig.service.drive(rig.now, &mut rig.frame, &mut rig.stream);
            }
        }
    }
}
