//! What the builder fills from the user's configuration.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    pub address: Address,
    /// The one port that is served.
    pub port: u16,
    /// Rows of the connection table, at most 2^20. One more SYN is not answered.
    pub max_connections: u32,
    /// Connections that can be busy at a time (data unacknowledged, segments out of order, a close under way); an idle
    /// connection needs none. One more is reset.
    pub max_active: u32,
    /// Receive window of a connection, bytes: 2 KiB to 1 MiB.
    pub window: u32,
    /// Frames of one connection that wait for tls. Segments beyond are dropped, so that tiny ones can't eat the pool.
    pub frames_per_connection: u16,
    /// Segments that one connection may have out of order. Of all frames, at most a quarter waits like that.
    pub reorder_per_connection: u16,
    /// Bytes unacknowledged from which a connection is congested, and to which it must fall to be drained again.
    pub congested: u32,
    pub drained: u32,
    /// Retransmissions of one segment before the connection is given up.
    pub retries: u8,
    /// Seconds in which the peer must close after we did.
    pub finish_timeout_s: u16,
    /// Seconds that a peer may keep its window closed while data waits.
    pub stall_timeout_s: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Address {
    Dhcp,
    Static { ip: [u8; 4] },
}

impl Default for Config {
    fn default() -> Self {
        Config {
            address: Address::Dhcp,
            port: 8883,
            max_connections: 10_000,
            max_active: 4096,
            window: 64 << 10,
            frames_per_connection: 64,
            reorder_per_connection: 16,
            congested: 32 << 10,
            drained: 16 << 10,
            retries: 10,
            finish_timeout_s: 10,
            stall_timeout_s: 120,
        }
    }
}

impl Config {
    /// What is wrong with it, for the builder: the key and the rule.
    pub fn check(&self) -> Result<(), (&'static str, &'static str)> {
        let within = |ok, key, rule| if ok { Ok(()) } else { Err((key, rule)) };
        within(self.port != 0, "port", "1 to 65535")?;
        within((1..=1 << 20).contains(&self.max_connections), "max_connections", "1 to 1048576")?;
        within((1..=1 << 20).contains(&self.max_active), "max_active", "1 to 1048576")?;
        within((2 << 10..=1 << 20).contains(&self.window), "window", "2048 to 1048576")?;
        within(self.frames_per_connection > 0, "frames_per_connection", "at least 1")?;
        within((1 << 30) >= self.congested, "congested", "at most 1073741824")?;
        within(self.drained < self.congested, "drained", "less than congested")?;
        within((3..=15).contains(&self.retries), "retries", "3 to 15")?;
        within(self.finish_timeout_s > 0, "finish_timeout_s", "at least 1")?;
        within(self.stall_timeout_s > 0, "stall_timeout_s", "at least 1")?;
        if let Address::Static { ip } = self.address {
            within(crate::packet::is_host(u32::from_be_bytes(ip)), "address.ip", "an address of a host")?;
        }
        Ok(())
    }

    /// Shift of our window in segments to peers that scale (RFC 7323 2.3): the least with which the window fits.
    pub fn window_shift(&self) -> u8 {
        (0..14).find(|s| self.window >> s <= 0xffff).unwrap_or(14)
    }
}
