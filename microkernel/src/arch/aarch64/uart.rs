//! The kernel's last words and its log before there is a console: an Arm PL011 (PrimeCell UART, DDI 0183).

use super::mmio::Window;
use super::timer;

/// Where QEMU's `virt` machine, and the clouds that are made of it, have their first UART.
pub const DEFAULT: u64 = 0x0900_0000;
pub const BYTES: u64 = 0x1000;

const UARTDR: usize = 0x00;
const UARTFR: usize = 0x18;
const UARTLCR_H: usize = 0x2c;
const UARTCR: usize = 0x30;
const TRANSMIT_FULL: u32 = 1 << 5;

/// Turns a UART on that nobody has turned on yet: 8 bits, no parity, FIFO, the speed that it has.
pub fn init(uart: Window) {
    if uart.read32(UARTCR) & 1 == 0 {
        uart.write32(UARTLCR_H, 0x70);
        uart.write32(UARTCR, 0x301);
    }
}

/// Writes, waiting at most 2 ms a byte (twice what 9600 baud need), then gives up on the rest.
pub fn write(uart: Window, bytes: &[u8]) {
    for &byte in bytes {
        let end = timer::now() + timer::hz() / 500;
        while uart.read32(UARTFR) & TRANSMIT_FULL != 0 {
            if timer::now() > end {
                return;
            }
        }
        uart.write32(UARTDR, byte as u32);
    }
}
