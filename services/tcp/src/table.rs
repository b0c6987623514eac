//! The connection table: a row a connection, found by a keyed hash of the peer's address.
//!
//! Everything an idle connection needs is in its row; a busy one has an [`crate::active::Active`] besides.

use crate::packet::Mac;
use alloc::vec;
use alloc::vec::Vec;
use ipc::link::stream::{self, SLOT_BITS};
use siphasher::sip::SipHasher13;

/// Index in the table: the low bits of a [`stream::Conn`].
pub type Slot = u32;
pub const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    Free,
    /// Any of RFC 9293's states from ESTABLISHED to LAST-ACK; which one, the flags say.
    Open,
    /// Gone from the wire; tls has been told and hasn't released the number yet.
    Closed,
}

/// The peer's FIN has arrived, in order.
pub const PEER_FINISHED: u16 = 1;
/// tls wants a FIN after all that is queued.
pub const FINISHING: u16 = 2;
/// Our FIN is acknowledged.
pub const FIN_ACKED: u16 = 4;
/// tls doesn't want more data.
pub const PAUSED: u16 = 8;
/// tls was told to hold back.
pub const CONGESTED: u16 = 16;
/// An ACK goes out at the end of this batch.
pub const ACK_NOW: u16 = 32;
/// An ACK is owed, but may wait for data or its deadline.
pub const ACK_LATER: u16 = 64;
/// Stands in the queue of delayed ACKs.
pub const ACK_TIMED: u16 = 128;
/// Stands in the list of connections with something to send.
pub const QUEUED: u16 = 256;
/// Both sides scale windows.
pub const SCALED: u16 = 512;
/// The segment at `snd_una` goes out again before anything else.
pub const RETRANSMIT: u16 = 1024;

/// A connection's row. Names as in RFC 9293.
#[derive(Clone, Copy, Debug)]
pub struct Conn {
    pub ip: u32,
    pub port: u16,
    /// Where the last good segment came from: there the answers go.
    pub mac: Mac,
    pub rcv_nxt: u32,
    /// Right edge of the window that the peer knows of; never moves left.
    pub rcv_adv: u32,
    pub snd_una: u32,
    pub snd_nxt: u32,
    pub snd_wnd: u32,
    pub snd_wl1: u32,
    /// Smoothed round-trip time and its variation, microseconds; 0: not measured yet.
    pub srtt: u32,
    pub rttvar: u32,
    /// Bytes and frames that tls holds.
    pub held: u32,
    pub held_frames: u16,
    /// Largest payload that we send.
    pub mss: u16,
    /// Shift of the windows that the peer names.
    pub shift: u8,
    pub state: State,
    pub flags: u16,
    /// Segments since our last ACK.
    pub unacked: u8,
    /// Duplicate ACKs that go out at the end of this batch, one a segment out of order: the peer counts them.
    pub duplicates: u8,
    /// ACKs that aren't delayed yet, so that the peer's slow start isn't either.
    pub quick: u8,
    pub generation: u16,
    pub next: u32,
    pub next_queued: u32,
    pub active: u32,
}

/// What an idle connection costs in this task at most: its row, and 4 to 8 bytes of the hash.
pub const IDLE_BYTES: usize = size_of::<Conn>() + 8;

const _: () = assert!(IDLE_BYTES <= 88);

impl Conn {
    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

#[derive(Debug)]
pub struct Table {
    rows: Vec<Conn>,
    /// First row of each chain + 1, 0: none.
    buckets: Vec<u32>,
    free: u32,
    capacity: u32,
    used: u32,
    hash: SipHasher13,
}

impl Table {
    pub fn new(capacity: u32, key: (u64, u64)) -> Self {
        Table {
            rows: Vec::with_capacity(capacity as usize),
            buckets: vec![0; capacity.next_power_of_two() as usize],
            free: NONE,
            capacity,
            used: 0,
            hash: SipHasher13::new_with_keys(key.0, key.1),
        }
    }

    /// Rows that aren't free.
    pub fn used(&self) -> u32 {
        self.used
    }
    pub fn is_full(&self) -> bool {
        self.used == self.capacity
    }
    /// Slots that were ever used: all others are free.
    pub fn slots(&self) -> u32 {
        self.rows.len() as u32
    }

    fn bucket(&self, ip: u32, port: u16) -> usize {
        let mut peer = [0; 8];
        peer[..4].copy_from_slice(&ip.to_le_bytes());
        peer[4..6].copy_from_slice(&port.to_le_bytes());
        self.hash.hash(&peer) as usize & (self.buckets.len() - 1)
    }

    /// The open connection of this peer.
    pub fn find(&self, ip: u32, port: u16) -> Option<Slot> {
        let mut at = self.buckets[self.bucket(ip, port)].wrapping_sub(1);
        while at != NONE {
            let row = &self.rows[at as usize];
            if row.ip == ip && row.port == port {
                return Some(at);
            }
            at = row.next;
        }
        None
    }

