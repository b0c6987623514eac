//! MQTT 3.1.1 broker as a task: identified byte streams in, identified byte streams out.
//!
//! [`Service::drive`] takes what the session link has brought and the time, and does everything that follows. No system
//! calls, no clock, no random numbers but the seed that it is given.
//!
//! A message's way: `input` cuts packets out of a connection's bytes, `codec` parses them, `publish` routes by the topic
//! `tree`, `output` writes into outgoing buffers or, where that can't be done at once, into the receiver's `session` queue.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(any(test, feature = "testing"))]
extern crate std;

pub mod acl;
pub mod codec;
pub mod config;
mod conn;
mod connect;
pub mod event;
#[cfg(any(test, feature = "testing"))]
pub mod fuzz;
mod input;
mod message;
mod names;
mod output;
mod publish;
mod retained;
mod service;
mod session;
mod slab;
mod stats;
mod subscribe;
mod sys;
mod table;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod topic;
mod tree;
mod wheel;

pub use config::Config;
pub use event::Event;
pub use output::MAX_CHUNK;
pub use service::{Link, Service};
pub use stats::Stats;
