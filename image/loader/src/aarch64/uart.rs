//! A serial line on a PL011, as firmware has set it up, and the PL031 clock.

use core::fmt;

/// PL011 (Arm DDI 0183); without an address, nothing is said.
#[derive(Clone, Copy, Debug)]
pub struct Serial(Option<u64>);

impl Serial {
    /// # Safety
    /// The registers are mapped there as device memory.
    pub unsafe fn new(registers: Option<u64>) -> Self {
        Serial(registers)
    }
}

impl fmt::Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        const FLAGS: u64 = 0x18;
        const FULL: u32 = 1 << 5;
        let Some(registers) = self.0 else { return Ok(()) };
        for byte in text.bytes() {
            // SAFETY: `new`'s caller promises the registers. Bounded, should the line be stuck.
            unsafe {
                let flags = (registers + FLAGS) as *const u32;
                (0..100_000).any(|_| flags.read_volatile() & FULL == 0);
                (registers as *mut u32).write_volatile(byte.into());
            }
        }
        Ok(())
    }
}

/// Seconds since 1970 of a PL031 (Arm DDI 0224); `None`: not set.
///
/// # Safety
/// The registers are mapped there as device memory.
pub unsafe fn clock(registers: u64) -> Option<i64> {
    const YEAR_2000: u32 = 946_684_800;
    // SAFETY: as the caller promises.
    let seconds = unsafe { (registers as *const u32).read_volatile() };
    (seconds >= YEAR_2000).then_some(seconds.into())
}
