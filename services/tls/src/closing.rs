//! A connection's end, from whichever side it comes.

use crate::handshake::Failure;
use crate::record::{Alert, Direction};
use crate::service::{Links, Service};
use crate::slot::{self, Phase};
use crate::timeouts;
use ipc::link::stream::{Conn, Down, Reason, Up};
use ipc::ring::LinkFault;

/// What tcp is told when we are through with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Close after all that was sent.
    Finish,
    /// Close at once.
    Abort,
    /// Nothing: tcp has closed it, or is gone.
    Gone,
}

impl Service {
    /// Sends and passes on nothing more. The slot is free when tcp has said `Closed`, and the broker, if it knows of the
    /// connection, `Released`.
    pub(crate) fn close(&mut self, index: usize, ending: Ending, links: &mut Links<'_, '_>) {
        self.drop_queues(index, links);
        let conn = self.slots[index].conn;
        let timeout = match ending {
            Ending::Gone => timeouts::NONE,
            Ending::Finish => {
                links.stream.send(&Down::Finish { conn });
                self.start_timeout(index)
            }
            Ending::Abort => {
                links.stream.send(&Down::Abort { conn });
                timeouts::NONE
            }
        };
        self.leave_phase(index, Phase::Closing { timeout });
        self.slots[index].flags |= slot::DEAF;
    }

    pub(crate) fn start_timeout(&mut self, index: usize) -> u32 {
        self.timeouts.start(index as u32, self.now)
    }

    /// Gives back what the present phase holds, and enters the next.
    pub(crate) fn leave_phase(&mut self, index: usize, next: Phase) {
        let slot = &mut self.slots[index];
        match core::mem::replace(&mut slot.phase, next) {
            Phase::Free => {}
            Phase::Handshake(handshake) => {
                self.admission.leave(handshake.peer.ip);
                self.timeouts.cancel(handshake.timeout);
            }
            Phase::Open(_) => {
                self.keys.forget(slot.conn, Direction::Receive);
                self.keys.forget(slot.conn, Direction::Send);
            }
            Phase::Closing { timeout } => self.timeouts.cancel(timeout),
        }
    }

    /// Gives every buffer of others that waits here back.
    fn drop_queues(&mut self, index: usize, links: &mut Links<'_, '_>) {
        let Some(mut busy) = self.slots[index].busy.take() else { return };
        self.timeouts.cancel(busy.timeout);
        self.incomplete -= busy.bytes.len();
        while let Some(piece) = self.frames.pop(&mut busy.pieces) {
            links.free_frame(piece.buf);
        }
        while let Some(piece) = self.sends.pop(&mut busy.sends) {
            links.give_back(piece.buf);
        }
    }

    /// The peer broke the protocol: an alert, if there is a buffer for it, and the end.
    pub(crate) fn fail(&mut self, index: usize, alert: Alert, links: &mut Links<'_, '_>) {
        self.counters.broken += 1;
        self.farewell(index, alert, links);
        self.close_above(index, Reason::Protocol, links);
    }

    /// Says `alert` and ends the connection; without a buffer to say it, at once.
    pub(crate) fn farewell(&mut self, index: usize, alert: Alert, links: &mut Links<'_, '_>) {
        let slot = &mut self.slots[index];
        let said = match &mut slot.phase {
            Phase::Open(session) => session.say(alert, &mut self.keys, slot.conn, links),
            _ => false,
        };
        self.close(index, if said { Ending::Finish } else { Ending::Abort }, links);
    }

    /// Tells the broker, if it knows of the connection and hasn't been told.
    pub(crate) fn close_above(&mut self, index: usize, reason: Reason, links: &mut Links<'_, '_>) {
        let slot = &mut self.slots[index];
        if slot.flags & (slot::KNOWN | slot::CLOSED_ABOVE) == slot::KNOWN {
            slot.flags |= slot::CLOSED_ABOVE;
            links.session.send(&Up::Closed { conn: slot.conn, reason });
        }
    }

    /// tcp: the connection is gone.
    pub(crate) fn closed_below(&mut self, index: usize, reason: Reason, links: &mut Links<'_, '_>) {
        if let Phase::Handshake(handshake) = &self.slots[index].phase {
            let peer = handshake.peer;
            self.refused(peer, Failure::HungUp);
        }
        self.slots[index].flags |= slot::CLOSED_BELOW;
        self.close(index, Ending::Gone, links);
        self.close_above(index, reason, links);
        self.free_slot(index, links);
    }

    /// The broker: forget the connection.
    pub(crate) fn released(&mut self, conn: Conn, links: &mut Links<'_, '_>) {
        let awaited = slot::KNOWN | slot::CLOSED_ABOVE;
        let Some(index) = self.find(conn).filter(|&i| self.slots[i].flags & awaited == awaited) else {
            return links.session.port.blame(LinkFault::Reference);
        };
        self.slots[index].flags &= !awaited;
        self.free_slot(index, links);
    }

    /// The broker: close at once.
    pub(crate) fn abort(&mut self, conn: Conn, links: &mut Links<'_, '_>) {
        if let Some(index) = self.known(conn)
            && !self.slots[index].has(slot::CLOSED_BELOW)
        {
            self.close(index, Ending::Abort, links);
        }
    }

    /// Frees the slot when both neighbours are through with it.
    fn free_slot(&mut self, index: usize, links: &mut Links<'_, '_>) {
        let slot = &self.slots[index];
        if slot.has(slot::CLOSED_BELOW) && !slot.has(slot::KNOWN) {
            links.stream.send(&Down::Released { conn: slot.conn });
            self.leave_phase(index, Phase::Free);
            self.live -= 1;
        }
    }

    pub(crate) fn timed_out(&mut self, index: usize, links: &mut Links<'_, '_>) {
        match &mut self.slots[index].phase {
            Phase::Free => {}
            Phase::Handshake(handshake) => {
                handshake.timeout = timeouts::NONE;
                self.refuse(index, Failure::Timeout, links);
            }
            Phase::Open(_) => {
                if let Some(busy) = &mut self.slots[index].busy {
                    busy.timeout = timeouts::NONE;
                }
                self.close(index, Ending::Abort, links);
            }
            Phase::Closing { timeout } => {
                *timeout = timeouts::NONE;
                self.close(index, Ending::Abort, links);
            }
        }
    }

    /// The broker is gone, and with it whatever a connection was for.
    pub(crate) fn broker_lost(&mut self, links: &mut Links<'_, '_>) {
        for index in 0..self.slots.len() {
            self.slots[index].flags &= !(slot::KNOWN | slot::CLOSED_ABOVE);
            match self.slots[index].phase {
                Phase::Free => {}
                Phase::Closing { .. } => self.free_slot(index, links),
                Phase::Handshake(_) => self.close(index, Ending::Abort, links),
                Phase::Open(_) => self.farewell(index, Alert::CloseNotify, links),
            }
        }
    }

    /// tcp is gone, and with it every connection.
    pub(crate) fn tcp_lost(&mut self, links: &mut Links<'_, '_>) {
        for index in 0..self.slots.len() {
            if !matches!(self.slots[index].phase, Phase::Free) {
                self.slots[index].flags |= slot::CLOSED_BELOW;
                self.close(index, Ending::Gone, links);
                self.close_above(index, Reason::Restart, links);
                self.free_slot(index, links);
            }
        }
    }
}

impl Links<'_, '_> {
    /// A buffer of the broker's goes back.
    pub fn give_back(&mut self, buf: u32) {
        if self.session.loans.release(buf) {
            self.session.send(&Up::Sent { buf });
        }
    }
}
