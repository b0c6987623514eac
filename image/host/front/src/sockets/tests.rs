//! Real sockets on loopback; the test is tls.

use super::*;
use ipc::testing::{HalfMemory, Kernel, PoolMemory, end};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

type TlsEnd = End<'static, Down, Up<PeerAddress>>;

const LIMITS: Limits = Limits { connections: 2, congested: 4096, drained: 1024, finish_ns: 1_000_000_000 };

struct Rig {
    kernel: Kernel,
    halves: (HalfMemory, HalfMemory),
    sockets: Sockets<'static>,
    lower: StreamEnd<'static>,
    upper: TlsEnd,
    address: std::net::SocketAddr,
    now: u64,
}

impl Rig {
    fn new() -> Self {
        let listener: &'static TcpListener = Box::leak(Box::new(TcpListener::bind("127.0.0.1:0").unwrap()));
        listener.set_nonblocking(true).unwrap();
        let bell: &'static OwnedFd =
            Box::leak(Box::new(rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap()));
        let sockets = Sockets::new(LIMITS, listener.as_fd(), bell.as_fd()).unwrap();
        let kernel = Kernel::default();
        let halves = (HalfMemory::new(64), HalfMemory::new(64));
        let pools = (PoolMemory::new(8, 256), PoolMemory::new(16, 512));
        let lower = end(&kernel, halves.0, halves.1, (1, 2), pools.0, pools.1);
        let upper = end(&kernel, halves.1, halves.0, (2, 1), pools.1, pools.0);
        let address = listener.local_addr().unwrap();
        let mut rig = Rig { kernel, halves, sockets, lower, upper, address, now: 0 };
        rig.round();
        rig.round();
        assert!(rig.upper.is_up());
        rig
    }

    /// Both sides once, with what the kernel has by then.
    fn round(&mut self) {
        self.sockets.drive(self.now, &mut self.lower);
        let _ = self.lower.flush();
        let _ = self.upper.poll(true);
        let _ = self.upper.flush();
        self.sockets.wait(self.now, false);
    }

