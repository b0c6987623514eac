//! What a message of a link means to one who carries it: which bytes go with it, and which connection it is about.

use ipc::link::console::Line;
use ipc::link::frame::{self, TX_OFFSET};
use ipc::link::stream::{Down, Identity, IdentityRef, PeerAddress, Up};
use ipc::ring::{Desc, Message};

/// Bytes of a buffer of the sender's pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    pub buf: u32,
    pub off: usize,
    pub len: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Lends a buffer.
    Carries { conn: u32, payload: Payload },
    /// Gives a buffer of the receiver's pool back.
    Returns { buf: u32 },
    /// Something about a connection happens.
    Tells { conn: u32 },
    /// Flow control, or a greeting: depends on time, not on what was said.
    Paces,
}

/// How a link's messages read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Stream,
    Session,
    Frame,
    Log,
}

impl Kind {
    /// By the link's name in the task graphs; `None`: a link that isn't recorded.
    pub fn of(link: &str) -> Option<Self> {
        Some(match link {
            "stream" => Kind::Stream,
            "session" => Kind::Session,
            "frame" => Kind::Frame,
            "log" => Kind::Log,
            _ => return None,
        })
    }

    /// `None`: no message of this link.
    pub fn meaning(self, from_side: usize, d: Desc) -> Option<Meaning> {
        match (self, from_side) {
            (Kind::Stream, 0) => Some(up(Up::<PeerAddress>::decode(d)?, |_| None)),
            (Kind::Session, 0) => Some(up(Up::<IdentityRef>::decode(d)?, |i| Some(i.buf))),
            (Kind::Stream | Kind::Session, _) => Some(down(Down::decode(d)?)),
            (Kind::Frame, 0) => Some(match frame::Up::decode(d)? {
                frame::Up::Hello { .. } => Meaning::Paces,
                frame::Up::Received { buf, off, len, .. } => carries(0, buf, off as usize, len as usize),
                frame::Up::Sent { buf } => Meaning::Returns { buf },
            }),
            (Kind::Frame, _) => Some(match frame::Down::decode(d)? {
                frame::Down::Transmit { buf, len } => carries(0, buf, TX_OFFSET, len as usize),
                frame::Down::Free { buf } => Meaning::Returns { buf },
            }),
            (Kind::Log, 0) => Line::decode(d).map(|line| carries(0, line.buf, 0, line.len as usize)),
            (Kind::Log, _) => Some(Meaning::Returns { buf: d.buf }),
        }
    }

    /// What the receiver of a buffer answers, so that its owner has it back.
    pub fn give_back(self, receiver_side: usize, buf: u32) -> Desc {
        match (self, receiver_side) {
            (Kind::Stream | Kind::Session, 0) => Up::<PeerAddress>::Sent { buf }.encode(),
            (Kind::Stream | Kind::Session, _) => Down::Free { buf }.encode(),
            (Kind::Frame, 0) => frame::Up::Sent { buf }.encode(),
            (Kind::Frame, _) => frame::Down::Free { buf }.encode(),
            (Kind::Log, _) => ipc::link::console::Written { buf }.encode(),
        }
    }
}

fn carries(conn: u32, buf: u32, off: usize, len: usize) -> Meaning {
    Meaning::Carries { conn, payload: Payload { buf, off, len } }
}

fn up<O>(message: Up<O>, names_buffer: impl Fn(O) -> Option<u32>) -> Meaning {
    match message {
        Up::Opened { conn, opening } => match names_buffer(opening) {
            Some(buf) => carries(conn, buf, 0, size_of::<Identity>()),
            None => Meaning::Tells { conn },
        },
        Up::Data { conn, buf, off, len } => carries(conn, buf, off as usize, len as usize),
        Up::Finished { conn } | Up::Closed { conn, .. } => Meaning::Tells { conn },
        Up::Sent { buf } => Meaning::Returns { buf },
        Up::Congested { .. } | Up::Drained { .. } => Meaning::Paces,
    }
}

fn down(message: Down) -> Meaning {
    match message {
        Down::Free { buf } => Meaning::Returns { buf },
        Down::Send { conn, buf, len } => carries(conn, buf, 0, len as usize),
        Down::Finish { conn } | Down::Abort { conn } | Down::Released { conn } => Meaning::Tells { conn },
        Down::Pause { .. } | Down::Resume { .. } => Meaning::Paces,
    }
}
