//! A connection's beginning: admission, the steps of its handshake, the identity that the broker gets.

use crate::closing::Ending;
use crate::handshake::{Done, Failure, Handshake, Step};
use crate::identity::Unusable;
use crate::record::{Alert, Session};
use crate::service::{Links, Service};
use crate::slot::{self, Phase};
use ipc::link::stream::{Conn, Down, Identity, IdentityRef, PeerAddress, SLOT_BITS, Up};
use ipc::ring::LinkFault;
use zerocopy::IntoBytes;

impl Service {
    /// Admission costs a table entry and no cryptography.
    pub(crate) fn opened(&mut self, conn: Conn, peer: PeerAddress, links: &mut Links<'_, '_>) {
        let index = (conn & ((1 << SLOT_BITS) - 1)) as usize;
        let Some(slot) = self.slots.get_mut(index).filter(|s| matches!(s.phase, Phase::Free)) else {
            return links.stream.port.blame(LinkFault::Reference);
        };
        slot.conn = conn;
        slot.flags &= slot::STARVED | slot::BLOCKED | slot::STEPPING;
        self.live += 1;
        let refusal = match self.session_up {
            false => Failure::NotServing,
            true if !self.admission.enter(peer.ip) => Failure::Busy,
            true => {
                let timeout = self.timeouts.start(index as u32, self.now);
                self.slots[index].phase = Phase::Handshake(Handshake::new(peer, timeout).into());
                return;
            }
        };
        self.close(index, Ending::Abort, links);
        self.refused(peer, refusal);
    }

    /// Bytes for a handshake: taken out of the frame at once.
    pub(crate) fn handshake_data(
        &mut self,
        index: usize,
        (buf, off, len): (u32, u16, u16),
        links: &mut Links<'_, '_>,
    ) {
        let limit = self.limits.handshake_bytes as usize;
        let slot = &mut self.slots[index];
        let Phase::Handshake(handshake) = &mut slot.phase else { return };
        let room = handshake.room(len as usize, limit);
        let enough = room.is_some();
        if let Some(into) = room {
            let copied = links.stream.theirs.copy(buf, off as usize, into);
            links.stream.check(copied);
        }
        links.free_frame(buf);
        if enough {
            Self::enqueue(&mut self.stepping, slot, index, slot::STEPPING);
        } else {
            self.refuse(index, Failure::TooLong, links);
        }
    }

    /// One step of the handshake whose turn it is.
    pub(crate) fn step(&mut self, links: &mut Links<'_, '_>) {
        let Some(index) = self.stepping.pop_front().map(|i| i as usize) else { return };
        let slot = &mut self.slots[index];
        slot.flags &= !slot::STEPPING;
        let Phase::Handshake(handshake) = &mut slot.phase else { return };
        if !handshake.output.is_empty() {
            // Goes on when that is sent.
            return;
        }
        if links.session.own.available() == 0 {
            // The identity will need a buffer.
            return Self::enqueue(&mut self.starved, slot, index, slot::STARVED);
        }
        match handshake.step(&self.server, &self.tap, self.operator_by_name) {
            Step::Wait if slot.has(slot::END_WAITS) => self.refuse(index, Failure::HungUp, links),
            Step::Wait => {}
            Step::Stepped => self.send_output(index, links),
            Step::Done(done) => self.established(index, done, links),
            Step::Failed(failure) => self.refuse(index, failure, links),
        }
    }

    /// Sends what rustls wants to say, as far as there are buffers; then the handshake may go on.
    pub(crate) fn send_output(&mut self, index: usize, links: &mut Links<'_, '_>) {
        let slot = &mut self.slots[index];
        let Phase::Handshake(handshake) = &mut slot.phase else { return };
        while !handshake.output.is_empty() {
            let Some(buf) = links.stream.own.take() else {
                return Self::enqueue(&mut self.blocked, slot, index, slot::BLOCKED);
            };
            let into = links.stream.own.bytes(buf);
            let len = into.len().min(handshake.output.len());
            into[..len].copy_from_slice(&handshake.output[..len]);
            handshake.output.drain(..len);
            links.send_below(slot.conn, buf, len);
        }
        Self::enqueue(&mut self.stepping, slot, index, slot::STEPPING);
    }

    /// Ends a handshake; with rustls's alert, when it has one and there is a buffer for it.
    pub(crate) fn refuse(&mut self, index: usize, failure: Failure, links: &mut Links<'_, '_>) {
        self.send_output(index, links);
        let Phase::Handshake(handshake) = &self.slots[index].phase else { return };
        let peer = handshake.peer;
        let said = matches!(failure, Failure::Tls(_)) && handshake.output.is_empty();
        self.close(index, if said { Ending::Finish } else { Ending::Abort }, links);
        self.refused(peer, failure);
    }

    pub(crate) fn established(&mut self, index: usize, done: Done, links: &mut Links<'_, '_>) {
        let Phase::Handshake(handshake) = &self.slots[index].phase else { return };
        let peer = handshake.peer;
        self.leave_phase(index, Phase::Open(done.session));
        match done.identity {
            Ok(identity) => {
                self.introduce(index, Identity { ip: peer.ip, port: peer.port, ..identity }, links)
            }
            Err(unusable) => return self.unusable(index, peer, unusable, links),
        }
        self.incomplete += done.rest.len();
        if self.incomplete > self.limits.incomplete_bytes as usize {
            self.incomplete -= done.rest.len();
            return self.fail(index, Alert::InternalError, links);
        }
        if !done.rest.is_empty() {
            self.slots[index].busy().bytes = done.rest;
        }
        self.advance(index, None, links);
    }

    /// Tells the broker who has come. `step` has seen that there is a buffer.
    fn introduce(&mut self, index: usize, identity: Identity, links: &mut Links<'_, '_>) {
        let Some(buf) = links.session.own.take() else { return };
        let bytes = identity.as_bytes();
        links.session.own.bytes(buf)[..bytes.len()].copy_from_slice(bytes);
        links.session.own.lend(buf);
        let slot = &mut self.slots[index];
        slot.flags |= slot::KNOWN;
        links.session.send(&Up::Opened { conn: slot.conn, opening: IdentityRef { buf } });
        self.counters.established += 1;
    }

    fn unusable(&mut self, index: usize, peer: PeerAddress, why: Unusable, links: &mut Links<'_, '_>) {
        self.farewell(index, Alert::CertificateUnknown, links);
        self.refused(peer, Failure::Identity(why));
    }
}

impl Links<'_, '_> {
    /// Lends a ciphertext buffer of ours, filled with `len` bytes.
    pub fn send_below(&mut self, conn: Conn, buf: u32, len: usize) {
        self.stream.own.lend(buf);
        self.stream.send(&Down::Send { conn, buf, len: len as u16 });
    }

    pub fn free_frame(&mut self, buf: u32) {
        if self.stream.loans.release(buf) {
            self.stream.send(&Down::Free { buf });
        }
    }
}

impl Session {
    /// Seals an alert into a fresh ciphertext buffer and sends it. False: there was no buffer.
    pub(crate) fn say(
        &mut self,
        alert: Alert,
        keys: &mut crate::record::KeyCache,
        conn: Conn,
        links: &mut Links<'_, '_>,
    ) -> bool {
        let Some(buf) = links.stream.own.take() else { return false };
        let bytes = links.stream.own.bytes(buf);
        match self.seal_message(keys, conn, crate::record::Content::Alert, &alert.message(), bytes) {
            Some(len) => links.send_below(conn, buf, len),
            None => links.stream.own.put(buf),
        }
        true
    }
}
