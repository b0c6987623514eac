//! From a task graph and a configuration to a checked manifest, a signed package and a disk image.
//!
//! ```text
//! image/systems/NAME.toml ─ system ─┐
//!                                   ├─ check ─ plan ─┐
//! urmqtt.toml ───────────── config ─┘                ├─ tables ─ package ─ disk
//! ELF files of the tasks ────────────────────── elf ─┘
//! ```
//!
//! Everything that can be wrong with an image is found here; kernel and tasks only take over what stands in the package.
#![forbid(unsafe_code)]

pub mod check;
pub mod config;
pub mod diagnostic;
pub mod disk;
pub mod elf;
pub mod keys;
pub mod package;
pub mod pki;
pub mod plan;
pub mod service;
pub mod system;
pub mod tables;
pub mod value;
