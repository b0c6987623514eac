//! Bytes, records, neighbours' commands and lapses of time into tls, before and after a handshake.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| tls::fuzz::run(data));
