//! A segment arrives at a connection (RFC 9293 3.10.7.4, RFC 5961).

use crate::active::Timer;
use crate::congestion::{self, measured};
use crate::packet::{ACK, RST, SYN, Segment};
use crate::seq::{ahead, before};
use crate::service::{Io, Service};
use crate::table::*;
use ipc::link::stream::{Reason, Up};

impl Service {
    /// True: the frame is kept.
    pub(crate) fn arrives(&mut self, io: &mut Io, slot: Slot, segment: &Segment, buf: u32, off: u16) -> bool {
        let row = self.table.row(slot);
        let window = ahead(row.rcv_adv, row.rcv_nxt);
        let offset = ahead(segment.seq, row.rcv_nxt);
        if segment.has(RST) {
            // Only a reset at exactly the next byte is believed; another one in the window is asked about.
            if offset == 0 {
                self.close(io, slot, Reason::Reset);
            } else if (1..=window).contains(&offset) {
                self.challenge(io, slot);
            }
            return false;
        }
        if segment.has(SYN) {
            self.challenge(io, slot);
            return false;
        }
        let extent = segment.extent() as i32;
        let starts_in_window = (0..=window).contains(&offset);
        let ends_in_window = offset < 0 && offset > -extent;
        if !starts_in_window && !ends_in_window {
            // A retransmission of what we have, or a probe of our window.
            if extent > 0 {
                self.ack_now(slot);
            } else {
                self.challenge(io, slot);
            }
            return false;
        }
        if !segment.has(ACK) || !self.acknowledge(io, slot, segment) {
            return false;
        }
        self.table.row_mut(slot).mac = segment.mac;
        if extent == 0 || self.table.row(slot).state != State::Open {
            return false;
        }
        self.text(io, slot, segment, buf, off)
    }

    /// "Is that so?": an ACK that a peer in its right mind answers with a segment that we can believe.
    fn challenge(&mut self, io: &mut Io, slot: Slot) {
        if self.challenges.allow(io.now, &mut self.random) {
            self.ack_now(slot);
        }
    }

    /// Takes the acknowledgement and the window. False: the segment is to be dropped.
    fn acknowledge(&mut self, io: &mut Io, slot: Slot, segment: &Segment) -> bool {
        let row = self.table.row_mut(slot);
        let sent = if row.active == NONE { row.snd_nxt } else { self.actives.row(row.active).snd_max };
        let advance = ahead(segment.ack, row.snd_una);
        if before(sent, segment.ack) || advance < -(0xffff << row.shift) {
            self.challenge(io, slot);
            return false;
        }
        if advance < 0 {
            return true;
        }
        let window = (segment.window as u32) << row.shift;
        let same_window = window == row.snd_wnd;
        // The test of SEG.ACK against SND.WL2 is implied: what was acknowledged is never behind it.
        if !before(segment.seq, row.snd_wl1) {
            (row.snd_wnd, row.snd_wl1) = (window, segment.seq);
        }
        if row.active == NONE {
            return true;
        }
        if advance > 0 {
            self.advance(io, slot, segment.ack);
        } else if same_window && segment.extent() == 0 && before(row.snd_una, sent) {
            self.duplicate(slot, sent);
        }
        if !same_window {
            self.window_changed(slot);
        }
        true
    }

    /// Everything before `ack` has arrived.
    fn advance(&mut self, io: &mut Io, slot: Slot, ack: u32) {
        let row = self.table.row_mut(slot);
        let active = self.actives.row_mut(row.active);
        let (acked, flight) = (ack.wrapping_sub(row.snd_una), row.snd_nxt.wrapping_sub(row.snd_una));
        let bytes = acked.min(active.queue.bytes);
        let fin_acked = acked > active.queue.bytes;
        // After a timeout the peer may have more than we sent since.
        if before(row.snd_nxt, ack) {
            let skipped = bytes.saturating_sub(flight) as usize;
            active.queue.next = self.sends.skip(active.queue.next, skipped);
            row.snd_nxt = ack;
        }
        row.snd_una = ack;
        if active.measuring && !before(ack, active.measure_seq) {
            active.measuring = false;
            measured(&mut row.srtt, &mut row.rttvar, ((io.now - active.measure_at) / 1000) as u32);
        }
        active.backoff = 0;
        row.flags &= !RETRANSMIT;
        if active.congestion.acked(ack, acked, flight, row.mss) {
            row.flags |= RETRANSMIT;
        }
        if fin_acked {
            row.flags |= FIN_ACKED;
        }
        let (number, idle) = (row.active, ack == active.snd_max);
        self.return_sent(io, number, bytes);
        if idle {
            self.stop_timer(number);
        } else {
            self.start_retransmit_timer(io.now, number);
        }
        self.drained(io, slot);
        if fin_acked {
            self.our_fin_acked(io, slot);
        } else {
            self.enqueue(slot);
            self.retire(slot);
        }
    }

