//! What the builder tells the task (postcard, in its info page).

use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// The server's certificate, DER, followed by intermediate ones.
    pub certificate_chain: Vec<Vec<u8>>,
    /// Its key, DER: PKCS#8, SEC1 or PKCS#1.
    pub private_key: Vec<u8>,
    /// Certificates, DER, of those who may sign a client's certificate.
    pub authorities: Vec<Vec<u8>>,
    /// Development images only: a certificate with the CN `operator` counts as an operator's.
    pub operator_by_name: bool,
    pub limits: Limits,
}

/// Every bound of the task. What happens at a bound stands beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Connection numbers (slots) that tcp may use, at most 2^20. Beyond: a fault of the link.
    pub connections: u32,
    /// Handshakes under way. Beyond: the connection is reset.
    pub handshakes: u32,
    /// Handshakes under way from one address. Beyond: the connection is reset.
    pub handshakes_per_source: u32,
    /// Milliseconds from the connection's opening to the end of its handshake, and from our closing it to the peer's end.
    /// Beyond: the connection is reset.
    pub handshake_ms: u32,
    /// Bytes that a client sends up to the end of its handshake; holds its certificates. Beyond: the connection is reset.
    pub handshake_bytes: u32,
    /// Bytes of incomplete records over all connections. Beyond: the connection that needs more is closed.
    pub incomplete_bytes: u32,
    /// Keys that are kept ready, a power of two: two for each busy connection, about 0.6 KB each. Beyond: a key is derived again.
    pub ready_keys: u32,
    /// Client certificates whose signature need not be verified again while they are valid, 56 bytes each. Beyond: verified again.
    pub verified_certificates: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 4096,
            handshakes: 512,
            handshakes_per_source: 512,
            handshake_ms: 10_000,
            handshake_bytes: 16_384,
            incomplete_bytes: 1 << 20,
            ready_keys: 512,
            verified_certificates: 1024,
        }
    }
}
