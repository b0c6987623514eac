//! Established connections: rustls as the client, every suite, both directions, through real rings.

mod common;

use common::certs::{Certs, device};
use common::{Bench, Clients, Pools, config, fresh, small_limits, write};
use ipc::link::stream::{Down, ROLE_DEVICE, Reason, Up};
use rustls::CipherSuite::{
    TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
};
use tls::Limits;

const SUITES: [rustls::CipherSuite; 3] =
    [TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256];

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 31) >> 3) as u8).collect()
}

#[test]
fn bytes_flow_both_ways_in_every_suite() {
    let certs = Certs::new();
    let party = certs.issue(device("dev-1"));
    for suite in SUITES {
        let mut bench = fresh(&certs);
        let mut client = bench.connect(1, certs.client(Some(&party), &[suite]));
        assert_eq!(client.negotiated_cipher_suite().unwrap().suite(), suite);
        let identity = bench.clients[&1].identity;
        assert_eq!((identity.name(), identity.role), (Some("dev-1"), ROLE_DEVICE));
        assert_eq!((identity.ip, identity.port), ([10, 0, 2, 2], 40_000));
        assert!(identity.not_after > bench.wall);
        let up = pattern(100_000);
        let out = write(&mut client, &up);
        bench.receive(1, &out);
        bench.settle();
        assert!(bench.clients[&1].received == up, "{suite:?}");
        let down = pattern(99_999);
        bench.send(1, &down);
        bench.pump(1, &mut client).unwrap();
        assert!(bench.read(1) == down, "{suite:?}");
        finish(bench, 1, client);
    }
}

/// The client says goodbye, everybody answers, nothing is left.
fn finish(mut bench: Bench, conn: u32, mut client: rustls::ClientConnection) {
    client.send_close_notify();
    bench.pump(conn, &mut client).unwrap();
    assert!(bench.clients[&conn].finished);
    bench.fin(conn);
    bench.settle();
    bench.tell(Down::Finish { conn });
    bench.pump(conn, &mut client).unwrap();
    assert!(client.process_new_packets().unwrap().peer_has_closed());
    assert!(bench.wires[&conn].finished && !bench.wires[&conn].aborted);
    bench.close(conn, Reason::Finished);
    bench.settle();
    assert_eq!(bench.clients[&conn].closed, Some(Reason::Finished));
    assert!(bench.wires[&conn].released);
    bench.assert_clean();
}

#[test]
fn the_server_prefers_aes_128() {
    let certs = Certs::new();
    let mut bench = fresh(&certs);
    let client = bench.connect(1, certs.client(Some(&certs.issue(device("d"))), &[]));
    assert_eq!(client.negotiated_cipher_suite().unwrap().suite(), TLS13_AES_128_GCM_SHA256);
}

#[test]
fn handshake_and_records_survive_any_fragmentation() {
    let certs = Certs::new();
    let party = certs.issue(device("dev-1"));
    for segment in [1, 2, 3, 4, 5, 6, 7, 21, 22, 23, 100, 700] {
        let mut bench = fresh(&certs);
        bench.segment = segment;
        let mut client = bench
            .connect(1, certs.client_with(Some(&party), &[], Some(64 + segment), &[&rustls::version::TLS13]));
        let up = pattern(3000);
        let out = write(&mut client, &up);
        bench.receive(1, &out);
        bench.settle();
        assert!(bench.clients[&1].received == up, "segments of {segment}");
        finish(bench, 1, client);
    }
}

