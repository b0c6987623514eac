//! PUBLISH in (section 3.3), routing, and the acknowledgements of both directions (section 4.3).

use crate::codec::{self, Ack, Publish, PublishHead, Qos};
use crate::input::Why;
use crate::message::{Letter, Message, View};
use crate::names::Name;
use crate::service::{Link, Service};
use crate::session::{Awaits, Queued, Sent};
use crate::slab::NONE;
use crate::topic::{MAX_LEVELS, Topic};
use crate::tree::Receiver;
use crate::wheel::TICK_MS;
use alloc::vec::Vec;

/// A message as it is routed.
#[derive(Clone, Copy)]
pub(crate) struct Routed<'a> {
    pub view: View<'a>,
    pub qos: Qos,
    pub retain: bool,
}

impl Service {
    pub(crate) fn publish(&mut self, link: &mut Link, c: u32, publish: Publish) -> Result<(), Why> {
        self.stats.received += 1;
        let topic = self.split(publish.topic)?;
        let session = self.conns[c].session;
        let Publish { prefixed_topic, payload, qos, retain, id, .. } = publish;
        let (role, name) = (self.conns[c].role, self.sessions[session].name);
        if !self.acl.may_publish(role, self.names.bytes(name), &topic) {
            return Err("PUBLISH to a forbidden topic");
        }
        if qos == Qos::ExactlyOnce && !self.is_first(session, id)? {
            self.reply(link, c, &codec::ack(Ack::PubRec, id));
            return Ok(());
        }
        let message = Routed { view: View { prefixed_topic, payload }, qos, retain };
        self.route(link, &topic, message, name, c)?;
        match qos {
            Qos::AtMostOnce => {}
            Qos::AtLeastOnce => self.reply(link, c, &codec::ack(Ack::PubAck, id)),
            Qos::ExactlyOnce => {
                self.sessions[session].flow().received.push(id);
                self.reply(link, c, &codec::ack(Ack::PubRec, id));
            }
        }
        Ok(())
    }

    /// Whether a QoS 2 message hasn't come before (its identifier isn't waiting for PUBREL).
    fn is_first(&mut self, session: u32, id: u16) -> Result<bool, Why> {
        let Some(flow) = self.sessions[session].flow.as_ref() else { return Ok(true) };
        if flow.received.contains(&id) {
            return Ok(false);
        }
        if flow.received.len() >= self.config.receive_maximum as usize {
            return Err("too many QoS 2 messages without PUBREL");
        }
        Ok(true)
    }

