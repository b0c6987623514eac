//! Keys that are kept ready, so that a busy connection derives none for each record.

use super::secret::{Direction, Key};
use alloc::boxed::Box;
use alloc::vec::Vec;
use ipc::link::stream::{Conn, SLOT_BITS};

/// Direct-mapped by connection slot and direction: a miss costs a derivation, and puts out whoever was there.
pub struct KeyCache {
    entries: Vec<Option<Entry>>,
}

struct Entry {
    conn: Conn,
    direction: Direction,
    /// On the heap, which is zeroed when it is given back.
    key: Box<Key>,
}

impl KeyCache {
    /// `size` is rounded up to a power of two.
    pub fn new(size: usize) -> Self {
        let mut entries = Vec::new();
        entries.resize_with(size.next_power_of_two().max(2), || None);
        KeyCache { entries }
    }

    fn index(&self, conn: Conn, direction: Direction) -> usize {
        let slot = (conn & ((1 << SLOT_BITS) - 1)) as usize;
        (slot * 2 + direction as usize) & (self.entries.len() - 1)
    }

    /// The key of `conn`, derived by `derive` when it isn't there.
    pub fn get(&mut self, conn: Conn, direction: Direction, derive: impl FnOnce() -> Key) -> &Key {
        let index = self.index(conn, direction);
        let entry = &mut self.entries[index];
        if !entry.as_ref().is_some_and(|e| e.conn == conn && e.direction == direction) {
            *entry = None;
        }
        &entry.get_or_insert_with(|| Entry { conn, direction, key: Box::new(derive()) }).key
    }

    /// The secret has changed, or the connection is gone.
    pub fn forget(&mut self, conn: Conn, direction: Direction) {
        let index = self.index(conn, direction);
        let entry = &mut self.entries[index];
        if entry.as_ref().is_some_and(|e| e.conn == conn && e.direction == direction) {
            *entry = None;
        }
    }
}
