//! The broker as a whole: its tables, and what it does with the link's messages and with time.

use crate::acl::{self, Acl, Role};
use crate::config::Config;
use crate::conn::{Conn, State};
use crate::event::{Event, Events};
use crate::message::{Letter, Store};
use crate::names::{Name, Names};
use crate::retained::Retained;
use crate::session::Sessions;
use crate::slab::Slab;
use crate::stats::Stats;
use crate::tree::{Receiver, Tree};
use crate::wheel::{TICK_MS, Wheel};
use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use ipc::link::End;
use ipc::link::stream::{self, Down, Identity, IdentityRef, ROLE_OPERATOR, Up};
use ipc::ring::{Change, LinkFault};
use zerocopy::{FromZeros, IntoBytes};

/// The broker's end of the session link.
pub type Link<'m> = End<'m, Down, Up<IdentityRef>>;

/// Messages of the link handled between two looks at timers and queues.
const BATCH: usize = 256;
/// Bytes of the largest buffer that the lower side passes up.
const BUFFER: usize = 2048;

pub struct Service {
    pub(crate) config: Config,
    pub(crate) acl: Acl,
    pub(crate) names: Names,
    pub(crate) tree: Tree,
    pub(crate) store: Store,
    pub(crate) retained: Slab<Retained>,
    pub(crate) sessions: Sessions,
    pub(crate) conns: Slab<Conn>,
    pub(crate) wheel: Wheel,
    /// Connections with more to send, in turn.
    pub(crate) ready: VecDeque<u32>,
    /// Connections that may have an open outgoing buffer; whose pausing may have changed; whose input may go on.
    pub(crate) open: Vec<u32>,
    pub(crate) gates: Vec<u32>,
    pub(crate) resume: Vec<u32>,
    /// Sessions to end, and messages to route, before the next message of the link is looked at.
    pub(crate) doomed: Vec<u32>,
    pub(crate) letters: VecDeque<Letter>,
    /// Receivers that hold publishers back, in order of time: tick, session.
    pub(crate) stalls: VecDeque<(u32, u32)>,
    /// Ticks since the clock's start.
    pub(crate) now: u32,
    pub(crate) sys_due: u32,
    /// Bytes allocated for input.
    pub(crate) input_used: usize,
    pub(crate) assigned_ids: u64,
    /// The link is up, as far as the tables know.
    up: bool,
    pub(crate) scratch: Vec<u8>,
    pub(crate) receivers: Vec<Receiver>,
    fired: Vec<u32>,
    pub(crate) stats: Stats,
    events: Events,
}

impl Service {
    /// `seed` is secret and fresh. The configuration must pass [`Config::check`].
    pub fn new(config: Config, seed: u64) -> Self {
        Service {
            acl: Acl::new(&config.publish, &config.subscribe),
            names: Names::new(seed),
            tree: Tree::new(),
            store: Store::new(config.store_bytes as usize),
            retained: Slab::new(),
            sessions: Sessions::new(),
            conns: Slab::new(),
            wheel: Wheel::new(),
            ready: VecDeque::new(),
            open: Vec::new(),
            gates: Vec::new(),
            resume: Vec::new(),
            doomed: Vec::new(),
            letters: VecDeque::new(),
            stalls: VecDeque::new(),
            now: u32::MAX,
            sys_due: 0,
            input_used: 0,
            assigned_ids: 0,
            up: false,
            scratch: vec![0; BUFFER],
            receivers: Vec::new(),
            fired: Vec::new(),
            stats: Stats::default(),
            events: Events::default(),
            config,
        }
    }

    /// Handles what the link has brought and what is due. Returns the time at which it must be called again, in the clock of
    /// `now_ns` (which doesn't go backwards). The caller flushes the link.
    pub fn drive(&mut self, now_ns: u64, link: &mut Link) -> u64 {
        let tick = (now_ns / (TICK_MS * 1_000_000)) as u32;
        let ticked = core::mem::replace(&mut self.now, tick) != tick;
        if link.poll(true) == Change::Down {
            self.lose_all(link);
            link.poll(true);
        }
        if !self.up && link.is_up() {
            self.up = true;
            self.events.push(Event::LinkUp);
        }
        for _ in 0..BATCH {
            let Some(message) = link.recv() else { break };
            self.receive(link, message);
            self.settle(link);
        }
        if !link.is_up() {
            self.lose_all(link);
        }
        if ticked {
            self.timers(link);
        }
        self.pump_ready(link);
        self.flush_open(link);
        self.set_gates(link);
        self.deadline().map_or(u64::MAX, |tick| tick as u64 * TICK_MS * 1_000_000)
    }

    /// What happened, oldest first.
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    pub(crate) fn tell(&mut self, event: Event) {
        self.events.push(event);
    }

    pub(crate) fn text(&self, name: Name) -> String {
        self.names.text(name).to_string()
    }