#[test]
fn a_record_may_be_cut_at_every_byte() {
    let certs = Certs::new();
    let party = certs.issue(device("dev-1"));
    let mut bench = fresh(&certs);
    let mut client = bench.connect(1, certs.client(Some(&party), &[]));
    let mut sent = Vec::new();
    for cut in 1..2 * (64 + 22) {
        let mut out = write(&mut client, &[cut as u8; 64]);
        out.extend(write(&mut client, &[!cut as u8; 64]));
        sent.extend([cut as u8; 64]);
        sent.extend([!cut as u8; 64]);
        bench.frame(1, &out[..cut]);
        if cut % 2 == 0 {
            bench.settle();
        }
        bench.frame(1, &out[cut..]);
        bench.settle();
        assert!(bench.clients[&1].received == sent, "cut at {cut}");
    }
    finish(bench, 1, client);
}

#[test]
fn data_right_behind_finished_is_not_lost() {
    let certs = Certs::new();
    let party = certs.issue(device("dev-1"));
    for segment in [1460, 97] {
        let mut bench = fresh(&certs);
        bench.segment = segment;
        let mut client = certs.client(Some(&party), &[]);
        bench.open(1);
        let mut hello = Vec::new();
        client.write_tls(&mut hello).unwrap();
        bench.receive(1, &hello);
        bench.settle();
        let flight = std::mem::take(&mut bench.wires.get_mut(&1).unwrap().to_client);
        client.read_tls(&mut &flight[..]).unwrap();
        client.process_new_packets().unwrap();
        // Certificate, CertificateVerify, Finished, two records and close_notify, all before the server's next step; and the FIN.
        let mut out = write(&mut client, b"CONNECT");
        out.extend(write(&mut client, b"PUBLISH"));
        client.send_close_notify();
        client.write_tls(&mut out).unwrap();
        bench.receive(1, &out);
        bench.fin(1);
        bench.settle();
        assert_eq!(bench.clients[&1].received, b"CONNECTPUBLISH");
        assert!(bench.clients[&1].finished);
    }
}

#[test]
fn key_updates_in_both_directions() {
    let certs = Certs::new();
    let party = certs.issue(device("dev-1"));
    for suite in SUITES {
        let mut bench = fresh(&certs);
        let mut client = bench.connect(1, certs.client(Some(&party), &[suite]));
        for round in 0..20_u8 {
            client.refresh_traffic_keys().unwrap();
            let out = write(&mut client, &[round; 10]);
            bench.receive(1, &out);
            bench.settle();
            // The answer goes out with the next data, once.
            bench.send(1, &[round; 11]);
            bench.pump(1, &mut client).unwrap();
            assert_eq!(bench.read(1), [round; 11], "{suite:?}");
        }
        assert_eq!(bench.clients[&1].received.len(), 200);
        finish(bench, 1, client);
    }
}

#[test]
fn a_flood_of_key_updates_is_ended() {
    let certs = Certs::new();
    let mut bench = fresh(&certs);
    let mut client = bench.connect(1, certs.client(Some(&certs.issue(device("d"))), &[]));
    for _ in 0..40 {
        // rustls holds a second request back until the first is answered, so each is sent by way of the wire at once.
        client.refresh_traffic_keys().unwrap();
        let mut out = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut out).unwrap();
        }
        if bench.wires[&1].closed || bench.wires[&1].finished {
            break;
        }
        bench.receive(1, &out);
        bench.settle();
    }
    assert_eq!(bench.clients[&1].closed, Some(Reason::Protocol));
    assert!(bench.wires[&1].finished);
}

