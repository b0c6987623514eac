//! What happens when time passes: retransmission, window probes, peers that never finish, delayed ACKs.

use crate::active::Timer;
use crate::congestion::timeout;
use crate::service::{Io, Service};
use crate::table::*;
use ipc::abi::NEVER;
use ipc::link::stream::Reason;

/// How long a timer is put off while the nic is away: that isn't the peer's fault.
const NIC_AWAY: u64 = 100_000_000;

impl Service {
    /// Everything that is due.
    pub(crate) fn expire(&mut self, io: &mut Io) {
        while let Some(number) = self.wheel.expire(io.now) {
            if self.can_transmit(io) {
                self.fire(io, number);
            } else {
                self.wheel.arm(number, io.now, io.now + NIC_AWAY);
            }
        }
        while let Some((_, conn)) = self.delayed.pop_front_if(|(due, _)| *due <= io.now) {
            if let Some(slot) = self.table.slot(conn) {
                let row = self.table.row_mut(slot);
                row.flags &= !ACK_TIMED;
                if row.state == State::Open && row.has(ACK_LATER) {
                    self.ack_now(slot);
                }
            }
        }
        self.expire_network(io);
    }

    fn fire(&mut self, io: &mut Io, number: u32) {
        let active = self.actives.row_mut(number);
        let slot = active.slot;
        match core::mem::replace(&mut active.timer, Timer::Off) {
            Timer::Retransmit => self.retransmit(io, number),
            Timer::Persist => self.persist(io, number),
            Timer::Finish => self.give_up(io, slot),
            Timer::Off => {}
        }
    }

    /// RFC 6298 5.4 to 5.7: back to the first unacknowledged byte, slower.
    fn retransmit(&mut self, io: &mut Io, number: u32) {
        let active = self.actives.row_mut(number);
        let slot = active.slot;
        let first = active.backoff == 0;
        active.backoff += 1;
        if active.backoff > self.config.retries {
            return self.give_up(io, slot);
        }
        let row = self.table.row_mut(slot);
        let flight = row.snd_nxt.wrapping_sub(row.snd_una);
        active.congestion.timeout(active.snd_max, flight, row.mss, first);
        active.measuring = false;
        active.queue.next = active.queue.first;
        row.snd_nxt = row.snd_una;
        row.flags &= !RETRANSMIT;
        self.enqueue(slot);
    }

    pub(crate) fn start_persist_timer(&mut self, now: u64, number: u32) {
        let active = self.actives.row_mut(number);
        (active.stalled_since, active.backoff) = (now, 0);
        self.arm_persist(now, number);
    }

    fn arm_persist(&mut self, now: u64, number: u32) {
        let active = self.actives.row(number);
        let row = self.table.row(active.slot);
        let at = now + timeout(row.srtt, row.rttvar, active.backoff);
        self.start_timer(now, number, Timer::Persist, at);
    }

    /// The peer's window is shut: asks again, but not for ever.
    fn persist(&mut self, io: &mut Io, number: u32) {
        let active = self.actives.row_mut(number);
        let slot = active.slot;
        if io.now - active.stalled_since > self.config.stall_timeout_s as u64 * 1_000_000_000 {
            return self.give_up(io, slot);
        }
        active.backoff = active.backoff.saturating_add(1);
        self.probe(io, slot);
        self.arm_persist(io.now, number);
    }

    fn give_up(&mut self, io: &mut Io, slot: Slot) {
        self.reset(io, slot);
        self.close(io, slot, Reason::Timeout);
    }

    /// The nic is back: what was lost meanwhile goes out again at once.
    pub(crate) fn hurry(&mut self, io: &Io) {
        for (number, _) in self.actives.slots().collect::<alloc::vec::Vec<_>>() {
            let active = self.actives.row_mut(number);
            if active.timer == Timer::Retransmit {
                active.backoff = 0;
                self.wheel.arm(number, io.now, io.now);
            }
        }
    }

    /// When the next thing is due, ns.
    pub(crate) fn deadline(&mut self, io: &Io) -> u64 {
        // An ACK that has left meanwhile isn't worth waking up for.
        while let Some((_, conn)) = self.delayed.front() {
            match self.table.slot(*conn) {
                Some(slot) if self.table.row(slot).has(ACK_LATER) => break,
                Some(slot) => self.table.row_mut(slot).flags &= !ACK_TIMED,
                None => {}
            }
            self.delayed.pop_front();
        }
        let timers = self.wheel.deadline().unwrap_or(NEVER);
        let acks = self.delayed.front().map_or(NEVER, |(due, _)| *due);
        timers.min(acks).min(self.network_deadline(io))
    }
}
