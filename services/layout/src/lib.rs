//! The data partition: two superblocks, of which the newer good one counts, and the regions that it names.
//!
//! `docs/disk-layout.md` gives every byte. The store's task and the host command read and write the partition through this crate;
//! it does no input or output itself, and takes every byte of the partition as written by an enemy.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod found;
mod geometry;
mod regions;
mod superblock;

pub use found::{Found, Refusal, inspect};
pub use geometry::{Geometry, WrongGeometry};
pub use regions::{Kind, Region, Sizes, TooSmall, lay_out};
pub use superblock::{BLOCK, Copies, SLOTS, Superblock, VERSION, Wrong};
