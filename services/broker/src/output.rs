//! From messages to outgoing buffers.
//!
//! What one call of `drive` has for a connection is gathered in one *open* buffer, sent when it is full or at the end of the
//! call. When no buffer is free, or the lower side is congested, answers wait in the connection and messages in the
//! session; the connection then stands in the ready list and goes on in turn.

use crate::codec::{self, Ack, PublishHead, Qos};
use crate::conn::{Conn, Sending, State};
use crate::message::{Message, View};
use crate::service::{Link, Service};
use crate::session::{Awaits, Queued, Sent};
use crate::slab::NONE;
use ipc::link::stream::Down;

/// Bytes of an outgoing buffer that may be used, so that its TLS record fits one ciphertext buffer.
pub const MAX_CHUNK: usize = 2026;
/// Answers that wait for a connection before its input is held.
const MAX_CONTROL: usize = 1024;
/// Buffers that a connection fills before the next one's turn.
const TURN: usize = 8;

#[derive(PartialEq, Eq)]
enum Step {
    /// Something was written.
    Wrote,
    /// There is no more to send now.
    Idle,
    /// No buffer is free.
    NoBuffer,
}

impl Service {
    /// Sends an answer, or lets it wait for the connection.
    pub(crate) fn reply(&mut self, link: &mut Link, c: u32, bytes: &[u8]) {
        if self.conns[c].writable() && self.room(link, c, bytes.len()) {
            append(&mut self.conns[c], link, &[bytes]);
            return;
        }
        let rare = self.conns[c].rare();
        rare.control.extend_from_slice(bytes);
        if rare.control.len() > MAX_CONTROL && !self.conns[c].held {
            self.conns[c].held = true;
            self.gates.push(c);
        }
        self.make_ready(c);
    }

    /// Writes a PUBLISH that fits one buffer. False: it doesn't, or there is none.
    pub(crate) fn write_small(&mut self, link: &mut Link, c: u32, head: PublishHead, view: View) -> bool {
        let (topic, payload) = (view.prefixed_topic, view.payload);
        let fixed = head.fixed(topic.len(), payload.len());
        let (id, id_len) = head.identifier();
        let total = fixed.bytes().len() + topic.len() + id_len + payload.len();
        if total > MAX_CHUNK || !self.room(link, c, total) {
            return false;
        }
        append(&mut self.conns[c], link, &[fixed.bytes(), topic, &id[..id_len], payload]);
        self.stats.sent += 1;
        true
    }

    /// Writes a PUBLISH of any size, the rest of it by [`Step`]s to come. False: no buffer is free.
    fn write(&mut self, link: &mut Link, c: u32, head: PublishHead, message: &Message) -> bool {
        let view = message.view();
        if self.write_small(link, c, head, view) {
            return true;
        }
        let fixed = head.fixed(view.prefixed_topic.len(), view.payload.len());
        let (id, id_len) = head.identifier();
        let front = fixed.bytes().len() + view.prefixed_topic.len() + id_len;
        if front + view.payload.len() <= MAX_CHUNK || !self.room(link, c, front) {
            return false;
        }
        append(&mut self.conns[c], link, &[fixed.bytes(), view.prefixed_topic, &id[..id_len]]);
        self.conns[c].rare().sending = Some(Sending { message: message.clone(), at: 0 });
        self.stats.sent += 1;
        true
    }

    /// Makes an open buffer with room for `len` bytes. False: no buffer is free.
    fn room(&mut self, link: &mut Link, c: u32, len: usize) -> bool {
        if self.conns[c].open != NONE {
            if self.conns[c].open_len as usize + len <= MAX_CHUNK {
                return true;
            }
            self.send_open(link, c);
        }
        let Some(buf) = link.own.take() else { return false };
        (self.conns[c].open, self.conns[c].open_len) = (buf, 0);
        self.open.push(c);
        true
    }

    pub(crate) fn send_open(&mut self, link: &mut Link, c: u32) {
        let Some(conn) = self.conns.get_mut(c) else { return };
        if conn.open != NONE {
            let buf = core::mem::replace(&mut conn.open, NONE);
            link.own.lend(buf);
            link.send(&Down::Send { conn: conn.number, buf, len: conn.open_len });
        }
    }

    /// Sends what this call of `drive` has gathered.
    pub(crate) fn flush_open(&mut self, link: &mut Link) {
        while let Some(c) = self.open.pop() {
            self.send_open(link, c);
        }
    }

    /// Tells the lower side whose input has to wait, and whose no more.
    pub(crate) fn set_gates(&mut self, link: &mut Link) {
        while let Some(c) = self.gates.pop() {
            let Some(conn) = self.conns.get_mut(c) else { continue };
            if conn.is_open() && conn.blocked() != conn.paused {
                conn.paused = conn.blocked();
                conn.seen = self.now;
                let conn = conn.number;
                link.send(&if self.conns[c].paused { Down::Pause { conn } } else { Down::Resume { conn } });
                self.arm(c);
            }
        }
    }

    /// Puts a connection in the ready list.
    pub(crate) fn make_ready(&mut self, c: u32) {
        let conn = &mut self.conns[c];
        if !conn.ready && !conn.congested {
            conn.ready = true;
            self.ready.push_back(c);
        }
    }

