//! Stored messages: one copy, shared by every queue that it stands in, and counted against one budget.

use crate::codec::Qos;
use crate::names::Name;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::Cell;

/// A message under way: what is routed.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// Length-prefixed topic, as on the wire.
    pub prefixed_topic: &'a [u8],
    pub payload: &'a [u8],
}

/// What a stored message costs beyond its bytes.
const OVERHEAD: usize = 64;
/// What each place in a queue costs, with the queue's slack.
const PLACE: usize = 48;

/// A stored message: cheap to clone.
#[derive(Clone)]
pub struct Message(Rc<Stored>);

struct Stored {
    /// Topic with its two bytes of length, then the payload.
    bytes: Box<[u8]>,
    used: Rc<Cell<usize>>,
}

impl Drop for Stored {
    fn drop(&mut self) {
        self.used.set(self.used.get() - self.bytes.len() - OVERHEAD);
    }
}

impl Message {
    pub fn view(&self) -> View<'_> {
        let bytes = &self.0.bytes;
        let topic = u16::from_be_bytes([bytes[0], bytes[1]]) as usize;
        let (prefixed_topic, payload) = bytes.split_at(2 + topic);
        View { prefixed_topic, payload }
    }

    pub fn cost(&self) -> usize {
        self.0.bytes.len() + OVERHEAD
    }
}

impl View<'_> {
    pub fn topic(&self) -> &str {
        core::str::from_utf8(&self.prefixed_topic[2..]).unwrap_or("")
    }
}

/// A stored message's place in a queue, counted as such.
pub struct Place(Message);

impl Drop for Place {
    fn drop(&mut self) {
        let used = &self.0.0.used;
        used.set(used.get() - PLACE);
    }
}

impl Place {
    pub fn message(&self) -> &Message {
        &self.0
    }
}

/// The budget of all stored messages: queued, in flight, retained, wills.
pub struct Store {
    used: Rc<Cell<usize>>,
    limit: usize,
}

impl Store {
    pub fn new(limit: usize) -> Self {
        Store { used: Rc::new(Cell::new(0)), limit }
    }

    pub fn used(&self) -> usize {
        self.used.get()
    }

    /// `None`: the budget is used up.
    pub fn keep(&self, view: View<'_>) -> Option<Message> {
        let len = view.prefixed_topic.len() + view.payload.len();
        let used = self.used.get() + len + OVERHEAD;
        if used > self.limit {
            return None;
        }
        let mut bytes = Vec::with_capacity(len);
        bytes.extend_from_slice(view.prefixed_topic);
        bytes.extend_from_slice(view.payload);
        self.used.set(used);
        Some(Message(Rc::new(Stored { bytes: bytes.into_boxed_slice(), used: self.used.clone() })))
    }

    /// `None`: the budget is used up.
    pub fn place(&self, message: Message) -> Option<Place> {
        let used = self.used.get() + PLACE;
        (used <= self.limit).then(|| {
            self.used.set(used);
            Place(message)
        })
    }
}

/// A message on its way to be routed, stored already: a will, or one of the server's own.
pub struct Letter {
    pub message: Message,
    /// The client that it comes from, whose name is held; `Name::NONE`: the server.
    pub owner: Name,
    pub qos: Qos,
    pub retain: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_counts_each_message_once_until_its_last_reference() {
        let store = Store::new(2 * OVERHEAD + 20);
        let view = View { prefixed_topic: b"\x00\x01a", payload: b"payload" };
        let message = store.keep(view).unwrap();
        let copy = message.clone();
        assert_eq!(store.used(), 10 + OVERHEAD);
        assert_eq!((copy.view().topic(), copy.view().payload), ("a", &b"payload"[..]));
        let second = store.keep(view).unwrap();
        assert!(store.keep(view).is_none());
        drop((message, second));
        assert_eq!(store.used(), 10 + OVERHEAD);
        let place = store.place(copy).unwrap();
        assert_eq!((store.used(), place.message().view().topic()), (10 + OVERHEAD + PLACE, "a"));
        assert!(store.place(place.message().clone()).is_none());
        drop(place);
        assert_eq!(store.used(), 0);
    }
}
