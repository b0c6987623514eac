//! The broker behind a stand-in for tls, over real rings: for tests, benchmarks and fuzzers.

use crate::codec::client;
use crate::{Config, Link, Service};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use ipc::link::End;
use ipc::link::stream::{
    Conn, Down, Identity, IdentityRef, ROLE_DEVICE, ROLE_OPERATOR, Reason, SLOT_BITS, Up,
};
use ipc::testing::{HalfMemory, Kernel, PoolMemory};
use zerocopy::{FromZeros, IntoBytes};

const TLS: u16 = 3;
const BROKER: u16 = 4;
const BUFFER: usize = 2048;

/// One connection as tls sees it.
#[derive(Default)]
pub struct Peer {
    pub received: Vec<u8>,
    /// What the broker asked for.
    pub finished: bool,
    pub aborted: bool,
    pub paused: bool,
    pub released: bool,
    /// Finish and Abort are not answered by `Closed`.
    pub holds_end: bool,
    /// Its outgoing buffers are kept until `drain`.
    pub keeps: bool,
    kept: Vec<u32>,
}

/// Broker and stand-in.
pub struct Bench {
    pub service: Service,
    pub link: Link<'static>,
    pub tls: End<'static, Up<IdentityRef>, Down>,
    pub now_ns: u64,
    pub peers: BTreeMap<Conn, Peer>,
    /// Messages to the broker for which there was no buffer yet.
    waiting: VecDeque<(Conn, Vec<u8>)>,
    memory: Memory,
    generation: u32,
}

/// What the two sides share. It is never freed.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    kernel: Kernel,
    pub(crate) halves: [HalfMemory; 2],
    pools: [PoolMemory; 2],
}

impl Memory {
    pub(crate) fn new(config: &Config, plaintext: u32, outgoing: u32) -> Self {
        let capacity = (plaintext + outgoing + 4 * config.connections.min(1 << 16)).next_power_of_two();
        Memory {
            kernel: Kernel::default(),
            halves: [HalfMemory::new(capacity), HalfMemory::new(capacity)],
            pools: [PoolMemory::new(plaintext, BUFFER as u32), PoolMemory::new(outgoing, BUFFER as u32)],
        }
    }
}

impl Bench {
    pub fn new(config: Config) -> Self {
        Self::with_buffers(config, 64, 64)
    }

    /// `plaintext` and `outgoing`: buffers of the two pools.
    pub fn with_buffers(config: Config, plaintext: u32, outgoing: u32) -> Self {
        let memory = Memory::new(&config, plaintext, outgoing);
        Self::over(memory, config)
    }

    pub(crate) fn over(Memory { kernel, halves, pools }: Memory, config: Config) -> Self {
        config.check().expect("a valid configuration");
        let mut bench = Bench {
            service: Service::new(config, 0x5eed),
            link: ipc::testing::end(&kernel, halves[1], halves[0], (BROKER, TLS), pools[1], pools[0]),
            tls: ipc::testing::end(&kernel, halves[0], halves[1], (TLS, BROKER), pools[0], pools[1]),
            now_ns: 1,
            peers: BTreeMap::new(),
            waiting: VecDeque::new(),
            memory: Memory { kernel, halves, pools },
            generation: 0,
        };
        bench.come_up();
        bench
    }

    fn come_up(&mut self) {
        (0..4).for_each(|_| self.run());
        assert!(self.link.is_up() && self.tls.is_up());
    }

    /// tls dies and comes back: its half is zeroed, its epoch moves on, every connection is gone.
    pub fn restart_tls(&mut self) {
        let Memory { kernel, halves, pools } = self.memory;
        halves[0].reset();
        kernel.restart(TLS);
        self.tls = ipc::testing::end(&kernel, halves[0], halves[1], (TLS, BROKER), pools[0], pools[1]);
        self.peers.clear();
        self.waiting.clear();
        self.come_up();
    }

    /// A new connection of a certificate with this name in slot `slot`.
    pub fn open(&mut self, slot: u32, name: &str, operator: bool) -> Conn {
        self.generation += 1;
        let conn = slot | self.generation << SLOT_BITS;
        let mut identity = Identity::new_zeroed();
        identity.role = if operator { ROLE_OPERATOR } else { ROLE_DEVICE };
        identity.name_len = name.len() as u8;
        identity.name[..name.len()].copy_from_slice(name.as_bytes());
        while self.tls.own.available() == 0 {
            self.run();
        }
        let buf = self.tls.own.take().expect("a plaintext buffer");
        self.tls.own.bytes(buf)[..identity.as_bytes().len()].copy_from_slice(identity.as_bytes());
        self.tls.own.lend(buf);
        assert!(self.tls.send(&Up::Opened { conn, opening: IdentityRef { buf } }));
        self.peers.insert(conn, Peer::default());
        conn
    }

    /// Queues bytes that the client sends.
    pub fn send(&mut self, conn: Conn, bytes: &[u8]) {
        self.waiting.extend(bytes.chunks(BUFFER).map(|c| (conn, c.to_vec())));
    }

    /// The client's connection ends without a word.
    pub fn lose(&mut self, conn: Conn, reason: Reason) {
        self.waiting.retain(|(c, _)| *c != conn);
        assert!(self.tls.send(&Up::Closed { conn, reason }));
    }

    pub fn congest(&mut self, conn: Conn, congested: bool) {
        let message = if congested { Up::Congested { conn } } else { Up::Drained { conn } };
        assert!(self.tls.send(&message));
    }

