//! tcp (side A) - tls (side B), and tls (side A) - broker (side B): the bytes of connections.
//!
//! Both links have the same messages; they differ in what [`Up::Opened`] carries ([`PeerAddress`], [`IdentityRef`]).
//! A connection keeps its number over both links. Pool A holds bytes that go up, pool B bytes that go down; on the
//! tcp-tls link pool A is the nic's frame pool, which tls maps read-only too.
//!
//! Life of a connection: `Opened`, then `Data` and `Finished`, at last `Closed`. After `Closed` no more `Up` message bears
//! that number until the upper side has answered `Released`; every `Down` message that crosses a `Closed` is
//! ignored, its buffer returned. After `Abort` the lower side still says `Closed`.

use crate::ring::{Desc, Message};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A connection's number: slot in the low 20 bits, generation above, so that a late message can't hit a successor.
pub type Conn = u32;
pub const SLOT_BITS: u32 = 20;

/// What `Opened` carries, in three of the descriptor's fields (off, buf, len).
pub trait Opening: Sized + Copy {
    fn encode(&self) -> (u16, u32, u32);
    fn decode(off: u16, buf: u32, len: u32) -> Option<Self>;
}

/// On the tcp-tls link: who connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddress {
    pub ip: [u8; 4],
    pub port: u16,
}

impl Opening for PeerAddress {
    fn encode(&self) -> (u16, u32, u32) {
        (self.port, u32::from_be_bytes(self.ip), 0)
    }
    fn decode(off: u16, buf: u32, _: u32) -> Option<Self> {
        Some(PeerAddress { ip: buf.to_be_bytes(), port: off })
    }
}

/// On the tls-broker link: an [`Identity`] at the start of a buffer of pool A (returned with `Free`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentityRef {
    pub buf: u32,
}

impl Opening for IdentityRef {
    fn encode(&self) -> (u16, u32, u32) {
        (0, self.buf, 0)
    }
    fn decode(_: u16, buf: u32, _: u32) -> Option<Self> {
        Some(IdentityRef { buf })
    }
}

/// Whom the client certificate names.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Identity {
    /// [`ROLE_DEVICE`] or [`ROLE_OPERATOR`].
    pub role: u8,
    pub name_len: u8,
    pub port: u16,
    pub ip: [u8; 4],
    /// Seconds since 1970 at which the certificate expires.
    pub not_after: u64,
    /// UTF-8 (CN, or the SAN URI), `name_len` bytes.
    pub name: [u8; 128],
}
pub const ROLE_DEVICE: u8 = 0;
pub const ROLE_OPERATOR: u8 = 1;

impl Identity {
    /// Checked: role known, name not empty, in bounds and UTF-8.
    pub fn name(&self) -> Option<&str> {
        let bytes = self.name.get(..self.name_len as usize)?;
        let known = self.role <= ROLE_OPERATOR && !bytes.is_empty();
        core::str::from_utf8(bytes).ok().filter(|_| known)
    }
}

/// Why a connection ended, as far as the lower side knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// Both directions finished in order.
    Finished = 0,
    /// Reset by the peer.
    Reset = 1,
    /// Retransmissions or a handshake timed out.
    Timeout = 2,
    /// We aborted it.
    Aborted = 3,
    /// The peer broke the protocol (bad record, alert).
    Protocol = 4,
    /// A task of ours restarted.
    Restart = 5,
}

impl Reason {
    pub const fn from_number(n: u8) -> Option<Self> {
        Some(match n {
            0 => Self::Finished,
            1 => Self::Reset,
            2 => Self::Timeout,
            3 => Self::Aborted,
            4 => Self::Protocol,
            5 => Self::Restart,
            _ => return None,
        })
    }
}

