//! Received bytes, from tcp's pieces by way of whole records into plaintext buffers for the broker.
//!
//! A record that lies in one piece is copied straight into a plaintext buffer and opened there. Others are collected in
//! `Busy::bytes`, opened there, and passed on in as many buffers as they need. Where no plaintext buffer is left, pieces wait, their frames
//! stay out, and tcp's window closes.

use crate::chain::Piece;
use crate::record::{self, Alert, HEADER, KeyCache, Received, Session};
use crate::service::{Links, Service};
use crate::slot::{self, Busy, Phase, Slot};
use ipc::link::stream::{Conn, Down, Reason, Up};
use ipc::ring::LinkFault;

/// What one turn came to.
enum Turn {
    /// Something was done, and there may be more.
    Again,
    /// Nothing is left to do.
    Idle,
    /// No plaintext buffer.
    Starved,
    /// The peer has said close_notify.
    Ended,
    /// The peer has sent an alert: the connection is dead.
    Dead,
    /// The peer broke the protocol.
    Broken(Alert),
}

impl Service {
    /// tcp: `len` bytes from `off` of frame `buf`.
    pub(crate) fn data(&mut self, conn: Conn, buf: u32, off: u16, len: u16, links: &mut Links<'_, '_>) {
        let index = self.open_below(conn).ok_or(LinkFault::Reference);
        let index = index.and_then(|i| links.stream.loans.accept(buf).map(|()| i));
        let Some(index) = links.stream.check(index) else { return };
        if !links.stream.theirs.holds(buf, off as usize, len as usize) {
            return links.stream.port.blame(LinkFault::Buffer);
        }
        let slot = &self.slots[index];
        match slot.phase {
            _ if slot.has(slot::DEAF) || len == 0 => links.free_frame(buf),
            Phase::Handshake(_) => self.handshake_data(index, (buf, off, len), links),
            Phase::Open(_) => self.advance(index, Some(Piece { buf, off, len }), links),
            Phase::Free | Phase::Closing { .. } => links.free_frame(buf),
        }
    }

    /// tcp: the peer sends no more. Passed on behind the bytes before it. (Without a close_notify before it somebody may have cut the
    /// stream; MQTT's packets show where they end, so the broker needs no other word.)
    pub(crate) fn end_below(&mut self, index: usize, links: &mut Links<'_, '_>) {
        let slot = &mut self.slots[index];
        slot.flags |= slot::END_WAITS;
        match slot.phase {
            Phase::Handshake(_) => Self::enqueue(&mut self.stepping, slot, index, slot::STEPPING),
            Phase::Open(_) => self.advance(index, None, links),
            Phase::Free | Phase::Closing { .. } => {}
        }
    }

    /// Passes on what has come, and then `fresh`.
    pub(crate) fn advance(&mut self, index: usize, fresh: Option<Piece>, links: &mut Links<'_, '_>) {
        let mut piece = fresh;
        let slot = &mut self.slots[index];
        let waits = slot.has(slot::PAUSED | slot::STARVED);
        let behind = slot.busy.as_ref().is_some_and(|b| !b.pieces.is_empty());
        if (waits || behind)
            && let Some(piece) = piece.take()
        {
            self.frames.push(&mut slot.busy().pieces, piece);
        }
        if waits {
            return;
        }
        let outcome = loop {
            match self.turn(index, &mut piece, links) {
                Turn::Again => {}
                other => break other,
            }
        };
        self.settle(index, outcome, piece, links);
    }

    fn settle(&mut self, index: usize, outcome: Turn, piece: Option<Piece>, links: &mut Links<'_, '_>) {
        let slot = &mut self.slots[index];
        if let (Turn::Starved, Some(piece)) = (&outcome, piece) {
            self.frames.push_front(&mut slot.busy().pieces, piece);
        } else if let Some(piece) = piece {
            links.free_frame(piece.buf);
        }
        match outcome {
            Turn::Starved => Self::enqueue(&mut self.starved, slot, index, slot::STARVED),
            Turn::Broken(alert) => self.fail(index, alert, links),
            Turn::Dead => {
                self.counters.broken += 1;
                self.close(index, crate::closing::Ending::Finish, links);
                self.close_above(index, Reason::Protocol, links);
            }
            Turn::Ended => self.end_above(index, links),
            Turn::Again | Turn::Idle if slot.has(slot::END_WAITS) => self.end_above(index, links),
            Turn::Again | Turn::Idle => slot.tidy(),
        }
    }

