//! A raw MQTT client over TLS: bytes as the test wants them.

use crate::tools;
use anyhow::{Context, Result, bail};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A certificate with its key, and the CA that the server must have.
#[derive(Clone, Debug)]
pub struct Credentials {
    pub ca: PathBuf,
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// MQTT client identifier.
    pub id: String,
}

impl Credentials {
    /// Device `n` (from 1) of the certificate folder.
    pub fn device(n: u32) -> Self {
        Self::device_in(&tools::certs(), n)
    }

    pub fn device_in(folder: &Path, n: u32) -> Self {
        let id = format!("dev-{n:05}");
        let at = |ext| folder.join(format!("devices/{id}.{ext}"));
        Credentials { ca: folder.join("ca.crt"), certificate: at("crt"), key: at("key"), id }
    }

    pub fn operator(id: &str) -> Self {
        let folder = tools::certs();
        let (certificate, key) = (folder.join("operator.crt"), folder.join("operator.key"));
        Credentials { ca: folder.join("ca.crt"), certificate, key, id: id.into() }
    }

    /// TLS settings for many connections.
    pub fn config(&self) -> Result<Arc<ClientConfig>> {
        let mut roots = RootCertStore::empty();
        for certificate in
            CertificateDer::pem_file_iter(&self.ca).with_context(|| format!("{}", self.ca.display()))?
        {
            roots.add(certificate?)?;
        }
        let chain: Vec<_> = CertificateDer::pem_file_iter(&self.certificate)?.collect::<Result<_, _>>()?;
        let key = PrivateKeyDer::from_pem_file(&self.key)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)?;
        config.resumption = rustls::client::Resumption::disabled();
        Ok(Arc::new(config))
    }
}

/// A received packet: first byte and body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    pub first: u8,
    pub body: Vec<u8>,
}

pub const CONNACK: u8 = 0x20;
pub const PUBACK: u8 = 0x40;

/// A TLS connection to a broker on 127.0.0.1.
pub struct Client {
    stream: StreamOwned<ClientConnection, TcpStream>,
    buffer: Vec<u8>,
}