    /// The next message, within a second.
    fn next(&mut self) -> Up<PeerAddress> {
        for _ in 0..1000 {
            if let Some(message) = self.upper.recv() {
                return message;
            }
            self.round();
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("nothing came");
    }

    fn connect(&mut self) -> (TcpStream, u32) {
        let client = TcpStream::connect(self.address).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        let Up::Opened { conn, opening } = self.next() else { panic!("not opened") };
        assert_eq!(opening.port, client.local_addr().unwrap().port());
        (client, conn)
    }

    /// Bytes that came, until `len` are there; buffers go back.
    fn take(&mut self, conn: u32, len: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while bytes.len() < len {
            match self.next() {
                Up::Data { conn: of, buf, off, len } => {
                    assert_eq!(of, conn);
                    let at = bytes.len();
                    bytes.resize(at + len as usize, 0);
                    self.upper.theirs.copy(buf, off as usize, &mut bytes[at..]).unwrap();
                    self.upper.send(&Down::Free { buf });
                }
                other => panic!("{other:?} after {} bytes", bytes.len()),
            }
        }
        bytes
    }

    fn send(&mut self, conn: u32, bytes: &[u8]) -> bool {
        let Some(buf) = self.upper.own.take() else { return false };
        self.upper.own.bytes(buf)[..bytes.len()].copy_from_slice(bytes);
        self.upper.own.lend(buf);
        self.upper.send(&Down::Send { conn, buf, len: bytes.len() as u16 })
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

#[test]
fn bytes_pass_both_ways_through_few_buffers() {
    let mut rig = Rig::new();
    let (mut client, conn) = rig.connect();
    // Ten times what the pool holds.
    let bytes = pattern(20_000);
    client.write_all(&bytes).unwrap();
    assert_eq!(rig.take(conn, bytes.len()), bytes);
    let (mut sent, mut back) = (0, Vec::new());
    client.set_nonblocking(true).unwrap();
    while back.len() < bytes.len() {
        let chunk = &bytes[sent..bytes.len().min(sent + 500)];
        if !chunk.is_empty() && rig.send(conn, chunk) {
            sent += chunk.len();
        }
        rig.round();
        while let Some(message) = rig.upper.recv() {
            match message {
                Up::Sent { buf } => rig.upper.own.give_back(buf).unwrap(),
                Up::Congested { .. } | Up::Drained { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        let mut chunk = [0; 4096];
        if let Ok(n) = client.read(&mut chunk) {
            back.extend_from_slice(&chunk[..n]);
        }
    }
    assert_eq!(back, bytes);
    rig.round();
    while let Some(Up::Sent { buf }) = rig.upper.recv() {
        rig.upper.own.give_back(buf).unwrap();
    }
    assert_eq!((rig.upper.own.lent(), rig.lower.own.lent()), (0, 0));
}

/// The end may come in the same event as the last bytes.
#[test]
fn an_end_right_behind_bytes_is_seen() {
    for _ in 0..50 {
        let mut rig = Rig::new();
        let (mut client, conn) = rig.connect();
        client.write_all(b"last").unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(rig.take(conn, 4), b"last");
        assert_eq!(rig.next(), Up::Finished { conn });
        rig.upper.send(&Down::Finish { conn });
        assert_eq!(rig.next(), Up::Closed { conn, reason: Reason::Finished });
        assert_eq!(client.read(&mut [0; 8]).unwrap(), 0);
    }
}

#[test]
fn the_limit_holds_and_a_number_is_used_once() {
    let mut rig = Rig::new();
    let (first, a) = rig.connect();
    let (_second, _) = rig.connect();
    let _third = TcpStream::connect(rig.address).unwrap();
    (0..20).for_each(|_| rig.round());
    assert!(rig.upper.recv().is_none(), "one more than the limit");
    drop(first);
    assert_eq!(rig.next(), Up::Finished { conn: a });
    rig.upper.send(&Down::Abort { conn: a });
    assert_eq!(rig.next(), Up::Closed { conn: a, reason: Reason::Aborted });
    // What crosses a `Closed` is ignored, its buffer returned.
    assert!(rig.send(a, b"late"));
    assert!(matches!(rig.next(), Up::Sent { .. }));
    rig.upper.send(&Down::Released { conn: a });
    let Up::Opened { conn, .. } = rig.next() else { panic!("the third doesn't come in") };
    assert_ne!(conn, a);
    rig.upper.send(&Down::Released { conn });
    (0..5).for_each(|_| rig.round());
    assert!(rig.lower.port.fault().is_some(), "released though it is open");
}

#[test]
fn a_paused_connection_is_not_read() {
    let mut rig = Rig::new();
    let (mut client, conn) = rig.connect();
    rig.upper.send(&Down::Pause { conn });
    rig.round();
    client.write_all(b"wait").unwrap();
    std::thread::sleep(Duration::from_millis(20));
    (0..20).for_each(|_| rig.round());
    assert!(rig.upper.recv().is_none());
    rig.upper.send(&Down::Resume { conn });
    assert_eq!(rig.take(conn, 4), b"wait");
}

/// A neighbour that repeats itself, or clients that come and go, while nothing can be read: no list gets longer than the table.
#[test]
fn lists_are_as_long_as_the_table() {
    let mut rig = Rig::new();
    let (mut client, conn) = rig.connect();
    // As many bytes as use up the pool: tls keeps all that it got.
    client.write_all(&pattern(4096)).unwrap();
    while rig.lower.own.available() > 0 {
        rig.round();
    }
    for _ in 0..30 {
        for command in [Down::Pause { conn }, Down::Resume { conn }, Down::Finish { conn }] {
            rig.upper.send(&command);
        }
        rig.round();
    }
    for _ in 0..30 {
        let mut next = TcpStream::connect(rig.address).unwrap();
        next.write_all(b"x").unwrap();
        let number = loop {
            match rig.next() {
                Up::Opened { conn, .. } => break conn,
                Up::Data { .. } => {}
                other => panic!("{other:?}"),
            }
        };
        (0..3).for_each(|_| rig.round());
        rig.upper.send(&Down::Abort { conn: number });
        assert_eq!(rig.next(), Up::Closed { conn: number, reason: Reason::Aborted });
        rig.upper.send(&Down::Released { conn: number });
        rig.round();
    }
    assert!(rig.lower.port.fault().is_none());
    assert!(rig.sockets.readable.len() <= 2, "{} readable", rig.sockets.readable.len());
    assert_eq!(rig.sockets.finishing.len(), 1);
}

#[test]
fn a_peer_that_never_closes_is_reset() {
    let mut rig = Rig::new();
    let (mut client, conn) = rig.connect();
    rig.upper.send(&Down::Finish { conn });
    (0..2).for_each(|_| rig.round());
    assert_eq!(client.read(&mut [0; 8]).unwrap(), 0);
    rig.now = LIMITS.finish_ns;
    assert_eq!(rig.next(), Up::Closed { conn, reason: Reason::Timeout });
}

/// tls restarts: connections are reset, and the next ones work.
#[test]
fn the_neighbours_restart_closes_all() {
    let mut rig = Rig::new();
    let (mut client, _) = rig.connect();
    client.write_all(b"x").unwrap();
    (0..5).for_each(|_| rig.round());
    rig.halves.1.reset();
    rig.kernel.restart(2);
    let pools = (PoolMemory::new(8, 256), PoolMemory::new(16, 512));
    rig.upper = end(&rig.kernel, rig.halves.1, rig.halves.0, (2, 1), pools.1, pools.0);
    (0..5).for_each(|_| rig.round());
    assert!(rig.upper.is_up());
    assert!(client.read(&mut [0; 8]).is_err(), "not reset");
    rig.connect();
}
