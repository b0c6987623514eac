//! Interned strings: client names and topic levels, each stored once.

use crate::slab::{NONE, Slab};
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
    text: Box<str>,
    references: u32,
    /// Retained messages that this client owns.
    retained: u32,
}

fn hash(hasher: &FixedState, text: &[u8]) -> u64 {
    let mut hasher = hasher.build_hasher();
    hasher.write(text);
    hasher.finish()
}

pub struct Names {
    entries: Slab<Entry>,
    index: HashTable<u32>,
    hasher: FixedState,
}

impl Names {
    /// `seed` is secret, so that nobody can choose strings that collide.
    pub fn new(seed: u64) -> Self {
        Names { entries: Slab::new(), index: HashTable::new(), hasher: FixedState::with_seed(seed) }
    }

    pub fn hash(&self, text: &[u8]) -> u64 {
        hash(&self.hasher, text)
    }

    /// `name` is one that was interned and not released, not [`Name::NONE`].
    pub fn text(&self, name: Name) -> &str {
        &self.entries[name.0].text
    }

    pub fn find(&self, text: &str) -> Option<Name> {
        let entries = &self.entries;
        self.index.find(self.hash(text.as_bytes()), |&n| *entries[n].text == *text).map(|&n| Name(n))
    }

    /// The string's number, with one more reference to it.
    pub fn intern(&mut self, text: &str) -> Name {
        if let Some(name) = self.find(text) {
            self.entries[name.0].references += 1;
            return name;
        }
        let number = self.entries.insert(Entry { text: text.into(), references: 1, retained: 0 });
        let (entries, hasher) = (&self.entries, &self.hasher);
        self.index.insert_unique(hash(hasher, text.as_bytes()), number, |&n| {
            hash(hasher, entries[n].text.as_bytes())
        });
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
        let hash = self.hash(self.text(name).as_bytes());
        if let Ok(found) = self.index.find_entry(hash, |&n| n == name.0) {
            found.remove();
        }
        self.entries.remove(name.0);
    }

    pub fn retained(&mut self, owner: Name) -> &mut u32 {
        &mut self.entries[owner.0].retained
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
        let mut names = Names::new(1);
        let (a, b) = (names.intern("dev-1"), names.intern("dev-2"));
        assert_eq!(names.intern("dev-1"), a);
        assert_ne!(a, b);
        names.release(a);
        assert_eq!(names.find("dev-1"), Some(a));
        names.release(a);
        assert_eq!((names.find("dev-1"), names.len()), (None, 1));
        assert_eq!(names.text(b), "dev-2");
    }
}
