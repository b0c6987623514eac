//! Recordings: what went over the links of a system that ran hosted, as a file, and how one is made and played back.
//!
//! A recording is JSON Lines: a [`Header`], then an [`Event`] a line. It holds the bytes that the links carry, so above tls
//! what clients sent in the clear, passwords among it; no task is ever sent a key, so a recording has none.

mod format;
mod meaning;
mod recorder;
mod relay;
pub mod replay;

pub use format::{Event, Header, Message, Recording, Writer};
pub use recorder::{Recorder, Request};