    fn receive(&mut self, link: &mut Link, message: Up<IdentityRef>) {
        match message {
            Up::Sent { buf } => {
                let returned = link.own.give_back(buf);
                link.check(returned);
            }
            Up::Opened { conn, opening } => self.opened(link, conn, opening.buf),
            Up::Data { conn, buf, off, len } => {
                let accepted = link.loans.accept(buf);
                if link.check(accepted).is_none() {
                    return;
                }
                match self.find(link, conn) {
                    Some(c) if self.conns[c].is_open() => self.data(link, c, buf, off as usize, len as usize),
                    _ => free(link, buf),
                }
            }
            Up::Finished { conn } => {
                if let Some(c) = self.find(link, conn) {
                    self.close(link, c, "connection ended without DISCONNECT");
                }
            }
            Up::Closed { conn, .. } => self.closed(link, conn),
            Up::Congested { conn } => {
                if let Some(c) = self.find(link, conn) {
                    self.conns[c].congested = true;
                }
            }
            Up::Drained { conn } => {
                if let Some(c) = self.find(link, conn) {
                    self.conns[c].congested = false;
                    self.make_ready(c);
                }
            }
        }
    }

    /// The connection of a number that the lower side may name: anything else is its fault. `None` also for one beyond the
    /// configured number of connections, which was refused and of which we keep nothing.
    fn find(&self, link: &mut Link, number: stream::Conn) -> Option<u32> {
        let slot = Conn::slot(number);
        if slot >= self.config.connections {
            return None;
        }
        let known = |c: &&Conn| c.number == number;
        let found = self.conns.get(slot).filter(known).map(|_| slot).ok_or(LinkFault::Reference);
        link.check(found)
    }

    fn opened(&mut self, link: &mut Link, number: stream::Conn, buf: u32) {
        let mut identity = Identity::new_zeroed();
        let read = link.loans.accept(buf).and_then(|()| link.theirs.copy(buf, 0, identity.as_mut_bytes()));
        if link.check(read).is_none() {
            return;
        }
        free(link, buf);
        let Some(name) = link.check(identity.name().ok_or(LinkFault::Message)) else { return };
        let slot = Conn::slot(number);
        if slot >= self.config.connections {
            self.stats.refused += 1;
            self.tell(Event::Refused { certificate: name.to_string(), why: "too many connections" });
            link.send(&Down::Abort { conn: number });
            return;
        }
        if self.conns.get(slot).is_some() {
            link.check::<()>(Err(LinkFault::Reference));
            return;
        }
        let role = if identity.role == ROLE_OPERATOR { Role::Operator } else { Role::Device };
        let name_id = self.names.intern(name.as_bytes());
        let seen = self.now;
        let conn = Conn { number, name: name_id, role, seen, state: State::Opened, ..Conn::default() };
        self.conns.occupy(slot, conn);
        if role == Role::Device && !acl::is_device_name(name) {
            return self.close(link, slot, "certificate name is no topic level");
        }
        self.arm(slot);
    }

    fn closed(&mut self, link: &mut Link, number: stream::Conn) {
        if let Some(c) = self.find(link, number) {
            if self.conns[c].state == State::Connected {
                self.left(c, "connection lost");
            } else if self.conns[c].state == State::Opened {
                self.refused(c, "connection lost before CONNECT");
            }
            self.forget(link, c);
        } else if link.port.fault().is_some() {
            return;
        }
        link.send(&Down::Released { conn: number });
    }

    /// Closes an open connection after all that was sent. Its will is published, unless it was discarded before.
    pub(crate) fn close(&mut self, link: &mut Link, c: u32, why: &'static str) {
        match self.conns[c].state {
            State::Closing => return,
            State::Opened => self.refused(c, why),
            State::Connected => self.left(c, why),
        }
        self.send_open(link, c);
        self.drop_rare(c);
        let conn = &mut self.conns[c];
        (conn.state, conn.seen) = (State::Closing, self.now);
        link.send(&Down::Finish { conn: conn.number });
        self.arm(c);
    }

    fn refused(&mut self, c: u32, why: &'static str) {
        self.stats.refused += 1;
        let certificate = self.text(self.conns[c].name);
        self.tell(Event::Refused { certificate, why });
    }

    /// Forgets everything about a connection that no longer exists.
    fn forget(&mut self, link: &mut Link, c: u32) {
        self.drop_rare(c);
        self.wheel.cancel(c);
        let conn = self.conns.remove(c);
        if conn.open != crate::slab::NONE && link.is_up() {
            link.own.put(conn.open);
        }
        self.names.release(conn.name);
    }

    /// The link went down, or tls broke its rules: every connection is lost, as if the network had failed. Sessions stay.
    fn lose_all(&mut self, link: &mut Link) {
        if !core::mem::take(&mut self.up) {
            return;
        }
        let mut connections = 0;
        for c in 0..self.conns.end() {
            match self.conns.get(c).map(|conn| conn.state) {
                None => continue,
                Some(State::Connected) => self.left(c, "link to tls lost"),
                Some(State::Opened | State::Closing) => {}
            }
            connections += 1;
            self.forget(link, c);
        }
        self.open.clear();
        self.ready.clear();
        self.gates.clear();
        self.resume.clear();
        self.tell(Event::LinkLost { connections });
        self.settle(link);
    }

