//! Connections of the kernel's TCP as the messages of [`ipc::link::stream`].

mod conn;
mod table;

use conn::Conn;
use ipc::link::End;
use ipc::link::stream::{Down, PeerAddress, Reason, Up};
use ipc::ring::{Change, LinkFault};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};
use std::collections::VecDeque;
use table::Table;

pub type StreamEnd<'m> = End<'m, Up<PeerAddress>, Down>;

/// Tags of descriptors that are no connection.
const LISTENER: u64 = u64::MAX;
const BELL: u64 = u64::MAX - 1;
/// Connections taken in one round, so that a storm doesn't starve those that are there.
const ACCEPTS: usize = 64;
/// Reads of one connection in one round.
const READS: usize = 16;

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub connections: u32,
    /// Bytes queued from which a connection is congested, and to which it must fall to be drained again.
    pub congested: usize,
    pub drained: usize,
    /// Nanoseconds in which the peer must close after we did.
    pub finish_ns: u64,
}

/// The service.
pub struct Sockets<'l> {
    limits: Limits,
    listener: BorrowedFd<'l>,
    epoll: OwnedFd,
    table: Table,
    /// Connections that have bytes to read (or an end, or an error), each once, and those that have bytes to write.
    readable: VecDeque<u32>,
    dirty: Vec<u32>,
    /// When the peer must have closed; in order of time.
    finishing: VecDeque<(u64, u32)>,
    /// More may wait at the listener.
    accepting: bool,
    /// Room for what epoll says; empty between calls.
    events: Vec<epoll::Event>,
    scratch: Vec<u8>,
}

impl<'l> Sockets<'l> {
    /// `listener` must not block. `bell` wakes the task besides the sockets.
    pub fn new(limits: Limits, listener: BorrowedFd<'l>, bell: BorrowedFd) -> rustix::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, listener, EventData::new_u64(LISTENER), EventFlags::IN | EventFlags::ET)?;
        epoll::add(&epoll, bell, EventData::new_u64(BELL), EventFlags::IN)?;
        let table = Table::new(limits.connections);
        Ok(Sockets {
            limits,
            listener,
            epoll,
            table,
            readable: VecDeque::new(),
            dirty: Vec::new(),
            finishing: VecDeque::new(),
            accepting: true,
            events: Vec::with_capacity(256),
            scratch: vec![0; 64 << 10],
        })
    }

    /// One round at time `now` (nanoseconds). True: more can be done at once.
    pub fn drive(&mut self, now: u64, end: &mut StreamEnd) -> bool {
        if end.poll(true) == Change::Down {
            self.forget_all();
            end.poll(true);
        }
        for _ in 0..end.port.capacity() {
            let Some(command) = end.recv() else { break };
            let result = self.command(now, end, command);
            end.check(result);
        }
        self.write_dirty(end);
        self.end_overdue(now, end);
        if end.is_up() {
            self.accept(end);
            self.read_ready(end);
        }
        let can_read = !self.readable.is_empty() && end.own.available() > 0;
        end.is_up() && (can_read || (self.accepting && self.table.has_room()))
    }

