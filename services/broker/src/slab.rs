//! Numbered entries in memory that grows by small chunks, so that a large table carries no doubling's slack.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

/// "No entry" in a link between entries.
pub const NONE: u32 = u32::MAX;

const CHUNK: usize = 64;

/// An entry that isn't in use holds `T::default()`.
pub struct Slab<T> {
    chunks: Vec<Box<[T; CHUNK]>>,
    free: Vec<u32>,
    /// Numbers below this were given out at least once.
    used: u32,
}

impl<T: Default> Slab<T> {
    pub fn new() -> Self {
        Slab { chunks: Vec::new(), free: Vec::new(), used: 0 }
    }

    /// Entries in use.
    pub fn len(&self) -> usize {
        self.used as usize - self.free.len()
    }

    pub fn insert(&mut self, value: T) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.reach(self.used);
            self.used += 1;
            self.used - 1
        });
        self[number] = value;
        number
    }

    pub fn remove(&mut self, number: u32) -> T {
        self.free.push(number);
        core::mem::take(&mut self[number])
    }

    /// Makes entry `number` exist (as default), for tables whose numbers come from elsewhere.
    pub fn reach(&mut self, number: u32) {
        while self.chunks.len() <= number as usize / CHUNK {
            self.chunks.push(Box::new(core::array::from_fn(|_| T::default())));
        }
    }

    /// The entry, if its chunk exists.
    pub fn get(&self, number: u32) -> Option<&T> {
        self.chunks.get(number as usize / CHUNK).map(|c| &c[number as usize % CHUNK])
    }

    /// Numbers that exist, in use or not.
    pub fn reached(&self) -> u32 {
        (self.chunks.len() * CHUNK) as u32
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;
    fn index(&self, number: u32) -> &T {
        &self.chunks[number as usize / CHUNK][number as usize % CHUNK]
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, number: u32) -> &mut T {
        &mut self.chunks[number as usize / CHUNK][number as usize % CHUNK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again_and_entries_stay_put() {
        let mut slab = Slab::new();
        let numbers: Vec<u32> = (0..200).map(|n| slab.insert(n)).collect();
        assert_eq!(slab.remove(numbers[77]), 77);
        assert_eq!(slab.len(), 199);
        assert_eq!(slab.insert(1000), numbers[77]);
        assert!(numbers.iter().all(|&n| slab[n] == if n == numbers[77] { 1000 } else { n }));
        assert_eq!(slab.get(100_000), None);
    }
}
