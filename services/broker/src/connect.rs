//! CONNECT (section 3.1), takeover, and the end of connections and sessions.

use crate::acl::Role;
use crate::codec::{self, Code, Connect, Will};
use crate::config::MAX_CLIENT_ID;
use crate::conn::State;
use crate::event::Event;
use crate::input::Why;
use crate::message::{Letter, View};
use crate::names::Name;
use crate::service::{Link, Service};
use crate::session::Flow;
use crate::slab::NONE;
use alloc::boxed::Box;
use alloc::format;

impl Service {
    pub(crate) fn connect(&mut self, link: &mut Link, c: u32, connect: Connect) -> Result<(), Why> {
        let role = self.conns[c].role;
        let assigned = self.assigned_id(role, &connect);
        let id = assigned.as_deref().unwrap_or(connect.client_id);
        if !self.is_own_id(c, id) {
            return self.refuse(
                link,
                c,
                Code::IdentifierRejected,
                "client identifier is not the certificate's name",
            );
        }
        if let Some(will) = connect.will
            && !self.acl.may_publish(role, id.as_bytes(), &self.split(will.topic)?)
        {
            return self.refuse(link, c, Code::NotAuthorized, "will to a forbidden topic");
        }
        self.take_over(link, role, id, connect.clean_session);
        let Some((session, present)) = self.session_for(c, role, id, connect.clean_session) else {
            return self.refuse(link, c, Code::ServerUnavailable, "too many sessions");
        };
        let name = self.sessions[session].name;
        let will = connect.will.map(|will| self.keep_will(name, will));
        if let Some(None) = will {
            self.abandon(session, present);
            return self.refuse(link, c, Code::ServerUnavailable, "no room for the will");
        }
        let conn = &mut self.conns[c];
        conn.will = will.flatten();
        (conn.session, conn.state) = (session, State::Connected);
        (conn.keep_alive, conn.seen) = (connect.keep_alive, self.now);
        self.wheel.cancel(c);
        self.arm(c);
        self.stats.connected += 1;
        self.stats.accepted += 1;
        self.tell(Event::Connected { role, client: self.text(name), resumed: present });
        self.reply(link, c, &codec::connack(present, Code::Accepted));
        self.make_ready(c);
        Ok(())
    }

    /// The identifier of an operator that left it to us (section 3.1.3.1). A device has one already: its certificate's name.
    fn assigned_id(&mut self, role: Role, connect: &Connect) -> Option<alloc::string::String> {
        let assign = role == Role::Operator && connect.client_id.is_empty() && connect.clean_session;
        assign.then(|| {
            loop {
                self.assigned_ids += 1;
                let id = format!("assigned-{}", self.assigned_ids);
                if self.sessions.find(&self.names, role, &id).is_none() {
                    return id;
                }
            }
        })
    }

    fn is_own_id(&self, c: u32, id: &str) -> bool {
        match self.conns[c].role {
            Role::Device => id.as_bytes() == self.names.bytes(self.conns[c].name),
            Role::Operator => !id.is_empty() && id.len() <= MAX_CLIENT_ID,
        }
    }

    /// The session that the client asked for, now on connection `c`, and whether it was there. `None`: there are too many.
    fn session_for(&mut self, c: u32, role: Role, id: &str, clean: bool) -> Option<(u32, bool)> {
        if let Some(session) = self.sessions.find(&self.names, role, id) {
            self.sessions.come_back(session, c);
            return Some((session, true));
        }
        if self.sessions.len() >= self.config.sessions as usize {
            let oldest = self.sessions.longest_away()?;
            self.lost(oldest, "too many sessions");
            self.end_session(oldest);
        }
        let name = self.names.intern(id.as_bytes());
        Some((self.sessions.create(name, role, clean, c), false))
    }

    /// Ends the client's earlier connection ([MQTT-3.1.4-2]), and its session unless both want it kept.
    fn take_over(&mut self, link: &mut Link, role: Role, id: &str, clean: bool) {
        let Some(session) = self.sessions.find(&self.names, role, id) else { return };
        let earlier = self.sessions[session].conn;
        if earlier != NONE {
            self.close(link, earlier, "taken over by another connection");
        }
        if clean && let Some(session) = self.sessions.find(&self.names, role, id) {
            self.end_session(session);
        }
    }

    /// The client was refused after its session had been found or made.
    fn abandon(&mut self, session: u32, present: bool) {
        if present {
            let now_s = self.now_s();
            self.sessions.leave(session, now_s);
        } else {
            self.end_session(session);
        }
    }

    /// A protocol level other than 4 ([MQTT-3.1.2-2]).
    pub(crate) fn refuse_level(&mut self, link: &mut Link, c: u32) -> Result<(), Why> {
        self.refuse(link, c, Code::UnacceptableProtocol, "protocol level is not 4")
    }

    fn refuse(&mut self, link: &mut Link, c: u32, code: Code, why: Why) -> Result<(), Why> {
        self.reply(link, c, &codec::connack(false, code));
        Err(why)
    }

    fn keep_will(&mut self, owner: Name, will: Will) -> Option<Box<Letter>> {
        let message = self.store.keep(View { prefixed_topic: will.prefixed_topic, payload: will.payload })?;
        let owner = self.names.again(owner);
        Some(Box::new(Letter { message, owner, qos: will.qos, retain: will.retain }))
    }

    /// After DISCONNECT the will is not published ([MQTT-3.1.2-10]).
    pub(crate) fn discard_will(&mut self, c: u32) {
        if let Some(will) = self.conns[c].will.take() {
            self.names.release(will.owner);
        }
    }

    /// The client of a connected connection is gone: its will is due, its session ends or waits.
    pub(crate) fn left(&mut self, c: u32, why: Why) {
        let session = self.conns[c].session;
        self.stats.connected -= 1;
        self.tell(Event::Left { client: self.text(self.sessions[session].name), why });
        if let Some(will) = self.conns[c].will.take() {
            self.letters.push_back(*will);
        }
        if self.sessions[session].clean {
            return self.end_session(session);
        }
        if let Some(flow) = self.sessions[session].flow.as_mut() {
            flow.disconnect();
            let waiting = core::mem::take(&mut flow.waiting);
            self.release_waiting(waiting);
            self.sessions[session].flow.take_if(|f| f.is_empty());
        }
        let now_s = self.now_s();
        self.sessions.leave(session, now_s);
    }

    /// Forgets a session that has no connection (any more).
    pub(crate) fn end_session(&mut self, session: u32) {
        let gone = self.sessions.remove(session);
        self.tree.unsubscribe_all(&mut self.names, gone.subscriptions);
        self.names.release(gone.name);
        let Some(Flow { waiting, .. }) = gone.flow.map(|f| *f) else { return };
        self.release_waiting(waiting);
    }

    /// Ends a session in which an acknowledged message found no room: the client learns of the loss, because its next CONNACK says
    /// "no session present".
    pub(crate) fn end_doomed(&mut self, link: &mut Link, session: u32) {
        if !self.sessions.get_mut(session).is_some_and(|s| s.doomed) {
            return;
        }
        let why = "an acknowledged message found no room in its queue";
        self.lost(session, why);
        self.sessions[session].clean = true;
        match self.sessions[session].conn {
            NONE => self.end_session(session),
            c => self.close(link, c, why),
        }
    }

    fn lost(&mut self, session: u32, why: Why) {
        self.stats.sessions_lost += 1;
        self.tell(Event::SessionLost { client: self.text(self.sessions[session].name), why });
    }
}