    /// A new open connection; there must be none of this peer. `None`: the table is full.
    pub fn open(&mut self, ip: u32, port: u16) -> Option<Slot> {
        let bucket = self.bucket(ip, port);
        let next = self.buckets[bucket].wrapping_sub(1);
        let slot = match self.free {
            NONE if self.slots() < self.capacity => {
                self.rows.push(Conn { next_queued: NONE, generation: u16::MAX, flags: 0, ..empty() });
                self.slots() - 1
            }
            NONE => return None,
            slot => {
                self.free = self.rows[slot as usize].next;
                slot
            }
        };
        let row = &mut self.rows[slot as usize];
        *row = Conn {
            ip,
            port,
            state: State::Open,
            // The slot's predecessor may still stand in that list.
            flags: row.flags & QUEUED,
            next_queued: row.next_queued,
            generation: row.generation.wrapping_add(1) & (u16::MAX >> (SLOT_BITS - 16)),
            next,
            ..empty()
        };
        self.buckets[bucket] = slot + 1;
        self.used += 1;
        Some(slot)
    }

    /// Open to closed: segments don't find it any more.
    pub fn close(&mut self, slot: Slot) {
        let Conn { ip, port, next, .. } = self.rows[slot as usize];
        let bucket = self.bucket(ip, port);
        let mut at = self.buckets[bucket].wrapping_sub(1);
        if at == slot {
            self.buckets[bucket] = next.wrapping_add(1);
        } else {
            while at != NONE && self.rows[at as usize].next != slot {
                at = self.rows[at as usize].next;
            }
            if at != NONE {
                self.rows[at as usize].next = next;
            }
        }
        self.rows[slot as usize].state = State::Closed;
    }

    /// Closed to free.
    pub fn release(&mut self, slot: Slot) {
        let row = &mut self.rows[slot as usize];
        debug_assert_eq!(row.state, State::Closed);
        row.state = State::Free;
        row.next = self.free;
        self.free = slot;
        self.used -= 1;
    }

    /// The number by which the stream link knows the connection.
    pub fn number(&self, slot: Slot) -> stream::Conn {
        slot | (self.rows[slot as usize].generation as u32) << SLOT_BITS
    }

    /// The slot of a number that is in use (open or closed).
    pub fn slot(&self, number: stream::Conn) -> Option<Slot> {
        let slot = number & ((1 << SLOT_BITS) - 1);
        let row = self.rows.get(slot as usize)?;
        (row.state != State::Free && row.generation as u32 == number >> SLOT_BITS).then_some(slot)
    }

    pub fn row(&self, slot: Slot) -> &Conn {
        &self.rows[slot as usize]
    }
    pub fn row_mut(&mut self, slot: Slot) -> &mut Conn {
        &mut self.rows[slot as usize]
    }
}

fn empty() -> Conn {
    Conn {
        ip: 0,
        port: 0,
        mac: [0; 6],
        rcv_nxt: 0,
        rcv_adv: 0,
        snd_una: 0,
        snd_nxt: 0,
        snd_wnd: 0,
        snd_wl1: 0,
        srtt: 0,
        rttvar: 0,
        held: 0,
        held_frames: 0,
        mss: 0,
        shift: 0,
        state: State::Free,
        flags: 0,
        unacked: 0,
        duplicates: 0,
        quick: 0,
        generation: 0,
        next: NONE,
        next_queued: NONE,
        active: NONE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn refuses_beyond_the_limit_and_goes_on_after() {
        let mut table = Table::new(3, (1, 2));
        let slots: Vec<_> = (0..3).map(|p| table.open(1, p).unwrap()).collect();
        assert!(table.is_full() && table.open(1, 9).is_none());
        let old = table.number(slots[1]);
        table.close(slots[1]);
        assert!(table.is_full(), "closed but not released");
        assert_eq!(table.slot(old), Some(slots[1]));
        table.release(slots[1]);
        assert_eq!(table.slot(old), None);
        let again = table.open(1, 9).unwrap();
        assert_eq!(again, slots[1]);
        assert_ne!(table.number(again), old, "a late message can't hit the successor");
    }

    proptest::proptest! {
        #[test]
        fn like_a_map(steps in proptest::collection::vec((0u32..4, 0u16..8, 0u8..3), 0..200)) {
            let mut table = Table::new(16, (3, 4));
            let mut model = HashMap::new();
            let mut closed = Vec::new();
            for (ip, port, what) in steps {
                match (what, model.get(&(ip, port)).copied()) {
                    (0, None) => {
                        let opened = table.open(ip, port);
                        proptest::prop_assert_eq!(opened.is_some(), model.len() + closed.len() < 16);
                        if let Some(slot) = opened {
                            model.insert((ip, port), slot);
                        }
                    }
                    (1, Some(slot)) => {
                        table.close(slot);
                        model.remove(&(ip, port));
                        closed.push(slot);
                    }
                    _ => if let Some(slot) = closed.pop() { table.release(slot) },
                }
                for ip in 0..4 {
                    for port in 0..8 {
                        proptest::prop_assert_eq!(table.find(ip, port), model.get(&(ip, port)).copied());
                    }
                }
                proptest::prop_assert_eq!(table.used() as usize, model.len() + closed.len());
            }
        }
    }
}
