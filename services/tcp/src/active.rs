//! What a connection needs beyond its row while it is busy: queues, congestion control, a timer.

use crate::buffers::Cursor;
use crate::congestion::Congestion;
use crate::table::{NONE, Slot};
use alloc::vec::Vec;

/// What the connection's one timer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    Off,
    /// Something is unacknowledged (RFC 6298).
    Retransmit,
    /// The peer's window is closed and data waits (RFC 9293 3.8.6.1).
    Persist,
    /// We have finished, the peer hasn't.
    Finish,
}

#[derive(Clone, Copy, Debug)]
pub struct Active {
    pub slot: Slot,
    /// Ciphertext from `snd_una` on.
    pub queue: Queue,
    /// The end of what was ever sent: `snd_nxt` but after a timeout.
    pub snd_max: u32,
    pub congestion: Congestion,
    pub timer: Timer,
    /// Times that the timer was doubled.
    pub backoff: u8,
    /// The measurement under way: when `measure_seq` is acknowledged, the time since `measure_at` (ns) is a round trip.
    pub measuring: bool,
    pub measure_seq: u32,
    pub measure_at: u64,
    /// Since when the peer's window has been closed.
    pub stalled_since: u64,
    /// Frames out of order, sorted by sequence number.
    pub held_first: u32,
    pub held_count: u16,
}

/// What is queued for sending: a list through [`crate::buffers::Sends`].
#[derive(Clone, Copy, Debug)]
pub struct Queue {
    /// The byte at `snd_una` and the one at `snd_nxt`. `next.buf` is `NONE` when all was sent.
    pub first: Cursor,
    pub next: Cursor,
    pub last: u32,
    /// Bytes from `snd_una` to the end.
    pub bytes: u32,
}

impl Active {
    pub fn new(slot: Slot, mss: u16, snd_una: u32) -> Self {
        let nothing = Cursor { buf: NONE, off: 0 };
        Active {
            slot,
            queue: Queue { first: nothing, next: nothing, last: NONE, bytes: 0 },
            snd_max: snd_una,
            congestion: Congestion::new(mss, snd_una),
            timer: Timer::Off,
            backoff: 0,
            measuring: false,
            measure_seq: 0,
            measure_at: 0,
            stalled_since: 0,
            held_first: NONE,
            held_count: 0,
        }
    }
}

/// A bounded set of them, found by number.
#[derive(Debug)]
pub struct Actives {
    rows: Vec<Active>,
    /// Numbers that are free.
    free: Vec<u32>,
    capacity: u32,
}

impl Actives {
    pub fn new(capacity: u32) -> Self {
        let rows = Vec::with_capacity(capacity as usize);
        Actives { rows, free: Vec::with_capacity(capacity as usize), capacity }
    }

    pub fn add(&mut self, active: Active) -> Option<u32> {
        if let Some(number) = self.free.pop() {
            self.rows[number as usize] = active;
            return Some(number);
        }
        let number = self.rows.len() as u32;
        (number < self.capacity).then(|| self.rows.push(active))?;
        Some(number)
    }

    pub fn remove(&mut self, number: u32) {
        self.rows[number as usize].slot = NONE;
        self.free.push(number);
    }

    pub fn used(&self) -> u32 {
        (self.rows.len() - self.free.len()) as u32
    }

    pub fn row(&self, number: u32) -> &Active {
        &self.rows[number as usize]
    }
    pub fn row_mut(&mut self, number: u32) -> &mut Active {
        &mut self.rows[number as usize]
    }

    /// The slots of all that are in use.
    pub fn slots(&self) -> impl Iterator<Item = (u32, Slot)> {
        self.rows.iter().enumerate().map(|(n, a)| (n as u32, a.slot)).filter(|(_, slot)| *slot != NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounded_and_reused() {
        let mut actives = Actives::new(2);
        let add = |a: &mut Actives| a.add(Active::new(1, 1000, 0));
        assert_eq!([add(&mut actives), add(&mut actives), add(&mut actives)], [Some(0), Some(1), None]);
        actives.remove(0);
        assert_eq!(actives.used(), 1);
        assert_eq!(add(&mut actives), Some(0));
    }
}