    /// Nothing more is read: the broker is told.
    fn end_above(&mut self, index: usize, links: &mut Links<'_, '_>) {
        let slot = &mut self.slots[index];
        if slot.has(slot::DEAF) {
            return;
        }
        slot.flags |= slot::DEAF;
        if let Some(busy) = &mut slot.busy {
            while let Some(piece) = self.frames.pop(&mut busy.pieces) {
                links.free_frame(piece.buf);
            }
            busy.discard_to(busy.bytes.len(), &mut self.incomplete);
        }
        slot.tidy();
        links.session.send(&Up::Finished { conn: slot.conn });
    }

    fn turn(&mut self, index: usize, piece: &mut Option<Piece>, links: &mut Links<'_, '_>) -> Turn {
        let Service { slots, keys, frames, incomplete, limits, .. } = self;
        let Slot { conn, phase, busy, .. } = &mut slots[index];
        let Phase::Open(session) = phase else { return Turn::Idle };
        let context = &mut Context { conn: *conn, session, keys, incomplete, links };
        if let Some(busy) = busy {
            if !busy.plain.is_empty() {
                return context.deliver(busy);
            }
            if piece.is_none() {
                *piece = frames.pop(&mut busy.pieces);
            }
            if !busy.bytes.is_empty() {
                return context.collect(busy, piece, limits.incomplete_bytes as usize);
            }
        }
        let Some(whole) = piece else { return Turn::Idle };
        match context.whole_record(whole) {
            Ok(Some(turn)) => {
                context.links.drop_if_used(piece);
                turn
            }
            // Only a part of a record: to be collected.
            Ok(None) => {
                context.collect(busy.get_or_insert_default(), piece, limits.incomplete_bytes as usize)
            }
            Err(alert) => Turn::Broken(alert),
        }
    }

    /// Plaintext buffers have come back: those who wait for one get their turn.
    pub(crate) fn feed(&mut self, links: &mut Links<'_, '_>) {
        for _ in 0..self.starved.len() {
            if links.session.own.available() == 0 {
                return;
            }
            let Some(index) = self.starved.pop_front().map(|i| i as usize) else { return };
            let slot = &mut self.slots[index];
            slot.flags &= !slot::STARVED;
            match slot.phase {
                Phase::Handshake(_) => Self::enqueue(&mut self.stepping, slot, index, slot::STEPPING),
                Phase::Open(_) if !slot.has(slot::DEAF) => self.advance(index, None, links),
                _ => {}
            }
        }
    }

    /// The broker: stop (go on) reading this connection.
    pub(crate) fn pause(&mut self, conn: Conn, pause: bool, links: &mut Links<'_, '_>) {
        let Some(index) = self.known(conn) else { return };
        let slot = &mut self.slots[index];
        if !matches!(slot.phase, Phase::Open(_)) || slot.has(slot::DEAF) || slot.has(slot::PAUSED) == pause {
            return;
        }
        slot.flags ^= slot::PAUSED;
        if pause {
            links.stream.send(&Down::Pause { conn });
        } else {
            links.stream.send(&Down::Resume { conn });
            self.advance(index, None, links);
        }
    }
}

/// What a turn works on.
struct Context<'c, 'a, 'm> {
    conn: Conn,
    session: &'c mut Session,
    keys: &'c mut KeyCache,
    incomplete: &'c mut usize,
    links: &'c mut Links<'a, 'm>,
}

