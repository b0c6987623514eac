//! Registers of the modern PCI transport (virtio 1.2, section 4.1.4).

use crate::queue::Addresses;
use crate::{DeviceFault, Transport};
use core::ptr::NonNull;
use safe_mmio::fields::{ReadPure, ReadPureWrite, WriteOnly};
use safe_mmio::{UniqueMmioPointer, field};

/// The common configuration structure (section 4.1.4.3). 64-bit fields are written in halves, which is always allowed.
#[repr(C)]
pub struct Common {
    device_feature_select: ReadPureWrite<u32>,
    device_feature: ReadPure<u32>,
    driver_feature_select: ReadPureWrite<u32>,
    driver_feature: ReadPureWrite<u32>,
    config_msix_vector: ReadPureWrite<u16>,
    num_queues: ReadPure<u16>,
    device_status: ReadPureWrite<u8>,
    config_generation: ReadPure<u8>,
    queue_select: ReadPureWrite<u16>,
    queue_size: ReadPureWrite<u16>,
    queue_msix_vector: ReadPureWrite<u16>,
    queue_enable: ReadPureWrite<u16>,
    queue_notify_off: ReadPure<u16>,
    queue_desc: [ReadPureWrite<u32>; 2],
    queue_driver: [ReadPureWrite<u32>; 2],
    queue_device: [ReadPureWrite<u32>; 2],
}

pub const COMMON_BYTES: usize = size_of::<Common>();
const _: () = assert!(COMMON_BYTES == 56);

const ACKNOWLEDGE: u8 = 1;
const DRIVER: u8 = 2;
const DRIVER_OK: u8 = 4;
const FEATURES_OK: u8 = 8;

/// "No vector" for a queue or the configuration.
pub const NO_VECTOR: u16 = 0xffff;

/// Most queues that a driver of ours enables.
const QUEUES: usize = 2;

/// How often the status is read until a reset must have been done.
const RESET_POLLS: u32 = 1_000_000;

/// The mapped structures of one device.
pub struct Registers<'m> {
    common: UniqueMmioPointer<'m, Common>,
    notify: UniqueMmioPointer<'m, [WriteOnly<u16>]>,
    config: UniqueMmioPointer<'m, [ReadPure<u8>]>,
    notify_multiplier: u32,
    /// Index in `notify` of each queue.
    doorbells: [usize; QUEUES],
}

impl<'m> Registers<'m> {
    /// # Safety
    /// The three ranges are the structures of one virtio device that nothing else uses, mapped as device memory for `'m`:
    /// `common` of [`COMMON_BYTES`], the others of the given lengths in bytes; `common` is 4-byte and `notify` 2-byte aligned.
    pub unsafe fn new(
        common: NonNull<u8>,
        (notify, notify_bytes): (NonNull<u8>, usize),
        (config, config_bytes): (NonNull<u8>, usize),
        notify_multiplier: u32,
    ) -> Self {
        // SAFETY: by the caller.
        unsafe {
            Registers {
                common: UniqueMmioPointer::new(common.cast()),
                notify: UniqueMmioPointer::new(NonNull::slice_from_raw_parts(
                    notify.cast(),
                    notify_bytes / 2,
                )),
                config: UniqueMmioPointer::new(NonNull::slice_from_raw_parts(config.cast(), config_bytes)),
                notify_multiplier,
                doorbells: [0; QUEUES],
            }
        }
    }

    fn status(&mut self) -> u8 {
        field!(self.common, device_status).read()
    }

    fn add_status(&mut self, bits: u8) {
        let status = self.status();
        field!(self.common, device_status).write(status | bits);
    }
}

/// Writes a 64-bit register in halves.
macro_rules! write64 {
    ($common:expr, $field:ident, $value:expr) => {{
        let [mut low, mut high] = field!($common, $field).split();
        low.write($value as u32);
        high.write(($value >> 32) as u32);
    }};
}

impl Transport for Registers<'_> {
    fn reset(&mut self) -> Result<(), DeviceFault> {
        field!(self.common, device_status).write(0);
        let done = (0..RESET_POLLS).any(|_| self.status() == 0);
        done.then_some(()).ok_or(DeviceFault::Reset)
    }

    fn offered_features(&mut self) -> u64 {
        let mut half = |select| {
            field!(self.common, device_feature_select).write(select);
            field!(self.common, device_feature).read() as u64
        };
        half(0) | half(1) << 32
    }

    fn accept_features(&mut self, features: u64) -> Result<(), DeviceFault> {
        self.add_status(ACKNOWLEDGE);
        self.add_status(DRIVER);
        for (select, half) in [(0, features as u32), (1, (features >> 32) as u32)] {
            field!(self.common, driver_feature_select).write(select);
            field!(self.common, driver_feature).write(half);
        }
        self.add_status(FEATURES_OK);
        let kept = self.status() & FEATURES_OK != 0;
        field!(self.common, config_msix_vector).write(NO_VECTOR);
        kept.then_some(()).ok_or(DeviceFault::Features)
    }

    fn queue_limit(&mut self, index: u16) -> u16 {
        if index >= field!(self.common, num_queues).read() {
            return 0;
        }
        field!(self.common, queue_select).write(index);
        field!(self.common, queue_size).read()
    }

    fn enable_queue(&mut self, index: u16, addresses: Addresses, vector: u16) -> Result<(), DeviceFault> {
        if self.queue_limit(index) < addresses.size || index as usize >= QUEUES {
            return Err(DeviceFault::Queue);
        }
        field!(self.common, queue_size).write(addresses.size);
        write64!(self.common, queue_desc, addresses.descriptors);
        write64!(self.common, queue_driver, addresses.available);
        write64!(self.common, queue_device, addresses.used);
        field!(self.common, queue_msix_vector).write(vector);
        // The device answers NO_VECTOR when it couldn't allocate it (section 4.1.5.1.2.2).
        if field!(self.common, queue_msix_vector).read() != vector {
            return Err(DeviceFault::Queue);
        }
        let offset = field!(self.common, queue_notify_off).read() as u64 * self.notify_multiplier as u64;
        let doorbell = usize::try_from(offset / 2).map_err(|_| DeviceFault::Queue)?;
        if !offset.is_multiple_of(2) || doorbell >= self.notify.len() {
            return Err(DeviceFault::Queue);
        }
        self.doorbells[index as usize] = doorbell;
        field!(self.common, queue_enable).write(1);
        Ok(())
    }

    fn start(&mut self) {
        self.add_status(DRIVER_OK);
    }

    fn notify(&mut self, index: u16) {
        let Some(&doorbell) = self.doorbells.get(index as usize) else { return };
        if let Some(mut register) = self.notify.get(doorbell) {
            register.write(index);
        }
    }

    fn config_byte(&mut self, offset: usize) -> u8 {
        self.config.get(offset).map_or(0, |byte| byte.read())
    }
}
