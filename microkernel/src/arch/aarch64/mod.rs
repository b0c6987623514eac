//! aarch64: EL1 and EL0.