    /// Refuses a topic beyond the configured bounds.
    pub(crate) fn split<'a>(&self, topic: &'a str) -> Result<Topic<'a>, Why> {
        if topic.len() > self.config.topic_bytes as usize {
            return Err("topic too long");
        }
        Topic::split(topic, self.config.topic_levels as usize).ok_or("topic with too many levels")
    }

    pub(crate) fn route_letter(&mut self, link: &mut Link, letter: Letter) {
        let Letter { message, owner, qos, retain } = letter;
        let routed = Routed { view: message.view(), qos, retain };
        let topic = Topic::split(routed.view.topic(), MAX_LEVELS);
        if topic.is_none_or(|topic| self.route(link, &topic, routed, owner, NONE).is_err()) {
            self.stats.dropped += 1;
        }
        if owner != Name::NONE {
            self.names.release(owner);
        }
    }

    /// Stores a retained message, then delivers to everyone who subscribed. `from`: the publisher's connection, or `NONE`.
    /// An error: it can't be stored, and hasn't been delivered.
    fn route(
        &mut self,
        link: &mut Link,
        topic: &Topic,
        message: Routed,
        owner: Name,
        from: u32,
    ) -> Result<(), Why> {
        let mut stored = if message.retain { self.retain(topic, message, owner)? } else { None };
        let live = Routed { retain: false, ..message };
        let mut receivers = core::mem::take(&mut self.receivers);
        self.tree.receivers(&self.names, topic, &mut receivers);
        let mut slow = NONE;
        for &receiver in &receivers {
            let queued = self.deliver(link, receiver, live, &mut stored);
            if queued && self.is_slow(receiver.session, from) {
                slow = receiver.session;
            }
        }
        self.receivers = receivers;
        if slow != NONE && from != NONE {
            self.hold_back(from, slow);
        }
        Ok(())
    }

    /// Sends at once or queues (true). `stored`: the one copy for all queues, made when the first needs it.
    pub(crate) fn deliver(
        &mut self,
        link: &mut Link,
        to: Receiver,
        message: Routed,
        stored: &mut Option<Message>,
    ) -> bool {
        let session = &self.sessions[to.session];
        let qos = message.qos.min(to.qos);
        if session.doomed || (session.conn == NONE && qos == Qos::AtMostOnce) {
            return false;
        }
        let message = Routed { qos, ..message };
        if session.conn != NONE {
            let window = self.config.inflight as usize;
            let must_wait = session
                .flow
                .as_ref()
                .is_some_and(|f| f.has_backlog() || (qos != Qos::AtMostOnce && f.inflight.len() >= window));
            if !must_wait
                && self.conns[session.conn].writable()
                && self.send_now(link, to.session, message, stored)
            {
                return false;
            }
        }
        self.enqueue(to.session, message, stored);
        true
    }

    /// Writes a small message straight into the connection's outgoing buffer. False: it has to go through the queue.
    fn send_now(
        &mut self,
        link: &mut Link,
        session: u32,
        message: Routed,
        stored: &mut Option<Message>,
    ) -> bool {
        let c = self.sessions[session].conn;
        let Routed { view, qos, retain } = message;
        if qos == Qos::AtMostOnce {
            let head = PublishHead { dup: false, qos, retain, id: 0 };
            return self.write_small(link, c, head, view);
        }
        let keep = if self.sessions[session].clean {
            None
        } else {
            // Needed once more if the connection ends before the acknowledgement.
            let Some(copy) = self.stored(view, stored) else { return false };
            Some(copy)
        };
        let id = self.sessions[session].next_id();
        if !self.write_small(link, c, PublishHead { dup: false, qos, retain, id }, view) {
            return false;
        }
        self.sessions[session].flow().sent(Sent { id, awaits: Awaits::first(qos), retain, message: keep });
        true
    }

    fn stored(&self, view: View, stored: &mut Option<Message>) -> Option<Message> {
        if stored.is_none() {
            *stored = self.store.keep(view);
        }
        stored.clone()
    }

    fn enqueue(&mut self, to: u32, message: Routed, stored: &mut Option<Message>) {
        let Routed { view, qos, retain } = message;
        let copy = self.stored(view, stored);
        let conn = self.sessions[to].conn;
        let (mut most, bytes) = (self.config.queue_messages as usize, self.config.queue_bytes as usize);
        let flow = self.sessions[to].flow();
        if retain {
            // Copies for a new subscription share the retained store's memory, and come all at once.
            most += self.config.retained as usize;
        }
        let fits = |m: &Message| flow.queue.len() < most && (retain || flow.bytes + m.cost() <= bytes);
        match copy.filter(fits).and_then(|message| self.store.place(message)) {
            Some(place) => {
                flow.push(Queued { place, qos, retain });
                if conn != NONE {
                    self.make_ready(conn);
                }
            }
            None if qos == Qos::AtMostOnce => self.stats.dropped += 1,
            None => {
                self.sessions[to].doomed = true;
                self.doomed.push(to);
            }
        }
    }
}

/// Backpressure on publishers.
impl Service {
    /// Whether a publisher should wait for this receiver: it is connected, not the publisher itself, and its queue is half full.
    fn is_slow(&self, session: u32, from: u32) -> bool {
        let s = &self.sessions[session];
        let Some(flow) = s.flow.as_ref() else { return false };
        let (messages, bytes) = (self.config.queue_messages as usize, self.config.queue_bytes as usize);
        let full = flow.queue.len() >= messages / 2 || flow.bytes >= bytes / 2;
        full && !flow.stuck && s.conn != NONE && s.conn != from && !s.doomed
    }

