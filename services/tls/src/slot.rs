//! A connection's place in the table: small while the connection is idle.

use crate::chain::Queue;
use crate::handshake::Handshake;
use crate::record::Session;
use crate::timeouts;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;
use ipc::link::stream::Conn;

pub struct Slot {
    pub conn: Conn,
    pub flags: u16,
    pub phase: Phase,
    /// What only a connection with something under way has.
    pub busy: Option<Box<Busy>>,
}

/// What an idle connection costs in this task.
pub const IDLE_BYTES: usize = size_of::<Slot>();

pub enum Phase {
    Free,
    Handshake(Box<Handshake>),
    Open(Session),
    /// Nothing more is sent or passed on; waits for tcp's `Closed` and the broker's `Released`.
    Closing {
        timeout: u32,
    },
}

const _: () = assert!(IDLE_BYTES <= 128);

/// The broker knows the connection (`Opened` sent), until its `Released`.
pub const KNOWN: u16 = 1;
/// `Closed` was sent to the broker.
pub const CLOSED_ABOVE: u16 = 1 << 1;
/// tcp has said `Closed`.
pub const CLOSED_BELOW: u16 = 1 << 2;
/// Nothing more is read: the peer's end was passed on, or nobody wants to know.
pub const DEAF: u16 = 1 << 3;
/// tcp has said `Finished`, and it waits behind bytes that are still to be passed on.
pub const END_WAITS: u16 = 1 << 4;
/// The broker has said `Finish`; close_notify follows the last of its buffers.
pub const FINISHING: u16 = 1 << 5;
/// tcp has said `Congested`.
pub const CONGESTED: u16 = 1 << 6;
/// The broker has said `Pause`.
pub const PAUSED: u16 = 1 << 7;
/// Stands in the queue for a plaintext buffer, for a ciphertext buffer, for a handshake step.
pub const STARVED: u16 = 1 << 8;
pub const BLOCKED: u16 = 1 << 9;
pub const STEPPING: u16 = 1 << 10;

impl Slot {
    pub const fn free() -> Self {
        Slot { conn: 0, flags: 0, phase: Phase::Free, busy: None }
    }

    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    pub fn busy(&mut self) -> &mut Busy {
        self.busy.get_or_insert_default()
    }

    /// Gives back the memory of what is no longer under way.
    pub fn tidy(&mut self) {
        if self.busy.as_ref().is_some_and(|b| b.is_idle()) {
            self.busy = None;
        }
    }
}

pub struct Busy {
    /// Received pieces that wait.
    pub pieces: Queue,
    /// The broker's buffers that wait.
    pub sends: Queue,
    /// Bytes of records that came in parts; those before `start` are done with.
    pub bytes: Vec<u8>,
    pub start: usize,
    /// Opened in `bytes`, to be passed on; the record ends at `record_end`.
    pub plain: Range<usize>,
    pub record_end: usize,
    /// Runs while the connection is [`FINISHING`].
    pub timeout: u32,
}

impl Default for Busy {
    fn default() -> Self {
        Busy {
            pieces: Queue::EMPTY,
            sends: Queue::EMPTY,
            bytes: Vec::new(),
            start: 0,
            plain: 0..0,
            record_end: 0,
            timeout: timeouts::NONE,
        }
    }
}

impl Busy {
    pub fn is_idle(&self) -> bool {
        self.pieces.is_empty()
            && self.sends.is_empty()
            && self.bytes.is_empty()
            && self.timeout == timeouts::NONE
    }
}