#[test]
fn a_tampered_byte_anywhere_ends_the_connection_with_an_alert() {
    let certs = Certs::new();
    let party = certs.issue(device("dev-1"));
    let mut bench = fresh(&certs);
    let record_len = 40 + 22;
    for at in 0..record_len {
        let conn = (at as u32 + 1) << 20 | (at as u32 % 8);
        let mut client = bench.connect(conn, certs.client(Some(&party), &SUITES[at % 3..=at % 3]));
        let mut out = write(&mut client, &[7; 40]);
        assert_eq!(out.len(), record_len);
        out[at] ^= 0x10;
        bench.receive(conn, &out);
        bench.settle();
        if at == 3 || at == 4 {
            // A longer record: it never completes, or is too long; a shorter one doesn't open.
            bench.receive(conn, &vec![0; 20_000]);
            bench.settle();
        }
        assert_eq!(bench.clients[&conn].closed, Some(Reason::Protocol), "byte {at}");
        assert!(bench.clients[&conn].received.is_empty());
        let error = bench.pump(conn, &mut client).unwrap_err();
        assert!(matches!(error, rustls::Error::AlertReceived(_)), "byte {at}: {error:?}");
        if at > 4 {
            assert_eq!(error, rustls::Error::AlertReceived(rustls::AlertDescription::BadRecordMac));
        }
        bench.close(conn, Reason::Finished);
        bench.settle();
    }
    bench.assert_clean();
}

#[test]
fn with_no_plaintext_buffer_frames_wait_and_nothing_is_lost() {
    let certs = Certs::new();
    let party = certs.issue(device("dev-1"));
    let pools = Pools { plaintext: 4, frames: 32, ..Pools::default() };
    let mut bench = Bench::with(config(&certs, small_limits()), pools);
    let mut a = bench.connect(1, certs.client(Some(&party), &[]));
    let mut b = bench.connect(2, certs.client(Some(&party), &[]));
    bench.broker_holds = true;
    let (up_a, up_b) = (pattern(9_000), pattern(8_000));
    let small: Vec<u8> = up_a.chunks(100).flat_map(|c| write(&mut a, c)).collect();
    let large = write(&mut b, &up_b);
    bench.receive(1, &small);
    bench.receive(2, &large);
    bench.settle();
    assert_eq!(bench.session.own.available(), 0);
    assert!(bench.stream.loans.held() > 0, "frames wait");
    // A handshake waits too: its identity needs a buffer.
    let mut c = certs.client(Some(&party), &[]);
    bench.open(3);
    bench.pump(3, &mut c).unwrap();
    assert!(c.is_handshaking());
    bench.broker_holds = false;
    bench.settle();
    bench.pump(3, &mut c).unwrap();
    assert!(!c.is_handshaking());
    assert!(bench.clients[&1].received == up_a && bench.clients[&2].received == up_b);
    assert_eq!(bench.stream.loans.held(), 0);
}

#[test]
fn a_paused_connection_waits_and_the_others_go_on() {
    let certs = Certs::new();
    let party = certs.issue(device("dev-1"));
    let mut bench = fresh(&certs);
    let mut a = bench.connect(1, certs.client(Some(&party), &[]));
    let mut b = bench.connect(2, certs.client(Some(&party), &[]));
    bench.tell(Down::Pause { conn: 1 });
    bench.settle();
    assert!(bench.wires[&1].paused);
    let (out_a, out_b) = (write(&mut a, b"late"), write(&mut b, b"now"));
    bench.receive(1, &out_a);
    bench.receive(2, &out_b);
    a.send_close_notify();
    let mut end = Vec::new();
    a.write_tls(&mut end).unwrap();
    bench.receive(1, &end);
    bench.fin(1);
    bench.settle();
    assert_eq!((&bench.clients[&1].received[..], &bench.clients[&2].received[..]), (&b""[..], &b"now"[..]));
    assert!(!bench.clients[&1].finished);
    bench.tell(Down::Resume { conn: 1 });
    bench.settle();
    assert_eq!(bench.clients[&1].received, b"late");
    assert!(bench.clients[&1].finished && !bench.wires[&1].paused);
}

