//! Ethernet to byte streams, for very many idle connections: ARP, DHCP, ICMP echo, and TCP's server side on one port.
//!
//! A library without system calls: [`Service::drive`] is called with the time and the two link ends, consumes what
//! has come and publishes what follows from it, and says when it wants to be called again. Nothing in here reads a clock;
//! randomness grows from one seed.
//!
//! Reading order: [`service`] (the loop), [`packet`] (what a frame may be), [`listen`] (SYN cookies), [`input`] and
//! [`receive`] (segments up), [`upper`] and [`output`] (bytes down), [`timers`]; the data they work on: [`table`] (a
//! line a connection), [`active`] (more for those that are busy), [`buffers`], [`wheel`].
//!
//! Deviations from RFC 9293, each in docs/decisions: no TIME-WAIT (0061), no active open, no urgent pointer, no
//! address resolution of our own (0060).
#![cfg_attr(not(any(test, feature = "testing")), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod active;
pub mod buffers;
pub mod checksum;
pub mod config;
pub mod congestion;
pub mod cookie;
pub mod dhcp;
pub mod emit;
#[cfg(any(test, feature = "testing"))]
pub mod fuzz;
pub mod input;
pub mod limit;
pub mod links;
pub mod listen;
pub mod network;
pub mod output;
pub mod packet;
#[cfg(any(test, feature = "testing"))]
pub mod peer;
pub mod random;
pub mod receive;
#[cfg(any(test, feature = "testing"))]
pub mod rig;
pub mod seq;
pub mod service;
pub mod table;
#[cfg(test)]
mod tests;
pub mod timers;
pub mod upper;
pub mod wheel;

pub use config::{Address, Config};
pub use service::{Event, FrameEnd, Service, StreamEnd};
