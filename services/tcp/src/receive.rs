//! Text on its way up: in order to tls, out of order held back, and the ACKs and windows that answer it.
//!
//! Frames are passed on and held by reference. What bounds them: per connection the window (bytes that tls hasn't
//! returned), `frames_per_connection` and `reorder_per_connection`; over all a quarter of the pool out of order, and
//! an eighth of it never given away, so that ACKs can always come in. What finds no room is dropped, and comes
//! again.

use crate::buffers::{Frame, Holder};
use crate::packet::{FIN, Segment};
use crate::seq::{ahead, before};
use crate::service::{Io, MAX_DELAYED, Service};
use crate::table::*;
use ipc::link::stream::{Reason, Up};

/// An ACK may wait so long for data to ride on, ns (RFC 9293 3.8.6.3: less than 0.5 s).
const DELAY: u64 = 40_000_000;

/// A piece of the stream in a frame.
#[derive(Clone, Copy)]
struct Piece {
    seq: u32,
    buf: u32,
    off: u16,
    len: u16,
    fin: bool,
}

impl Piece {
    /// Without what lies before `from` or (FIN included) behind `to`.
    fn trim(mut self, from: u32, to: u32) -> Self {
        let early = ahead(from, self.seq).clamp(0, self.len as i32) as u16;
        self.seq = self.seq.wrapping_add(early as u32);
        self.off += early;
        self.len -= early;
        let late = ahead(self.seq.wrapping_add(self.len as u32), to);
        if late > 0 {
            self.len -= (late as u32).min(self.len as u32) as u16;
            self.fin = false;
        }
        self
    }
}

impl Service {
    /// The text of an acceptable segment. True: the frame is kept.
    pub(crate) fn text(&mut self, io: &mut Io, slot: Slot, segment: &Segment, buf: u32, off: u16) -> bool {
        let row = self.table.row(slot);
        if row.has(PEER_FINISHED) {
            self.ack_now(slot);
            return false;
        }
        let piece = Piece {
            seq: segment.seq,
            buf,
            off: off + segment.payload_at,
            len: segment.len,
            fin: segment.has(FIN),
        };
        let piece = piece.trim(row.rcv_nxt, row.rcv_adv);
        if piece.seq != row.rcv_nxt {
            // Tells the sender what is missing (RFC 5681 4.2); three times are enough for its fast retransmit.
            let row = self.table.row_mut(slot);
            row.duplicates = (row.duplicates + 1).min(3);
            self.ack_now(slot);
            return piece.len > 0 && self.hold(io, slot, piece);
        }
        let kept = self.in_order(io, slot, piece);
        let row = self.table.row(slot);
        if row.active != NONE && self.actives.row(row.active).held_count > 0 {
            self.ack_now(slot);
            self.in_order_again(io, slot);
        }
        kept
    }

    /// The piece at `rcv_nxt`. True: its frame is with tls now.
    fn in_order(&mut self, io: &mut Io, slot: Slot, piece: Piece) -> bool {
        let conn = self.table.number(slot);
        let room = io.frame.loans.held() <= self.frames.count() - self.frames.count() / 8;
        let row = self.table.row_mut(slot);
        let kept = piece.len > 0;
        if kept {
            if !room || row.held_frames >= self.config.frames_per_connection {
                self.counters.overflow += 1;
                return false;
            }
            row.rcv_nxt = row.rcv_nxt.wrapping_add(piece.len as u32);
            row.duplicates = 0;
            row.held += piece.len as u32;
            row.held_frames += 1;
            let Piece { buf, off, len, .. } = piece;
            let frame = Frame { holder: Holder::Tls, fin: false, off, len, next: NONE, seq: 0, conn };
            self.frames.set(buf, frame);
            io.stream.send(&Up::Data { conn, buf, off, len });
            self.owe_ack(io, slot);
        } else if !piece.fin {
            // All of it lay beyond the window: a probe.
            self.ack_now(slot);
        }
        if piece.fin {
            self.peer_finished(io, slot);
        }
        kept
    }

    fn peer_finished(&mut self, io: &mut Io, slot: Slot) {
        let conn = self.table.number(slot);
        let row = self.table.row_mut(slot);
        row.rcv_nxt = row.rcv_nxt.wrapping_add(1);
        row.rcv_adv = if before(row.rcv_adv, row.rcv_nxt) { row.rcv_nxt } else { row.rcv_adv };
        row.flags |= PEER_FINISHED;
        self.ack_now(slot);
        io.stream.send(&Up::Finished { conn });
        if self.table.row(slot).has(FIN_ACKED) {
            // Answered before the connection is forgotten: there is no TIME-WAIT that could do it later.
            self.last_ack(io, slot);
            self.close(io, slot, Reason::Finished);
        }
    }

