//! Connections, by the slot of their number. An idle one is a few dozen bytes; what few need is boxed.

use crate::acl::Role;
use crate::message::{Letter, Message};
use crate::names::Name;
use crate::slab::NONE;
use alloc::boxed::Box;
use alloc::vec::Vec;
use ipc::link::stream::{self, SLOT_BITS};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// CONNECT is awaited.
    #[default]
    Opened,
    Connected,
    /// We have finished or aborted it, and wait for `Closed`.
    Closing,
}

pub struct Conn {
    /// The link's number for it.
    pub number: stream::Conn,
    /// Valid when `Connected`.
    pub session: u32,
    /// The name in its certificate.
    pub name: Name,
    /// Tick of the last sign of life; of the opening or closing before and after `Connected`.
    pub seen: u32,
    /// Outgoing buffer that is being filled, or `NONE`, and how far.
    pub open: u32,
    pub open_len: u16,
    /// Seconds.
    pub keep_alive: u16,
    pub state: State,
    pub role: Role,
    /// In the list of those that can go on sending.
    pub ready: bool,
    /// The lower side has much of it in flight.
    pub congested: bool,
    /// Input waits until answers could be sent; until a receiver of its messages has caught up.
    pub held: bool,
    pub stalled: bool,
    /// What the lower side was told of the two.
    pub paused: bool,
    pub will: Option<Box<Letter>>,
    pub rare: Option<Box<Rare>>,
}

impl Default for Conn {
    fn default() -> Self {
        Conn {
            number: 0,
            session: NONE,
            name: Name::NONE,
            seen: 0,
            open: NONE,
            open_len: 0,
            keep_alive: 0,
            state: State::Opened,
            role: Role::Device,
            ready: false,
            congested: false,
            held: false,
            stalled: false,
            paused: false,
            will: None,
            rare: None,
        }
    }
}

/// What an idle connection doesn't have.
#[derive(Default)]
pub struct Rare {
    /// Received and not yet handled: part of a packet, or all that came while input waits.
    pub input: Vec<u8>,
    /// Tick since which the first packet in `input` is incomplete.
    pub since: u32,
    /// Answers that wait for an outgoing buffer.
    pub control: Vec<u8>,
    /// Message of which a part has been sent.
    pub sending: Option<Sending>,
}

/// The rest of a message's payload, from `at`.
pub struct Sending {
    pub message: Message,
    pub at: usize,
}

impl Conn {
    pub fn slot(number: stream::Conn) -> u32 {
        number & ((1 << SLOT_BITS) - 1)
    }

    pub fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Its input has to wait.
    pub fn blocked(&self) -> bool {
        self.held || self.stalled
    }

    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Opened | State::Connected)
    }

    /// Nothing that must go first waits to be sent, and the lower side takes more.
    pub fn writable(&self) -> bool {
        let nothing_waits = |r: &Rare| r.control.is_empty() && r.sending.is_none();
        self.is_open() && !self.congested && self.rare.as_deref().is_none_or(nothing_waits)
    }
}
