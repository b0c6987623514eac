//! `$SYS`: the broker's own figures as retained messages, which only operators can read.

use crate::codec::Qos;
use crate::message::{Letter, View};
use crate::names::Name;
use crate::service::Service;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

impl Service {
    /// Puts one round of figures among the messages to be routed.
    pub(crate) fn publish_sys(&mut self) {
        let stats = self.stats;
        let figures: [(&str, u64); 11] = [
            ("uptime", self.now_s() as u64),
            ("clients/connected", stats.connected as u64),
            ("clients/accepted", stats.accepted),
            ("clients/refused", stats.refused),
            ("messages/received", stats.received),
            ("messages/sent", stats.sent),
            ("messages/dropped", stats.dropped),
            ("sessions/count", self.sessions.len() as u64),
            ("sessions/lost", stats.sessions_lost),
            ("subscriptions/count", self.tree.subscriptions() as u64),
            ("store/bytes", self.store.used() as u64),
        ];
        self.post("version", concat!("urMQTT ", env!("CARGO_PKG_VERSION")).to_string());
        for (name, value) in figures {
            self.post(name, value.to_string());
        }
    }

    fn post(&mut self, name: &str, value: String) {
        let topic = ["$SYS/broker/", name].concat();
        let mut prefixed_topic = Vec::from((topic.len() as u16).to_be_bytes());
        prefixed_topic.extend_from_slice(topic.as_bytes());
        let view = View { prefixed_topic: &prefixed_topic, payload: value.as_bytes() };
        // Without memory for it, the last round's figure stays.
        if let Some(message) = self.store.keep(view) {
            self.letters.push_back(Letter { message, owner: Name::NONE, qos: Qos::AtMostOnce, retain: true });
        }
    }
}
