//! The record layer after the handshake (RFC 8446, 5): a connection's secrets and counters, nothing else.
//!
//! A record is opened and sealed in place, in a buffer that starts with its header.

mod cache;
mod known;
mod secret;
#[cfg(test)]
mod tests;

pub use cache::KeyCache;
pub use known::self_test;
pub use secret::{Direction, Key, Secrets, Suite};

use core::ops::Range;
use ipc::link::stream::Conn;

pub const HEADER: usize = 5;
const TAG: usize = 16;
/// What a record adds to its payload: header, content type, tag.
pub const OVERHEAD: usize = HEADER + 1 + TAG;
/// Most bytes of payload (RFC 8446, 5.1), and of an encrypted record behind its header (5.2).
pub const MAX_PAYLOAD: usize = 1 << 14;
pub const MAX_BODY: usize = MAX_PAYLOAD + 256;
/// Bytes of a whole KeyUpdate or alert record at most.
pub const SMALL_RECORD: usize = OVERHEAD + KEY_UPDATE_LEN;

/// Records under one of our keys before we change it (RFC 8446, 5.5: 2^24.5 for AES-GCM).
const RECORDS_PER_KEY: u32 = 1 << 24;
/// Records in a row that bring the application nothing (KeyUpdate, empty): a peer that sends more keeps us busy for nothing.
const IDLE_RECORDS: u8 = 32;

const KEY_UPDATE: u8 = 24;
const KEY_UPDATE_LEN: usize = 5;

/// Content types (RFC 8446, B.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Content {
    Alert = 21,
    Handshake = 22,
    Data = 23,
}

/// Alert descriptions (RFC 8446, B.2) that this side sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Alert {
    CloseNotify = 0,
    UnexpectedMessage = 10,
    BadRecordMac = 20,
    RecordOverflow = 22,
    CertificateUnknown = 46,
    IllegalParameter = 47,
    DecodeError = 50,
    InternalError = 80,
}
const USER_CANCELED: u8 = 90;

impl Alert {
    /// The message: a level, which says nothing in TLS 1.3, and the description.
    pub fn message(self) -> [u8; 2] {
        [if self == Alert::CloseNotify { 1 } else { 2 }, self as u8]
    }
}

/// What a record brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// Application data: this range of the record's buffer, not empty.
    Data(Range<usize>),
    Nothing,
    /// close_notify: the peer sends no more.
    Closed,
    /// A fatal alert: the connection is dead.
    Failed(u8),
}

/// Length of the record behind its header, 17 to [`MAX_BODY`]. Its version means nothing (RFC 8446, 5.1).
pub fn body_len(header: [u8; HEADER]) -> Result<usize, Alert> {
    let [kind, _, _, high, low] = header;
    let len = u16::from_be_bytes([high, low]) as usize;
    match len {
        _ if kind != Content::Data as u8 => Err(Alert::UnexpectedMessage),
        ..=TAG => Err(Alert::BadRecordMac),
        MAX_BODY.. if len > MAX_BODY => Err(Alert::RecordOverflow),
        _ => Ok(len),
    }
}

/// An established connection.
pub struct Session {
    secrets: Secrets,
    /// Records under the present keys.
    received: u64,
    sent: u32,
    suite: Suite,
    idle_records: u8,
    /// The peer has asked for a KeyUpdate, which goes out before the next record of ours, once for however many asked.
    update_due: bool,
    /// Start of a KeyUpdate whose rest stands in the next record.
    fragment_len: u8,
    fragment: [u8; KEY_UPDATE_LEN],
}

impl Session {
    pub fn new(suite: Suite, secrets: Secrets) -> Self {
        Session {
            secrets,
            received: 0,
            sent: 0,
            suite,
            idle_records: 0,
            update_due: false,
            fragment_len: 0,
            fragment: [0; KEY_UPDATE_LEN],
        }
    }

    /// Opens one whole record, header included, in place.
    pub fn open(&mut self, keys: &mut KeyCache, conn: Conn, record: &mut [u8]) -> Result<Received, Alert> {
        let (header, body) = record.split_at_mut_checked(HEADER).ok_or(Alert::DecodeError)?;
        let Session { secrets, suite, .. } = self;
        let key = keys.get(conn, Direction::Receive, || secrets.key(*suite, Direction::Receive));
        let inner = key.open(self.received, header, body).ok_or(Alert::BadRecordMac)?;
        self.received += 1;
        if inner.len() > MAX_PAYLOAD + 1 {
            return Err(Alert::RecordOverflow);
        }
        // Padding is zeros behind the content type (RFC 8446, 5.4).
        let len = inner.iter().rposition(|&b| b != 0).ok_or(Alert::UnexpectedMessage)?;
        let (text, kind) = (&inner[..len], inner[len]);
        if kind != Content::Handshake as u8 && self.fragment_len != 0 {
            return Err(Alert::UnexpectedMessage);
        }
        match kind {
            k if k == Content::Data as u8 => self.data(len),
            k if k == Content::Handshake as u8 => {
                let text = <[u8; KEY_UPDATE_LEN]>::try_from(self.fragment_with(text)?);
                self.key_update(text, keys, conn)
            }
            k if k == Content::Alert as u8 => match *text {
                [_, description] if description == Alert::CloseNotify as u8 => Ok(Received::Closed),
                // Says nothing that the close_notify behind it doesn't say.
                [_, USER_CANCELED] => self.idle(),
                [_, description] => Ok(Received::Failed(description)),
                _ => Err(Alert::DecodeError),
            },
            _ => Err(Alert::UnexpectedMessage),
        }
    }

