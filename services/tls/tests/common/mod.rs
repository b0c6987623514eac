//! rustls clients for the bench.
#![allow(dead_code)] // each test file uses its part

pub mod certs;

use certs::Certs;
use rustls::ClientConnection;
use std::io::{Read, Write};
#[allow(unused_imports)] // likewise
pub use tls::testing::{BROKER, Bench, Pools, TCP, TLS, small_limits};
use tls::{Config, Limits};

pub fn config(certs: &Certs, limits: Limits) -> Config {
    Config {
        certificate_chain: vec![certs.server.der.clone()],
        private_key: certs.server.key.clone(),
        authorities: vec![certs.ca_der.clone()],
        operator_by_name: false,
        limits,
    }
}

pub fn fresh(certs: &Certs) -> Bench {
    Bench::with(config(certs, small_limits()), Pools::default())
}

/// What a bench does with rustls clients.
pub trait Clients {
    fn pump(&mut self, conn: u32, client: &mut ClientConnection) -> Result<(), rustls::Error>;
    fn read(&mut self, conn: u32) -> Vec<u8>;
    fn connect(&mut self, conn: u32, client: ClientConnection) -> ClientConnection;
}

impl Clients for Bench {
    /// Carries bytes both ways until client and service are quiet. The client's error, if it found one.
    fn pump(&mut self, conn: u32, client: &mut ClientConnection) -> Result<(), rustls::Error> {
        loop {
            let mut out = Vec::new();
            while client.wants_write() {
                client.write_tls(&mut out).unwrap();
            }
            let quiet = out.is_empty();
            self.receive(conn, &out);
            self.settle();
            let back = std::mem::take(&mut self.wires.get_mut(&conn).unwrap().to_client);
            if quiet && back.is_empty() {
                return Ok(());
            }
            let mut at = &back[..];
            while !at.is_empty() {
                client.read_tls(&mut at).unwrap();
                client.process_new_packets()?;
                let plain = read_all(client);
                self.wires.get_mut(&conn).unwrap().plain.extend(plain);
            }
        }
    }

    /// Takes what the client has read since the last time.
    fn read(&mut self, conn: u32) -> Vec<u8> {
        std::mem::take(&mut self.wires.get_mut(&conn).unwrap().plain)
    }

    /// A connection through its handshake.
    fn connect(&mut self, conn: u32, mut client: ClientConnection) -> ClientConnection {
        self.open(conn);
        self.pump(conn, &mut client).unwrap();
        assert!(!client.is_handshaking());
        assert!(self.clients.contains_key(&conn), "{:?}", self.service.refusal());
        client
    }
}

fn read_all(client: &mut ClientConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = client.reader().read_to_end(&mut bytes);
    bytes
}

pub fn write(client: &mut ClientConnection, mut bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let n = client.writer().write(bytes).unwrap();
        bytes = &bytes[n..];
        while client.wants_write() {
            client.write_tls(&mut out).unwrap();
        }
    }
    out
}