    /// Ends sessions that are due to end and routes what the server itself has to send, until there is no more of it.
    pub(crate) fn settle(&mut self, link: &mut Link) {
        loop {
            if let Some(session) = self.doomed.pop() {
                self.end_doomed(link, session);
            } else if let Some(letter) = self.letters.pop_front() {
                self.route_letter(link, letter);
            } else {
                return;
            }
        }
    }
}

/// Timers.
impl Service {
    fn timers(&mut self, link: &mut Link) {
        let mut fired = core::mem::take(&mut self.fired);
        self.wheel.advance(self.now, &mut fired);
        for c in fired.drain(..) {
            self.fire(link, c);
            self.settle(link);
        }
        self.fired = fired;
        self.end_stalls();
        self.expire_sessions();
        if self.config.sys_interval_s > 0 && self.now >= self.sys_due {
            self.sys_due = self.now + self.config.sys_interval_s as u32 * (1000 / TICK_MS as u32);
            self.publish_sys();
        }
        self.settle(link);
    }

    fn fire(&mut self, link: &mut Link, c: u32) {
        match self.due(c) {
            None => self.trim(c),
            Some(due) if due > self.now => {
                self.trim(c);
                self.wheel.set(c, due);
            }
            Some(_) => match self.conns[c].state {
                State::Opened => self.close(link, c, "no CONNECT in time"),
                State::Connected if self.conns[c].paused => self.close(link, c, "reads nothing"),
                State::Connected => self.close(link, c, "keep alive or packet timed out"),
                State::Closing => {
                    link.send(&Down::Abort { conn: self.conns[c].number });
                }
            },
        }
    }

    /// When connection `c` has to be looked at.
    fn due(&self, c: u32) -> Option<u32> {
        let conn = &self.conns[c];
        let seconds = |s: u16| s as u32 * (1000 / TICK_MS as u32) + 1;
        let packet = seconds(self.config.packet_timeout_s);
        match conn.state {
            State::Opened => Some(conn.seen + seconds(self.config.connect_timeout_s)),
            State::Closing => Some(conn.seen + seconds(self.config.linger_s)),
            State::Connected if conn.paused => Some(conn.seen + packet),
            State::Connected => {
                // One and a half times the keep alive (section 3.1.2.10).
                let keep_alive = conn.keep_alive as u32 * (1500 / TICK_MS as u32) + 1;
                let keep_alive = Some(conn.seen + keep_alive).filter(|_| conn.keep_alive > 0);
                let partial = conn.rare.as_ref().filter(|r| !r.input.is_empty()).map(|r| r.since + packet);
                keep_alive.into_iter().chain(partial).min()
            }
        }
    }

    /// Makes the timer fire in time.
    pub(crate) fn arm(&mut self, c: u32) {
        match self.due(c) {
            Some(due) => self.wheel.set_sooner(c, due),
            None => self.wheel.cancel(c),
        }
    }

    /// Gives back the memory of a connection that has become idle.
    fn trim(&mut self, c: u32) {
        let conn = &mut self.conns[c];
        if conn.rare.as_ref().is_some_and(|r| r.input.is_empty()) && conn.writable() {
            self.drop_rare(c);
        }
        let conn = &self.conns[c];
        if conn.state == State::Connected {
            let session = &mut self.sessions[conn.session];
            session.flow.take_if(|f| f.is_empty());
        }
    }

    fn expire_sessions(&mut self) {
        let now_s = self.now_s();
        while let Some(s) = self.sessions.longest_away() {
            if now_s - self.sessions[s].left_s < self.config.session_expiry_s {
                break;
            }
            self.end_session(s);
        }
    }

    pub(crate) fn now_s(&self) -> u32 {
        self.now / (1000 / TICK_MS as u32)
    }

    /// The next tick at which something is due.
    fn deadline(&self) -> Option<u32> {
        let sys = Some(self.sys_due).filter(|_| self.config.sys_interval_s > 0);
        let stall = self.stalls.front().map(|&(due, _)| due);
        let expiry = self.sessions.longest_away().map(|s| {
            self.sessions[s]
                .left_s
                .saturating_add(self.config.session_expiry_s)
                .saturating_mul(1000 / TICK_MS as u32)
        });
        let backlog = Some(self.now).filter(|_| !self.resume.is_empty());
        [self.wheel.next(), sys, stall, expiry, backlog].into_iter().flatten().min()
    }
}

/// Returns a buffer of the lower side's.
pub(crate) fn free(link: &mut Link, buf: u32) {
    if link.loans.release(buf) {
        link.send(&Down::Free { buf });
    }
}
