//! Tasks of the test systems: the probe, which tries what it may not do, its victim, which must not notice, and a pair that
//! measures signals and rings. The code is in `main.rs` and beside it: nothing of it makes sense on the host.
#![no_std]
#![forbid(unsafe_code)]
