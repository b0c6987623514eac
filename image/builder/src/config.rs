//! The user's configuration, `urmqtt.toml`: everything is optional. `image/urmqtt.toml` shows each key with its
//! default and what it means.

use crate::diagnostic::{Diagnostic, Diagnostics, Source};
use crate::value::{Number, Size, bytes};
use serde::Deserialize;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use toml::Spanned;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub development: bool,
    pub log: Level,
    pub network: Network,
    pub pki: Pki,
    pub limits: Limits,
    pub pools: Pools,
    pub acl: Acl,
    pub image: Image,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            development: false,
            log: Level::Info,
            network: Network::default(),
            pki: Pki::default(),
            limits: Limits::default(),
            pools: Pools::default(),
            acl: Acl::default(),
            image: Image::default(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Error,
    Warn,
    Info,
    Debug,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Network {
    /// Ask a DHCP server. `address`, `prefix` and `gateway` must then be absent.
    pub dhcp: Spanned<bool>,
    pub address: Option<Spanned<Ipv4Addr>>,
    pub prefix: Option<Spanned<Number<1, 30>>>,
    pub gateway: Option<Spanned<Ipv4Addr>>,
    /// TCP port of MQTT over TLS.
    pub port: Number<1, 65535>,
}

impl Default for Network {
    fn default() -> Self {
        Network { dhcp: unspanned(true), address: None, prefix: None, gateway: None, port: Number::new(8883) }
    }
}

impl Network {
    /// The host's choice in place of the user's: this address and port.
    pub fn serve(&mut self, address: Ipv4Addr, port: u16) {
        *self = Network { dhcp: unspanned(false), ..Network::default() };
        self.address = Some(unspanned(address));
        self.prefix = Some(unspanned(Number::new(24)));
        self.port = Number::new(port as u64);
    }
}

/// PEM files; relative to the working folder.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pki {
    /// Default: `ca.crt` in the certificates' folder (`certs`, or `CERTS`).
    pub ca: Option<PathBuf>,
    /// Default: `server.crt` and `server.key` there.
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// TCP connections at a time, those in their handshake included.
    pub connections: Number<1, 65536>,
    /// TLS handshakes at a time.
    pub handshakes: Number<1, 4096>,
    /// Seconds in which a connection must finish its handshake.
    pub handshake_seconds: Number<1, 120>,
    /// Seconds after that in which a client must send its CONNECT.
    pub connect_seconds: Number<1, 600>,
    /// Largest MQTT packet.
    pub packet: Size<256, { 16 << 20 }>,
    /// Sessions, connected or not.
    pub sessions: Spanned<Number<1, 262_144>>,
    /// Seconds that a session is kept for a client that is away.
    pub session_seconds: Number<1, { u32::MAX as u64 }>,
    /// Topic filters of one session, and of all.
    pub session_subscriptions: Number<1, 65535>,
    pub subscriptions: Number<1, 4_194_304>,
    /// QoS 1 messages that a client has not acknowledged, at a time.
    pub inflight: Number<1, 1024>,
    /// Messages that wait in one session, and their bytes.
    pub queue_messages: Number<2, 1_000_000>,
    pub queue: Spanned<Size<1024, { 256 << 20 }>>,
    /// Bytes of all messages that the broker keeps: queued, in flight, retained, wills.
    pub store: Spanned<Size<1024, { 1 << 30 }>>,
    /// Retained messages of all clients, and of one.
    pub retained: Number<0, 1_000_000>,
    pub client_retained: Number<0, 1_000_000>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: Number::new(4096),
            handshakes: Number::new(256),
            handshake_seconds: Number::new(10),
            connect_seconds: Number::new(10),
            packet: Size::new(2 << 20),
            sessions: unspanned(Number::new(8192)),
            session_seconds: Number::new(7 * 24 * 3600),
            session_subscriptions: Number::new(64),
            subscriptions: Number::new(32768),
            inflight: Number::new(32),
            queue_messages: Number::new(1000),
            queue: unspanned(Size::new(4 << 20)),
            store: unspanned(Size::new(24 << 20)),
            retained: Number::new(8192),
            client_retained: Number::new(1024),
        }
    }
}

impl Limits {
    pub const NAMES: &str = "connections, handshakes, sessions, subscriptions, store";

    /// The limits that a task's heap can depend on.
    pub fn get(&self, name: &str) -> Option<u64> {
        Some(match name {
            "connections" => self.connections.get(),
            "handshakes" => self.handshakes.get(),
            "sessions" => self.sessions.get_ref().get(),
            "subscriptions" => self.subscriptions.get(),
            "store" => self.store.get_ref().get(),
            _ => return None,
        })
    }
}

