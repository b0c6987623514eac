//! Numbered entries in small chunks: a large table carries no doubling's slack, and gives memory back when it has emptied.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

/// "No entry" in a link between entries.
pub const NONE: u32 = u32::MAX;

/// Entries of a chunk: a bit each in `used`.
const CHUNK: usize = 64;

struct Chunk<T> {
    used: u64,
    entries: [T; CHUNK],
}

/// Entries that aren't in use hold `T::default()`. Numbers are given out lowest first, so that the upper chunks empty.
pub struct Slab<T> {
    chunks: Vec<Option<Box<Chunk<T>>>>,
    /// One bit a chunk: it has an unused entry.
    room: Vec<u64>,
    len: usize,
}

impl<T: Default> Slab<T> {
    pub fn new() -> Self {
        Slab { chunks: Vec::new(), room: Vec::new(), len: 0 }
    }

    /// Entries in use.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn insert(&mut self, value: T) -> u32 {
        let with_room = self.room.iter().position(|&word| word != 0);
        let at =
            with_room.map_or(self.chunks.len(), |word| word * 64 + self.room[word].trailing_zeros() as usize);
        let used = self.chunks.get(at).and_then(|c| c.as_ref()).map_or(0, |c| c.used);
        let number = (at * CHUNK) as u32 + used.trailing_ones();
        self.occupy(number, value);
        number
    }

    /// Puts an entry at a number of the caller's choice that isn't in use.
    pub fn occupy(&mut self, number: u32, value: T) {
        let (at, bit) = (number as usize / CHUNK, number as usize % CHUNK);
        while self.chunks.len() <= at {
            self.room.resize(self.chunks.len() / 64 + 1, 0);
            self.set_room(self.chunks.len(), true);
            self.chunks.push(None);
        }
        let chunk = self.chunks[at].get_or_insert_with(|| {
            Box::new(Chunk { used: 0, entries: core::array::from_fn(|_| T::default()) })
        });
        debug_assert!(chunk.used >> bit & 1 == 0);
        chunk.used |= 1 << bit;
        chunk.entries[bit] = value;
        self.len += 1;
        let full = chunk.used == u64::MAX;
        self.set_room(at, !full);
    }

    /// Takes out an entry that is in use.
    pub fn remove(&mut self, number: u32) -> T {
        let (at, bit) = (number as usize / CHUNK, number as usize % CHUNK);
        let value = core::mem::take(&mut self[number]);
        if let Some(chunk) = &mut self.chunks[at] {
            debug_assert!(chunk.used >> bit & 1 == 1);
            chunk.used &= !(1 << bit);
            // The first chunk stays, so that one entry that comes and goes costs no allocation.
            if chunk.used == 0 && at > 0 {
                self.chunks[at] = None;
            }
        }
        self.len -= 1;
        self.set_room(at, true);
        value
    }

    fn set_room(&mut self, chunk: usize, room: bool) {
        let word = &mut self.room[chunk / 64];
        *word = *word & !(1 << (chunk % 64)) | (room as u64) << (chunk % 64);
    }

    /// The entry, if it is in use.
    pub fn get(&self, number: u32) -> Option<&T> {
        let chunk = self.chunks.get(number as usize / CHUNK)?.as_ref()?;
        let bit = number as usize % CHUNK;
        (chunk.used >> bit & 1 == 1).then(|| &chunk.entries[bit])
    }

    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.get(number)?;
        Some(&mut self[number])
    }

    /// A number that is at least as large as any in use, plus one.
    pub fn end(&self) -> u32 {
        (self.chunks.len() * CHUNK) as u32
    }
}

const ABSENT: &str = "a number of this table's";

/// Only for numbers in use.
impl<T> Index<u32> for Slab<T> {
    type Output = T;
    #[inline]
    fn index(&self, number: u32) -> &T {
        &self.chunks[number as usize / CHUNK].as_ref().expect(ABSENT).entries[number as usize % CHUNK]
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, number: u32) -> &mut T {
        &mut self.chunks[number as usize / CHUNK].as_mut().expect(ABSENT).entries[number as usize % CHUNK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_slab_is_a_map_that_chooses_its_keys(steps in proptest::collection::vec((any::<bool>(), any::<u16>()), 0..600)) {
            let (mut slab, mut model) = (Slab::new(), BTreeMap::new());
            for (i, (add, pick)) in steps.into_iter().enumerate() {
                if add || model.is_empty() {
                    let lowest = (0..).find(|n| !model.contains_key(n)).unwrap();
                    prop_assert_eq!(slab.insert(i), lowest);
                    model.insert(lowest, i);
                } else {
                    let number = *model.keys().nth(pick as usize % model.len()).unwrap();
                    prop_assert_eq!(Some(slab.remove(number)), model.remove(&number));
                }
                prop_assert_eq!(slab.len(), model.len());
            }
            for n in 0..slab.end() + 70 {
                prop_assert_eq!(slab.get(n), model.get(&n));
            }
        }
    }

    #[test]
    fn an_emptied_slab_keeps_one_chunk() {
        let mut slab = Slab::new();
        let numbers: Vec<u32> = (0..10_000).map(|n| slab.insert(n)).collect();
        slab.occupy(20_000, 7);
        slab.remove(20_000);
        numbers.into_iter().for_each(|n| assert_eq!(slab.remove(n), n));
        assert_eq!(slab.chunks.iter().flatten().count(), 1);
        assert_eq!(slab.insert(1), 0);
    }
}
