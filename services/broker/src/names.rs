//! Interned strings: client names and topic levels, each stored once.

use crate::slab::{NONE, Slab};
use crate::table;
use alloc::boxed::Box;
use core::hash::{BuildHasher, Hasher};
use foldhash::fast::FixedState;
use hashbrown::HashTable;

/// Number of an interned string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name(pub u32);

impl Name {
    pub const NONE: Name = Name(NONE);
}

impl Default for Name {
    fn default() -> Self {
        Name::NONE
    }
}

#[derive(Default)]
struct Entry {
    text: Text,
    references: u32,
    /// Retained messages that this client owns.
    retained: u32,
}

/// Bytes of a name that need no allocation of their own.
const SHORT: usize = 22;

/// As large as a boxed string and a tag.
enum Text {
    Short { len: u8, bytes: [u8; SHORT] },
    Long(Box<[u8]>),
}

impl Default for Text {
    fn default() -> Self {
        Text::Short { len: 0, bytes: [0; SHORT] }
    }
}

impl Text {
    fn new(text: &[u8]) -> Self {
        let mut bytes = [0; SHORT];
        match bytes.get_mut(..text.len()) {
            Some(front) => {
                front.copy_from_slice(text);
                Text::Short { len: text.len() as u8, bytes }
            }
            None => Text::Long(text.into()),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Text::Short { len, bytes } => &bytes[..*len as usize],
            Text::Long(bytes) => bytes,
        }
    }
}

pub struct Names {
    entries: Slab<Entry>,
    index: HashTable<u32>,
    hasher: FixedState,
    /// Bytes of those that are not short.
    long: usize,
}

fn hash(hasher: &FixedState, text: &[u8]) -> u64 {
    let mut hasher = hasher.build_hasher();
    hasher.write(text);
    hasher.finish()
}

/// Bytes that a string needs beside its entry.
fn long(text: &[u8]) -> usize {
    if text.len() > SHORT { text.len() + 16 } else { 0 }
}

/// Bytes of an entry, with its place in the table.
const COST: usize = 48;

impl Names {
    /// `seed` is secret, so that nobody can choose strings that collide.
    pub fn new(seed: u64) -> Self {
        Names { entries: Slab::new(), index: HashTable::new(), hasher: FixedState::with_seed(seed), long: 0 }
    }

    pub fn hash(&self, text: &[u8]) -> u64 {
        hash(&self.hasher, text)
    }

    /// `name` is one that was interned and not released, not [`Name::NONE`].
    #[inline]
    pub fn bytes(&self, name: Name) -> &[u8] {
        self.entries[name.0].text.bytes()
    }

    pub fn text(&self, name: Name) -> &str {
        core::str::from_utf8(self.bytes(name)).unwrap_or_default()
    }

    pub fn find(&self, text: &[u8]) -> Option<Name> {
        let entries = &self.entries;
        self.index.find(self.hash(text), |&n| entries[n].text.bytes() == text).map(|&n| Name(n))
    }

    /// The string's number, with one more reference to it.
    pub fn intern(&mut self, text: &[u8]) -> Name {
        if let Some(name) = self.find(text) {
            return self.again(name);
        }
        self.long += long(text);
        let number = self.entries.insert(Entry { text: Text::new(text), references: 1, retained: 0 });
        let (entries, hasher) = (&self.entries, &self.hasher);
        self.index.insert_unique(hash(hasher, text), number, |&n| hash(hasher, entries[n].text.bytes()));
        Name(number)
    }

    pub fn again(&mut self, name: Name) -> Name {
        self.entries[name.0].references += 1;
        name
    }

    pub fn release(&mut self, name: Name) {
        let entry = &mut self.entries[name.0];
        entry.references -= 1;
        if entry.references > 0 {
            return;
        }
        let (entries, hasher) = (&self.entries, &self.hasher);
        let rehash = |&n: &u32| hash(hasher, entries[n].text.bytes());
        table::remove(&mut self.index, name.0, rehash);
        let gone = self.entries.remove(name.0);
        self.long -= long(gone.text.bytes());
    }

    pub fn retained(&mut self, owner: Name) -> &mut u32 {
        &mut self.entries[owner.0].retained
    }

    /// Memory of all strings, roughly.
    pub fn bytes_used(&self) -> usize {
        self.entries.len() * COST + self.long
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_is_stored_once_and_forgotten_with_its_last_reference() {
        for (one, two) in [(&b"dev-1"[..], &b"dev-2"[..]), (&[b'a'; 22], &[b'a'; 23]), (&[b'b'; 100], b"")] {
            let mut names = Names::new(1);
            let (a, b) = (names.intern(one), names.intern(two));
            assert_eq!(names.intern(one), a);
            assert_ne!(a, b);
            assert_eq!((names.bytes(a), names.bytes(b)), (one, two));
            names.release(a);
            assert_eq!(names.find(one), Some(a));
            names.release(a);
            assert_eq!((names.find(one), names.len()), (None, 1));
            assert_eq!(names.find(two), Some(b));
            names.release(b);
            assert_eq!(names.bytes_used(), 0);
        }
    }

    #[test]
    fn short_names_cost_no_more_than_a_boxed_string_and_a_tag() {
        assert_eq!(size_of::<Text>(), size_of::<Box<[u8]>>() + 8);
    }
}
