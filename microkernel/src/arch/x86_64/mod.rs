//! x86_64: ring 0 and ring 3.
