//! The kernel's last words.

use core::fmt::{self, Write};
use core::panic::PanicInfo;

use crate::arch::{Arch, Machine};

/// How long the words stay before the reset, in seconds; in ticks while the counter's rate is not known.
const DELAY_SECONDS: u64 = 2;
const DELAY_TICKS: u64 = 2_000_000_000;

/// The early console, for texts with numbers in them.
pub struct Console;

impl Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        Arch::early_console(text.as_bytes());
        Ok(())
    }
}

/// Says why, waits so that a person can read it, resets.
pub fn panic(info: &PanicInfo) -> ! {
    let _ = write!(Console, "\r\nkernel: {}", info.message());
    if let Some(place) = info.location() {
        let _ = write!(Console, " ({}:{})", place.file(), place.line());
    }
    let _ = Console.write_str("; reset\r\n");
    let start = Arch::counter();
    let delay = match Arch::counter_hz() {
        0 => DELAY_TICKS,
        hz => hz.saturating_mul(DELAY_SECONDS),
    };
    while Arch::counter().wrapping_sub(start) < delay {
        core::hint::spin_loop();
    }
    Arch::reboot()
}