impl Client {
    /// TCP and the TLS handshake.
    pub fn dial(port: u16, config: &Arc<ClientConfig>) -> Result<Self> {
        let socket = TcpStream::connect(("127.0.0.1", port))?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(Duration::from_secs(20)))?;
        socket.set_write_timeout(Some(Duration::from_secs(20)))?;
        let connection = ClientConnection::new(config.clone(), ServerName::try_from("localhost")?)?;
        let mut stream = StreamOwned::new(connection, socket);
        stream.conn.complete_io(&mut stream.sock).context("TLS handshake")?;
        Ok(Client { stream, buffer: Vec::new() })
    }

    /// Dials, sends CONNECT (clean session), expects CONNACK 0.
    pub fn connect(port: u16, credentials: &Credentials) -> Result<Self> {
        Self::connect_with(port, &credentials.config()?, &credentials.id, 60, true)
    }

    pub fn connect_with(
        port: u16,
        config: &Arc<ClientConfig>,
        id: &str,
        keep_alive: u16,
        clean: bool,
    ) -> Result<Self> {
        let mut client = Self::dial(port, config)?;
        client.send(&connect_packet(id, keep_alive, clean))?;
        let packet = client.receive()?;
        if packet.first != CONNACK || packet.body.get(1) != Some(&0) {
            bail!("CONNECT answered by {packet:?}");
        }
        Ok(client)
    }

    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()?;
        Ok(())
    }

    pub fn set_timeout(&mut self, limit: Duration) -> Result<()> {
        Ok(self.stream.sock.set_read_timeout(Some(limit))?)
    }

    /// The next packet.
    pub fn receive(&mut self) -> Result<Packet> {
        loop {
            if let Some(packet) = take_packet(&mut self.buffer) {
                return Ok(packet);
            }
            let mut chunk = [0; 16384];
            match self.stream.read(&mut chunk)? {
                0 => bail!("connection closed"),
                n => self.buffer.extend_from_slice(&chunk[..n]),
            }
        }
    }

    /// Waits until the server closes; an error when it sends a packet or stays.
    pub fn closed(&mut self, limit: Duration) -> Result<()> {
        self.set_timeout(limit)?;
        match self.receive() {
            Ok(packet) => bail!("expected the end of the connection, got {packet:?}"),
            Err(e) => match e.downcast_ref::<std::io::Error>().map(|e| e.kind()) {
                Some(ErrorKind::WouldBlock | ErrorKind::TimedOut) => bail!("the connection is still open"),
                _ => Ok(()),
            },
        }
    }

    pub fn subscribe(&mut self, filter: &str, qos: u8) -> Result<()> {
        let mut body = vec![0, 1];
        string(&mut body, filter.as_bytes());
        body.push(qos);
        self.send(&packet(0x82, &body))?;
        let answer = self.receive()?;
        if answer.first != 0x90 || answer.body.get(2) != Some(&qos) {
            bail!("SUBSCRIBE {filter} answered by {answer:?}");
        }
        Ok(())
    }

    /// The next PUBLISH as (topic, payload); acknowledges QoS 1.
    pub fn message(&mut self) -> Result<(String, Vec<u8>)> {
        let p = self.receive()?;
        if p.first >> 4 != 3 || p.body.len() < 2 {
            bail!("expected PUBLISH, got {p:?}");
        }
        let end = 2 + u16::from_be_bytes([p.body[0], p.body[1]]) as usize;
        let topic = String::from_utf8(p.body[2..end].to_vec())?;
        let qos = p.first >> 1 & 3;
        if qos == 0 {
            return Ok((topic, p.body[end..].to_vec()));
        }
        self.send(&packet(PUBACK, &p.body[end..end + 2]))?;
        Ok((topic, p.body[end + 2..].to_vec()))
    }

    /// PUBLISH of QoS 1 and its PUBACK.
    pub fn publish(&mut self, topic: &str, payload: &[u8], identifier: u16) -> Result<()> {
        self.send(&publish_packet(topic, payload, Some(identifier)))?;
        let answer = self.receive()?;
        if answer.first != PUBACK || answer.body != identifier.to_be_bytes() {
            bail!("PUBLISH {identifier} answered by {answer:?}");
        }
        Ok(())
    }
}

fn take_packet(buffer: &mut Vec<u8>) -> Option<Packet> {
    let (mut len, mut at) = (0usize, 1);
    loop {
        let byte = *buffer.get(at)?;
        len |= (byte as usize & 0x7f) << (7 * (at - 1));
        at += 1;
        if byte & 0x80 == 0 || at == 5 {
            break;
        }
    }
    (buffer.len() >= at + len).then(|| {
        let rest = buffer.split_off(at + len);
        let packet = Packet { first: buffer[0], body: buffer[at..].to_vec() };
        *buffer = rest;
        packet
    })
}

fn string(into: &mut Vec<u8>, text: &[u8]) {
    into.extend((text.len() as u16).to_be_bytes());
    into.extend(text);
}

/// A packet with its remaining length.
pub fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![first];
    let mut n = body.len();
    loop {
        let digit = (n % 128) as u8;
        n /= 128;
        out.push(if n > 0 { digit | 0x80 } else { digit });
        if n == 0 {
            break;
        }
    }
    out.extend(body);
    out
}

pub fn connect_packet(id: &str, keep_alive: u16, clean: bool) -> Vec<u8> {
    let mut body = Vec::new();
    string(&mut body, b"MQTT");
    body.extend([4, if clean { 2 } else { 0 }]);
    body.extend(keep_alive.to_be_bytes());
    string(&mut body, id.as_bytes());
    packet(0x10, &body)
}

/// QoS 1 with an identifier, QoS 0 without.
pub fn publish_packet(topic: &str, payload: &[u8], identifier: Option<u16>) -> Vec<u8> {
    let mut body = Vec::new();
    string(&mut body, topic.as_bytes());
    body.extend(identifier.iter().flat_map(|i| i.to_be_bytes()));
    body.extend(payload);
    packet(if identifier.is_some() { 0x32 } else { 0x30 }, &body)
}