    /// Lets the connections that have something to send do so in turn, as far as there are buffers.
    pub(crate) fn pump_ready(&mut self, link: &mut Link) {
        loop {
            while let Some(c) = self.resume.pop() {
                self.consume_kept(link, c);
                self.settle(link);
            }
            let Some(c) = self.ready.pop_front() else { return };
            // An entry of a connection that is gone, or stands in the list twice.
            if !self.conns.get_mut(c).is_some_and(|conn| core::mem::take(&mut conn.ready)) {
                continue;
            }
            match self.turn(link, c) {
                Step::Idle => {}
                Step::Wrote => self.make_ready(c),
                Step::NoBuffer => {
                    self.conns[c].ready = true;
                    return self.ready.push_front(c);
                }
            }
        }
    }

    fn turn(&mut self, link: &mut Link, c: u32) -> Step {
        let stop = link.own.available().saturating_sub(TURN);
        let step = loop {
            if !self.conns[c].is_open() || self.conns[c].congested {
                break Step::Idle;
            }
            match self.step(link, c) {
                Step::Wrote if link.own.available() > stop => {}
                step => break step,
            }
        };
        self.after_turn(c);
        step
    }

    /// What had to wait for the connection may go on.
    fn after_turn(&mut self, c: u32) {
        let now = self.now;
        let conn = &mut self.conns[c];
        if !conn.is_open() {
            return;
        }
        if conn.paused {
            conn.seen = now;
        }
        if conn.held && conn.rare.as_ref().is_none_or(|r| r.control.is_empty()) {
            conn.held = false;
            self.gates.push(c);
            self.resume.push(c);
        }
        if conn.state == State::Connected {
            let session = conn.session;
            self.queue_shrank(session);
        }
    }

    /// Writes the next thing that waits: the rest of a message, answers, messages to send again, messages.
    fn step(&mut self, link: &mut Link, c: u32) -> Step {
        if let Some(rare) = self.conns[c].rare.as_ref() {
            if rare.sending.is_some() {
                return self.continue_sending(link, c);
            }
            if !rare.control.is_empty() {
                return self.send_control(link, c);
            }
        }
        if self.conns[c].state != State::Connected {
            return Step::Idle;
        }
        let session = self.conns[c].session;
        match self.sessions[session].flow.as_ref() {
            Some(flow) if flow.resent < flow.inflight.len() => self.send_again(link, c, session),
            Some(flow) if !flow.queue.is_empty() => self.send_queued(link, c, session),
            _ => Step::Idle,
        }
    }

    fn continue_sending(&mut self, link: &mut Link, c: u32) -> Step {
        if !self.room(link, c, 1) {
            return Step::NoBuffer;
        }
        let conn = &mut self.conns[c];
        let Some(sending) = conn.rare.as_mut().and_then(|r| r.sending.take()) else { return Step::Idle };
        let rest = &sending.message.view().payload[sending.at..];
        let part = &rest[..rest.len().min(MAX_CHUNK - conn.open_len as usize)];
        append(conn, link, &[part]);
        if part.len() < rest.len() {
            let at = sending.at + part.len();
            conn.rare().sending = Some(Sending { at, ..sending });
        }
        Step::Wrote
    }

    fn send_control(&mut self, link: &mut Link, c: u32) -> Step {
        if !self.room(link, c, 1) {
            return Step::NoBuffer;
        }
        let mut control = core::mem::take(&mut self.conns[c].rare().control);
        let conn = &mut self.conns[c];
        let part = control.len().min(MAX_CHUNK - conn.open_len as usize);
        append(conn, link, &[&control[..part]]);
        control.drain(..part);
        conn.rare().control = control;
        Step::Wrote
    }

    /// The next message of an earlier connection that was not acknowledged (section 4.4).
    fn send_again(&mut self, link: &mut Link, c: u32, session: u32) -> Step {
        let flow = self.sessions[session].flow();
        let Sent { id, awaits, retain, ref message } = flow.inflight[flow.resent];
        let written = match (awaits.qos(), message.clone()) {
            (Some(qos), Some(message)) => {
                self.write(link, c, PublishHead { dup: true, qos, retain, id }, &message)
            }
            _ => {
                self.room(link, c, 4) && {
                    append(&mut self.conns[c], link, &[&codec::ack(Ack::PubRel, id)]);
                    true
                }
            }
        };
        if !written {
            return Step::NoBuffer;
        }
        self.sessions[session].flow().resent += 1;
        Step::Wrote
    }

    /// The first message of the queue, if the window is open.
    fn send_queued(&mut self, link: &mut Link, c: u32, session: u32) -> Step {
        let window = self.config.inflight as usize;
        let s = &mut self.sessions[session];
        let (keep, flow) = (!s.clean, s.flow());
        let Some(&Queued { ref place, qos, retain }) = flow.queue.front() else { return Step::Idle };
        if qos != Qos::AtMostOnce && flow.inflight.len() >= window {
            return Step::Idle;
        }
        let message = place.message().clone();
        let id = if qos == Qos::AtMostOnce { 0 } else { self.sessions[session].next_id() };
        if !self.write(link, c, PublishHead { dup: false, qos, retain, id }, &message) {
            return Step::NoBuffer;
        }
        let flow = self.sessions[session].flow();
        flow.pop();
        if qos != Qos::AtMostOnce {
            flow.sent(Sent {
                id,
                awaits: Awaits::first(qos),
                retain,
                message: Some(message).filter(|_| keep),
            });
        }
        Step::Wrote
    }
}

/// Appends to the open buffer, in which there is room.
fn append(conn: &mut Conn, link: &mut Link, parts: &[&[u8]]) {
    let buffer = link.own.bytes(conn.open);
    let mut at = conn.open_len as usize;
    for part in parts {
        buffer[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    conn.open_len = at as u16;
}
