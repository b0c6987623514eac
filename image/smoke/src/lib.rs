//! Whole images under QEMU, their tasks as Linux processes, and what talks to them.
//!
//! A test starts a [`Machine`] (through `urmqtt run`, as a user would), waits for lines on its serial port, and connects with
//! Mosquitto's clients or with [`client::Client`] where bytes matter.

pub mod client;
pub mod counter;
pub mod machine;
pub mod mosquitto;
pub mod tools;

pub use client::{Client, Credentials};
pub use machine::{Machine, Options};

/// Makes a test for each architecture out of `fn body(arch: &'static str) -> anyhow::Result<()>`.
#[macro_export]
macro_rules! on_both {
    ($($body:ident),* $(,)?) => {
        mod x86_64 {
            $(#[test] fn $body() -> anyhow::Result<()> { super::$body("x86_64") })*
        }
        mod aarch64 {
            $(#[test] fn $body() -> anyhow::Result<()> { super::$body("aarch64") })*
        }
    };
}

/// Makes a test for the hosted platform too: what clients see must not depend on where the tasks run.
#[macro_export]
macro_rules! on_all {
    ($($body:ident),* $(,)?) => {
        $crate::on_both!($($body),*);
        mod hosted {
            $(#[test] fn $body() -> anyhow::Result<()> { super::$body($crate::machine::HOSTED) })*
        }
    };
}
