//! Memory that the loader took from the map: page tables, stacks, and what the kernel gets to read.

use zerocopy::{FromBytes, IntoBytes};

use crate::limine::HHDM;
use crate::memory::PAGE;

/// The arena was made too small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// `bytes` of physical memory at `base`, given out from the start, zeroed, never taken back.
#[derive(Debug)]
pub struct Arena<'m> {
    base: u64,
    bytes: &'m mut [u8],
    used: usize,
}

impl<'m> Arena<'m> {
    /// `base` and length are whole pages, `bytes` is 8-byte aligned.
    pub fn new(base: u64, bytes: &'m mut [u8]) -> Self {
        bytes.fill(0);
        Arena { base, bytes, used: 0 }
    }

    /// One that was filled before.
    #[cfg(test)]
    pub fn existing(base: u64, bytes: &'m mut [u8]) -> Self {
        Arena { base, used: bytes.len(), bytes }
    }

    pub fn used(&self) -> u64 {
        self.used as u64
    }

    /// Physical address of `count` zeroed pages.
    pub fn pages(&mut self, count: u64) -> Result<u64, Full> {
        self.reserve(count.checked_mul(PAGE).ok_or(Full)?, PAGE)
    }

    /// Leaves words for the kernel; the pointer is one of the direct map.
    pub fn words(&mut self, words: &[u64]) -> Result<u64, Full> {
        let phys = self.reserve(size_of_val(words) as u64, 8)?;
        self.at(phys, size_of_val(words)).copy_from_slice(words.as_bytes());
        Ok(HHDM + phys)
    }

    /// Leaves bytes and a zero after them for the kernel, on a page of their own.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<u64, Full> {
        let phys = self.reserve(bytes.len() as u64 + 1, PAGE)?;
        self.at(phys, bytes.len()).copy_from_slice(bytes);
        Ok(HHDM + phys)
    }

    /// Leaves texts, one after the other, as one C string.
    pub fn text(&mut self, parts: &[&str]) -> Result<u64, Full> {
        let len: usize = parts.iter().map(|p| p.len()).sum();
        let phys = self.reserve(len as u64 + 1, 1)?;
        let mut at = phys;
        for part in parts {
            self.at(at, part.len()).copy_from_slice(part.as_bytes());
            at += part.len() as u64;
        }
        Ok(HHDM + phys)
    }

    /// Changes a word that [`Arena::words`] left.
    pub fn set(&mut self, pointer: u64, word: u64) {
        self.at(pointer - HHDM, 8).copy_from_slice(&word.to_le_bytes());
    }

    /// A page given out by [`Arena::pages`], as a page table.
    pub fn table(&mut self, phys: u64) -> &mut [u64; 512] {
        // Whole pages of an aligned slice: neither size nor alignment can be wrong.
        <[u64; 512]>::mut_from_bytes(self.at(phys, PAGE as usize)).expect("a page is a table")
    }

    fn reserve(&mut self, len: u64, align: u64) -> Result<u64, Full> {
        let start = (self.used as u64).next_multiple_of(align);
        let end = start.checked_add(len).filter(|&e| e <= self.bytes.len() as u64).ok_or(Full)?;
        self.used = end as usize;
        Ok(self.base + start)
    }

    fn at(&mut self, phys: u64, len: usize) -> &mut [u8] {
        &mut self.bytes[(phys - self.base) as usize..][..len]
    }
}
