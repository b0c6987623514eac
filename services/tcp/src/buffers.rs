//! Private tables of the buffers that we hold or have lent on: the nic's frames and tls's ciphertext.
//!
//! One entry a buffer of the pool, so all queues of all connections together are bounded by the pools.

use crate::table::NONE;
use alloc::vec;
use alloc::vec::Vec;
use ipc::link::stream::Conn;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// The nic has it, or it is being looked at.
    Nic,
    /// Out of order, in a connection's list.
    Held,
    /// Lent on to tls.
    Tls,
}

#[derive(Clone, Copy, Debug)]
pub struct Frame {
    pub holder: Holder,
    /// The segment ends with the peer's FIN.
    pub fin: bool,
    /// Payload.
    pub off: u16,
    pub len: u16,
    /// Held: the next frame in the list.
    pub next: u32,
    /// Held: of the first payload byte.
    pub seq: u32,
    /// Tls: whose window it counts in.
    pub conn: Conn,
}

#[derive(Debug)]
pub struct Frames {
    rows: Vec<Frame>,
    /// Out of order, over all connections.
    held: u32,
}

impl Frames {
    pub fn new(buffers: u32) -> Self {
        let free = Frame { holder: Holder::Nic, fin: false, off: 0, len: 0, next: NONE, seq: 0, conn: 0 };
        Frames { rows: vec![free; buffers as usize], held: 0 }
    }

    pub fn held(&self) -> u32 {
        self.held
    }
    pub fn count(&self) -> u32 {
        self.rows.len() as u32
    }

    /// `None`: there is no such buffer.
    pub fn get(&self, buf: u32) -> Option<&Frame> {
        self.rows.get(buf as usize)
    }
    pub fn row(&self, buf: u32) -> &Frame {
        &self.rows[buf as usize]
    }
    pub fn row_mut(&mut self, buf: u32) -> &mut Frame {
        &mut self.rows[buf as usize]
    }

    pub fn set(&mut self, buf: u32, frame: Frame) {
        let row = &mut self.rows[buf as usize];
        self.held -= (row.holder == Holder::Held) as u32;
        self.held += (frame.holder == Holder::Held) as u32;
        *row = frame;
    }

    pub fn set_holder(&mut self, buf: u32, holder: Holder) {
        self.set(buf, Frame { holder, ..self.rows[buf as usize] });
    }

    /// The buffers that `holder` has.
    pub fn of(&self, holder: Holder) -> Vec<u32> {
        let all = self.rows.iter().enumerate();
        all.filter(|(_, f)| f.holder == holder).map(|(buf, _)| buf as u32).collect()
    }
}

/// A byte in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    pub buf: u32,
    pub off: u16,
}

/// Ciphertext buffers in a connection's queue: length and successor.
#[derive(Debug)]
pub struct Sends {
    next: Vec<u32>,
    len: Vec<u16>,
}

impl Sends {
    pub fn new(buffers: u32) -> Self {
        Sends { next: vec![NONE; buffers as usize], len: vec![0; buffers as usize] }
    }

    pub fn set(&mut self, buf: u32, len: u16) {
        self.next[buf as usize] = NONE;
        self.len[buf as usize] = len;
    }

    pub fn link(&mut self, last: u32, buf: u32) {
        self.next[last as usize] = buf;
    }

    pub fn next(&self, buf: u32) -> u32 {
        self.next[buf as usize]
    }
    pub fn len(&self, buf: u32) -> u16 {
        self.len[buf as usize]
    }

    /// The run of bytes at the cursor, and where the next one starts.
    pub fn run(&self, at: Cursor, most: usize) -> (usize, Cursor) {
        let left = (self.len(at.buf) - at.off) as usize;
        if most < left {
            (most, Cursor { off: at.off + most as u16, ..at })
        } else {
            (left, Cursor { buf: self.next(at.buf), off: 0 })
        }
    }

    /// The cursor `bytes` further; it must not lead beyond the end.
    pub fn skip(&self, mut at: Cursor, mut bytes: usize) -> Cursor {
        while bytes > 0 && at.buf != NONE {
            let (run, next) = self.run(at, bytes);
            bytes -= run;
            at = next;
        }
        at
    }
}
