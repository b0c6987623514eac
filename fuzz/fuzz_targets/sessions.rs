//! Clients that come and go with well-formed packets, and a tls that restarts, into a broker.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| broker::fuzz::sessions(data));
