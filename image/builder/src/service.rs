//! Each service's settings, from the user's configuration, as the bytes that the service reads.

use crate::config::{Config, Level};
use crate::pki::Pki;
use crate::plan::Plan;
use crate::system::Restart;
use ipc::manifest::RegionKind;
use serde::Serialize;

/// What of the user's files goes into settings.
pub struct Inputs<'i> {
    pub config: &'i Config,
    pub pki: &'i Pki,
}

/// Settings of task `i`; none for a service that has none.
pub fn settings(plan: &Plan, i: usize, inputs: &Inputs) -> Vec<u8> {
    let config = inputs.config;
    match plan.tasks[i].config.as_str() {
        "supervisor" => bytes(&supervisor(plan, config)),
        "nic" => bytes(&nic::Config::default()),
        "tcp" => bytes(&tcp(config)),
        "tls" => bytes(&tls(config, inputs.pki)),
        "broker" => bytes(&broker(config)),
        "console" => bytes(&console(config)),
        _ => Vec::new(),
    }
}

fn bytes(settings: &impl Serialize) -> Vec<u8> {
    postcard::to_allocvec(settings).expect("settings are plain data, and memory doesn't run out")
}

fn supervisor(plan: &Plan, config: &Config) -> supervisor::Config {
    use supervisor::config as to;
    let restart = |r: &Restart| to::Restart {
        delay_ms: r.delay_ms.get() as u32,
        max_delay_ms: r.max_delay_ms.get() as u32,
        limit: r.limit.get() as u32,
        window_s: r.window_s.get() as u32,
    };
    let named = |(index, r): (usize, &crate::plan::Region)| {
        let bound = r.kind != RegionKind::Ram;
        bound.then(|| to::Region { name: r.name.clone(), index: index as u32, pages: r.pages })
    };
    let irq = |(index, q): (usize, &crate::plan::Irq)| to::Irq { name: q.name.clone(), index: index as u32 };
    supervisor::Config {
        development: config.development,
        tasks: plan
            .tasks
            .iter()
            .map(|t| to::Task { name: t.name.clone(), restart: restart(&t.restart) })
            .collect(),
        regions: plan.regions.iter().enumerate().filter_map(named).collect(),
        irqs: plan.irqs.iter().enumerate().map(irq).collect(),
    }
}

fn console(config: &Config) -> console::Config {
    let level = match config.log {
        Level::Error => 0,
        Level::Warn => 1,
        Level::Info => 2,
        Level::Debug => 3,
    };
    console::Config { commands: config.development, level, ..console::Config::default() }
}

fn tcp(config: &Config) -> tcp::Config {
    let address = match (&config.network.address, config.network.dhcp.get_ref()) {
        (Some(ip), false) => tcp::config::Address::Static { ip: ip.get_ref().octets() },
        _ => tcp::config::Address::Dhcp,
    };
    let connections = config.limits.connections.get() as u32;
    let default = tcp::Config::default();
    tcp::Config {
        address,
        port: config.network.port.get() as u16,
        max_connections: connections,
        max_active: default.max_active.min(connections),
        ..default
    }
}

fn tls(config: &Config, pki: &Pki) -> tls::Config {
    let limits = &config.limits;
    tls::Config {
        certificate_chain: pki.certificate_chain.clone(),
        private_key: pki.private_key.clone(),
        authorities: pki.authorities.clone(),
        operator_by_name: config.development,
        limits: tls::Limits {
            connections: limits.connections.get() as u32,
            handshakes: limits.handshakes.get() as u32,
            handshakes_per_source: limits.handshakes.get() as u32,
            handshake_ms: limits.handshake_seconds.get() as u32 * 1000,
            ..tls::Limits::default()
        },
    }
}

fn broker(config: &Config) -> broker::Config {
    let limits = &config.limits;
    let patterns = |list: &[toml::Spanned<String>]| list.iter().map(|p| p.get_ref().clone()).collect();
    let default = broker::Config::default();
    let packet = limits.packet.get() as u32;
    broker::Config {
        connections: limits.connections.get() as u32,
        sessions: limits.sessions.get_ref().get() as u32,
        session_expiry_s: limits.session_seconds.get() as u32,
        max_packet: packet,
        input_bytes: default.input_bytes.max(2 * packet),
        connect_timeout_s: limits.connect_seconds.get() as u16,
        subscriptions_per_session: limits.session_subscriptions.get() as u16,
        subscriptions: limits.subscriptions.get() as u32,
        inflight: limits.inflight.get() as u16,
        queue_messages: limits.queue_messages.get() as u32,
        queue_bytes: limits.queue.get_ref().get() as u32,
        store_bytes: limits.store.get_ref().get() as u32,
        retained: limits.retained.get() as u32,
        retained_per_client: limits.client_retained.get() as u32,
        publish: patterns(&config.acl.publish),
        subscribe: patterns(&config.acl.subscribe),
        ..default
    }
}