    /// Lets connection `from` wait until the queue of `session` is short again, or patience ends.
    fn hold_back(&mut self, from: u32, session: u32) {
        let patience = self.now + (self.config.patience_ms as u32).div_ceil(TICK_MS as u32).max(1);
        let conn = &mut self.conns[from];
        if !conn.is_open() {
            return;
        }
        conn.stalled = true;
        let number = conn.number;
        let flow = self.sessions[session].flow();
        if flow.waiting.is_empty() {
            flow.patience = patience;
            self.stalls.push_back((patience, session));
        }
        flow.waiting.push((from, number));
        self.gates.push(from);
    }

    /// Called when messages of `session` have left its queue.
    pub(crate) fn queue_shrank(&mut self, session: u32) {
        let (messages, bytes) = (self.config.queue_messages as usize, self.config.queue_bytes as usize);
        let Some(flow) = self.sessions[session].flow.as_mut() else { return };
        if flow.queue.len() <= messages / 4 && flow.bytes <= bytes / 4 {
            flow.stuck = false;
            if !flow.waiting.is_empty() {
                let waiting = core::mem::take(&mut flow.waiting);
                self.release_waiting(waiting);
            }
        }
    }

    pub(crate) fn release_waiting(&mut self, waiting: Vec<(u32, u32)>) {
        for (c, number) in waiting {
            if let Some(conn) = self.conns.get_mut(c).filter(|conn| conn.number == number && conn.stalled) {
                conn.stalled = false;
                self.gates.push(c);
                self.resume.push(c);
            }
        }
    }

    /// Publishers wait for a slow receiver only so long.
    pub(crate) fn end_stalls(&mut self) {
        while let Some((due, session)) = self.stalls.pop_front_if(|&mut (due, _)| due <= self.now) {
            let Some(flow) = self.sessions.get_mut(session).and_then(|s| s.flow.as_mut()) else { continue };
            if flow.patience == due && !flow.waiting.is_empty() {
                flow.stuck = true;
                let waiting = core::mem::take(&mut flow.waiting);
                self.release_waiting(waiting);
            }
        }
    }
}

/// Acknowledgements from clients.
impl Service {
    pub(crate) fn puback(&mut self, c: u32, id: u16) {
        self.acknowledged(c, id, Awaits::Ack);
    }

    pub(crate) fn pubcomp(&mut self, c: u32, id: u16) {
        self.acknowledged(c, id, Awaits::Comp);
    }

    /// Ends the exchange of `id`, if that is what it awaits; anything else is ignored (it may belong to an earlier life).
    fn acknowledged(&mut self, c: u32, id: u16, what: Awaits) {
        let Some(flow) = self.sessions[self.conns[c].session].flow.as_mut() else { return };
        if let Some(at) = flow.find(id).filter(|&at| flow.inflight[at].awaits == what) {
            flow.take_acknowledged(at);
            if !flow.queue.is_empty() {
                self.make_ready(c);
            }
        }
    }

    /// PUBREL answers even a PUBREC that we don't know, so that the client can end the exchange.
    pub(crate) fn pubrec(&mut self, link: &mut Link, c: u32, id: u16) {
        if let Some(flow) = self.sessions[self.conns[c].session].flow.as_mut()
            && let Some(at) = flow.find(id)
        {
            let sent = &mut flow.inflight[at];
            if sent.awaits == Awaits::Ack {
                return;
            }
            (sent.awaits, sent.message) = (Awaits::Comp, None);
        }
        self.reply(link, c, &codec::ack(Ack::PubRel, id));
    }

    pub(crate) fn pubrel(&mut self, link: &mut Link, c: u32, id: u16) {
        if let Some(flow) = self.sessions[self.conns[c].session].flow.as_mut() {
            flow.received.retain(|&r| r != id);
        }
        self.reply(link, c, &codec::ack(Ack::PubComp, id));
    }
}