#[test]
fn with_no_ciphertext_buffer_or_under_congestion_the_brokers_buffers_wait() {
    let certs = Certs::new();
    let party = certs.issue(device("dev-1"));
    let pools = Pools { ciphertext: 4, ..Pools::default() };
    let mut bench = Bench::with(config(&certs, small_limits()), pools);
    let mut client = bench.connect(1, certs.client(Some(&party), &[]));
    bench.tcp_holds = true;
    let down = pattern(20_000);
    bench.send(1, &down[..10_000]);
    bench.settle();
    assert_eq!(bench.held_below.len(), 4);
    assert_eq!(bench.session.loans.held(), 1);
    bench.tcp.send(&Up::Congested { conn: 1 });
    let _ = bench.tcp.flush();
    bench.tcp_holds = false;
    bench.settle();
    assert!(bench.clients[&1].congested);
    bench.send(1, &down[10_000..]);
    bench.settle();
    let waiting = bench.session.loans.held();
    assert!(waiting >= 5, "{waiting}");
    bench.tell(Down::Finish { conn: 1 });
    bench.settle();
    assert!(!bench.wires[&1].finished);
    bench.tcp.send(&Up::Drained { conn: 1 });
    let _ = bench.tcp.flush();
    bench.settle();
    bench.pump(1, &mut client).unwrap();
    assert!(bench.read(1) == down);
    assert!(!bench.clients[&1].congested && bench.wires[&1].finished);
    bench.close(1, Reason::Finished);
    bench.assert_clean();
}

#[test]
fn a_finish_that_gets_stuck_ends_in_a_reset() {
    let certs = Certs::new();
    let party = certs.issue(device("dev-1"));
    let mut bench = fresh(&certs);
    bench.connect(1, certs.client(Some(&party), &[]));
    bench.connect(2, certs.client(Some(&party), &[]));
    // One can't send its last bytes, the other's peer doesn't answer the close_notify.
    bench.tcp.send(&Up::Congested { conn: 1 });
    let _ = bench.tcp.flush();
    bench.settle();
    bench.send(1, b"last words");
    bench.tell(Down::Finish { conn: 1 });
    bench.tell(Down::Finish { conn: 2 });
    bench.settle();
    assert!(!bench.wires[&1].finished && bench.wires[&2].finished);
    bench.now += 10_000_000_001;
    bench.settle();
    assert!(bench.wires[&1].aborted && bench.wires[&2].aborted);
    assert_eq!(bench.clients[&1].closed, Some(Reason::Aborted));
    bench.assert_clean();
}

#[test]
fn incomplete_records_are_bounded() {
    let certs = Certs::new();
    let party = certs.issue(device("dev-1"));
    let limits = Limits { incomplete_bytes: 6_000, ..small_limits() };
    let mut bench = Bench::with(config(&certs, limits), Pools::default());
    let mut outs = Vec::new();
    for conn in 1..=2 {
        let mut client = bench.connect(conn, certs.client(Some(&party), &[]));
        outs.push(write(&mut client, &pattern(8_000)));
    }
    bench.receive(1, &outs[0][..5_500]);
    bench.settle();
    bench.receive(2, &outs[1][..600]);
    bench.settle();
    assert_eq!(bench.clients[&2].closed, Some(Reason::Protocol), "the one that goes beyond");
    assert_eq!(bench.clients[&1].closed, None);
    bench.tell(Down::Abort { conn: 1 });
    bench.close(2, Reason::Finished);
    bench.assert_clean();
}

#[test]
fn many_connections_share_few_ready_keys() {
    let certs = Certs::new();
    let party = certs.issue(device("dev-1"));
    let limits = Limits { ready_keys: 4, ..small_limits() };
    let mut bench = Bench::with(config(&certs, limits), Pools::default());
    let mut clients: Vec<_> = (0..16).map(|n| bench.connect(n, certs.client(Some(&party), &[]))).collect();
    for round in 0..3 {
        for (n, client) in clients.iter_mut().enumerate() {
            let out = write(client, &[round; 50]);
            bench.receive(n as u32, &out);
            bench.send(n as u32, &[round; 60]);
            bench.pump(n as u32, client).unwrap();
            assert_eq!(bench.read(n as u32), [round; 60]);
        }
    }
    assert!(bench.clients.values().all(|c| c.received.len() == 150));
}
