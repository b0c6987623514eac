//! Bytes on their way down: from tls's buffers into segments, as far as windows allow.
//!
//! Connections with something to send stand in one line and are served in turn at the end of each batch, so that what
//! came for a connection in one batch leaves in as few segments as possible, with the ACK on it. Nagle's algorithm isn't
//! used: tls hands over whole records.

use crate::active::Timer;
use crate::buffers::Cursor;
use crate::emit;
use crate::packet::{ACK, FIN, HEADERS, PSH, RST};
use crate::seq::{ahead, before};
use crate::service::{Io, Service};
use crate::table::*;
use ipc::link::frame::{Down, TX_OFFSET};

/// Segments of one connection before the next one's turn.
const BURST: usize = 16;
/// Transmit buffers that connections leave to resets, SYN-ACKs and ARP.
const RESERVE: usize = 8;

/// Connections with something to send: a list through their rows.
#[derive(Debug)]
pub struct Line {
    first: Slot,
    last: Slot,
}

impl Default for Line {
    fn default() -> Self {
        Line { first: NONE, last: NONE }
    }
}

/// The next segment of a connection.
struct Plan {
    seq: u32,
    from: Cursor,
    len: usize,
    flags: u8,
    again: bool,
}

/// Why a connection's turn ended.
enum Turn {
    Done,
    Burst,
    NoBuffer,
}

impl Service {
    /// Puts the connection in line, if it isn't yet.
    pub(crate) fn enqueue(&mut self, slot: Slot) {
        let row = self.table.row_mut(slot);
        if row.has(QUEUED) {
            return;
        }
        row.flags |= QUEUED;
        row.next_queued = NONE;
        match self.line.last {
            NONE => self.line.first = slot,
            last => self.table.row_mut(last).next_queued = slot,
        }
        self.line.last = slot;
    }

    /// Serves the line until it is empty or the transmit buffers are used up; what stays goes on when the nic returns some.
    pub(crate) fn transmit(&mut self, io: &mut Io) {
        while self.line.first != NONE {
            let slot = self.line.first;
            let turn =
                if self.table.row(slot).state == State::Open { self.turn(io, slot) } else { Turn::Done };
            if let Turn::NoBuffer = turn {
                return;
            }
            let row = self.table.row_mut(slot);
            row.flags &= !QUEUED;
            self.line.first = row.next_queued;
            if self.line.first == NONE {
                self.line.last = NONE;
            }
            if let Turn::Burst = turn {
                self.enqueue(slot);
            }
        }
    }

    fn turn(&mut self, io: &mut Io, slot: Slot) -> Turn {
        for _ in 0..BURST {
            if !self.can_transmit(io) || io.frame.own.available() <= RESERVE {
                return Turn::NoBuffer;
            }
            match self.plan(io.now, slot) {
                Some(plan) => self.send_planned(io, slot, &plan),
                None => return Turn::Done,
            }
        }
        Turn::Burst
    }

    /// What the connection may send now.
    fn plan(&mut self, now: u64, slot: Slot) -> Option<Plan> {
        let row = self.table.row(slot);
        let nothing = Cursor { buf: NONE, off: 0 };
        let bare_ack = Plan { seq: row.snd_nxt, from: nothing, len: 0, flags: ACK, again: false };
        if row.active == NONE || row.duplicates > 1 {
            return row.has(ACK_NOW).then_some(bare_ack);
        }
        let active = self.actives.row(row.active);
        let queue = &active.queue;
        let sent = active.snd_max.wrapping_sub(row.snd_una);
        if row.has(RETRANSMIT) && sent > 0 {
            let len = queue.bytes.min(row.mss as u32).min(sent);
            let fin = if row.has(FINISHING) && len == queue.bytes && sent > len { FIN } else { 0 };
            let from = if len > 0 { queue.first } else { nothing };
            return Some(Plan { seq: row.snd_una, from, len: len as usize, flags: ACK | fin, again: true });
        }
        let flight = row.snd_nxt.wrapping_sub(row.snd_una);
        // -1 when the FIN is out too.
        let unsent = ahead(row.snd_una.wrapping_add(queue.bytes), row.snd_nxt);
        let usable = active.congestion.window(row.mss).min(row.snd_wnd).saturating_sub(flight);
        let len = (unsent.max(0) as u32).min(row.mss as u32).min(usable);
        let last = len as i32 == unsent;
        // A piece smaller than a segment is worth it only at the end or when nothing else can move the window.
        if len > 0 && (last || len == row.mss as u32 || flight == 0) {
            let fin = if last && row.has(FINISHING) { FIN } else { 0 };
            let push = if last { PSH } else { 0 };
            let flags = ACK | push | fin;
            let again = before(row.snd_nxt, active.snd_max);
            return Some(Plan { seq: row.snd_nxt, from: queue.next, len: len as usize, flags, again });
        }
        if unsent == 0 && row.has(FINISHING) {
            let again = before(row.snd_nxt, active.snd_max);
            return Some(Plan { flags: ACK | FIN, again, ..bare_ack });
        }
        let (shut, ack, number) = (unsent > 0 && flight == 0, row.has(ACK_NOW), row.active);
        if shut && active.timer == Timer::Off {
            self.start_persist_timer(now, number);
        }
        ack.then_some(bare_ack)
    }

