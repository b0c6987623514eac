//! Bytes of MQTT connections into a broker.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| broker::fuzz::streams(data));
