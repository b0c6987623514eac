//! A bench for the service: real rings and pools, and a tcp and a broker that keep books. For tests and fuzzers.

use crate::{Config, Limits, Service, SessionEnd, StreamEnd};
use ipc::link::End;
use ipc::link::stream::{Down, Identity, IdentityRef, PeerAddress, Reason, Up};
use ipc::testing::{Kernel, PoolMemory, link};
use std::collections::{BTreeMap, VecDeque};
use std::time::{SystemTime, UNIX_EPOCH};
use std::vec;
use std::vec::Vec;
use zerocopy::FromBytes;

pub const TCP: u16 = 2;
pub const TLS: u16 = 3;
pub const BROKER: u16 = 4;

/// What tcp knows of a connection.
#[derive(Default, Debug)]
pub struct Wire {
    pub to_client: Vec<u8>,
    /// What the client has read of it, in plain.
    pub plain: Vec<u8>,
    pub finished: bool,
    pub aborted: bool,
    pub paused: bool,
    pub closed: bool,
    pub released: bool,
}

/// What the broker knows of a connection.
#[derive(Debug)]
pub struct Client {
    pub identity: Identity,
    pub received: Vec<u8>,
    pub finished: bool,
    pub closed: Option<Reason>,
    pub congested: bool,
}

pub struct Bench {
    pub kernel: Kernel,
    pub service: Service,
    pub stream: StreamEnd<'static>,
    pub session: SessionEnd<'static>,
    pub tcp: End<'static, Up<PeerAddress>, Down>,
    pub broker: End<'static, Down, Up<IdentityRef>>,
    pub wires: BTreeMap<u32, Wire>,
    pub clients: BTreeMap<u32, Client>,
    pub now: u64,
    pub wall: u64,
    /// Bytes of a segment.
    pub segment: usize,
    /// While set, buffers that come to tcp or the broker stay there.
    pub tcp_holds: bool,
    pub broker_holds: bool,
    pub held_below: VecDeque<u32>,
    pub held_above: VecDeque<u32>,
    /// The broker answers `Closed` with `Released`.
    pub broker_releases: bool,
    /// For `send`: what doesn't fit the broker's pool waits, as in the broker.
    pub outbox: VecDeque<(u32, Vec<u8>)>,
}

pub struct Pools {
    pub frames: u32,
    pub ciphertext: u32,
    pub plaintext: u32,
    pub outgoing: u32,
}

impl Default for Pools {
    fn default() -> Self {
        Pools { frames: 64, ciphertext: 64, plaintext: 64, outgoing: 64 }
    }
}

pub fn wall_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

impl Bench {
    pub fn with(config: Config, pools: Pools) -> Self {
        let kernel = Kernel::default();
        let (tcp, stream) = link(
            &kernel,
            1024,
            (TCP, TLS),
            PoolMemory::new(pools.frames, 2048),
            PoolMemory::new(pools.ciphertext, 2048),
        );
        let (session, broker) = link(
            &kernel,
            1024,
            (TLS, BROKER),
            PoolMemory::new(pools.plaintext, 2048),
            PoolMemory::new(pools.outgoing, 2048),
        );
        let service = Service::new(&config, pools.frames, pools.outgoing).unwrap();
        Bench {
            kernel,
            service,
            stream,
            session,
            tcp,
            broker,
            wires: BTreeMap::new(),
            clients: BTreeMap::new(),
            now: 1,
            wall: wall_now(),
            segment: 1460,
            tcp_holds: false,
            broker_holds: false,
            held_below: VecDeque::new(),
            held_above: VecDeque::new(),
            broker_releases: true,
            outbox: VecDeque::new(),
        }
    }

    /// Drives all three until nobody has anything to do.
    pub fn settle(&mut self) {
        for _ in 0..100_000 {
            let next = self.service.drive(self.now, self.wall, &mut self.stream, &mut self.session);
            let _ = (self.stream.flush(), self.session.flush());
            let moved = self.run_tcp() | self.run_broker();
            let _ = (self.tcp.flush(), self.broker.flush());
            if next != 0 && !moved {
                return;
            }
        }
        panic!("never comes to rest");
    }

