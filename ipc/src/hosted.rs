//! What the hosted platform tells a task's process, as file descriptor [`START`], read-only: what to map where, and which
//! descriptors stand for its capabilities. Written by `urmqtt host`, read by `rt` on Linux before the task's first line.

use crate::manifest::{Error, Span, table};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub const MAGIC: [u8; 8] = *b"urmqHS01";
/// The descriptor of this document.
pub const START: i32 = 3;
/// No descriptor.
pub const NONE: i32 = -1;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Header {
    pub magic: [u8; 8],
    /// Bytes of the document.
    pub len: u32,
    /// An eventfd: the task's word, which its neighbours write.
    pub bell: i32,
    /// A pipe for the task's last words: an [`Exit`](crate::abi::Exit) as a byte, then the message.
    pub report: i32,
    /// [`DEVICE_NONE`] or what the task drives, and its descriptor.
    pub device_kind: u32,
    pub device: i32,
    /// Where `rt::Serial` writes, or [`NONE`].
    pub serial: i32,
    /// Bytes of stack at most.
    pub stack: u64,
    pub maps: Span,
    /// An `i32` a capability, in the order of handles: the peer's bell, or [`NONE`].
    pub signals: Span,
}

pub const DEVICE_NONE: u32 = 0;
/// A listening socket.
pub const DEVICE_LISTENER: u32 = 1;
/// A TAP device with virtio-net headers.
pub const DEVICE_TAP: u32 = 2;

/// A shared mapping of a whole memfd, whose descriptor is open for no more than `rights`. `fd` [`NONE`]: private zeros.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Map {
    pub vaddr: u64,
    pub len: u64,
    pub fd: i32,
    /// `manifest::READ`, or with `WRITE`.
    pub rights: u32,
}

/// The document, its spans in bounds.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    pub header: &'a Header,
    pub maps: &'a [Map],
    pub signals: &'a [i32],
}

impl<'a> Start<'a> {
    /// `bytes` must be 8-byte aligned.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        let (header, _) = Header::ref_from_prefix(bytes).map_err(|_| Error::TooShort)?;
        if header.magic != MAGIC {
            return Err(Error::Magic);
        }
        Ok(Start {
            header,
            maps: table(bytes, header.maps, "maps")?,
            signals: table(bytes, header.signals, "signals")?,
        })
    }
}

/// Writes the document; `header`'s spans and length are filled in.
#[cfg(any(test, feature = "std"))]
pub fn document(header: Header, maps: &[Map], signals: &[i32]) -> Vec<u8> {
    let at = size_of::<Header>() as u32;
    let signals_at = at + size_of_val(maps) as u32;
    let header = Header {
        magic: MAGIC,
        len: signals_at + size_of_val(signals) as u32,
        maps: Span { offset: at, count: maps.len() as u32 },
        signals: Span { offset: signals_at, count: signals.len() as u32 },
        ..header
    };
    [header.as_bytes(), maps.as_bytes(), signals.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    #[repr(align(8))]
    struct Aligned([u8; 256]);

    #[test]
    fn reads_what_was_written() {
        let map = Map { vaddr: 0x1000, len: 0x2000, fd: 7, rights: 3 };
        let written = document(Header { bell: 5, ..Header::new_zeroed() }, &[map, map], &[NONE, 9]);
        let mut bytes = Aligned([0; 256]);
        bytes.0[..written.len()].copy_from_slice(&written);
        let start = Start::parse(&bytes.0[..written.len()]).unwrap();
        assert_eq!((start.header.bell, start.header.len as usize), (5, written.len()));
        assert_eq!((start.maps[1].vaddr, start.maps[1].fd, start.signals), (0x1000, 7, &[NONE, 9][..]));
        assert!(Start::parse(&bytes.0[..written.len() - 1]).is_err());
        bytes.0[0] ^= 1;
        assert_eq!(Start::parse(&bytes.0).unwrap_err(), Error::Magic);
    }
}
