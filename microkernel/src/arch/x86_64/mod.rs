//! x86_64: ring 0 and ring 3.

mod format;

/// The architecture.
#[derive(Debug)]
pub struct X86;