    fn send_planned(&mut self, io: &mut Io, slot: Slot, plan: &Plan) {
        let Some(buf) = io.frame.own.take() else { return };
        let header = self.header(slot, plan.seq, plan.flags);
        let bytes = io.frame.own.bytes(buf);
        bytes[..TX_OFFSET].fill(0);
        let frame = &mut bytes[TX_OFFSET..];
        let (mut at, mut filled) = (plan.from, 0);
        while filled < plan.len {
            let (run, next) = self.sends.run(at, plan.len - filled);
            let into = &mut frame[HEADERS + filled..HEADERS + filled + run];
            if io.stream.theirs.copy(at.buf, at.off as usize, into).is_err() {
                // Can't be: the bounds were checked when tls named the buffer.
                into.fill(0);
            }
            (at, filled) = (next, filled + run);
        }
        let len = emit::segment(frame, &header, &[], plan.len);
        io.frame.own.lend(buf);
        io.frame.send(&Down::Transmit { buf, len: len as u16 });
        self.counters.segments_out += 1;
        self.counters.retransmitted += plan.again as u64;
        if plan.len > 0 || plan.flags & FIN != 0 {
            self.sent(io.now, slot, plan, at);
        }
    }

    /// Notes that sequence numbers were used; `next` is where the queue goes on.
    fn sent(&mut self, now: u64, slot: Slot, plan: &Plan, next: Cursor) {
        let end = plan.seq.wrapping_add(plan.len as u32 + (plan.flags & FIN != 0) as u32);
        let row = self.table.row_mut(slot);
        let active = self.actives.row_mut(row.active);
        row.flags &= !RETRANSMIT;
        if plan.seq == row.snd_nxt {
            row.snd_nxt = end;
            if plan.len > 0 {
                active.queue.next = next;
            }
        }
        if plan.again {
            // Karn: what went out twice measures nothing.
            active.measuring = false;
        } else if !active.measuring {
            (active.measuring, active.measure_seq, active.measure_at) = (true, end, now);
        }
        if before(active.snd_max, end) {
            active.snd_max = end;
        }
        let (number, timer) = (row.active, active.timer);
        if timer != Timer::Retransmit || plan.again {
            self.start_retransmit_timer(now, number);
        }
    }

    /// The header of a segment that goes out now: it carries the ACK that is owed and the window as it is.
    fn header(&mut self, slot: Slot, seq: u32, flags: u8) -> emit::Header {
        let edge = self.window_edge(self.table.row(slot));
        let (shift, ident) = (self.config.window_shift(), self.ident());
        let row = self.table.row_mut(slot);
        row.duplicates = row.duplicates.saturating_sub(1);
        if row.duplicates == 0 {
            row.flags &= !(ACK_NOW | ACK_LATER);
        }
        row.unacked = 0;
        let window = edge.wrapping_sub(row.rcv_nxt);
        let shift = if row.has(SCALED) { shift } else { 0 };
        let field = window.div_ceil(1 << shift).min(0xffff);
        // Rounded up, so that the edge never moves left; the peer may use it.
        row.rcv_adv = row.rcv_nxt.wrapping_add(field << shift);
        emit::Header {
            from: self.host.mac,
            to: row.mac,
            from_ip: self.host.ip,
            to_ip: row.ip,
            from_port: self.host.port,
            to_port: row.port,
            seq,
            ack: row.rcv_nxt,
            flags,
            window: field as u16,
            ident,
        }
    }

    /// IPv4 identification: scattered, so that it doesn't count other connections' segments.
    pub(crate) fn ident(&mut self) -> u16 {
        self.random.next_u16()
    }

    /// A segment without text, at once.
    fn send_bare(&mut self, io: &mut Io, slot: Slot, seq: u32, flags: u8) {
        let header = self.header(slot, seq, flags);
        self.counters.segments_out += 1;
        self.send_frame(io, |_, bytes| emit::segment(bytes, &header, &[], 0));
    }

    /// Resets the connection on the wire; closing it is the caller's.
    pub(crate) fn reset(&mut self, io: &mut Io, slot: Slot) {
        self.counters.resets_sent += 1;
        let seq = self.table.row(slot).snd_nxt;
        self.send_bare(io, slot, seq, RST | ACK);
    }

    pub(crate) fn last_ack(&mut self, io: &mut Io, slot: Slot) {
        let seq = self.table.row(slot).snd_nxt;
        self.send_bare(io, slot, seq, ACK);
    }

    /// Asks for the peer's window with a sequence number that it must answer.
    pub(crate) fn probe(&mut self, io: &mut Io, slot: Slot) {
        let seq = self.table.row(slot).snd_una.wrapping_sub(1);
        self.send_bare(io, slot, seq, ACK);
    }
}
