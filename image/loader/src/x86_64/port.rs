//! Ports, and the serial line on COM1 (8250 and its successors).

use core::arch::asm;
use core::fmt;

pub fn write(port: u16, value: u8) {
    // SAFETY: the ports that the loader names (interrupt controllers, clock, serial line) don't touch memory.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack, preserves_flags)) };
}

pub fn read(port: u16) -> u8 {
    let value;
    // SAFETY: as for `write`.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack, preserves_flags)) };
    value
}

const COM1: u16 = 0x3f8;

/// The serial line, 115200 8N1.
#[derive(Debug)]
pub struct Serial;

impl Serial {
    pub fn new() -> Self {
        for (register, value) in [(1, 0), (3, 0x80), (0, 1), (1, 0), (3, 3), (2, 7), (4, 3)] {
            write(COM1 + register, value);
        }
        Serial
    }
}

impl Default for Serial {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            // Until the holding register is empty, but not for ever: the line may not be there.
            for _ in 0..100_000 {
                if read(COM1 + 5) & 0x20 != 0 {
                    break;
                }
            }
            write(COM1, byte);
        }
        Ok(())
    }
}