/// Towards the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Up<O> {
    Opened {
        conn: Conn,
        opening: O,
    },
    /// `len` bytes from `off` of a buffer of pool A, in order. Returned with `Down::Free`.
    Data {
        conn: Conn,
        buf: u32,
        off: u16,
        len: u16,
    },
    /// The peer sends no more; we still may.
    Finished {
        conn: Conn,
    },
    Closed {
        conn: Conn,
        reason: Reason,
    },
    /// A buffer of pool B comes back: acknowledged by the peer (tcp), or sealed (tls).
    Sent {
        buf: u32,
    },
    /// The connection has much in flight: hold back. And: go on.
    Congested {
        conn: Conn,
    },
    Drained {
        conn: Conn,
    },
}

/// Towards the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Down {
    Free {
        buf: u32,
    },
    /// `len` bytes from the start of a buffer of pool B.
    Send {
        conn: Conn,
        buf: u32,
        len: u16,
    },
    /// Close after all that was sent.
    Finish {
        conn: Conn,
    },
    /// Close at once, forget what is queued.
    Abort {
        conn: Conn,
    },
    /// Answer to `Closed`: the number may be used again.
    Released {
        conn: Conn,
    },
    /// Stop (go on) reading this connection: the window closes (opens).
    Pause {
        conn: Conn,
    },
    Resume {
        conn: Conn,
    },
}

/// Descriptors that one connection can have under way in one direction besides those that carry buffers; what the
/// builder sizes rings by.
pub const CONTROL_PER_CONNECTION: u32 = 4;

impl<O: Opening> Message for Up<O> {
    fn encode(&self) -> Desc {
        let plain = |kind, conn| Desc { kind, conn, ..Desc::default() };
        match *self {
            Up::Opened { conn, opening } => {
                let (off, buf, len) = opening.encode();
                Desc { kind: 1, flags: 0, off, conn, buf, len }
            }
            Up::Data { conn, buf, off, len } => Desc { kind: 2, flags: 0, off, conn, buf, len: len as u32 },
            Up::Finished { conn } => plain(3, conn),
            Up::Closed { conn, reason } => Desc { flags: reason as u8, ..plain(4, conn) },
            Up::Sent { buf } => Desc { buf, ..plain(5, 0) },
            Up::Congested { conn } => plain(6, conn),
            Up::Drained { conn } => plain(7, conn),
        }
    }

    fn decode(d: Desc) -> Option<Self> {
        let conn = d.conn;
        Some(match d.kind {
            1 => Up::Opened { conn, opening: O::decode(d.off, d.buf, d.len)? },
            2 => Up::Data { conn, buf: d.buf, off: d.off, len: u16::try_from(d.len).ok()? },
            3 => Up::Finished { conn },
            4 => Up::Closed { conn, reason: Reason::from_number(d.flags)? },
            5 => Up::Sent { buf: d.buf },
            6 => Up::Congested { conn },
            7 => Up::Drained { conn },
            _ => return None,
        })
    }
}

impl Message for Down {
    fn encode(&self) -> Desc {
        let plain = |kind, conn| Desc { kind, conn, ..Desc::default() };
        match *self {
            Down::Free { buf } => Desc { buf, ..plain(1, 0) },
            Down::Send { conn, buf, len } => Desc { buf, len: len as u32, ..plain(2, conn) },
            Down::Finish { conn } => plain(3, conn),
            Down::Abort { conn } => plain(4, conn),
            Down::Released { conn } => plain(5, conn),
            Down::Pause { conn } => plain(6, conn),
            Down::Resume { conn } => plain(7, conn),
        }
    }

    fn decode(d: Desc) -> Option<Self> {
        let conn = d.conn;
        Some(match d.kind {
            1 => Down::Free { buf: d.buf },
            2 => Down::Send { conn, buf: d.buf, len: u16::try_from(d.len).ok()? },
            3 => Down::Finish { conn },
            4 => Down::Abort { conn },
            5 => Down::Released { conn },
            6 => Down::Pause { conn },
            7 => Down::Resume { conn },
            _ => return None,
        })
    }
}