    /// Waits until a socket or the bell has something, at most until `drive` must be called again. True: the bell.
    pub fn wait(&mut self, now: u64, idle: bool) -> bool {
        let next = self.finishing.front().map(|(at, _)| at.saturating_sub(now));
        let limit = if idle { next } else { Some(0) };
        let limit = limit.map(|ns| rustix::event::Timespec {
            tv_sec: (ns / 1_000_000_000) as i64,
            tv_nsec: (ns % 1_000_000_000) as i64,
        });
        let mut events = std::mem::take(&mut self.events);
        let mut rung = false;
        // An interrupted call is one without events: the vector stays empty.
        let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), limit.as_ref());
        for event in events.drain(..) {
            match event.data.u64() {
                LISTENER => self.accepting = true,
                BELL => rung = true,
                number => self.ready(number as u32, event.flags),
            }
        }
        self.events = events;
        rung
    }

    fn ready(&mut self, number: u32, flags: EventFlags) {
        let Some(conn) = self.table.get_mut(number) else { return };
        if flags.intersects(EventFlags::OUT | EventFlags::ERR | EventFlags::HUP) && conn.blocked {
            conn.blocked = false;
            self.dirty.push(number);
        }
        let ends = flags.intersects(EventFlags::RDHUP | EventFlags::ERR | EventFlags::HUP);
        conn.end_seen |= ends;
        if ends || flags.contains(EventFlags::IN) {
            conn.readable = true;
            self.list(number);
        }
    }

    /// Lists a connection that may be read, once.
    fn list(&mut self, number: u32) {
        let Some(conn) = self.table.get_mut(number) else { return };
        if conn.readable && !conn.paused && !conn.listed {
            conn.listed = true;
            self.readable.push_back(number);
        }
    }

    fn accept(&mut self, end: &mut StreamEnd) {
        for _ in 0..ACCEPTS {
            if !self.accepting || !self.table.has_room() {
                return;
            }
            match acceptfrom_with(self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok((socket, peer)) => {
                    let address = peer.and_then(|p| std::net::SocketAddrV4::try_from(p).ok());
                    let Some(address) = address else { continue };
                    self.opened(end, socket, PeerAddress { ip: address.ip().octets(), port: address.port() });
                }
                Err(Errno::AGAIN) => self.accepting = false,
                // This connection is gone already, or descriptors ran out: the next event tries again.
                Err(Errno::CONNABORTED | Errno::INTR) => {}
                Err(_) => self.accepting = false,
            }
        }
    }

    fn opened(&mut self, end: &mut StreamEnd, socket: OwnedFd, opening: PeerAddress) {
        let number = self.table.insert(Conn::new(socket));
        let conn = self.table.get_mut(number).expect("inserted just now");
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let added = epoll::add(&self.epoll, conn.socket.as_fd(), EventData::new_u64(number as u64), flags);
        end.send(&Up::Opened { conn: number, opening });
        if added.is_err() {
            self.close(end, number, Reason::Reset);
        }
    }

    /// What tls asks for. A message that crosses a `Closed` is ignored, its buffer returned.
    fn command(&mut self, now: u64, end: &mut StreamEnd, command: Down) -> Result<(), LinkFault> {
        match command {
            Down::Free { buf } => return end.own.give_back(buf),
            Down::Send { conn, buf, len } => return self.send(end, conn, buf, len),
            Down::Released { conn } => {
                return if self.table.release(conn) { Ok(()) } else { Err(LinkFault::Reference) };
            }
            Down::Finish { conn: number } => {
                // Once: a neighbour that repeats itself doesn't make the list of deadlines longer.
                if let Some(conn) = self.known(number)?.filter(|conn| !conn.finishing) {
                    conn.finishing = true;
                    self.finishing.push_back((now + self.limits.finish_ns, number));
                    self.dirty.push(number);
                }
            }
            Down::Abort { conn: number } => {
                if let Some(conn) = self.known(number)? {
                    conn.reset_on_close();
                    self.close(end, number, Reason::Aborted);
                }
            }
            Down::Pause { conn } => drop(self.known(conn)?.map(|c| c.paused = true)),
            Down::Resume { conn: number } => {
                if let Some(conn) = self.known(number)? {
                    conn.paused = false;
                    self.list(number);
                }
            }
        }
        Ok(())
    }

    /// The connection, unless it has closed; an error for a number that was never given out.
    fn known(&mut self, number: u32) -> Result<Option<&mut Conn>, LinkFault> {
        if self.table.is_closed(number) {
            Ok(None)
        } else {
            self.table.get_mut(number).map(Some).ok_or(LinkFault::Reference)
        }
    }

    fn send(&mut self, end: &mut StreamEnd, number: u32, buf: u32, len: u16) -> Result<(), LinkFault> {
        end.loans.accept(buf)?;
        if len == 0 || !end.theirs.holds(buf, 0, len as usize) {
            return Err(LinkFault::Buffer);
        }
        let limit = self.limits.congested;
        match self.known(number)? {
            Some(conn) if conn.finishing => return Err(LinkFault::Message),
            Some(conn) => {
                conn.append(buf, len);
                let congested = !conn.congested && conn.queued > limit;
                conn.congested |= congested;
                self.dirty.push(number);
                if congested {
                    end.send(&Up::Congested { conn: number });
                }
            }
            None => {
                let _ = end.loans.release(buf);
                end.send(&Up::Sent { buf });
            }
        }
        Ok(())
    }

    fn write_dirty(&mut self, end: &mut StreamEnd) {
        for number in std::mem::take(&mut self.dirty) {
            let Some(conn) = self.table.get_mut(number) else { continue };
            let done = conn.write(end, &mut self.scratch);
            if conn.congested && conn.queued <= self.limits.drained {
                conn.congested = false;
                end.send(&Up::Drained { conn: number });
            }
            match done {
                Err(_) => self.close(end, number, Reason::Reset),
                Ok(()) if conn.both_finished() => self.close(end, number, Reason::Finished),
                Ok(()) => {}
            }
        }
    }

    /// Everything that is readable, a few reads a connection, as far as there are buffers.
    fn read_ready(&mut self, end: &mut StreamEnd) {
        for _ in 0..self.readable.len() {
            if end.own.available() == 0 {
                return;
            }
            let Some(number) = self.readable.pop_front() else { return };
            let Some(conn) = self.table.get_mut(number) else { continue };
            conn.listed = false;
            if conn.paused || !conn.readable {
                continue;
            }
            match conn.read(number, end, READS) {
                Err(_) => self.close(end, number, Reason::Reset),
                Ok(()) if conn.both_finished() => self.close(end, number, Reason::Finished),
                Ok(()) => self.list(number),
            }
        }
    }

    fn end_overdue(&mut self, now: u64, end: &mut StreamEnd) {
        while self.finishing.front().is_some_and(|&(at, _)| at <= now) {
            let Some((_, number)) = self.finishing.pop_front() else { return };
            if let Some(conn) = self.table.get_mut(number) {
                conn.reset_on_close();
                self.close(end, number, Reason::Timeout);
            }
        }
    }

    /// Closes the socket; the number is free when tls has said `Released`.
    fn close(&mut self, end: &mut StreamEnd, number: u32, reason: Reason) {
        if let Some(conn) = self.table.close(number) {
            if conn.listed {
                self.readable.retain(|&listed| listed != number);
            }
            for (buf, _) in conn.queue {
                let _ = end.loans.release(buf);
                end.send(&Up::Sent { buf });
            }
            end.send(&Up::Closed { conn: number, reason });
        }
    }

    /// tls is gone, and with it all that it knew: every connection is reset.
    fn forget_all(&mut self) {
        self.table.clear();
        self.readable.clear();
        self.dirty.clear();
        self.finishing.clear();
    }
}

#[cfg(test)]
mod tests;
