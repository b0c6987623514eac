//! The real-time clock of the PC (MC146818): date and time at boot, taken for UTC.

use crate::x86_64::port;

/// Seconds since 1970, if the clock shows a time.
pub fn now() -> Option<i64> {
    // Twice the same, so that no update fell between.
    let mut last = fields();
    for _ in 0..10 {
        let again = fields();
        if again == last {
            return crate::date::unix_time(last?);
        }
        last = again;
    }
    None
}

fn fields() -> Option<crate::date::Fields> {
    const UPDATING: u8 = 0x80;
    let settled = (0..100_000).any(|_| register(0x0a) & UPDATING == 0);
    let [second, minute, hour, day, month, year] = [0x00, 0x02, 0x04, 0x07, 0x08, 0x09].map(register);
    let mode = register(0x0b);
    settled.then(|| crate::date::decode([second, minute, hour, day, month, year], mode))
}

fn register(number: u8) -> u8 {
    // Bit 7 keeps NMIs as they are: enabled.
    port::write(0x70, number);
    port::read(0x71)
}
