#![no_std]
#![forbid(unsafe_code)]

pub mod config;

pub use config::Config;