    fn run_tcp(&mut self) -> bool {
        let mut moved = false;
        while let Some(message) = self.tcp.recv() {
            moved = true;
            match message {
                Down::Free { buf } => self.tcp.own.give_back(buf).unwrap(),
                Down::Send { conn, buf, len } => {
                    self.tcp.loans.accept(buf).unwrap();
                    let mut bytes = vec![0; len as usize];
                    self.tcp.theirs.copy(buf, 0, &mut bytes).unwrap();
                    let wire = self.wires.get_mut(&conn).unwrap();
                    assert!(!wire.finished && !wire.aborted, "sent after the end");
                    wire.to_client.extend(bytes);
                    self.held_below.push_back(buf);
                }
                Down::Finish { conn } => {
                    let wire = self.wires.get_mut(&conn).unwrap();
                    assert!(!wire.finished, "finished twice");
                    wire.finished = true;
                }
                Down::Abort { conn } => {
                    let wire = self.wires.get_mut(&conn).unwrap();
                    wire.aborted = true;
                    if !std::mem::replace(&mut wire.closed, true) {
                        self.tcp.send(&Up::Closed { conn, reason: Reason::Aborted });
                    }
                }
                Down::Released { conn } => {
                    let wire = self.wires.get_mut(&conn).unwrap();
                    assert!(wire.closed && !wire.released);
                    wire.released = true;
                }
                Down::Pause { conn } => self.wires.get_mut(&conn).unwrap().paused = true,
                Down::Resume { conn } => self.wires.get_mut(&conn).unwrap().paused = false,
            }
        }
        if !self.tcp_holds {
            while let Some(buf) = self.held_below.pop_front() {
                assert!(self.tcp.loans.release(buf));
                self.tcp.send(&Up::Sent { buf });
                moved = true;
            }
        }
        moved
    }

    fn run_broker(&mut self) -> bool {
        let mut moved = false;
        while let Some(message) = self.broker.recv() {
            moved = true;
            match message {
                Up::Opened { conn, opening: IdentityRef { buf } } => {
                    self.broker.loans.accept(buf).unwrap();
                    let mut bytes = [0; size_of::<Identity>()];
                    self.broker.theirs.copy(buf, 0, &mut bytes).unwrap();
                    let identity = Identity::read_from_bytes(&bytes).unwrap();
                    assert!(identity.name().is_some());
                    let client = Client {
                        identity,
                        received: vec![],
                        finished: false,
                        closed: None,
                        congested: false,
                    };
                    assert!(self.clients.insert(conn, client).is_none_or(|c| c.closed.is_some()));
                    self.held_above.push_back(buf);
                }
                Up::Data { conn, buf, off, len } => {
                    self.broker.loans.accept(buf).unwrap();
                    let mut bytes = vec![0; len as usize];
                    self.broker.theirs.copy(buf, off as usize, &mut bytes).unwrap();
                    let client = self.clients.get_mut(&conn).unwrap();
                    assert!(!client.finished && client.closed.is_none() && len > 0);
                    client.received.extend(bytes);
                    self.held_above.push_back(buf);
                }
                Up::Finished { conn } => {
                    let client = self.clients.get_mut(&conn).unwrap();
                    assert!(!client.finished, "finished twice");
                    client.finished = true;
                }
                Up::Closed { conn, reason } => {
                    let client = self.clients.get_mut(&conn).unwrap();
                    assert!(client.closed.replace(reason).is_none(), "closed twice");
                    if self.broker_releases {
                        self.broker.send(&Down::Released { conn });
                    }
                }
                Up::Sent { buf } => self.broker.own.give_back(buf).unwrap(),
                Up::Congested { conn } => self.clients.get_mut(&conn).unwrap().congested = true,
                Up::Drained { conn } => self.clients.get_mut(&conn).unwrap().congested = false,
            }
        }
        if !self.broker_holds {
            while let Some(buf) = self.held_above.pop_front() {
                assert!(self.broker.loans.release(buf));
                self.broker.send(&Down::Free { buf });
                moved = true;
            }
        }
        moved | self.post()
    }

