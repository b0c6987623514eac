//! What the virtio drivers share: the split queue and the registers of the modern PCI transport (virtio 1.2).
//!
//! The device is hostile: whatever it writes is checked once, and a lie is a [`DeviceFault`], after which the driver
//! resets the device. Without an IOMMU a device can still write to memory that it was never given; see
//! `docs/security.md`.
#![cfg_attr(not(any(test, feature = "testing")), no_std)]

pub mod pci;
pub mod queue;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use pci::Registers;
pub use queue::Queue;

/// The device broke the rules of virtio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceFault {
    /// It doesn't offer what the driver needs, or refused the features that the driver chose.
    Features,
    /// A queue is missing, too small, or was not enabled.
    Queue,
    /// It used more buffers than it had, one that it didn't have, or wrote more than fits.
    Used,
    /// It doesn't leave the reset state.
    Reset,
    /// Its configuration makes no sense.
    Config,
}

/// Feature bits that several devices have (virtio 1.2, section 6).
pub const VERSION_1: u64 = 1 << 32;
pub const EVENT_IDX: u64 = 1 << 29;

/// Where the driver reaches a device; [`Registers`] on the machine, a model in tests.
pub trait Transport {
    /// Resets the device; on return it makes no more memory access (section 2.1.2, 4.1.4.3.1).
    fn reset(&mut self) -> Result<(), DeviceFault>;
    fn offered_features(&mut self) -> u64;
    /// Acknowledge, driver, features and FEATURES_OK (section 3.1.1, steps 2 to 6).
    fn accept_features(&mut self, features: u64) -> Result<(), DeviceFault>;
    /// Largest size that the device allows for queue `index`; 0: no such queue.
    fn queue_limit(&mut self, index: u16) -> u16;
    fn enable_queue(
        &mut self,
        index: u16,
        addresses: queue::Addresses,
        vector: u16,
    ) -> Result<(), DeviceFault>;
    /// DRIVER_OK: the device is live.
    fn start(&mut self);
    fn notify(&mut self, index: u16);
    /// One byte of the device's configuration; 0 beyond its end.
    fn config_byte(&mut self, offset: usize) -> u8;
}
