//! SUBSCRIBE and UNSUBSCRIBE (sections 3.8 to 3.11).

use crate::codec::{self, Qos, Subscribe, Unsubscribe};
use crate::input::Why;
use crate::publish::Routed;
use crate::service::{Link, Service};
use crate::topic::{self, Topic};
use crate::tree::{Receiver, path_cost};
use alloc::vec::Vec;

/// Filters in one packet; its SUBACK fits one outgoing buffer.
const MAX_FILTERS: usize = 1024;
/// Return code of SUBACK: not granted.
const FAILURE: u8 = 0x80;

impl Service {
    pub(crate) fn subscribe(&mut self, link: &mut Link, c: u32, packet: Subscribe) -> Result<(), Why> {
        let count = packet.filters().count();
        if count > MAX_FILTERS {
            return Err("too many filters in one SUBSCRIBE");
        }
        let mut answer = Vec::with_capacity(8 + count);
        answer.extend_from_slice(codec::suback_head(packet.id, count).bytes());
        let first_code = answer.len();
        for (filter, qos) in packet.filters() {
            answer.push(if self.add(c, filter, qos) { qos as u8 } else { FAILURE });
        }
        self.reply(link, c, &answer);
        for ((filter, qos), _) in
            packet.filters().zip(&answer[first_code..]).filter(|(_, code)| **code != FAILURE)
        {
            self.send_retained(link, self.conns[c].session, filter, qos);
        }
        Ok(())
    }

    /// False: not granted.
    fn add(&mut self, c: u32, filter: &str, qos: Qos) -> bool {
        let number = self.conns[c].session;
        let session = &self.sessions[number];
        let id = self.names.bytes(session.name);
        let Ok(split) = self.split(filter) else { return false };
        if !topic::is_filter(filter) || !self.acl.may_subscribe(session.role, id, &split) {
            return false;
        }
        let full = session.subscribed >= self.config.subscriptions_per_session
            || self.tree.subscriptions() >= self.config.subscriptions as usize
            || !self.tree_has_room(&split);
        if full && !self.tree.has(&self.names, filter, session.subscriptions) {
            return false;
        }
        let session = &mut self.sessions[number];
        if self.tree.subscribe(&mut self.names, filter, number, &mut session.subscriptions, qos) {
            session.subscribed += 1;
        }
        true
    }

    /// Whether the topic tree may grow by this path.
    pub(crate) fn tree_has_room(&self, path: &Topic) -> bool {
        let needed = path_cost(path.depth(), path.text().len());
        self.tree.bytes_used(&self.names) + needed <= self.config.tree_bytes()
    }

    pub(crate) fn unsubscribe(&mut self, c: u32, packet: Unsubscribe) {
        let session = &mut self.sessions[self.conns[c].session];
        for (filter, _) in packet.filters() {
            if topic::is_filter(filter)
                && self.tree.unsubscribe(&mut self.names, filter, &mut session.subscriptions)
            {
                session.subscribed -= 1;
            }
        }
    }

    /// Section 3.8.4: a new or repeated subscription brings the retained messages that it matches.
    fn send_retained(&mut self, link: &mut Link, session: u32, filter: &str, qos: Qos) {
        let mut found = Vec::new();
        self.tree.matching(&self.names, filter, &mut found);
        for number in found {
            let retained = &self.retained[number];
            let Some(message) = retained.message.clone() else { continue };
            let routed = Routed { view: message.view(), qos: retained.qos, retain: true };
            self.deliver(link, Receiver { session, qos }, routed, &mut Some(message.clone()));
        }
    }
}
