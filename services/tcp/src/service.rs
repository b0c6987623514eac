//! The service: its state, and one turn of its loop.

use crate::active::Actives;
use crate::buffers::{Frames, Sends};
use crate::config::{Address, Config};
use crate::cookie::Cookies;
use crate::dhcp::Dhcp;
use crate::limit::Limit;
use crate::output::Line;
use crate::packet::Host;
use crate::random::Random;
use crate::table::{Slot, Table};
use crate::wheel::Wheel;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use ipc::link::End;
use ipc::link::frame;
use ipc::link::stream::{self, Conn, PeerAddress};
use ipc::ring::LinkFault;

pub type FrameEnd<'m> = End<'m, frame::Down, frame::Up>;
pub type StreamEnd<'m> = End<'m, stream::Up<PeerAddress>, stream::Down>;

/// What one turn works with.
pub struct Io<'a, 'm> {
    /// Nanoseconds, monotonic.
    pub now: u64,
    pub frame: &'a mut FrameEnd<'m>,
    pub stream: &'a mut StreamEnd<'m>,
}

/// Worth a line in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// For the first time in this life everything is there that serving needs.
    Ready {
        ip: u32,
        port: u16,
    },
    /// DHCP gave us an address, for so many seconds.
    Leased {
        ip: u32,
        seconds: u32,
    },
    LeaseLost,
    /// tls restarted: so many connections were reset.
    Reset {
        connections: u32,
    },
    /// The nic is back.
    NicUp,
    Fault {
        link: &'static str,
        fault: LinkFault,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dotted = |ip: u32| core::net::Ipv4Addr::from_bits(ip);
        match *self {
            Event::Ready { ip, port } => write!(f, "urmqtt: ready, {}:{port}", dotted(ip)),
            Event::Leased { ip, seconds } => write!(f, "DHCP lease of {} for {seconds} s", dotted(ip)),
            Event::LeaseLost => write!(f, "DHCP lease lost, no address"),
            Event::Reset { connections } => write!(f, "tls restarted, {connections} connections reset"),
            Event::NicUp => write!(f, "network interface up"),
            Event::Fault { link, fault } => write!(f, "peer of link {link} broke its rules: {fault:?}"),
        }
    }
}

/// Since the start of the task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub opened: u64,
    pub closed: u64,
    /// SYNs that were answered, and those that weren't because the table is full.
    pub syns: u64,
    pub refused: u64,
    pub segments_in: u64,
    pub segments_out: u64,
    pub retransmitted: u64,
    pub out_of_order: u64,
    pub resets_sent: u64,
    /// Frames dropped: not ours or malformed, wrong checksum, no room.
    pub foreign: u64,
    pub corrupt: u64,
    pub overflow: u64,
}

pub struct Service {
    pub(crate) config: Config,
    pub(crate) host: Host,
    /// The nic has said hello in this epoch.
    pub(crate) greeted: bool,
    /// Largest payload of a segment in one of the nic's frames.
    pub(crate) mss: u16,
    pub(crate) table: Table,
    pub(crate) actives: Actives,
    pub(crate) wheel: Wheel,
    pub(crate) frames: Frames,
    pub(crate) sends: Sends,
    /// Connections with something to send.
    pub(crate) line: Line,
    /// Owed ACKs by deadline; entries whose ACK has left meanwhile are skipped.
    pub(crate) delayed: VecDeque<(u64, Conn)>,
    pub(crate) cookies: Cookies,
    pub(crate) random: Random,
    pub(crate) challenges: Limit,
    pub(crate) resets: Limit,
    pub(crate) echoes: Limit,
    pub(crate) dhcp: Option<Dhcp>,
    /// Every connection is being reset; the next slot to look at, and how many were.
    pub(crate) sweep: Option<(Slot, u32)>,
    /// The frame under consideration.
    pub(crate) scratch: Vec<u8>,
    /// When [`Service::expire`] has something to do, at the earliest.
    due: u64,
    events: VecDeque<Event>,
    ready_said: bool,
    faults_said: [bool; 2],
    pub counters: Counters,
}