/// Buffers of 2 KiB in the pools between the tasks; see docs/architecture.md.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pools {
    pub frames: Number<64, 65536>,
    pub transmit: Number<64, 65536>,
    pub plaintext: Number<64, 65536>,
    pub outgoing: Number<64, 65536>,
    pub ciphertext: Number<64, 65536>,
}

impl Default for Pools {
    fn default() -> Self {
        Pools {
            frames: Number::new(4096),
            transmit: Number::new(2048),
            plaintext: Number::new(2048),
            outgoing: Number::new(4096),
            ciphertext: Number::new(4096),
        }
    }
}

impl Pools {
    pub const NAMES: &str = "frames, transmit, plaintext, outgoing, ciphertext";

    /// The setting of that name.
    pub fn get(&self, name: &str) -> Option<u32> {
        let number = match name {
            "frames" => self.frames,
            "transmit" => self.transmit,
            "plaintext" => self.plaintext,
            "outgoing" => self.outgoing,
            "ciphertext" => self.ciphertext,
            _ => return None,
        };
        Some(number.get() as u32)
    }
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Acl {
    /// Topic filters in which a device may publish and subscribe; a level `{id}` is its identity.
    pub publish: Vec<Spanned<String>>,
    pub subscribe: Vec<Spanned<String>>,
}

impl Default for Acl {
    fn default() -> Self {
        let own = || vec![unspanned("devices/{id}/#".to_string())];
        Acl { publish: own(), subscribe: own() }
    }
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Image {
    /// Rises with every image of an installation.
    pub version: Number<0, { u64::MAX >> 1 }>,
}

impl Default for Image {
    fn default() -> Self {
        Image { version: Number::new(0) }
    }
}

impl Config {
    /// Reads and checks a configuration.
    pub fn parse(source: &Source) -> Result<Self, Diagnostics> {
        let config: Config = source.parse()?;
        let mut errors = Vec::new();
        config.check_network(source, &mut errors);
        config.check_limits(source, &mut errors);
        config.check_acl(source, &mut errors);
        if errors.is_empty() { Ok(config) } else { Err(Diagnostics(errors)) }
    }

    fn check_network(&self, source: &Source, errors: &mut Vec<Diagnostic>) {
        let n = &self.network;
        let dhcp = *n.dhcp.get_ref();
        if dhcp {
            let mut superfluous = |span, key: &str| {
                let message = "a static address needs `dhcp = false`";
                errors.push(source.error(span, format!("network.{key}"), message));
            };
            n.address.iter().for_each(|v| superfluous(v.span(), "address"));
            n.prefix.iter().for_each(|v| superfluous(v.span(), "prefix"));
            n.gateway.iter().for_each(|v| superfluous(v.span(), "gateway"));
        } else if n.address.is_none() || n.prefix.is_none() {
            let message = "without DHCP, `address` and `prefix` must be given";
            errors.push(source.error(n.dhcp.span(), "network.dhcp", message));
        }
        if let (Some(address), Some(prefix), Some(gateway)) = (&n.address, &n.prefix, &n.gateway) {
            let mask = u32::MAX << (32 - prefix.get_ref().get());
            if (u32::from(*address.get_ref()) ^ u32::from(*gateway.get_ref())) & mask != 0 {
                let message = format!("the gateway is not in the network of {}", address.get_ref());
                errors.push(source.error(gateway.span(), "network.gateway", message));
            }
        }
    }

    /// Limits that depend on each other.
    fn check_limits(&self, source: &Source, errors: &mut Vec<Diagnostic>) {
        let l = &self.limits;
        if l.sessions.get_ref().get() < l.connections.get() {
            let message = format!("fewer sessions than connections ({})", l.connections.get());
            errors.push(source.error(l.sessions.span(), "limits.sessions", message));
        }
        if l.queue.get_ref().get() < l.packet.get() {
            let message = format!("a queue must hold the largest packet ({})", bytes(l.packet.get()));
            errors.push(source.error(l.queue.span(), "limits.queue", message));
        }
        if l.store.get_ref().get() < l.queue.get_ref().get() {
            let message = format!("the store must hold one full queue ({})", bytes(l.queue.get_ref().get()));
            errors.push(source.error(l.store.span(), "limits.store", message));
        }
    }

    /// The broker knows what a pattern is.
    fn check_acl(&self, source: &Source, errors: &mut Vec<Diagnostic>) {
        for (key, patterns) in [("publish", &self.acl.publish), ("subscribe", &self.acl.subscribe)] {
            for (i, pattern) in patterns.iter().enumerate() {
                if !broker::acl::is_pattern(pattern.get_ref()) {
                    let message =
                        "no topic filter (MQTT 3.1.1, section 4.7), or a level in braces other than {id}";
                    errors.push(source.error(pattern.span(), format!("acl.{key}[{i}]"), message));
                }
            }
        }
    }
}

/// A default: it stands in no file.
fn unspanned<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}
