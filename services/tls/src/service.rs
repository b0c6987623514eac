//! The service: its tables, the lives of its two links, and the order in which work is done.

use crate::admission::Admission;
use crate::chain::Chain;
use crate::config::{Config, Limits};
use crate::handshake::Failure;
use crate::record::{self, KeyCache};
use crate::server::{self, ConfigError, WallClock};
use crate::slot::{self, Phase, Slot};
use crate::tap::Tap;
use crate::timeouts::Timeouts;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ipc::link::End;
use ipc::link::stream::{Conn, Down, IdentityRef, PeerAddress, SLOT_BITS, Up};
use ipc::ring::{LinkFault, Message};
use rustls::ServerConfig;

/// Our end of the link with tcp.
pub type StreamEnd<'m> = End<'m, Down, Up<PeerAddress>>;
/// Our end of the link with the broker.
pub type SessionEnd<'m> = End<'m, Up<IdentityRef>, Down>;

pub(crate) struct Links<'a, 'm> {
    pub stream: &'a mut StreamEnd<'m>,
    pub session: &'a mut SessionEnd<'m>,
}

/// A connection that didn't get through its handshake, for the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    pub peer: PeerAddress,
    pub why: Failure,
}

impl core::fmt::Display for Refusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let [a, b, c, d] = self.peer.ip;
        write!(f, "{a}.{b}.{c}.{d}:{} refused: {}", self.peer.port, self.why)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Handshakes that ended with an identity, and those that didn't.
    pub established: u64,
    pub refused: u64,
    /// Connections closed because of a bad record or message.
    pub broken: u64,
}

/// Most refusals that wait to be logged; beyond, the oldest is forgotten.
const REFUSALS: usize = 16;
/// Messages that one message can cause in a ring, besides those that carry buffers. While a ring has less room than this, nothing
/// more is received: with rings as the builder sizes them that is never the case, unless a neighbour floods us.
const ROOM: u32 = 8;

pub struct Service {
    pub(crate) limits: Limits,
    pub(crate) operator_by_name: bool,
    pub(crate) server: Arc<ServerConfig>,
    clock: Arc<WallClock>,
    pub(crate) tap: Arc<Tap>,
    pub(crate) slots: Vec<Slot>,
    /// Slots that are not free.
    pub(crate) live: u32,
    pub(crate) keys: KeyCache,
    /// Queues of frames that wait, and of the broker's buffers that wait.
    pub(crate) frames: Chain,
    pub(crate) sends: Chain,
    /// Slots that wait for a plaintext buffer, for a ciphertext buffer, for a handshake step; each at most once, see `slot`.
    pub(crate) starved: VecDeque<u32>,
    pub(crate) blocked: VecDeque<u32>,
    pub(crate) stepping: VecDeque<u32>,
    pub(crate) timeouts: Timeouts,
    pub(crate) admission: Admission,
    /// Bytes in all `Busy::bytes`.
    pub(crate) incomplete: usize,
    pub(crate) now: u64,
    stream_up: bool,
    pub(crate) session_up: bool,
    pub counters: Counters,
    refusals: VecDeque<Refusal>,
}

/// The builder's check: certificates and key parse and belong together.
pub fn check(config: &Config) -> Result<(), ConfigError> {
    server::server_config(config, Arc::default(), Arc::default()).map(|_| ())
}

impl Service {
    /// `frames` and `outgoing`: buffers of tcp's (the nic's) and of the broker's pool.
    pub fn new(config: &Config, frames: u32, outgoing: u32) -> Result<Self, ConfigError> {
        if !record::self_test() {
            return Err(ConfigError::SelfTest);
        }
        let limits = Limits { connections: config.limits.connections.min(1 << SLOT_BITS), ..config.limits };
        let (clock, tap) = (Arc::<WallClock>::default(), Arc::<Tap>::default());
        let mut slots = Vec::with_capacity(limits.connections as usize);
        slots.resize_with(limits.connections as usize, Slot::free);
        Ok(Service {
            server: server::server_config(config, clock.clone(), tap.clone())?,
            operator_by_name: config.operator_by_name,
            clock,
            tap,
            slots,
            live: 0,
            keys: KeyCache::new(limits.ready_keys as usize),
            frames: Chain::new(frames),
            sends: Chain::new(outgoing),
            starved: VecDeque::new(),
            blocked: VecDeque::new(),
            stepping: VecDeque::new(),
            timeouts: Timeouts::new(limits.handshake_ms as u64 * 1_000_000),
            admission: Admission::new(&limits),
            incomplete: 0,
            now: 0,
            stream_up: false,
            session_up: false,
            counters: Counters::default(),
            refusals: VecDeque::with_capacity(REFUSALS),
            limits,
        })
    }

