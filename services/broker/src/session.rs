//! Sessions: what the broker knows of a client beyond its connection.

use crate::acl::Role;
use crate::codec::Qos;
use crate::message::{Message, Place};
use crate::names::{Name, Names};
use crate::slab::{NONE, Slab};
use crate::table;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use hashbrown::HashTable;

/// Small while nothing is under way: an idle device costs this and its name.
pub struct Session {
    /// Client identifier.
    pub name: Name,
    /// Index of its connection; `NONE` while the client is away.
    pub conn: u32,
    /// First of its subscriptions in the topic tree, and how many there are.
    pub subscriptions: u32,
    /// Order of leaving, among the clients that are away.
    earlier: u32,
    later: u32,
    /// Second at which the client left.
    pub left_s: u32,
    pub subscribed: u16,
    /// The packet identifier that was used last.
    last_id: u16,
    pub role: Role,
    /// Ends with its connection.
    pub clean: bool,
    /// Ends now, because an acknowledged message found no room.
    pub doomed: bool,
    pub flow: Option<Box<Flow>>,
}

impl Default for Session {
    fn default() -> Self {
        Session {
            name: Name::NONE,
            conn: NONE,
            subscriptions: NONE,
            earlier: NONE,
            later: NONE,
            left_s: 0,
            subscribed: 0,
            last_id: 0,
            role: Role::Device,
            clean: true,
            doomed: false,
            flow: None,
        }
    }
}

/// Messages under way to and from a client.
#[derive(Default)]
pub struct Flow {
    /// Sent and not yet acknowledged, in the order of their first sending.
    pub inflight: VecDeque<Sent>,
    /// How many of `inflight`, from the front, were seen by this connection: the rest must be sent again.
    pub resent: usize,
    pub queue: VecDeque<Queued>,
    /// Bytes of the queued messages.
    pub bytes: usize,
    /// Identifiers of QoS 2 messages that came and were not yet released (section 4.3.3).
    pub received: Vec<u16>,
    /// Publishers that wait until the queue is shorter: index and number of their connections.
    pub waiting: Vec<(u32, u32)>,
    /// Tick until which they wait at most.
    pub patience: u32,
    /// It has held publishers back for too long, and does so no more until its queue was short again.
    pub stuck: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaits {
    /// PUBACK, of a QoS 1 message.
    Ack,
    /// PUBREC, then PUBCOMP, of a QoS 2 message.
    Rec,
    Comp,
}

impl Awaits {
    pub fn first(qos: Qos) -> Self {
        if qos == Qos::ExactlyOnce { Awaits::Rec } else { Awaits::Ack }
    }

    /// The QoS of the PUBLISH that awaits this; `None`: it is PUBREL that does.
    pub fn qos(self) -> Option<Qos> {
        match self {
            Awaits::Ack => Some(Qos::AtLeastOnce),
            Awaits::Rec => Some(Qos::ExactlyOnce),
            Awaits::Comp => None,
        }
    }
}

pub struct Sent {
    pub id: u16,
    pub awaits: Awaits,
    pub retain: bool,
    /// For sending it again; `None` when it will not be (clean session, or released).
    pub message: Option<Message>,
}

pub struct Queued {
    pub place: Place,
    pub qos: Qos,
    pub retain: bool,
}

impl Flow {
    pub fn is_empty(&self) -> bool {
        self.inflight.is_empty()
            && self.queue.is_empty()
            && self.received.is_empty()
            && self.waiting.is_empty()
    }

    /// Something can't go out before what waits already.
    pub fn has_backlog(&self) -> bool {
        !self.queue.is_empty() || self.resent < self.inflight.len()
    }

    pub fn push(&mut self, queued: Queued) {
        if !queued.retain {
            self.bytes += queued.place.message().cost();
        }
        self.queue.push_back(queued);
    }

    pub fn pop(&mut self) -> Option<Queued> {
        let queued = self.queue.pop_front()?;
        if !queued.retain {
            self.bytes -= queued.place.message().cost();
        }
        Some(queued)
    }

    /// A message went out, with nothing before it left to be sent again.
    pub fn sent(&mut self, sent: Sent) {
        self.inflight.push_back(sent);
        self.resent = self.inflight.len();
    }

    /// The connection is gone: QoS 0 messages go with it, the rest will be sent (again) to the next one.
    pub fn disconnect(&mut self) {
        self.resent = 0;
        self.queue.retain(|q| q.qos != Qos::AtMostOnce);
        self.bytes = self.queue.iter().filter(|q| !q.retain).map(|q| q.place.message().cost()).sum();
        self.stuck = false;
    }

    /// Where `id` is in flight. The front, when the client acknowledges in order.
    pub fn find(&self, id: u16) -> Option<usize> {
        self.inflight.iter().position(|s| s.id == id)
    }

    pub fn take_acknowledged(&mut self, at: usize) {
        if at < self.resent {
            self.resent -= 1;
        }
        self.inflight.remove(at);
    }
}

impl Session {
    pub fn flow(&mut self) -> &mut Flow {
        self.flow.get_or_insert_default()
    }

