//! Retained messages (section 3.3.1.3).

use crate::codec::Qos;
use crate::input::Why;
use crate::message::Message;
use crate::names::Name;
use crate::publish::Routed;
use crate::service::Service;
use crate::slab::NONE;
use crate::topic::Topic;

/// `message` is `None` in an entry that isn't in use.
#[derive(Default)]
pub struct Retained {
    pub message: Option<Message>,
    pub qos: Qos,
    /// The client that published it, whose name is held; `Name::NONE`: the server.
    owner: Name,
}

impl Service {
    /// Stores, replaces or, with an empty payload, forgets. Returns the stored copy. An error: there is no room for it.
    pub(crate) fn retain(
        &mut self,
        path: &Topic,
        message: Routed,
        owner: Name,
    ) -> Result<Option<Message>, Why> {
        let topic = path.text();
        let number = self.tree.retained(&self.names, topic);
        if message.view.payload.is_empty() {
            if number != NONE {
                self.tree.forget(&mut self.names, topic);
                let gone = self.retained.remove(number);
                self.disown(gone.owner);
            }
            return Ok(None);
        }
        let mine = number != NONE && self.retained[number].owner == owner;
        if owner != Name::NONE {
            if number == NONE && self.retained.len() >= self.config.retained as usize {
                return Err("too many retained messages");
            }
            if number == NONE && !self.tree_has_room(path) {
                return Err("no room in the topic tree");
            }
            if !mine && *self.names.retained(owner) >= self.config.retained_per_client {
                return Err("too many retained messages of one client");
            }
        }
        let copy = self.store.keep(message.view).ok_or("no memory for a retained message")?;
        let entry = Retained { message: Some(copy.clone()), qos: message.qos, owner: self.own(owner) };
        if number == NONE {
            let number = self.retained.insert(entry);
            self.tree.retain(&mut self.names, topic, number);
        } else {
            let replaced = core::mem::replace(&mut self.retained[number], entry);
            self.disown(replaced.owner);
        }
        Ok(Some(copy))
    }

    fn own(&mut self, owner: Name) -> Name {
        if owner != Name::NONE {
            self.names.again(owner);
            *self.names.retained(owner) += 1;
        }
        owner
    }

    fn disown(&mut self, owner: Name) {
        if owner != Name::NONE {
            *self.names.retained(owner) -= 1;
            self.names.release(owner);
        }
    }
}
