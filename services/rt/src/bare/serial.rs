//! The serial line: COM1 of a PC by ports, a PL011 by registers.

use crate::Task;

/// How often a full transmitter is asked before its byte is given up: nobody waits for a dead line.
const PATIENCE: u32 = 100_000;

#[cfg(target_arch = "x86_64")]
pub struct Serial;

#[cfg(target_arch = "x86_64")]
mod port {
    /// Ports of COM1, which the manifest gives this task (`TASK_COM1`).
    pub const DATA: u16 = 0x3f8;
    pub const FIFO_CONTROL: u16 = 0x3fa;
    pub const LINE_STATUS: u16 = 0x3fd;

    pub fn read(port: u16) -> u8 {
        let value;
        // SAFETY: a port of the UART, which is this task's; reads touch no memory.
        unsafe { core::arch::asm!("in al, dx", out("al") value, in("dx") port, options(nomem, nostack)) };
        value
    }

    pub fn write(port: u16, value: u8) {
        // SAFETY: a port of the UART, which is this task's; writes touch no memory.
        unsafe { core::arch::asm!("out dx, al", in("al") value, in("dx") port, options(nomem, nostack)) };
    }
}

#[cfg(target_arch = "x86_64")]
impl Serial {
    /// Speed and format are the firmware's.
    pub fn new(_: &Task) -> Self {
        const ENABLE: u8 = 1;
        port::write(port::FIFO_CONTROL, ENABLE);
        Serial
    }

    pub fn write(&mut self, bytes: &[u8]) {
        const TRANSMITTER_EMPTY: u8 = 1 << 5;
        /// Bytes that an empty transmitter takes.
        const FIFO: usize = 16;
        for chunk in bytes.chunks(FIFO) {
            if !(0..PATIENCE).any(|_| port::read(port::LINE_STATUS) & TRANSMITTER_EMPTY != 0) {
                return;
            }
            chunk.iter().for_each(|&byte| port::write(port::DATA, byte));
        }
    }

    pub fn read(&mut self) -> Option<u8> {
        const DATA_READY: u8 = 1;
        (port::read(port::LINE_STATUS) & DATA_READY != 0).then(|| port::read(port::DATA))
    }
}

#[cfg(target_arch = "aarch64")]
pub use pl011::Serial;

#[cfg(target_arch = "aarch64")]
mod pl011 {
    use super::{PATIENCE, Task};
    use core::ptr::NonNull;
    use safe_mmio::fields::{ReadPure, ReadWrite};
    use safe_mmio::{UniqueMmioPointer, field};

    /// ARM DDI 0183, section 3.2, up to the flag register.
    #[repr(C)]
    struct Registers {
        data: ReadWrite<u32>,
        between: [u32; 5],
        flags: ReadPure<u32>,
    }

    pub struct Serial(UniqueMmioPointer<'static, Registers>);

    impl Serial {
        /// Speed, format and enabling are the firmware's.
        pub fn new(task: &Task) -> Self {
            let region = task.region("uart").expect("the manifest gives the console its UART");
            let base = NonNull::new(region.base).expect("mapped").cast();
            // SAFETY: the supervisor has bound the UART's page to this region, which only this task maps.
            Serial(unsafe { UniqueMmioPointer::new(base) })
        }

        pub fn write(&mut self, bytes: &[u8]) {
            const TRANSMIT_FULL: u32 = 1 << 5;
            for &byte in bytes {
                if !(0..PATIENCE).any(|_| field!(self.0, flags).read() & TRANSMIT_FULL == 0) {
                    return;
                }
                field!(self.0, data).write(byte as u32);
            }
        }

        pub fn read(&mut self) -> Option<u8> {
            const RECEIVE_EMPTY: u32 = 1 << 4;
            let empty = field!(self.0, flags).read() & RECEIVE_EMPTY != 0;
            (!empty).then(|| field!(self.0, data).read() as u8)
        }
    }
}