    fn post(&mut self) -> bool {
        let mut moved = false;
        while let Some((conn, bytes)) = self.outbox.front() {
            let Some(buf) = self.broker.own.take() else { break };
            self.broker.own.bytes(buf)[..bytes.len()].copy_from_slice(bytes);
            self.broker.own.lend(buf);
            self.broker.send(&Down::Send { conn: *conn, buf, len: bytes.len() as u16 });
            self.outbox.pop_front();
            moved = true;
        }
        moved
    }

    pub fn open(&mut self, conn: u32) {
        self.open_from(conn, [10, 0, 2, 2]);
    }

    pub fn open_from(&mut self, conn: u32, ip: [u8; 4]) {
        self.wires.insert(conn, Wire::default());
        self.tcp.send(&Up::Opened { conn, opening: PeerAddress { ip, port: 40_000 } });
        let _ = self.tcp.flush();
    }

    /// Bytes from the client, in segments; waits for frames like tcp would.
    pub fn receive(&mut self, conn: u32, bytes: &[u8]) {
        for segment in bytes.chunks(self.segment) {
            if self.wires[&conn].closed {
                return;
            }
            if self.tcp.own.available() == 0 {
                self.settle();
            }
            self.frame(conn, segment);
        }
        let _ = self.tcp.flush();
    }

    /// One frame, with headers before its bytes.
    pub fn frame(&mut self, conn: u32, segment: &[u8]) {
        let buf = self.tcp.own.take().expect("a frame");
        self.tcp.own.bytes(buf)[66..66 + segment.len()].copy_from_slice(segment);
        self.tcp.own.lend(buf);
        self.tcp.send(&Up::Data { conn, buf, off: 66, len: segment.len() as u16 });
        let _ = self.tcp.flush();
    }

    pub fn fin(&mut self, conn: u32) {
        self.tcp.send(&Up::Finished { conn });
        let _ = self.tcp.flush();
    }

    pub fn close(&mut self, conn: u32, reason: Reason) {
        self.wires.get_mut(&conn).unwrap().closed = true;
        self.tcp.send(&Up::Closed { conn, reason });
        let _ = self.tcp.flush();
    }

    /// The broker sends.
    pub fn send(&mut self, conn: u32, bytes: &[u8]) {
        self.outbox.extend(bytes.chunks(2026).map(|c| (conn, c.to_vec())));
        self.post();
        let _ = self.broker.flush();
    }

    pub fn tell(&mut self, message: Down) {
        self.broker.send(&message);
        let _ = self.broker.flush();
    }

    /// Nothing is left anywhere: no connection, no lent buffer.
    pub fn assert_clean(&mut self) {
        self.settle();
        assert_eq!(self.service.connections(), 0);
        assert_eq!(self.service.handshakes(), 0);
        assert_eq!((self.tcp.own.lent(), self.tcp.loans.held()), (0, 0), "frames, ciphertext at tcp");
        assert_eq!((self.stream.own.lent(), self.stream.loans.held()), (0, 0), "ciphertext, frames");
        assert_eq!((self.session.own.lent(), self.session.loans.held()), (0, 0), "plaintext, outgoing");
        assert_eq!(
            (self.broker.own.lent(), self.broker.loans.held()),
            (0, 0),
            "outgoing, plaintext at broker"
        );
        for pool in [&self.stream.own, &self.session.own] {
            assert_eq!(pool.available(), pool.buffers(), "buffers neither free nor lent");
        }
        assert!(self.wires.values().all(|w| w.released || !w.closed));
        assert_eq!([self.stream.port.fault(), self.session.port.fault()], [None; 2]);
    }
}

pub fn small_limits() -> Limits {
    Limits { connections: 64, handshakes: 32, handshakes_per_source: 32, ready_keys: 16, ..Limits::default() }
}

/// A service with certificates made for tests.
pub fn config() -> Config {
    Config {
        certificate_chain: vec![include_bytes!("server.der").to_vec()],
        private_key: include_bytes!("server.key.der").to_vec(),
        authorities: vec![include_bytes!("ca.der").to_vec()],
        operator_by_name: false,
        limits: small_limits(),
    }
}
