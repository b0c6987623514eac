//! Connections by number: slot in the low bits, generation above, as [`ipc::link::stream::Conn`] wants it.

use super::conn::Conn;
use ipc::link::stream::SLOT_BITS;

enum State {
    Free,
    Open(Box<Conn>),
    /// Said to be closed, not yet released.
    Closed,
}

struct Row {
    generation: u32,
    state: State,
}

pub struct Table {
    rows: Vec<Row>,
    free: Vec<u32>,
    limit: u32,
}

impl Table {
    pub fn new(limit: u32) -> Self {
        Table { rows: Vec::new(), free: Vec::new(), limit: limit.min(1 << SLOT_BITS) }
    }

    pub fn has_room(&self) -> bool {
        !self.free.is_empty() || (self.rows.len() as u32) < self.limit
    }

    /// Needs room.
    pub fn insert(&mut self, conn: Conn) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.rows.push(Row { generation: 0, state: State::Free });
            self.rows.len() as u32 - 1
        });
        let row = &mut self.rows[slot as usize];
        row.state = State::Open(Box::new(conn));
        row.generation << SLOT_BITS | slot
    }

    fn row(&mut self, number: u32) -> Option<&mut Row> {
        let row = self.rows.get_mut((number & ((1 << SLOT_BITS) - 1)) as usize)?;
        (row.generation == number >> SLOT_BITS).then_some(row)
    }

    pub fn get_mut(&mut self, number: u32) -> Option<&mut Conn> {
        match &mut self.row(number)?.state {
            State::Open(conn) => Some(conn),
            State::Free | State::Closed => None,
        }
    }

    pub fn is_closed(&mut self, number: u32) -> bool {
        matches!(self.row(number), Some(Row { state: State::Closed, .. }))
    }

    /// An open connection's row waits for its release from now on.
    pub fn close(&mut self, number: u32) -> Option<Conn> {
        let row = self.row(number)?;
        match std::mem::replace(&mut row.state, State::Closed) {
            State::Open(conn) => Some(*conn),
            other => {
                row.state = other;
                None
            }
        }
    }

    /// False: it wasn't closed.
    pub fn release(&mut self, number: u32) -> bool {
        match self.row(number) {
            Some(row @ Row { state: State::Closed, .. }) => {
                free(row);
                self.free.push(number & ((1 << SLOT_BITS) - 1));
                true
            }
            _ => false,
        }
    }

    /// Resets every connection and frees all rows.
    pub fn clear(&mut self) {
        for row in &mut self.rows {
            if let State::Open(conn) = &row.state {
                conn.reset_on_close();
            }
            if !matches!(row.state, State::Free) {
                free(row);
            }
        }
        self.free = (0..self.rows.len() as u32).collect();
    }
}

/// The next connection in this row has another number.
fn free(row: &mut Row) {
    row.generation = (row.generation + 1) & (u32::MAX >> SLOT_BITS);
    row.state = State::Free;
}
