//! What the broker has to tell its log.

use crate::acl::Role;
use alloc::collections::VecDeque;
use alloc::string::String;
use core::fmt;
use ipc::link::console::Level;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    LinkUp,
    /// tls restarted or broke the link's rules; all connections are lost.
    LinkLost {
        connections: u32,
    },
    Connected {
        role: Role,
        client: String,
        resumed: bool,
    },
    /// A client's connection ended.
    Left {
        client: String,
        why: &'static str,
    },
    /// A connection was closed before its CONNECT was accepted.
    Refused {
        certificate: String,
        why: &'static str,
    },
    /// A session with acknowledged messages was discarded.
    SessionLost {
        client: String,
        why: &'static str,
    },
}

impl Event {
    pub fn level(&self) -> Level {
        match self {
            Event::LinkUp | Event::Connected { .. } | Event::Left { .. } => Level::Debug,
            Event::Refused { .. } => Level::Info,
            Event::LinkLost { .. } | Event::SessionLost { .. } => Level::Warn,
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::LinkUp => write!(f, "link to tls is up"),
            Event::LinkLost { connections } => write!(f, "link to tls lost with {connections} connections"),
            Event::Connected { role, client, resumed } => {
                let role = if *role == Role::Operator { "operator" } else { "device" };
                let session = if *resumed { "resumed" } else { "new" };
                write!(f, "{role} {client:?} connected, {session} session")
            }
            Event::Left { client, why } => write!(f, "{client:?} left: {why}"),
            Event::Refused { certificate, why } => write!(f, "{certificate:?} refused: {why}"),
            Event::SessionLost { client, why } => write!(f, "session of {client:?} discarded: {why}"),
        }
    }
}

/// Events that wait to be taken; beyond the bound they are counted only.
#[derive(Default)]
pub struct Events {
    queue: VecDeque<Event>,
    pub dropped: u64,
}

const BOUND: usize = 64;

impl Events {
    pub fn push(&mut self, event: Event) {
        if self.queue.len() < BOUND {
            self.queue.push_back(event);
        } else {
            self.dropped += 1;
        }
    }

    pub fn pop(&mut self) -> Option<Event> {
        self.queue.pop_front()
    }
}