    fn data(&mut self, len: usize) -> Result<Received, Alert> {
        if len == 0 {
            return self.idle();
        }
        self.idle_records = 0;
        Ok(Received::Data(HEADER..HEADER + len))
    }

    fn idle(&mut self) -> Result<Received, Alert> {
        self.idle_records += 1;
        if self.idle_records > IDLE_RECORDS { Err(Alert::UnexpectedMessage) } else { Ok(Received::Nothing) }
    }

    /// The only handshake message that a client may send now is KeyUpdate, and nothing may follow it under the old key. What has
    /// come of it so far.
    fn fragment_with(&mut self, text: &[u8]) -> Result<&[u8], Alert> {
        let at = self.fragment_len as usize;
        let into = self.fragment.get_mut(at..at + text.len()).ok_or(Alert::UnexpectedMessage)?;
        if text.is_empty() {
            return Err(Alert::UnexpectedMessage);
        }
        into.copy_from_slice(text);
        self.fragment_len += text.len() as u8;
        Ok(&self.fragment[..at + text.len()])
    }

    /// `message`: an error when it is not complete yet.
    fn key_update<E>(
        &mut self,
        message: Result<[u8; KEY_UPDATE_LEN], E>,
        keys: &mut KeyCache,
        conn: Conn,
    ) -> Result<Received, Alert> {
        if self.fragment[0] != KEY_UPDATE {
            return Err(Alert::UnexpectedMessage);
        }
        let Ok(message) = message else { return self.idle() };
        match message {
            [KEY_UPDATE, 0, 0, 1, request @ 0..=1] => self.update_due |= request == 1,
            [KEY_UPDATE, 0, 0, 1, _] => return Err(Alert::IllegalParameter),
            _ => return Err(Alert::DecodeError),
        }
        self.fragment_len = 0;
        self.secrets.update(self.suite, Direction::Receive);
        self.received = 0;
        keys.forget(conn, Direction::Receive);
        self.idle()
    }

    /// A KeyUpdate must go out before the next record: see [`Session::seal_key_update`].
    pub fn wants_key_update(&self) -> bool {
        self.update_due || self.sent >= RECORDS_PER_KEY - 1
    }

    /// Seals a KeyUpdate into `buffer` and changes the key. The record's length.
    pub fn seal_key_update(&mut self, keys: &mut KeyCache, conn: Conn, buffer: &mut [u8]) -> Option<usize> {
        let message = [KEY_UPDATE, 0, 0, 1, 0];
        let len = self.seal_message(keys, conn, Content::Handshake, &message, buffer)?;
        self.secrets.update(self.suite, Direction::Send);
        self.sent = 0;
        self.update_due = false;
        keys.forget(conn, Direction::Send);
        Some(len)
    }

    /// Seals a short message. The record's length; `None`: the buffer is too small, or the key is used up.
    pub fn seal_message(
        &mut self,
        keys: &mut KeyCache,
        conn: Conn,
        content: Content,
        message: &[u8],
        buffer: &mut [u8],
    ) -> Option<usize> {
        buffer.get_mut(HEADER..HEADER + message.len())?.copy_from_slice(message);
        self.seal(keys, conn, content, buffer, message.len())
    }

    /// Seals the `len` bytes, at most [`MAX_PAYLOAD`], that stand in `buffer` behind room for the header. The record's length; `None`: the
    /// buffer is too small, or the key is used up.
    pub fn seal(
        &mut self,
        keys: &mut KeyCache,
        conn: Conn,
        content: Content,
        buffer: &mut [u8],
        len: usize,
    ) -> Option<usize> {
        if len > MAX_PAYLOAD || self.sent >= RECORDS_PER_KEY {
            return None;
        }
        let record = buffer.get_mut(..len + OVERHEAD)?;
        let (header, body) = record.split_at_mut(HEADER);
        let (text, tag) = body.split_at_mut(len + 1);
        let body_len = (len + 1 + TAG) as u16;
        header.copy_from_slice(&[Content::Data as u8, 3, 3, (body_len >> 8) as u8, body_len as u8]);
        text[len] = content as u8;
        let Session { secrets, suite, .. } = self;
        let key = keys.get(conn, Direction::Send, || secrets.key(*suite, Direction::Send));
        tag.copy_from_slice(key.seal(self.sent as u64, header, text)?.as_ref());
        self.sent += 1;
        Some(len + OVERHEAD)
    }
}