/// Most events that wait for the log.
const MAX_EVENTS: usize = 16;
/// Most ACKs that are delayed at a time; others go out at once.
pub(crate) const MAX_DELAYED: usize = 1024;
/// The longest frame.
const SCRATCH: usize = 2048;
const CHALLENGES_PER_SECOND: u32 = 1000;
const RESETS_PER_SECOND: u32 = 10_000;
const ECHOES_PER_SECOND: u32 = 100;

impl Service {
    /// `frames` and `ciphertext`: buffers of the nic's pool and of tls's. `seed` is fresh for every start. The configuration
    /// must have passed [`Config::check`].
    pub fn new(config: Config, frames: u32, ciphertext: u32, seed: &[u8; 32]) -> Self {
        let mut random = Random::new(seed);
        let (ip, dhcp) = match config.address {
            Address::Static { ip } => (u32::from_be_bytes(ip), None),
            Address::Dhcp => (0, Some(Dhcp::new(random.next_u32()))),
        };
        Service {
            host: Host { mac: [0; 6], ip, port: config.port },
            greeted: false,
            mss: 536,
            table: Table::new(config.max_connections, random.key()),
            actives: Actives::new(config.max_active),
            wheel: Wheel::new(config.max_active as usize),
            frames: Frames::new(frames),
            sends: Sends::new(ciphertext),
            line: Line::default(),
            delayed: VecDeque::with_capacity(MAX_DELAYED),
            cookies: Cookies::new(&mut random),
            challenges: Limit::new(CHALLENGES_PER_SECOND),
            resets: Limit::new(RESETS_PER_SECOND),
            echoes: Limit::new(ECHOES_PER_SECOND),
            random,
            dhcp,
            sweep: None,
            scratch: vec![0; SCRATCH],
            due: 0,
            events: VecDeque::with_capacity(MAX_EVENTS),
            ready_said: false,
            faults_said: [false; 2],
            counters: Counters::default(),
            config,
        }
    }

    /// One turn: everything that has come, and everything that is due at `now` (ns). Returns when the next turn is due at
    /// the latest ([`ipc::abi::NEVER`]: when something comes). The caller flushes both ends.
    pub fn drive<'m>(&mut self, now: u64, frame: &mut FrameEnd<'m>, stream: &mut StreamEnd<'m>) -> u64 {
        let io = &mut Io { now, frame, stream };
        self.follow(io);
        self.receive_frames(io);
        self.receive_commands(io);
        if now >= self.due {
            self.expire(io);
        }
        if self.sweep.is_some() {
            self.sweep(io);
        }
        self.transmit(io);
        self.tell(io);
        self.due = self.deadline(io);
        self.due
    }

    /// The next line for the log.
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub(crate) fn log(&mut self, event: Event) {
        if self.events.len() < MAX_EVENTS {
            self.events.push_back(event);
        }
    }

    /// Connections in the table.
    pub fn connections(&self) -> u32 {
        self.table.used()
    }
    /// Connections that are busy.
    pub fn busy(&self) -> u32 {
        self.actives.used()
    }

    fn tell(&mut self, io: &mut Io) {
        if !self.ready_said && self.greeted && self.host.ip != 0 && io.frame.is_up() && io.stream.is_up() {
            self.ready_said = true;
            self.log(Event::Ready { ip: self.host.ip, port: self.host.port });
        }
        if io.frame.is_up() && io.stream.is_up() && self.faults_said == [false; 2] {
            return;
        }
        let faults = [("frame", io.frame.port.fault()), ("stream", io.stream.port.fault())];
        for (i, (link, fault)) in faults.into_iter().enumerate() {
            let was_said = core::mem::replace(&mut self.faults_said[i], fault.is_some());
            let Some(fault) = fault.filter(|_| !was_said) else { continue };
            self.log(Event::Fault { link, fault });
            if link == "stream" {
                // Nobody reads the connections any more.
                self.close_all();
                self.sweep(io);
            }
        }
    }
}
