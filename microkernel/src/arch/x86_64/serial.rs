//! COM1, polled: the kernel's last words, and the early console of development images.

use x86_64::instructions::port::Port;

const BASE: u16 = 0x3f8;
/// Line status bit 5: the transmitter takes a byte.
const READY: u8 = 1 << 5;
/// Looks at the status before a byte is dropped: some 100 ms on hardware without a UART.
const PATIENCE: u32 = 100_000;

fn out(register: u16, value: u8) {
    // SAFETY: the ports of COM1 (National Semiconductor 16550), which touch nothing but the line.
    unsafe { Port::new(BASE + register).write(value) }
}

/// 115200 baud, 8N1, no interrupts, FIFO on.
pub fn init() {
    [(1, 0), (3, 0x80), (0, 1), (1, 0), (3, 3), (2, 0xc7), (4, 3)].into_iter().for_each(|(r, v)| out(r, v));
}

pub fn write(bytes: &[u8]) {
    for &byte in bytes {
        // SAFETY: reading the line status has no effect.
        let ready = || unsafe { Port::<u8>::new(BASE + 5).read() } & READY != 0;
        if (0..PATIENCE).any(|_| ready()) {
            out(0, byte);
        }
    }
}
