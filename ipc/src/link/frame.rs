//! nic (side A) - tcp (side B): Ethernet frames.
//!
//! Pool A (owner nic): received frames, written by the device, read by tcp and tls. Pool B (owner tcp): frames to send,
//! read by the device. A received buffer goes back by [`Down::Free`], a sent one by [`Up::Sent`].

use crate::ring::{Desc, Message};

/// nic to tcp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Up {
    /// First message of each epoch: the device's address and the largest frame (without CRC).
    Hello {
        mac: [u8; 6],
        max_frame: u16,
    },
    /// `checked`: the device has verified the TCP checksum.
    Received {
        buf: u32,
        off: u16,
        len: u16,
        checked: bool,
    },
    Sent {
        buf: u32,
    },
}

/// tcp to nic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Down {
    /// The frame starts at byte [`TX_OFFSET`] of the buffer; the bytes before it are the driver's (virtio header, which tcp
    /// leaves zero).
    Transmit {
        buf: u32,
        len: u16,
    },
    Free {
        buf: u32,
    },
}

/// Room in front of a frame in pool B, and 12 bytes of it are the device's header.
pub const TX_OFFSET: usize = 16;

impl Message for Up {
    fn encode(&self) -> Desc {
        match *self {
            Up::Hello { mac: [a, b, c, d, e, f], max_frame } => Desc {
                kind: 1,
                off: u16::from_le_bytes([a, b]),
                conn: u32::from_le_bytes([c, d, e, f]),
                len: max_frame as u32,
                ..Desc::default()
            },
            Up::Received { buf, off, len, checked } => {
                Desc { kind: 2, flags: checked as u8, off, buf, len: len as u32, conn: 0 }
            }
            Up::Sent { buf } => Desc { kind: 3, buf, ..Desc::default() },
        }
    }

    fn decode(d: Desc) -> Option<Self> {
        Some(match d.kind {
            1 => {
                let ([a, b], [c, d4, e, f]) = (d.off.to_le_bytes(), d.conn.to_le_bytes());
                Up::Hello { mac: [a, b, c, d4, e, f], max_frame: u16::try_from(d.len).ok()? }
            }
            2 => Up::Received {
                buf: d.buf,
                off: d.off,
                len: u16::try_from(d.len).ok()?,
                checked: d.flags & 1 == 1,
            },
            3 => Up::Sent { buf: d.buf },
            _ => return None,
        })
    }
}

impl Message for Down {
    fn encode(&self) -> Desc {
        match *self {
            Down::Transmit { buf, len } => Desc { kind: 1, buf, len: len as u32, ..Desc::default() },
            Down::Free { buf } => Desc { kind: 2, buf, ..Desc::default() },
        }
    }

    fn decode(d: Desc) -> Option<Self> {
        Some(match d.kind {
            1 => Down::Transmit { buf: d.buf, len: u16::try_from(d.len).ok()? },
            2 => Down::Free { buf: d.buf },
            _ => return None,
        })
    }
}
