//! The user's configuration, `urmqtt.toml`: everything is optional. `image/urmqtt.toml` shows each key with its
//! default and what it means.

use crate::diagnostic::{Diagnostic, Diagnostics, Source};
use crate::value::{Number, Size};
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
        Network {
            dhcp: Spanned::new(0..0, true),
            address: None,
            prefix: None,
            gateway: None,
            port: Number::new(8883),
        }
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
    /// Seconds in which a connection must finish its handshake, and then send its CONNECT.
    pub handshake_seconds: Number<1, 120>,
    /// Largest MQTT packet.
    pub packet: Size<256, { 4 << 20 }>,
    /// Sessions, connected or not.
    pub sessions: Number<1, 65536>,
    /// QoS 1 messages that wait in a session for its client.
    pub queue_messages: Number<1, 65535>,
    pub queue: Size<1024, { 64 << 20 }>,
    /// QoS 1 messages that a client has not acknowledged, at a time.
    pub inflight: Number<1, 65535>,
    /// Topic filters a session, and in all.
    pub subscriptions: Number<1, 1024>,
    pub all_subscriptions: Number<1, 1_000_000>,
    /// Retained messages in all, and their bytes.
    pub retained_messages: Number<0, 1_000_000>,
    pub retained: Size<0, { 1 << 30 }>,
    /// Largest keep alive in seconds; a client that asks for more, or for none, is held to this.
    pub keep_alive: Number<1, 65535>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: Number::new(4096),
            handshakes: Number::new(256),
            handshake_seconds: Number::new(10),
            packet: Size::new((1 << 20) + (64 << 10)),
            sessions: Number::new(8192),
            queue_messages: Number::new(1000),
            queue: Size::new(4 << 20),
            inflight: Number::new(20),
            subscriptions: Number::new(64),
            all_subscriptions: Number::new(32768),
            retained_messages: Number::new(16384),
            retained: Size::new(16 << 20),
            keep_alive: Number::new(65535),
        }
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
    /// Topic filters in which a device may publish and subscribe; `{id}` is its identity.
    pub devices: Vec<Spanned<String>>,
}

impl Default for Acl {
    fn default() -> Self {
        Acl { devices: vec![Spanned::new(0..0, "devices/{id}/#".into())] }
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

    /// MQTT 3.1.1, section 4.7: `#` last and alone in its level, `+` alone in its level, no NUL.
    fn check_acl(&self, source: &Source, errors: &mut Vec<Diagnostic>) {
        for (i, pattern) in self.acl.devices.iter().enumerate() {
            let text = pattern.get_ref();
            let levels: Vec<&str> = text.split('/').collect();
            let last = levels.len() - 1;
            let alone = |(n, level): (usize, &&str)| match *level {
                "#" => n == last,
                "+" => true,
                other => !other.contains(['#', '+', '\0']),
            };
            let good = !text.is_empty() && text.len() <= 256 && levels.iter().enumerate().all(alone);
            if !good {
                let message =
                    format!("{text:?} is no topic filter (MQTT 3.1.1, section 4.7; at most 256 bytes)");
                errors.push(source.error(pattern.span(), format!("acl.devices[{i}]"), message));
            }
        }
    }
}
