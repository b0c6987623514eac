//! The messages of each link, as they stand in a ring's [`Desc`](crate::ring::Desc).
//!
//! `decode` checks the shape (kind, ranges); references to buffers and connections are checked by the receiver against
//! its private tables.

pub mod console;
mod end;
pub mod frame;
pub mod stream;

pub use end::End;
