//! From bytes to packets to their handling, one connection at a time and in order.

use crate::codec::{self, Ack, Packet, kind};
use crate::conn::State;
use crate::service::{Link, Service, free};
use alloc::vec::Vec;

/// Why a connection must be closed.
pub(crate) type Why = &'static str;

/// Input buffers that are kept for the next packet that comes in parts.
const KEEP: usize = 4096;

impl Service {
    /// Bytes for an open connection: `len` from `off` of a buffer of the lower side's, which we hold.
    pub(crate) fn data(&mut self, link: &mut Link, c: u32, buf: u32, off: usize, len: usize) {
        let conn = &mut self.conns[c];
        if conn.state == State::Connected && !conn.paused {
            conn.seen = self.now;
        }
        let mut scratch = core::mem::take(&mut self.scratch);
        let Some(bytes) = scratch.get_mut(..len) else {
            link.check::<()>(Err(ipc::ring::LinkFault::Buffer));
            self.scratch = scratch;
            return;
        };
        let copied = link.theirs.copy(buf, off, bytes);
        if link.check(copied).is_some() {
            free(link, buf);
            let waits = conn.blocked() || conn.rare.as_ref().is_some_and(|r| !r.input.is_empty());
            let used = if waits { 0 } else { self.consume(link, c, bytes) };
            if used < len && self.keep_input(link, c, &bytes[used..]) && waits {
                self.consume_kept(link, c);
            }
        }
        self.scratch = scratch;
    }

    /// Handles whole packets from the front of `bytes`; returns how many bytes they were.
    fn consume(&mut self, link: &mut Link, c: u32, bytes: &[u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() && self.conns[c].is_open() && !self.conns[c].blocked() {
            match self.one_packet(link, c, &bytes[at..]) {
                Ok(Some(used)) => at += used,
                Ok(None) => break,
                Err(why) => self.close(link, c, why),
            }
        }
        if self.conns[c].is_open() { at } else { bytes.len() }
    }

    /// `None`: the packet is not yet whole.
    fn one_packet(&mut self, link: &mut Link, c: u32, bytes: &[u8]) -> Result<Option<usize>, Why> {
        if self.conns[c].state == State::Opened && bytes[0] >> 4 != kind::CONNECT {
            return Err("first packet is not CONNECT");
        }
        let Some(frame) = codec::frame(bytes).map_err(|m| m.0)? else { return Ok(None) };
        if frame.total > self.config.max_packet as usize {
            return Err("packet too large");
        }
        let Some(body) = bytes.get(frame.head..frame.total) else { return Ok(None) };
        let packet = codec::packet(frame.first, body).map_err(|m| m.0)?;
        self.handle(link, c, packet)?;
        Ok(Some(frame.total))
    }

    fn handle(&mut self, link: &mut Link, c: u32, packet: Packet) -> Result<(), Why> {
        if self.conns[c].state == State::Opened {
            return match packet {
                Packet::Connect(connect) => self.connect(link, c, connect),
                _ => self.refuse_level(link, c),
            };
        }
        match packet {
            Packet::Publish(publish) => self.publish(link, c, publish)?,
            Packet::PubAck(id) => self.puback(c, id),
            Packet::PubRec(id) => self.pubrec(link, c, id),
            Packet::PubRel(id) => self.pubrel(link, c, id),
            Packet::PubComp(id) => self.pubcomp(c, id),
            Packet::Subscribe(subscribe) => self.subscribe(link, c, subscribe)?,
            Packet::Unsubscribe(unsubscribe) => {
                self.unsubscribe(c, unsubscribe);
                self.reply(link, c, &codec::ack(Ack::UnsubAck, unsubscribe.id));
            }
            Packet::PingReq => self.reply(link, c, &codec::PINGRESP),
            Packet::Disconnect => {
                self.discard_will(c);
                return Err("DISCONNECT");
            }
            Packet::Connect(_) | Packet::ForeignConnect { .. } => return Err("second CONNECT"),
        }
        Ok(())
    }

    /// Keeps bytes that can't be handled yet. False: it was refused and the connection closed.
    fn keep_input(&mut self, link: &mut Link, c: u32, bytes: &[u8]) -> bool {
        let rare = self.conns[c].rare();
        let was_empty = rare.input.is_empty();
        let (len, capacity) = (rare.input.len() + bytes.len(), rare.input.capacity());
        if len > capacity {
            let wanted = len.max(2 * capacity);
            // Twice a packet is as much as can wait when the lower side heeds Pause.
            let most = self.config.max_packet as usize + KEEP.max(self.config.max_packet as usize);
            if self.input_used + wanted - capacity > self.config.input_bytes as usize || len > most {
                self.close(link, c, "input exceeds its memory");
                return false;
            }
            rare.input.reserve_exact(wanted - rare.input.len());
            self.input_used += rare.input.capacity() - capacity;
        }
        rare.input.extend_from_slice(bytes);
        if was_empty {
            rare.since = self.now;
            self.arm(c);
        }
        true
    }

    /// Handles what has become whole or need no longer wait.
    pub(crate) fn consume_kept(&mut self, link: &mut Link, c: u32) {
        let rare = self.conns.get_mut(c).and_then(|conn| conn.rare.as_mut());
        let Some(rare) = rare.filter(|r| !r.input.is_empty()) else { return };
        let mut input = core::mem::take(&mut rare.input);
        let used = self.consume(link, c, &input);
        input.drain(..used);
        if !self.conns[c].is_open() || (input.is_empty() && input.capacity() > KEEP) {
            self.input_used -= input.capacity();
            input = Vec::new();
        }
        if self.conns[c].is_open() {
            let now = self.now;
            let rare = self.conns[c].rare();
            rare.input = input;
            if used > 0 && !rare.input.is_empty() {
                rare.since = now;
                self.arm(c);
            }
        }
    }

    pub(crate) fn drop_rare(&mut self, c: u32) {
        if let Some(rare) = self.conns[c].rare.take() {
            self.input_used -= rare.input.capacity();
        }
    }
}