    /// A packet identifier that isn't in flight. There are more identifiers than the window is wide.
    pub fn next_id(&mut self) -> u16 {
        loop {
            self.last_id = self.last_id.checked_add(1).unwrap_or(1);
            if self.flow.as_ref().is_none_or(|f| f.find(self.last_id).is_none()) {
                return self.last_id;
            }
        }
    }
}

/// All sessions, by role and client identifier: an operator's can't collide with a device's.
pub struct Sessions {
    slab: Slab<Session>,
    index: HashTable<u32>,
    /// The client that left first, and last.
    first_left: u32,
    last_left: u32,
}

fn hash(role: Role, name: Name) -> u64 {
    ((name.0 as u64) << 1 | role as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Sessions {
    pub fn new() -> Self {
        Sessions { slab: Slab::new(), index: HashTable::new(), first_left: NONE, last_left: NONE }
    }

    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// The session, if it is still there.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut Session> {
        self.slab.get_mut(number)
    }

    pub fn find(&self, names: &Names, role: Role, id: &str) -> Option<u32> {
        let name = names.find(id.as_bytes())?;
        let slab = &self.slab;
        self.index.find(hash(role, name), |&s| slab[s].name == name && slab[s].role == role).copied()
    }

    /// A session that isn't there yet, for connection `conn`. The reference to `name` becomes the session's.
    pub fn create(&mut self, name: Name, role: Role, clean: bool, conn: u32) -> u32 {
        let number = self.slab.insert(Session { name, role, clean, conn, ..Session::default() });
        let slab = &self.slab;
        self.index.insert_unique(hash(role, name), number, |&s| hash(slab[s].role, slab[s].name));
        number
    }

    /// Forgets the session. Its subscriptions and the reference to its name are the caller's to release.
    pub fn remove(&mut self, number: u32) -> Session {
        self.unlink(number);
        let slab = &self.slab;
        table::remove(&mut self.index, number, |&s| hash(slab[s].role, slab[s].name));
        self.slab.remove(number)
    }

    /// The client has left; the session stays.
    pub fn leave(&mut self, number: u32, now_s: u32) {
        let earlier = core::mem::replace(&mut self.last_left, number);
        match earlier {
            NONE => self.first_left = number,
            earlier => self.slab[earlier].later = number,
        }
        let session = &mut self.slab[number];
        session.conn = NONE;
        session.left_s = now_s;
        (session.earlier, session.later) = (earlier, NONE);
    }

    /// The client is back, on connection `conn`.
    pub fn come_back(&mut self, number: u32, conn: u32) {
        self.unlink(number);
        self.slab[number].conn = conn;
    }

    fn unlink(&mut self, number: u32) {
        let (earlier, later) = (self.slab[number].earlier, self.slab[number].later);
        if self.first_left == number {
            self.first_left = later;
        }
        if self.last_left == number {
            self.last_left = earlier;
        }
        if earlier != NONE {
            self.slab[earlier].later = later;
        }
        if later != NONE {
            self.slab[later].earlier = earlier;
        }
        (self.slab[number].earlier, self.slab[number].later) = (NONE, NONE);
    }

    /// The session whose client left longest ago.
    pub fn longest_away(&self) -> Option<u32> {
        Some(self.first_left).filter(|&s| s != NONE)
    }
}

impl core::ops::Index<u32> for Sessions {
    type Output = Session;
    fn index(&self, number: u32) -> &Session {
        &self.slab[number]
    }
}

impl core::ops::IndexMut<u32> for Sessions {
    fn index_mut(&mut self, number: u32) -> &mut Session {
        &mut self.slab[number]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_found_by_role_and_name_and_age_in_order() {
        let (mut names, mut sessions) = (Names::new(3), Sessions::new());
        let mut make = |id: &str, role| {
            let name = names.intern(id.as_bytes());
            sessions.create(name, role, false, 0)
        };
        let (a, op, b) = (make("a", Role::Device), make("a", Role::Operator), make("b", Role::Device));
        assert_eq!(sessions.find(&names, Role::Device, "a"), Some(a));
        assert_eq!(sessions.find(&names, Role::Operator, "a"), Some(op));
        assert_eq!(sessions.find(&names, Role::Operator, "b"), None);
        for s in [b, a, op] {
            sessions.leave(s, 5);
        }
        assert_eq!(sessions.longest_away(), Some(b));
        sessions.come_back(b, 1);
        assert_eq!(sessions.longest_away(), Some(a));
        sessions.remove(a);
        assert_eq!(sessions.longest_away(), Some(op));
        sessions.come_back(op, 2);
        assert_eq!(sessions.longest_away(), None);
        assert_eq!(sessions.find(&names, Role::Device, "a"), None);
    }

    #[test]
    fn packet_identifiers_skip_zero_and_those_in_flight() {
        let mut session = Session { last_id: u16::MAX - 1, ..Session::default() };
        session.flow().inflight.push_back(Sent { id: 1, awaits: Awaits::Ack, retain: false, message: None });
        assert_eq!([session.next_id(), session.next_id(), session.next_id()], [u16::MAX, 2, 3]);
    }
}
