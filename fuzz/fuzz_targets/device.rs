//! A hostile device and a hostile tcp around the driver nic.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| nic::fuzz::run(data));