impl Context<'_, '_, '_> {
    /// A record that lies whole in the piece, and in one plaintext buffer. `None`: there is none.
    fn whole_record(&mut self, piece: &mut Piece) -> Result<Option<Turn>, Alert> {
        let mut header = [0; HEADER];
        if (piece.len as usize) < HEADER {
            return Ok(None);
        }
        let (theirs, own) = (self.links.stream.theirs, &mut self.links.session.own);
        let fault = |_| Alert::InternalError;
        theirs.copy(piece.buf, piece.off as usize, &mut header).map_err(fault)?;
        let len = HEADER + record::body_len(header)?;
        if len > piece.len as usize || len > own.size() {
            return Ok(None);
        }
        let Some(buf) = own.take() else { return Ok(Some(Turn::Starved)) };
        let bytes = &mut own.bytes(buf)[..len];
        let copied = theirs.copy(piece.buf, piece.off as usize, bytes).map_err(fault);
        // The header may be another one by now; then the record doesn't open, as if it had come like that.
        let received = copied.and_then(|()| self.session.open(self.keys, self.conn, bytes));
        piece.off += len as u16;
        piece.len -= len as u16;
        match received {
            Ok(Received::Data(text)) => {
                own.lend(buf);
                let (off, len) = (text.start as u16, text.len() as u16);
                self.links.session.send(&Up::Data { conn: self.conn, buf, off, len });
                Ok(Some(Turn::Again))
            }
            other => {
                own.put(buf);
                Ok(Some(turn(other?)))
            }
        }
    }

    /// Adds to the record at the start of `busy.bytes`, and opens it when it is whole.
    fn collect(&mut self, busy: &mut Busy, piece: &mut Option<Piece>, limit: usize) -> Turn {
        let have = &busy.bytes[busy.start..];
        let whole = match have.first_chunk::<HEADER>().map(|&h| record::body_len(h)) {
            None => HEADER,
            Some(Ok(len)) => HEADER + len,
            Some(Err(alert)) => return Turn::Broken(alert),
        };
        if have.len() >= whole && whole > HEADER {
            return self.open(busy, whole);
        }
        let Some(from) = piece else { return Turn::Idle };
        let len = (whole - have.len()).min(from.len as usize);
        *self.incomplete += len;
        let at = busy.bytes.len();
        busy.bytes.resize(at + len, 0);
        let copied = self.links.stream.theirs.copy(from.buf, from.off as usize, &mut busy.bytes[at..]);
        if copied.is_err() || *self.incomplete > limit {
            return Turn::Broken(Alert::InternalError);
        }
        from.off += len as u16;
        from.len -= len as u16;
        self.links.drop_if_used(piece);
        Turn::Again
    }

    /// Opens the whole record at the start of `busy.bytes`.
    fn open(&mut self, busy: &mut Busy, len: usize) -> Turn {
        let end = busy.start + len;
        match self.session.open(self.keys, self.conn, &mut busy.bytes[busy.start..end]) {
            Ok(Received::Data(text)) => {
                busy.plain = busy.start + text.start..busy.start + text.end;
                busy.record_end = end;
                Turn::Again
            }
            Ok(other) => {
                busy.discard_to(end, self.incomplete);
                turn(other)
            }
            Err(alert) => Turn::Broken(alert),
        }
    }

    /// Passes on one buffer of an opened record.
    fn deliver(&mut self, busy: &mut Busy) -> Turn {
        let own = &mut self.links.session.own;
        let Some(buf) = own.take() else { return Turn::Starved };
        let into = own.bytes(buf);
        let len = into.len().min(busy.plain.len());
        into[..len].copy_from_slice(&busy.bytes[busy.plain.start..busy.plain.start + len]);
        own.lend(buf);
        self.links.session.send(&Up::Data { conn: self.conn, buf, off: 0, len: len as u16 });
        busy.plain.start += len;
        if busy.plain.is_empty() {
            busy.discard_to(busy.record_end, self.incomplete);
        }
        Turn::Again
    }
}

/// For a record without data.
fn turn(received: Received) -> Turn {
    match received {
        Received::Data(_) | Received::Nothing => Turn::Again,
        Received::Closed => Turn::Ended,
        Received::Failed(_) => Turn::Dead,
    }
}

impl Busy {
    /// The bytes before `end` are done with; the memory is given back with the last.
    fn discard_to(&mut self, end: usize, incomplete: &mut usize) {
        self.start = end;
        self.plain = 0..0;
        if end == self.bytes.len() {
            *incomplete -= end;
            self.bytes.clear();
            self.start = 0;
        }
    }
}

impl Links<'_, '_> {
    /// Frees the piece's frame when nothing of it is left.
    fn drop_if_used(&mut self, piece: &mut Option<Piece>) {
        if let Some(used) = piece.take_if(|p| p.len == 0) {
            self.free_frame(used.buf);
        }
    }
}
