//! Frames, segments, neighbours' commands and lapses of time into tcp.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| tcp::fuzz::run(data));