    /// Gives tls back what is acknowledged: `bytes` from the start of the queue.
    fn return_sent(&mut self, io: &mut Io, number: u32, mut bytes: u32) {
        let queue = &mut self.actives.row_mut(number).queue;
        queue.bytes -= bytes;
        while bytes > 0 {
            let buf = queue.first.buf;
            let (run, next) = self.sends.run(queue.first, bytes as usize);
            bytes -= run as u32;
            queue.first = next;
            if next.buf != buf {
                let _ = io.stream.loans.release(buf);
                io.stream.send(&Up::Sent { buf });
            }
        }
        if queue.first.buf == NONE {
            queue.last = NONE;
        }
    }

    fn drained(&mut self, io: &mut Io, slot: Slot) {
        let row = self.table.row_mut(slot);
        if row.has(CONGESTED) && self.actives.row(row.active).queue.bytes <= self.config.drained {
            row.flags &= !CONGESTED;
            io.stream.send(&Up::Drained { conn: self.table.number(slot) });
        }
    }

    fn our_fin_acked(&mut self, io: &mut Io, slot: Slot) {
        let row = self.table.row(slot);
        if row.has(PEER_FINISHED) {
            return self.close(io, slot, Reason::Finished);
        }
        let at = io.now + self.config.finish_timeout_s as u64 * 1_000_000_000;
        self.start_timer(io.now, row.active, Timer::Finish, at);
    }

    fn duplicate(&mut self, slot: Slot, sent: u32) {
        let row = self.table.row_mut(slot);
        let active = self.actives.row_mut(row.active);
        let flight = row.snd_nxt.wrapping_sub(row.snd_una);
        if active.congestion.duplicate(row.snd_una, sent, flight, row.mss) {
            row.flags |= RETRANSMIT;
        }
        // Also because the window grew by what has left the network.
        self.enqueue(slot);
    }

    fn window_changed(&mut self, slot: Slot) {
        let row = self.table.row(slot);
        if row.active != NONE && row.snd_wnd > 0 {
            if self.actives.row(row.active).timer == Timer::Persist {
                self.stop_timer(row.active);
            }
            self.enqueue(slot);
        }
    }

    /// Restarts the timer of what is unacknowledged.
    pub(crate) fn start_retransmit_timer(&mut self, now: u64, number: u32) {
        let active = self.actives.row(number);
        let row = self.table.row(active.slot);
        let at = now + congestion::timeout(row.srtt, row.rttvar, active.backoff);
        self.start_timer(now, number, Timer::Retransmit, at);
    }

    pub(crate) fn start_timer(&mut self, now: u64, number: u32, what: Timer, at: u64) {
        self.actives.row_mut(number).timer = what;
        self.wheel.arm(number, now, at);
    }

    pub(crate) fn stop_timer(&mut self, number: u32) {
        self.actives.row_mut(number).timer = Timer::Off;
        self.wheel.cancel(number);
    }

    /// The connection's [`crate::active::Active`], made now if it had none. `None`: too many are busy.
    pub(crate) fn activate(&mut self, slot: Slot) -> Option<u32> {
        let row = self.table.row_mut(slot);
        if row.active == NONE {
            row.active = self.actives.add(crate::active::Active::new(slot, row.mss, row.snd_una))?;
        }
        Some(row.active)
    }

    /// Idle again: no more than a row in the table.
    pub(crate) fn retire(&mut self, slot: Slot) {
        let row = self.table.row_mut(slot);
        if row.active == NONE {
            return;
        }
        let active = self.actives.row(row.active);
        let idle = active.queue.bytes == 0
            && active.held_count == 0
            && active.timer == Timer::Off
            && row.snd_una == active.snd_max
            && (!row.has(FINISHING) || row.has(FIN_ACKED));
        if idle {
            self.actives.remove(row.active);
            row.active = NONE;
        }
    }

    /// The connection is over: its buffers go back, tls is told. It is gone from the wire at once.
    pub(crate) fn close(&mut self, io: &mut Io, slot: Slot, reason: Reason) {
        self.counters.closed += 1;
        let row = self.table.row_mut(slot);
        let number = core::mem::replace(&mut row.active, NONE);
        if number != NONE {
            let bytes = self.actives.row(number).queue.bytes;
            self.return_sent(io, number, bytes);
            self.drop_held(io, number);
            self.wheel.cancel(number);
            self.actives.remove(number);
        }
        self.table.close(slot);
        if io.stream.is_up() {
            io.stream.send(&Up::Closed { conn: self.table.number(slot), reason });
        } else {
            self.table.release(slot);
        }
    }
}
