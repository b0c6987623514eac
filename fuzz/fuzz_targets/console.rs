//! Log lines of tasks and what is typed, into the console.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| console::fuzz::run(data));
