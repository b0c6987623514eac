//! One connection.

use super::StreamEnd;
use ipc::link::stream::Up;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown, sockopt};
use std::collections::VecDeque;

pub struct Conn {
    pub socket: OwnedFd,
    /// Buffers of tls in order, with their lengths; of the first one `written` bytes are gone.
    pub queue: VecDeque<(u32, u16)>,
    written: u16,
    pub queued: usize,
    /// The socket took less than it was given; it says when it takes more.
    pub blocked: bool,
    pub readable: bool,
    /// Stands in the list of those that are read.
    pub listed: bool,
    pub paused: bool,
    pub congested: bool,
    /// tls sends no more; and the FIN is out.
    pub finishing: bool,
    finished: bool,
    /// An end or an error is to be read after the bytes that are there.
    pub end_seen: bool,
    /// The peer sends no more.
    peer_finished: bool,
}

impl Conn {
    pub fn new(socket: OwnedFd) -> Self {
        Conn {
            socket,
            queue: VecDeque::new(),
            written: 0,
            queued: 0,
            blocked: false,
            readable: false,
            listed: false,
            paused: false,
            congested: false,
            finishing: false,
            finished: false,
            end_seen: false,
            peer_finished: false,
        }
    }

    pub fn append(&mut self, buf: u32, len: u16) {
        self.queue.push_back((buf, len));
        self.queued += len as usize;
    }

    pub fn both_finished(&self) -> bool {
        self.finished && self.peer_finished
    }

    /// Closing sends RST then.
    pub fn reset_on_close(&self) {
        let _ = sockopt::set_socket_linger(&self.socket, Some(std::time::Duration::ZERO));
    }

    /// Writes what is queued, as much as the socket takes; then the FIN, if it is due.
    pub fn write(&mut self, end: &mut StreamEnd, scratch: &mut [u8]) -> Result<(), Errno> {
        while !self.queue.is_empty() && !self.blocked {
            let given = self.gather(end, scratch);
            match send(&self.socket, &scratch[..given], SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(taken) => {
                    self.blocked = taken < given;
                    self.advance(end, taken);
                }
                Err(Errno::AGAIN) => self.blocked = true,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        if self.finishing && !self.finished && self.queue.is_empty() {
            self.finished = true;
            shutdown(&self.socket, Shutdown::Write)?;
        }
        Ok(())
    }

    /// Copies the start of the queue together: one call of the kernel for all of it. (tls may write its pool at any time, so it
    /// is read by a copy anyway.)
    fn gather(&self, end: &StreamEnd, scratch: &mut [u8]) -> usize {
        let (mut at, mut skip) = (0, self.written);
        for &(buf, len) in &self.queue {
            let n = (len - skip) as usize;
            let Some(into) = scratch.get_mut(at..at + n) else { break };
            end.theirs.copy(buf, skip as usize, into).expect("checked when it came");
            (at, skip) = (at + n, 0);
        }
        at
    }

    fn advance(&mut self, end: &mut StreamEnd, mut taken: usize) {
        self.queued -= taken;
        while let Some(&(buf, len)) = self.queue.front() {
            let left = (len - self.written) as usize;
            if taken < left {
                self.written += taken as u16;
                return;
            }
            taken -= left;
            self.written = 0;
            self.queue.pop_front();
            let _ = end.loans.release(buf);
            end.send(&Up::Sent { buf });
        }
    }

    /// Reads into buffers of our pool until nothing is left, they run out, or it was `reads` times.
    pub fn read(&mut self, number: u32, end: &mut StreamEnd, reads: usize) -> Result<(), Errno> {
        for _ in 0..reads {
            let Some(buf) = end.own.take() else { return Ok(()) };
            let size = end.own.size();
            let came = match recv(&self.socket, end.own.bytes(buf), RecvFlags::DONTWAIT) {
                Ok((_, n)) => n,
                Err(error) => {
                    end.own.put(buf);
                    match error {
                        Errno::AGAIN => self.readable = false,
                        Errno::INTR => continue,
                        error => return Err(error),
                    }
                    return Ok(());
                }
            };
            if came == 0 {
                end.own.put(buf);
                (self.readable, self.peer_finished) = (false, true);
                end.send(&Up::Finished { conn: number });
                return Ok(());
            }
            end.own.lend(buf);
            end.send(&Up::Data { conn: number, buf, off: 0, len: came as u16 });
            // epoll(7): less than was asked for means that the socket is empty; what comes then, an end too, is an event.
            if came < size && !self.end_seen {
                self.readable = false;
                return Ok(());
            }
        }
        Ok(())
    }
}
