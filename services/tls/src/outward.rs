//! The broker's buffers, sealed into ciphertext buffers: one buffer is one record.

use crate::chain::Piece;
use crate::record::{Alert, Content, HEADER};
use crate::service::{Links, Service};
use crate::slot::{self, Phase};
use ipc::link::stream::{Conn, Up};
use ipc::ring::LinkFault;

/// Most bytes that the broker puts into one buffer, so that the record fits a ciphertext buffer of 2048.
pub const MAX_CHUNK: u16 = 2026;

impl Service {
    /// The slot of a connection that the broker knows, and hasn't been told to be closed.
    pub(crate) fn known(&self, conn: Conn) -> Option<usize> {
        self.find(conn).filter(|&i| self.slots[i].flags & (slot::KNOWN | slot::CLOSED_ABOVE) == slot::KNOWN)
    }

    /// The same, while it may still send.
    fn sending(&self, conn: Conn) -> Option<usize> {
        let index = self.known(conn)?;
        let slot = &self.slots[index];
        (matches!(slot.phase, Phase::Open(_)) && !slot.has(slot::FINISHING)).then_some(index)
    }

    /// The broker: `len` bytes at the start of its buffer `buf`.
    pub(crate) fn send(&mut self, conn: Conn, buf: u32, len: u16, links: &mut Links<'_, '_>) {
        let accepted = links.session.loans.accept(buf);
        if links.session.check(accepted).is_none() {
            return;
        }
        if len > MAX_CHUNK || !links.session.theirs.holds(buf, 0, len as usize) {
            return links.session.port.blame(LinkFault::Buffer);
        }
        // Else it crosses a Closed.
        let Some(index) = self.sending(conn).filter(|_| len > 0) else { return links.give_back(buf) };
        let piece = Piece { buf, off: 0, len };
        let slot = &mut self.slots[index];
        let behind = slot.busy.as_ref().is_some_and(|b| !b.sends.is_empty());
        if behind || slot.has(slot::CONGESTED) || !self.seal(index, piece, links) {
            let slot = &mut self.slots[index];
            if matches!(slot.phase, Phase::Open(_)) {
                self.sends.push(&mut slot.busy().sends, piece);
            }
        }
    }

    /// Seals one buffer, with the KeyUpdate that must go before it. False: no ciphertext buffer is free, and the slot waits for one.
    fn seal(&mut self, index: usize, piece: Piece, links: &mut Links<'_, '_>) -> bool {
        let slot = &mut self.slots[index];
        let Phase::Open(session) = &mut slot.phase else { return false };
        let (conn, keys) = (slot.conn, &mut self.keys);
        let own = &mut links.stream.own;
        let update = session.wants_key_update();
        if own.available() < 1 + update as usize {
            Self::enqueue(&mut self.blocked, slot, index, slot::BLOCKED);
            return false;
        }
        if update && let Some(buf) = own.take() {
            match session.seal_key_update(keys, conn, own.bytes(buf)) {
                Some(len) => links.send_below(conn, buf, len),
                None => own.put(buf),
            }
        }
        let own = &mut links.stream.own;
        let Some(buf) = own.take() else { return false };
        let bytes = own.bytes(buf);
        let len = piece.len as usize;
        let copied = links.session.theirs.copy(piece.buf, 0, &mut bytes[HEADER..HEADER + len]);
        match session.seal(keys, conn, Content::Data, bytes, len).filter(|_| copied.is_ok()) {
            Some(len) => links.send_below(conn, buf, len),
            None => {
                own.put(buf);
                links.give_back(piece.buf);
                self.fail(index, Alert::InternalError, links);
                return true;
            }
        }
        links.give_back(piece.buf);
        true
    }

    /// Seals what waits, as far as tcp and the pool allow; then close_notify, if the broker is through.
    pub(crate) fn flush(&mut self, index: usize, links: &mut Links<'_, '_>) {
        while let Some(piece) = self.waiting(index) {
            if self.slots[index].has(slot::CONGESTED) || !self.seal(index, piece, links) {
                return;
            }
            if let Some(busy) = &mut self.slots[index].busy {
                self.sends.pop(&mut busy.sends);
            }
        }
        let slot = &mut self.slots[index];
        if !matches!(slot.phase, Phase::Open(_)) {
            return;
        }
        if !slot.has(slot::FINISHING) {
            slot.tidy();
        } else if links.stream.own.available() == 0 {
            Self::enqueue(&mut self.blocked, slot, index, slot::BLOCKED);
        } else {
            self.farewell(index, Alert::CloseNotify, links);
        }
    }

    fn waiting(&self, index: usize) -> Option<Piece> {
        self.sends.first(&self.slots[index].busy.as_ref()?.sends)
    }

    /// The broker: close after all that was sent.
    pub(crate) fn finish(&mut self, conn: Conn, links: &mut Links<'_, '_>) {
        let Some(index) = self.sending(conn) else { return };
        let timeout = self.start_timeout(index);
        let slot = &mut self.slots[index];
        slot.flags |= slot::FINISHING;
        slot.busy().timeout = timeout;
        self.flush(index, links);
    }

    /// tcp: much is in flight (and: no longer).
    pub(crate) fn congested(&mut self, index: usize, congested: bool, links: &mut Links<'_, '_>) {
        let slot = &mut self.slots[index];
        if slot.has(slot::CONGESTED) == congested {
            return;
        }
        slot.flags ^= slot::CONGESTED;
        let conn = slot.conn;
        if !congested {
            self.flush(index, links);
        }
        if self.known(conn).is_some() {
            links.session.send(&if congested { Up::Congested { conn } } else { Up::Drained { conn } });
        }
    }

    /// Ciphertext buffers have come back: those who wait for one get their turn.
    pub(crate) fn unblock(&mut self, links: &mut Links<'_, '_>) {
        for _ in 0..self.blocked.len() {
            if links.stream.own.available() == 0 {
                return;
            }
            let Some(index) = self.blocked.pop_front().map(|i| i as usize) else { return };
            let slot = &mut self.slots[index];
            slot.flags &= !slot::BLOCKED;
            match slot.phase {
                Phase::Handshake(_) => self.send_output(index, links),
                Phase::Open(_) => self.flush(index, links),
                Phase::Free | Phase::Closing { .. } => {}
            }
        }
    }
}
