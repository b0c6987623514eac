//! Access to device registers, each one load or store of a fixed form.
//!
//! Inline assembly and not `read_volatile`: the compiler may fold a volatile access into one with base register
//! writeback or into a pair, and for those a data abort carries no valid syndrome (Arm ARM, "ISS encoding for an
//! exception from a Data Abort", ISV), without which a hypervisor can't emulate the register.

use core::arch::asm;

/// A block of registers, mapped as Device-nGnRE.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    base: usize,
}

impl Window {
    /// # Safety
    /// `base` is mapped as device memory for good, and whatever stands there is what the caller takes it for.
    pub const unsafe fn new(base: usize) -> Self {
        Window { base }
    }

    pub fn read32(self, offset: usize) -> u32 {
        let value;
        // SAFETY: `new` promises a mapped register block; reading a device register touches no Rust object.
        unsafe { asm!("ldr {:w}, [{}]", out(reg) value, in(reg) self.base + offset, options(nostack)) };
        value
    }

    pub fn write32(self, offset: usize, value: u32) {
        // SAFETY: as for `read32`.
        unsafe { asm!("str {:w}, [{}]", in(reg) value, in(reg) self.base + offset, options(nostack)) };
    }

    pub fn read64(self, offset: usize) -> u64 {
        let value;
        // SAFETY: as for `read32`.
        unsafe { asm!("ldr {}, [{}]", out(reg) value, in(reg) self.base + offset, options(nostack)) };
        value
    }

    pub fn write64(self, offset: usize, value: u64) {
        // SAFETY: as for `read32`.
        unsafe { asm!("str {}, [{}]", in(reg) value, in(reg) self.base + offset, options(nostack)) };
    }

    pub fn write8(self, offset: usize, value: u8) {
        // SAFETY: as for `read32`.
        unsafe {
            asm!("strb {:w}, [{}]", in(reg) value as u32, in(reg) self.base + offset, options(nostack))
        };
    }
}
