//! `urmqtt bench`: load for any MQTT 3.1.1 broker that wants TLS 1.3 and client certificates, and the comparison of urMQTT with
//! its peers.
//!
//! A [`workload`] is a set of options that runs against a [`target`] and gives an [`outcome`]; the [`suite`] starts brokers
//! from descriptions, runs workloads against them in turn, and makes a table of medians out of the outcomes; [`plot`] draws it.

#![forbid(unsafe_code)]

pub mod client;
pub mod command;
pub mod mqtt;
pub mod outcome;
pub mod plot;
pub mod process;
pub mod stats;
pub mod suite;
pub mod target;
pub mod workload;

/// The host command: `URMQTT`, or the program beside this one.
pub fn urmqtt() -> std::path::PathBuf {
    let beside = || std::env::current_exe().unwrap_or_default().with_file_name("urmqtt");
    std::env::var_os("URMQTT").map_or_else(beside, Into::into)
}
