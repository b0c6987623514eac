//! The broker on the host, behind std sockets and rustls: for MQTT clients and test suites at the processor's own speed.
//! A development tool: the image has its own TCP and TLS.
//!
//! `serve PORT CA SERVER_CERT SERVER_KEY`

use broker::{Config, Link, Service};
use ipc::link::End;
use ipc::link::stream::{Down, Identity, IdentityRef, ROLE_DEVICE, ROLE_OPERATOR, Reason, SLOT_BITS, Up};
use ipc::testing::{Kernel, PoolMemory};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use zerocopy::{FromZeros, IntoBytes};

const CONNECTIONS: u32 = 4096;

/// A client: handshaking while `number` isn't known to the broker (`opened`).
struct Client {
    socket: TcpStream,
    tls: ServerConnection,
    opened: bool,
    paused: bool,
    congested: bool,
    /// Close after what waits has been written.
    finish: bool,
    /// `Closed` was said.
    closed: bool,
}

struct Host {
    tls: End<'static, Up<IdentityRef>, Down>,
    clients: HashMap<u32, Client>,
    free: Vec<u32>,
    generation: u32,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [port, ca, cert, key] = &args[..] else { panic!("serve PORT CA SERVER_CERT SERVER_KEY") };
    let config = tls_config(ca, cert, key);
    let listener = TcpListener::bind(("127.0.0.1", port.parse().expect("a port"))).expect("bind");
    listener.set_nonblocking(true).expect("non-blocking");
    let kernel = Kernel::default();
    let (up, down) = (PoolMemory::new(1024, 2048), PoolMemory::new(1024, 2048));
    let (tls, mut link): (_, Link) = ipc::testing::link(&kernel, 1 << 15, (3, 4), up, down);
    let mut service =
        Service::new(Config { connections: CONNECTIONS, sessions: 8192, ..Config::default() }, 7);
    let mut host =
        Host { tls, clients: HashMap::new(), free: (0..CONNECTIONS).rev().collect(), generation: 0 };
    let start = Instant::now();
    loop {
        let mut busy = host.accept(&listener, &config);
        busy |= host.read_all();
        let _ = host.tls.flush();
        service.drive(start.elapsed().as_nanos() as u64, &mut link);
        while let Some(event) = service.event() {
            println!("{:?} {event}", event.level());
        }
        let _ = link.flush();
        if let Some(fault) = link.port.fault() {
            panic!("link fault: {fault:?}");
        }
        busy |= host.serve();
        busy |= host.write_all();
        if !busy {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

fn tls_config(ca: &str, cert: &str, key: &str) -> Arc<ServerConfig> {
    let mut roots = RootCertStore::empty();
    for c in CertificateDer::pem_file_iter(ca).expect("CA") {
        roots.add(c.expect("CA")).expect("CA");
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().expect("CA");
    let chain = CertificateDer::pem_file_iter(cert).expect("cert").map(|c| c.expect("cert")).collect();
    let key = PrivateKeyDer::from_pem_file(key).expect("key");
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .expect("server certificate");
    Arc::new(config)
}

/// Role and subject CN, found by their bytes: good enough for certificates of our own making.
fn identity(der: &[u8]) -> Identity {
    let find = |needle: &[u8], from: usize| {
        der[from..].windows(needle.len()).position(|w| w == needle).map(|i| from + i)
    };
    const CN: &[u8] = &[6, 3, 0x55, 4, 3];
    let issuer = find(CN, 0).expect("issuer CN");
    let subject = find(CN, issuer + 1).expect("subject CN") + CN.len();
    let name = &der[subject + 2..][..der[subject + 1] as usize];
    let operator = find(b"urn:urmqtt:role:operator", 0).or(find(b"operator", 0)).is_some();
    let mut identity = Identity::new_zeroed();
    identity.role = if operator { ROLE_OPERATOR } else { ROLE_DEVICE };
    identity.name_len = name.len() as u8;
    identity.name[..name.len()].copy_from_slice(name);
    identity
}

impl Host {
    fn accept(&mut self, listener: &TcpListener, config: &Arc<ServerConfig>) -> bool {
        let mut busy = false;
        while let Ok((socket, _)) = listener.accept() {
            let Some(slot) = self.free.pop() else { break };
            socket.set_nonblocking(true).expect("non-blocking");
            socket.set_nodelay(true).expect("no delay");
            let mut tls = ServerConnection::new(config.clone()).expect("connection");
            tls.set_buffer_limit(None);
            self.generation = (self.generation + 1) % (1 << (32 - SLOT_BITS));
            let client = Client {
                socket,
                tls,
                opened: false,
                paused: false,
                congested: false,
                finish: false,
                closed: false,
            };
            self.clients.insert(slot | self.generation << SLOT_BITS, client);
            busy = true;
        }
        busy
    }

    fn read_all(&mut self) -> bool {
        let mut busy = false;
        let numbers: Vec<u32> = self.clients.keys().copied().collect();
        for conn in numbers {
            busy |= self.read(conn);
        }
        busy
    }

    /// Takes what a socket has up to the broker, as far as there are buffers.
    fn read(&mut self, conn: u32) -> bool {
        let client = self.clients.get_mut(&conn).expect("known");
        if client.closed || client.paused || self.tls.own.available() < 4 {
            return false;
        }
        let mut ended = None;
        if client.tls.wants_read() {
            match client.tls.read_tls(&mut client.socket) {
                Ok(0) => ended = Some(Reason::Finished),
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(_) => ended = Some(Reason::Reset),
            }
            if client.tls.process_new_packets().is_err() {
                ended = Some(Reason::Protocol);
            }
        }
        if !client.opened && !client.tls.is_handshaking() {
            client.opened = true;
            let identity = identity(&client.tls.peer_certificates().expect("a client certificate")[0]);
            let buf = self.tls.own.take().expect("a buffer");
            self.tls.own.bytes(buf)[..identity.as_bytes().len()].copy_from_slice(identity.as_bytes());
            self.tls.own.lend(buf);
            assert!(self.tls.send(&Up::Opened { conn, opening: IdentityRef { buf } }));
        }
        let mut busy = false;
        while client.opened
            && let Some(buf) = self.tls.own.take()
        {
            match client.tls.reader().read(&mut self.tls.own.bytes(buf)[..2048]) {
                Ok(len) if len > 0 => {
                    self.tls.own.lend(buf);
                    assert!(self.tls.send(&Up::Data { conn, buf, off: 0, len: len as u16 }));
                    busy = true;
                }
                other => {
                    self.tls.own.put(buf);
                    if matches!(other, Ok(0)) {
                        ended = ended.or(Some(Reason::Finished));
                    }
                    break;
                }
            }
        }
        if let Some(reason) = ended {
            self.end(conn, reason);
        }
        busy || ended.is_some()
    }

    fn end(&mut self, conn: u32, reason: Reason) {
        let client = self.clients.get_mut(&conn).expect("known");
        let _ = client.tls.write_tls(&mut client.socket);
        if client.opened {
            if !client.closed {
                client.closed = true;
                assert!(self.tls.send(&Up::Closed { conn, reason }));
            }
        } else {
            self.forget(conn);
        }
    }

    fn forget(&mut self, conn: u32) {
        self.clients.remove(&conn);
        self.free.push(conn & ((1 << SLOT_BITS) - 1));
    }

    fn serve(&mut self) -> bool {
        let mut busy = false;
        while let Some(message) = self.tls.recv() {
            busy = true;
            match message {
                Down::Free { buf } => self.tls.own.give_back(buf).expect("ours"),
                Down::Send { conn, buf, len } => {
                    self.tls.loans.accept(buf).expect("the broker's");
                    let mut bytes = vec![0; len as usize];
                    self.tls.theirs.copy(buf, 0, &mut bytes).expect("in bounds");
                    if let Some(client) = self.clients.get_mut(&conn).filter(|c| !c.closed) {
                        client.tls.writer().write_all(&bytes).expect("unlimited");
                    }
                    assert!(self.tls.loans.release(buf));
                    assert!(self.tls.send(&Up::Sent { buf }));
                }
                Down::Finish { conn } => {
                    if let Some(client) = self.clients.get_mut(&conn) {
                        client.tls.send_close_notify();
                        client.finish = true;
                    }
                }
                Down::Abort { conn } => self.end(conn, Reason::Aborted),
                Down::Released { conn } => self.forget(conn),
                Down::Pause { conn } => self.set_paused(conn, true),
                Down::Resume { conn } => self.set_paused(conn, false),
            }
        }
        busy
    }

    fn set_paused(&mut self, conn: u32, paused: bool) {
        if let Some(client) = self.clients.get_mut(&conn) {
            client.paused = paused;
        }
    }

    fn write_all(&mut self) -> bool {
        let mut busy = false;
        let numbers: Vec<u32> = self.clients.keys().copied().collect();
        for conn in numbers {
            let client = self.clients.get_mut(&conn).expect("known");
            let mut failed = false;
            while client.tls.wants_write() && !client.closed {
                match client.tls.write_tls(&mut client.socket) {
                    Ok(_) => busy = true,
                    Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                    Err(_) => {
                        failed = true;
                        break;
                    }
                }
            }
            let full = client.tls.wants_write() && !client.closed;
            if full != client.congested && client.opened && !client.closed && !failed {
                client.congested = full;
                assert!(self.tls.send(&if full { Up::Congested { conn } } else { Up::Drained { conn } }));
            }
            let finished = client.finish && !full;
            if finished && !client.closed {
                let _ = client.socket.shutdown(std::net::Shutdown::Write);
            }
            if failed || (finished && !client.closed) {
                self.end(conn, if failed { Reason::Reset } else { Reason::Finished });
            }
        }
        busy
    }
}
