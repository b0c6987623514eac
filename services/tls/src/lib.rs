//! Byte streams to identified connections: rustls shakes hands, then an own record layer of about a hundred bytes a connection takes
//! over.
//!
//! [`Service`] is side B of the `stream` link and side A of the `session` link ([`ipc::link::stream`]). It makes no system call and
//! reads no clock: [`Service::drive`] gets the time, follows the links and says when it wants to be called again.
//!
//! | file | subject |
//! |---|---|
//! | `service` | the links' lives, the order of work |
//! | `establish` | a connection's beginning: admission, handshake steps, identity |
//! | `inward` | received pieces to records to plaintext buffers |
//! | `outward` | the broker's buffers to sealed records |
//! | `closing` | a connection's end |
//! | `record` | the record layer |
//! | `handshake`, `server`, `verifier`, `tap` | rustls |
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(any(test, feature = "testing"))]
extern crate std;

mod admission;
mod chain;
mod closing;
pub mod config;
mod establish;
#[cfg(any(test, feature = "testing"))]
pub mod fuzz;
mod handshake;
pub mod identity;
mod inward;
mod outward;
pub mod record;
mod server;
mod service;
mod slot;
mod tap;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod timeouts;
mod verifier;

pub use config::{Config, Limits};
pub use handshake::Failure;
pub use server::ConfigError;
pub use service::{Counters, Refusal, Service, SessionEnd, StreamEnd, check};
pub use slot::IDLE_BYTES;
