//! Bytes both ways over bad wires arrive once and in order, and nothing leaks.

use super::wire::*;
use crate::Config;
use crate::rig::{Rig, Sizes, config};
use smoltcp::iface::SocketHandle;

/// A client that sends `data` and expects it back.
struct Echo {
    socket: SocketHandle,
    data: Vec<u8>,
    sent: usize,
    received: Vec<u8>,
}

impl Echo {
    fn new(net: &mut Net, len: usize, salt: u64, buffer: usize) -> Self {
        Echo { socket: net.connect(buffer), data: pattern(len, salt), sent: 0, received: Vec::new() }
    }

    /// True when all is back and the connection is closed.
    fn work(&mut self, net: &mut Net) -> bool {
        let socket = net.socket(self.socket);
        if self.sent < self.data.len() && socket.can_send() {
            self.sent += socket.send_slice(&self.data[self.sent..]).unwrap();
            if self.sent == self.data.len() {
                socket.close();
            }
        }
        while socket.can_recv() {
            socket.recv(|bytes| (bytes.len(), self.received.extend_from_slice(bytes))).unwrap();
        }
        assert!(self.data.starts_with(&self.received), "bytes changed on the way");
        self.sent == self.data.len() && !socket.may_recv()
    }
}

/// `clients` echo `len` bytes each.
fn echo(config: Config, faults: Faults, seed: u64, clients: usize, len: usize, buffer: usize) -> (Net, u64) {
    let mut rig = Rig::new(config, Sizes::default());
    rig.tls.echo = true;
    let mut net = Net::new(rig, faults, seed);
    let mut all: Vec<_> = (0..clients).map(|i| Echo::new(&mut net, len, i as u64, buffer)).collect();
    net.run(600, |net| all.iter_mut().fold(true, |done, e| e.work(net) & done));
    for e in &all {
        assert_eq!(e.received.len(), len, "cut short");
    }
    let took = net.now_ms();
    // Until the last FIN is acknowledged or given up.
    net.rest(5);
    net.run(120, |net| net.rig.tls.live() == 0);
    net.rig.assert_quiet();
    assert_eq!((net.rig.service.connections(), net.rig.service.busy()), (0, 0));
    (net, took)
}

#[test]
fn clean_wire() {
    let (net, took) = echo(config(), Faults { delay: 500, ..Faults::default() }, 1, 1, 1 << 20, 65_000);
    let c = net.rig.service.counters;
    assert_eq!((c.retransmitted, c.out_of_order, c.corrupt, c.overflow), (0, 0, 0, 0), "{c:?}");
    assert!(took < 2_000, "1 MiB there and back at 1 ms took {took} ms");
}

#[test]
fn lossy_wire() {
    for seed in 0..4 {
        echo(config(), Faults { loss: 30, delay: 1000, ..Faults::default() }, seed, 2, 100_000, 20_000);
    }
}

#[test]
fn reordering_wire() {
    for seed in 0..4 {
        let (net, _) = echo(
            config(),
            Faults { delay: 500, jitter: 3000, ..Faults::default() },
            seed,
            2,
            200_000,
            30_000,
        );
        assert!(net.rig.service.counters.out_of_order > 0);
    }
}

#[test]
fn everything_at_once() {
    for seed in 0..6 {
        let faults = Faults { loss: 20, double: 30, corrupt: 20, delay: 800, jitter: 2000 };
        let (net, _) = echo(config(), faults, seed, 3, 60_000, 10_000);
        assert!(net.rig.service.counters.corrupt > 0);
    }
}

#[test]
fn small_windows() {
    let tight = Config { window: 2048, congested: 3000, drained: 1000, ..config() };
    echo(tight, Faults { delay: 300, ..Faults::default() }, 1, 2, 50_000, 700);
    let tight =
        Config { window: 2048, congested: 3000, drained: 1000, reorder_per_connection: 2, ..config() };
    echo(tight, Faults { loss: 20, delay: 300, jitter: 500, ..Faults::default() }, 2, 2, 20_000, 1000);
}

#[test]
fn large_window_is_scaled() {
    let wide = Config { window: 512 << 10, congested: 400 << 10, frames_per_connection: 400, ..config() };
    let (net, took) = echo(wide, Faults { delay: 20_000, ..Faults::default() }, 1, 1, 1 << 20, 500_000);
    assert!(took < 1_500, "took {took} ms; {:?}", net.rig.service.counters);
}

#[test]
fn many_connections() {
    let faults = Faults { loss: 5, delay: 500, jitter: 100, ..Faults::default() };
    let (net, _) = echo(config(), faults, 3, 200, 3_000, 4_000);
    assert_eq!(net.rig.tls.opened, 200);
}

#[test]
fn small_records_travel_together() {
    let mut rig = Rig::new(config(), Sizes::default());
    rig.tls.record = 100;
    let mut net = Net::new(rig, Faults { delay: 500, ..Faults::default() }, 1);
    let client = net.connect(65_000);
    net.run(5, |net| net.rig.tls.live() == 1);
    let before = net.rig.service.counters.segments_out;
    let data = pattern(14_000, 9);
    net.rig.tls.streams.values_mut().for_each(|s| s.to_send.extend(&data));
    let mut got = Vec::new();
    net.run(5, |net| {
        let socket = net.socket(client);
        while socket.can_recv() {
            socket.recv(|bytes| (bytes.len(), got.extend_from_slice(bytes))).unwrap();
        }
        got.len() == data.len()
    });
    assert_eq!(got, data);
    let segments = net.rig.service.counters.segments_out - before;
    assert!(segments <= 12, "140 records in {segments} segments");
}

/// Server first, half closed, in both orders.
#[test]
fn half_close_both_ways() {
    let mut net =
        Net::new(Rig::new(config(), Sizes::default()), Faults { delay: 500, ..Faults::default() }, 1);
    let client = net.connect(8000);
    net.run(5, |net| net.rig.tls.live() == 1);
    net.rig.tls.streams.values_mut().for_each(|s| (s.to_send.extend(b"bye"), s.finish = true).1);
    net.rest(1);
    let socket = net.socket(client);
    let mut got = [0; 8];
    assert_eq!(socket.recv_slice(&mut got), Ok(3));
    assert!(!socket.may_recv() && socket.may_send(), "we finished, the client may still send");
    socket.send_slice(b"late").unwrap();
    net.rest(1);
    assert_eq!(net.rig.tls.streams.values().next().unwrap().received, b"late");
    net.socket(client).close();
    net.rest(1);
    let stream = net.rig.tls.streams.values().next().unwrap();
    assert!(stream.finished);
    assert_eq!(stream.closed, Some(ipc::link::stream::Reason::Finished));
    net.rig.assert_quiet();
}

/// Without TIME-WAIT: a FIN that comes again after all is over is answered by a reset, which the peer takes for the end.
#[test]
fn lost_last_ack() {
    let mut net =
        Net::new(Rig::new(config(), Sizes::default()), Faults { delay: 500, ..Faults::default() }, 1);
    let client = net.connect(8000);
    net.run(5, |net| net.rig.tls.live() == 1);
    net.rig.tls.streams.values_mut().for_each(|s| s.finish = true);
    net.rest(1);
    net.socket(client).close();
    net.run(5, |net| net.rig.tls.live() == 0);
    // Its answer is under way: lose it.
    net.faults.loss = 1000;
    net.rest(1);
    net.faults.loss = 0;
    net.run(20, |net| !net.socket(client).is_open());
    net.rig.assert_quiet();
}
