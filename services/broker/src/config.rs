//! Limits and rules of the broker, from the signed package.
//!
//! | bound reached | what happens |
//! |---|---|
//! | `connections` | a connection beyond them is aborted |
//! | `sessions` | the persistent session that was left longest ago is discarded; if all are connected, CONNACK 3 |
//! | `max_packet`, `topic_bytes`, `topic_levels` of PUBLISH or will, `receive_maximum` | the connection is closed |
//! | `topic_bytes`, `topic_levels`, `subscriptions…` of SUBSCRIBE, memory of the topic tree | SUBACK 0x80 |
//! | `input_bytes` | the connection that wants more is closed |
//! | `queue_messages`, `queue_bytes`, `store_bytes` | QoS 0: dropped and counted; QoS 1, 2: the receiver's session ends |
//! | `retained…`, memory of the topic tree | the publisher's connection is closed, nothing is acknowledged |

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Connections at a time: the slots that the link's connection numbers name.
    pub connections: u32,
    /// Sessions, connected or kept for a client that is away. At least `connections`.
    pub sessions: u32,
    /// Seconds that a session without clean session is kept for a client that is away.
    pub session_expiry_s: u32,
    /// Bytes of a whole packet, either way.
    pub max_packet: u32,
    /// Bytes of all packets that have come in part, and of input that waits.
    pub input_bytes: u32,
    /// Seconds from the connection's start to a whole CONNECT.
    pub connect_timeout_s: u16,
    /// Seconds from a packet's first byte to its last; also how long a client may read nothing while we have to hold its input.
    pub packet_timeout_s: u16,
    /// Seconds that a connection which we closed may take to end before it is aborted.
    pub linger_s: u16,
    /// Bytes of a topic or filter, at most 1024.
    pub topic_bytes: u16,
    /// Levels of a topic or filter, at most 64.
    pub topic_levels: u8,
    /// Subscriptions of one session, and of all.
    pub subscriptions_per_session: u16,
    pub subscriptions: u32,
    /// QoS 1 and 2 messages that a client may have unacknowledged.
    pub inflight: u16,
    /// QoS 2 messages of a client whose PUBREL is still to come.
    pub receive_maximum: u16,
    /// Messages, and bytes of messages, that wait in one session.
    pub queue_messages: u32,
    pub queue_bytes: u32,
    /// Bytes of all stored messages: queued, in flight, retained, wills.
    pub store_bytes: u32,
    /// Retained messages, and of one client.
    pub retained: u32,
    pub retained_per_client: u32,
    /// Milliseconds that a publisher is held back by a receiver that doesn't keep up.
    pub patience_ms: u16,
    /// Seconds between two rounds of `$SYS`; 0: none.
    pub sys_interval_s: u16,
    /// Where devices may publish and subscribe; a level `{id}` stands for the client identifier.
    pub publish: Vec<String>,
    pub subscribe: Vec<String>,
}

/// Client identifiers are at most this long.
pub const MAX_CLIENT_ID: usize = 128;

impl Default for Config {
    fn default() -> Self {
        let own = || Vec::from(["devices/{id}/#".to_string()]);
        Config {
            connections: 1024,
            sessions: 2048,
            session_expiry_s: 7 * 24 * 3600,
            max_packet: 2 << 20,
            input_bytes: 8 << 20,
            connect_timeout_s: 10,
            packet_timeout_s: 60,
            linger_s: 5,
            topic_bytes: 512,
            topic_levels: 16,
            subscriptions_per_session: 64,
            subscriptions: 16384,
            inflight: 32,
            receive_maximum: 128,
            queue_messages: 1000,
            queue_bytes: 4 << 20,
            store_bytes: 24 << 20,
            retained: 4096,
            retained_per_client: 1024,
            patience_ms: 1000,
            sys_interval_s: 10,
            publish: own(),
            subscribe: own(),
        }
    }
}

impl Config {
    /// Bytes of the topic tree with its names: enough for paths of two levels of their own each.
    pub fn tree_bytes(&self) -> usize {
        (1 << 20) + 256 * (self.subscriptions as usize + self.retained as usize)
    }

    /// The most that the broker allocates, roughly: what the task's heap must hold.
    pub fn heap_bytes(&self) -> usize {
        let connection = 3 << 10;
        let session = 512 + 32 * self.inflight as usize;
        let input = self.input_bytes as usize;
        // An input buffer that grows is there twice for a moment.
        let growing = self.max_packet as usize;
        let entries = 32 * (self.subscriptions as usize + self.retained as usize);
        (1 << 20)
            + connection * self.connections as usize
            + session * self.sessions as usize
            + input
            + growing
            + self.store_bytes as usize
            + self.tree_bytes()
            + entries
    }

    /// What is wrong with it, naming the key.
    pub fn check(&self) -> Result<(), &'static str> {
        let rules = [
            (
                1 <= self.connections && self.connections <= 1 << ipc::link::stream::SLOT_BITS,
                "connections: 1 to 1048576",
            ),
            (self.sessions >= self.connections, "sessions: at least as many as connections"),
            (self.max_packet >= 128 && self.max_packet <= 256 << 20, "max_packet: 128 to 268435456"),
            (self.input_bytes >= self.max_packet, "input_bytes: at least max_packet"),
            (self.connect_timeout_s >= 1, "connect_timeout_s: at least 1"),
            (self.packet_timeout_s >= 1, "packet_timeout_s: at least 1"),
            (self.linger_s >= 1, "linger_s: at least 1"),
            ((1..=1024).contains(&self.topic_bytes), "topic_bytes: 1 to 1024"),
            ((1..=64).contains(&self.topic_levels), "topic_levels: 1 to 64"),
            (self.subscriptions_per_session >= 1, "subscriptions_per_session: at least 1"),
            (self.subscriptions <= 1 << 24, "subscriptions: at most 16777216"),
            ((1..=1024).contains(&self.inflight), "inflight: 1 to 1024"),
            ((1..=1024).contains(&self.receive_maximum), "receive_maximum: 1 to 1024"),
            (self.queue_messages >= 2, "queue_messages: at least 2"),
            (self.queue_bytes >= self.max_packet, "queue_bytes: at least max_packet"),
            (self.store_bytes >= self.queue_bytes, "store_bytes: at least queue_bytes"),
            (
                self.publish.iter().all(|p| crate::acl::is_pattern(p)),
                "publish: not a topic filter, or {…} other than {id}",
            ),
            (
                self.subscribe.iter().all(|p| crate::acl::is_pattern(p)),
                "subscribe: not a topic filter, or {…} other than {id}",
            ),
        ];
        rules.iter().find(|(holds, _)| !holds).map_or(Ok(()), |(_, rule)| Err(rule))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_rule_is_named() {
        assert_eq!(Config::default().check(), Ok(()));
        let refused = |change: fn(&mut Config), key: &str| {
            let mut config = Config::default();
            change(&mut config);
            assert!(config.check().unwrap_err().starts_with(key), "{key}");
        };
        refused(|c| c.connections = 0, "connections");
        refused(|c| c.sessions = 1, "sessions");
        refused(|c| c.topic_bytes = 2000, "topic_bytes");
        refused(|c| c.queue_bytes = 1000, "queue_bytes");
        refused(|c| c.publish = Vec::from(["a/{name}".to_string()]), "publish");
        refused(|c| c.subscribe = Vec::from(["a/#/b".to_string()]), "subscribe");
    }
}