    /// Lets both sides work until nothing moves.
    pub fn run(&mut self) {
        loop {
            self.feed();
            let _ = self.tls.flush();
            let _ = self.service.drive(self.now_ns, &mut self.link);
            let _ = self.link.flush();
            if !self.serve() && !self.can_feed() {
                return;
            }
        }
    }

    pub fn run_for(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds.div_ceil(50) {
            self.now_ns += 50_000_000;
            self.run();
        }
    }

    fn can_feed(&self) -> bool {
        self.tls.is_up()
            && self.tls.own.available() > 0
            && self.waiting.iter().any(|(c, _)| !self.is_paused(*c))
    }

    fn is_paused(&self, conn: Conn) -> bool {
        self.peers.get(&conn).is_some_and(|p| p.paused)
    }

    fn feed(&mut self) {
        let mut held = VecDeque::new();
        while let Some((conn, bytes)) = self.waiting.pop_front() {
            if self.is_paused(conn) || held.iter().any(|(c, _)| *c == conn) {
                held.push_back((conn, bytes));
                continue;
            }
            let Some(buf) = self.tls.own.take() else {
                held.push_back((conn, bytes));
                break;
            };
            self.tls.own.bytes(buf)[..bytes.len()].copy_from_slice(&bytes);
            self.tls.own.lend(buf);
            let _ = self.tls.send(&Up::Data { conn, buf, off: 0, len: bytes.len() as u16 });
        }
        held.append(&mut self.waiting);
        self.waiting = held;
    }

    /// Does what the broker asks. False: it asked nothing.
    fn serve(&mut self) -> bool {
        self.tls.poll(true);
        let mut moved = false;
        while let Some(message) = self.tls.recv() {
            moved = true;
            match message {
                Down::Free { buf } => self.tls.own.give_back(buf).expect("the broker returns what it holds"),
                Down::Send { conn, buf, len } => self.take(conn, buf, len as usize),
                Down::Finish { conn } => {
                    self.peer(conn).finished = true;
                    self.end(conn, Reason::Finished);
                }
                Down::Abort { conn } => {
                    self.peer(conn).aborted = true;
                    self.end(conn, Reason::Aborted);
                }
                Down::Released { conn } => self.peer(conn).released = true,
                Down::Pause { conn } => self.peer(conn).paused = true,
                Down::Resume { conn } => self.peer(conn).paused = false,
            }
        }
        moved
    }

    /// `Closed` answers the first Finish or Abort.
    fn end(&mut self, conn: Conn, reason: Reason) {
        let peer = self.peer(conn);
        if peer.finished != peer.aborted && !peer.released && !peer.holds_end {
            self.lose(conn, reason);
        }
    }

    pub fn peer(&mut self, conn: Conn) -> &mut Peer {
        self.peers.entry(conn).or_default()
    }

    fn take(&mut self, conn: Conn, buf: u32, len: usize) {
        assert!(len > 0 && len <= crate::MAX_CHUNK);
        self.tls.loans.accept(buf).expect("a buffer that the broker has");
        let peer = self.peers.entry(conn).or_default();
        let at = peer.received.len();
        peer.received.resize(at + len, 0);
        self.tls.theirs.copy(buf, 0, &mut peer.received[at..]).expect("in bounds");
        if peer.keeps {
            return peer.kept.push(buf);
        }
        self.give_back(buf);
    }

    fn give_back(&mut self, buf: u32) {
        assert!(self.tls.loans.release(buf));
        let _ = self.tls.send(&Up::Sent { buf });
    }

    /// Returns the buffers that were kept, and keeps no more.
    pub fn drain(&mut self, conn: Conn) {
        self.peer(conn).keeps = false;
        for buf in core::mem::take(&mut self.peer(conn).kept) {
            self.give_back(buf);
        }
    }

    /// Whole packets that came to the client, as (first byte, body).
    pub fn packets(&mut self, conn: Conn) -> Vec<(u8, Vec<u8>)> {
        let received = &mut self.peer(conn).received;
        let mut packets = Vec::new();
        let mut at = 0;
        while let Some((first, head, end)) = whole(&received[at..]) {
            packets.push((first, received[at + head..at + end].to_vec()));
            at += end;
        }
        received.drain(..at);
        packets
    }

    /// A connected client.
    pub fn connect(&mut self, slot: u32, name: &str, operator: bool, connect: client::Connect) -> Conn {
        let conn = self.open(slot, name, operator);
        self.send(conn, &connect.bytes());
        self.run();
        let packets = self.packets(conn);
        assert_eq!((packets[0].0, packets[0].1[1]), (0x20, 0), "CONNACK of {name}");
        conn
    }

    /// Lines that the broker had for its log.
    pub fn events(&mut self) -> Vec<String> {
        core::iter::from_fn(|| self.service.event()).map(|e| alloc::format!("{e}")).collect()
    }
}

/// First byte, length of the fixed header, and length of the packet that starts `bytes`, when all of it is there.
fn whole(bytes: &[u8]) -> Option<(u8, usize, usize)> {
    let (mut length, mut head) = (0, 1);
    loop {
        let digit = *bytes.get(head)?;
        length |= ((digit & 0x7f) as usize) << (7 * (head - 1));
        head += 1;
        if digit & 0x80 == 0 {
            break;
        }
    }
    (bytes.len() >= head + length).then(|| (bytes[0], head, head + length))
}