    /// Keeps a piece that came early, in its place in the connection's list. True: kept.
    fn hold(&mut self, io: &mut Io, slot: Slot, piece: Piece) -> bool {
        let few = self.frames.held() < self.frames.count() / 4;
        let room = io.frame.loans.held() <= self.frames.count() - self.frames.count() / 8;
        let Some(number) = (few && room).then(|| self.activate(slot)).flatten() else {
            self.counters.overflow += 1;
            return false;
        };
        self.counters.out_of_order += 1;
        let active = self.actives.row(number);
        let (mut previous, mut next) = (NONE, active.held_first);
        while next != NONE && before(self.frames.row(next).seq, piece.seq) {
            (previous, next) = (next, self.frames.row(next).next);
        }
        let known = next != NONE && self.frames.row(next).seq == piece.seq;
        if known && self.frames.row(next).len >= piece.len
            || active.held_count >= self.config.reorder_per_connection
        {
            self.retire(slot);
            return false;
        }
        let Piece { seq, buf, off, len, fin } = piece;
        self.frames.set(buf, Frame { holder: Holder::Held, fin, off, len, next, seq, conn: 0 });
        if previous == NONE {
            self.actives.row_mut(number).held_first = buf;
        } else {
            self.frames.row_mut(previous).next = buf;
        }
        self.actives.row_mut(number).held_count += 1;
        true
    }

    /// A gap was filled: passes on what follows without another.
    fn in_order_again(&mut self, io: &mut Io, slot: Slot) {
        loop {
            let row = self.table.row(slot);
            if row.state != State::Open || row.active == NONE {
                return;
            }
            let (rcv_nxt, rcv_adv, number) = (row.rcv_nxt, row.rcv_adv, row.active);
            let buf = self.actives.row(number).held_first;
            if buf == NONE || before(rcv_nxt, self.frames.row(buf).seq) {
                return self.retire(slot);
            }
            let Frame { off, len, next, seq, fin, .. } = *self.frames.row(buf);
            let active = self.actives.row_mut(number);
            (active.held_first, active.held_count) = (next, active.held_count - 1);
            self.frames.set_holder(buf, Holder::Nic);
            let piece = Piece { seq, buf, off, len, fin }.trim(rcv_nxt, rcv_adv);
            let finished = self.table.row(slot).has(PEER_FINISHED);
            let news = !finished && piece.seq == rcv_nxt && (piece.len > 0 || piece.fin);
            if !news || !self.in_order(io, slot, piece) {
                self.free_frame(io, buf);
            }
        }
    }

    pub(crate) fn drop_held(&mut self, io: &mut Io, number: u32) {
        let mut buf = self.actives.row(number).held_first;
        while buf != NONE {
            let next = self.frames.row(buf).next;
            self.free_frame(io, buf);
            buf = next;
        }
        let active = self.actives.row_mut(number);
        (active.held_first, active.held_count) = (NONE, 0);
    }

    /// tls returned `len` bytes of the connection: the window opens again.
    pub(crate) fn returned(&mut self, slot: Slot, len: u16) {
        let row = self.table.row_mut(slot);
        row.held -= len as u32;
        row.held_frames -= 1;
        self.update_window(slot);
    }

    /// Where the window's right edge could be now. It moves in steps that are worth a segment (RFC 9293 3.8.6.2.2).
    pub(crate) fn window_edge(&self, row: &Conn) -> u32 {
        let most = if row.has(SCALED) { self.config.window } else { self.config.window.min(0xffff) };
        let room = if row.has(PAUSED) { 0 } else { most.saturating_sub(row.held) };
        let edge = row.rcv_nxt.wrapping_add(room);
        let step = (self.mss as u32).min(most / 2);
        if ahead(edge, row.rcv_adv) >= step as i32 { edge } else { row.rcv_adv }
    }

    /// Tells the peer when its window has grown much since it last heard of it, or was nearly shut.
    pub(crate) fn update_window(&mut self, slot: Slot) {
        let row = self.table.row(slot);
        if row.state != State::Open || row.has(PEER_FINISHED) {
            return;
        }
        let gain = ahead(self.window_edge(row), row.rcv_adv);
        let left = ahead(row.rcv_adv, row.rcv_nxt);
        if gain >= (self.config.window / 2) as i32 || (gain > 0 && left < self.mss as i32) {
            self.ack_now(slot);
        }
    }

    /// At the end of this batch, on data if there is some.
    pub(crate) fn ack_now(&mut self, slot: Slot) {
        self.table.row_mut(slot).flags |= ACK_NOW;
        self.enqueue(slot);
    }

    /// Every second segment is acknowledged at once, and the first ones of a connection; others wait a little for data.
    fn owe_ack(&mut self, io: &Io, slot: Slot) {
        let conn = self.table.number(slot);
        let row = self.table.row_mut(slot);
        row.unacked = row.unacked.saturating_add(1);
        let quick = row.quick > 0;
        row.quick = row.quick.saturating_sub(1);
        let timed = row.has(ACK_TIMED);
        if quick || row.unacked >= 2 || (!timed && self.delayed.len() >= MAX_DELAYED) {
            return self.ack_now(slot);
        }
        row.flags |= ACK_LATER | ACK_TIMED;
        if !timed {
            self.delayed.push_back((io.now + DELAY, conn));
        }
    }
}
