//! A handshake under way: rustls, fed one record at a time, so that it never sees a byte that belongs to the record layer after it.

use crate::identity::{self, Unusable};
use crate::record::{HEADER, MAX_BODY, Session};
use crate::server;
use crate::tap::{Captured, Tap};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use ipc::link::stream::{Identity, PeerAddress};
use rustls::ServerConfig;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData};

/// Why a handshake failed.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// What came is no TLS record.
    NotTls,
    /// rustls says.
    Tls(rustls::Error),
    Identity(Unusable),
    /// More bytes than `handshake_bytes`.
    TooLong,
    Timeout,
    /// The peer ended the connection.
    HungUp,
    /// `handshakes` or `handshakes_per_source` are under way.
    Busy,
    /// The broker is away.
    NotServing,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::NotTls => f.write_str("no TLS"),
            Failure::Tls(e) => e.fmt(f),
            Failure::Identity(e) => e.fmt(f),
            Failure::TooLong => f.write_str("handshake too long"),
            Failure::Timeout => f.write_str("handshake timed out"),
            Failure::HungUp => f.write_str("peer hung up in the handshake"),
            Failure::Busy => f.write_str("too many handshakes under way"),
            Failure::NotServing => f.write_str("the broker is away"),
        }
    }
}

/// What a step came to.
pub enum Step {
    /// No whole record is there.
    Wait,
    /// A record was handled.
    Stepped,
    Done(Done),
    Failed(Failure),
}

pub struct Done {
    pub session: Session,
    pub identity: Result<Identity, Unusable>,
    /// Came behind the client's Finished: records of the session.
    pub rest: Vec<u8>,
}

pub struct Handshake {
    pub peer: PeerAddress,
    /// Its entry among the timeouts.
    pub timeout: u32,
    /// Received and not yet discarded by rustls; of these it has been shown `shown`, whole records.
    input: Vec<u8>,
    shown: usize,
    received: usize,
    /// To be sent.
    pub output: Vec<u8>,
    /// Made when the first whole record is there: a silent connection costs next to nothing.
    tls: Option<Box<UnbufferedServerConnection>>,
    captured: Captured,
}

impl Handshake {
    pub fn new(peer: PeerAddress, timeout: u32) -> Self {
        Handshake {
            peer,
            timeout,
            input: Vec::new(),
            shown: 0,
            received: 0,
            output: Vec::new(),
            tls: None,
            captured: Captured::default(),
        }
    }

    /// Room for `len` more bytes, to be filled by the caller. `None`: more than `limit` in all.
    pub fn room(&mut self, len: usize, limit: usize) -> Option<&mut [u8]> {
        self.received += len;
        if self.received > limit {
            return None;
        }
        let at = self.input.len();
        self.input.resize(at + len, 0);
        Some(&mut self.input[at..])
    }

    /// Handles one record, if a whole one is there. Leaves what is to be sent in `output`, also after a failure.
    pub fn step(&mut self, config: &Arc<ServerConfig>, tap: &Tap, operator_by_name: bool) -> Step {
        let record = match record_len(&self.input[self.shown..]) {
            Ok(Some(len)) => len,
            Ok(None) => return Step::Wait,
            Err(failure) => return Step::Failed(failure),
        };
        self.shown += record;
        let tls = match self
            .tls
            .take()
            .map_or_else(|| UnbufferedServerConnection::new(config.clone()).map(Box::new), Ok)
        {
            Ok(tls) => self.tls.insert(tls),
            Err(e) => return Step::Failed(Failure::Tls(e)),
        };
        let result = run(tls, &mut self.input, &mut self.shown, &mut self.output);
        self.captured.merge(tap.take());
        match result {
            Ok(()) if tls.is_handshaking() => Step::Stepped,
            Ok(()) => self.done(operator_by_name),
            Err(failure) => Step::Failed(failure),
        }
    }

    fn done(&mut self, operator_by_name: bool) -> Step {
        let mut established = || {
            let tls = self.tls.take()?;
            let suite = server::suite(tls.negotiated_cipher_suite()?.suite())?;
            let session = Session::new(suite, self.captured.secrets(suite)?);
            let identity = identity::identify(tls.peer_certificates()?.first()?, operator_by_name);
            Some(Done { session, identity, rest: self.input.split_off(self.shown) })
        };
        established().map_or(Step::Failed(Failure::Tls(rustls::Error::HandshakeNotComplete)), Step::Done)
    }
}

/// Length of the record at the start of `bytes`, when it is whole.
fn record_len(bytes: &[u8]) -> Result<Option<usize>, Failure> {
    let Some(&[kind, major, _, high, low]) = bytes.first_chunk::<HEADER>() else {
        // Not even a first byte of anything that this port doesn't serve is waited for.
        return if bytes.first().is_some_and(|k| !(20..=23).contains(k)) {
            Err(Failure::NotTls)
        } else {
            Ok(None)
        };
    };
    let len = u16::from_be_bytes([high, low]) as usize;
    if !(20..=23).contains(&kind) || major != 3 || len > MAX_BODY {
        return Err(Failure::NotTls);
    }
    Ok((bytes.len() >= HEADER + len).then_some(HEADER + len))
}

/// Runs rustls until it wants more, or has finished.
fn run(
    tls: &mut UnbufferedServerConnection,
    input: &mut Vec<u8>,
    shown: &mut usize,
    output: &mut Vec<u8>,
) -> Result<(), Failure> {
    loop {
        let status = tls.process_tls_records(&mut input[..*shown]);
        let discard = status.discard;
        let go_on = match status.state {
            Ok(ConnectionState::EncodeTlsData(data)) => Ok(encode(data, output)),
            Ok(ConnectionState::TransmitTlsData(data)) => {
                data.done();
                Ok(true)
            }
            Ok(ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_)) => Ok(false),
            // close_notify in a handshake; rustls has no early data here, and was shown nothing behind Finished.
            Ok(_) => Err(Failure::HungUp),
            Err(e) => Err(Failure::Tls(e)),
        };
        input.drain(..discard);
        *shown -= discard;
        match go_on {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(failure) => {
                last_words(tls, &mut input[..*shown], output);
                return Err(failure);
            }
        }
    }
}

/// The alert that rustls has ready after an error. Only asked while it has one: it must not see its input again.
fn last_words(tls: &mut UnbufferedServerConnection, input: &mut [u8], output: &mut Vec<u8>) {
    while tls.wants_write() {
        match tls.process_tls_records(input).state {
            Ok(ConnectionState::EncodeTlsData(data)) => {
                encode(data, output);
            }
            _ => return,
        }
    }
}

fn encode<Data>(mut data: EncodeTlsData<'_, Data>, output: &mut Vec<u8>) -> bool {
    let at = output.len();
    let Err(EncodeError::InsufficientSize(needed)) = data.encode(&mut []) else { return false };
    output.resize(at + needed.required_size, 0);
    data.encode(&mut output[at..]).is_ok()
}