    /// Does what is to be done at `now_ns` (nanoseconds, never going back) and `wall` (seconds since 1970, 0: unknown); the links are to be
    /// flushed afterwards. Returns when to be called again if nothing comes before: 0 means at once.
    pub fn drive<'m>(
        &mut self,
        now_ns: u64,
        wall: u64,
        stream: &mut StreamEnd<'m>,
        session: &mut SessionEnd<'m>,
    ) -> u64 {
        self.now = now_ns;
        self.clock.set(wall);
        let links = &mut Links { stream, session };
        self.follow(links);
        self.receive(links);
        while let Some(slot) = self.timeouts.expired(now_ns) {
            self.timed_out(slot as usize, links);
        }
        // One step only, so that no storm of handshakes keeps established connections waiting for long.
        self.step(links);
        if !self.stream_up || !links.stream.is_up() || !links.session.is_up() {
            // A link has failed under way, or may come up now that the last connection is gone.
            self.follow(links);
        }
        if self.stepping.is_empty() && self.roomy(links) { self.timeouts.next() } else { 0 }
    }

    /// Connections in any state.
    pub fn connections(&self) -> u32 {
        self.live
    }

    pub fn handshakes(&self) -> u32 {
        self.admission.under_way()
    }

    /// The next refusal to be logged.
    pub fn refusal(&mut self) -> Option<Refusal> {
        self.refusals.pop_front()
    }

    pub(crate) fn refused(&mut self, peer: PeerAddress, why: Failure) {
        self.counters.refused += 1;
        if self.refusals.len() == REFUSALS {
            self.refusals.pop_front();
        }
        self.refusals.push_back(Refusal { peer, why });
    }

    /// Sees neighbours come and go. The port serves only while the broker is there: tcp's link comes up after the broker's, and
    /// when no connection of an earlier life is left.
    fn follow(&mut self, links: &mut Links<'_, '_>) {
        links.session.poll(true);
        if self.session_up && !links.session.is_up() {
            self.session_up = false;
            self.broker_lost(links);
        }
        self.session_up = links.session.is_up();
        links.stream.poll(self.session_up && self.live == 0);
        if self.stream_up && !links.stream.is_up() {
            self.stream_up = false;
            self.tcp_lost(links);
        }
        self.stream_up = links.stream.is_up();
    }

    fn receive(&mut self, links: &mut Links<'_, '_>) {
        while let Some(message) = self.roomy(links).then(|| links.session.recv()).flatten() {
            self.from_broker(message, links);
        }
        self.feed(links);
        while let Some(message) = self.roomy(links).then(|| links.stream.recv()).flatten() {
            self.from_tcp(message, links);
        }
        self.unblock(links);
    }

    /// Both rings have room for what one message can cause.
    fn roomy(&self, links: &mut Links<'_, '_>) -> bool {
        fn roomy<Out: Message, In: Message>(end: &mut End<'_, Out, In>) -> bool {
            end.port.room() >= ROOM || !end.is_up()
        }
        roomy(links.stream) && roomy(links.session)
    }

    fn from_tcp(&mut self, message: Up<PeerAddress>, links: &mut Links<'_, '_>) {
        match message {
            Up::Opened { conn, opening } => self.opened(conn, opening, links),
            Up::Data { conn, buf, off, len } => self.data(conn, buf, off, len, links),
            Up::Sent { buf } => {
                let result = links.stream.own.give_back(buf);
                links.stream.check(result);
            }
            Up::Finished { conn } => self.with(conn, links, Self::end_below),
            Up::Closed { conn, reason } => self.with(conn, links, |s, i, l| s.closed_below(i, reason, l)),
            Up::Congested { conn } => self.with(conn, links, |s, i, l| s.congested(i, true, l)),
            Up::Drained { conn } => self.with(conn, links, |s, i, l| s.congested(i, false, l)),
        }
    }

    fn from_broker(&mut self, message: Down, links: &mut Links<'_, '_>) {
        match message {
            Down::Free { buf } => {
                let result = links.session.own.give_back(buf);
                links.session.check(result);
            }
            Down::Send { conn, buf, len } => self.send(conn, buf, len, links),
            Down::Finish { conn } => self.finish(conn, links),
            Down::Abort { conn } => self.abort(conn, links),
            Down::Released { conn } => self.released(conn, links),
            Down::Pause { conn } => self.pause(conn, true, links),
            Down::Resume { conn } => self.pause(conn, false, links),
        }
    }

    /// What tcp says of a connection; it must be one that tcp has opened and not closed.
    fn with(
        &mut self,
        conn: Conn,
        links: &mut Links<'_, '_>,
        then: impl FnOnce(&mut Self, usize, &mut Links<'_, '_>),
    ) {
        match self.open_below(conn) {
            Some(index) => then(self, index, links),
            None => links.stream.port.blame(LinkFault::Reference),
        }
    }

    /// The slot of a connection that tcp has opened and not closed.
    pub(crate) fn open_below(&self, conn: Conn) -> Option<usize> {
        self.find(conn).filter(|&i| !self.slots[i].has(slot::CLOSED_BELOW))
    }

    pub(crate) fn find(&self, conn: Conn) -> Option<usize> {
        let index = (conn & ((1 << SLOT_BITS) - 1)) as usize;
        let slot = self.slots.get(index)?;
        (slot.conn == conn && !matches!(slot.phase, Phase::Free)).then_some(index)
    }

    /// Queues a slot, unless it stands in that queue (`flag`) already.
    pub(crate) fn enqueue(queue: &mut VecDeque<u32>, slot: &mut Slot, index: usize, flag: u16) {
        if !slot.has(flag) {
            slot.flags |= flag;
            queue.push_back(index as u32);
        }
    }
}
