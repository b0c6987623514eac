//! Calendar dates of firmware and clocks, as seconds since 1970.

/// A date and time in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields {
    pub year: u16,
    pub month: u8,
    pub day: u8,
    pub hour: u8,
    pub minute: u8,
    pub second: u8,
}

/// `None`: not a date, or before 2000 (a clock without battery).
pub fn unix_time(f: Fields) -> Option<i64> {
    let valid = (2000..=2199).contains(&f.year)
        && (1..=12).contains(&f.month)
        && (1..=31).contains(&f.day)
        && f.hour < 24
        && f.minute < 60
        && f.second < 61;
    if !valid {
        return None;
    }
    // Years from March, so that the leap day is the last.
    let (year, month) = if f.month > 2 { (f.year, f.month - 3) } else { (f.year - 1, f.month + 9) };
    let (year, month, day) = (i64::from(year), i64::from(month), i64::from(f.day));
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1 - 719_468;
    Some(days * 86_400 + i64::from(f.hour) * 3600 + i64::from(f.minute) * 60 + i64::from(f.second))
}

/// Registers of a PC's clock (second, minute, hour, day, month, year), by the mode bits of its register B.
pub fn decode(registers: [u8; 6], mode: u8) -> Fields {
    const BINARY: u8 = 4;
    const HOURS_24: u8 = 2;
    let number = |v: u8| if mode & BINARY != 0 { v } else { (v >> 4).wrapping_mul(10).wrapping_add(v & 15) };
    let [second, minute, hour, day, month, year] = registers;
    let afternoon = mode & HOURS_24 == 0 && hour & 0x80 != 0;
    let mut hour = number(if mode & HOURS_24 == 0 { hour & 0x7f } else { hour });
    if mode & HOURS_24 == 0 {
        hour = hour % 12 + if afternoon { 12 } else { 0 };
    }
    Fields {
        year: 2000 + u16::from(number(year)),
        month: number(month),
        day: number(day),
        hour,
        minute: number(minute),
        second: number(second),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_days() {
        let at = |year, month, day, hour, minute, second| {
            unix_time(Fields { year, month, day, hour, minute, second })
        };
        // `date -u -d ... +%s`
        assert_eq!(at(2000, 1, 1, 0, 0, 0), Some(946_684_800));
        assert_eq!(at(2024, 2, 29, 23, 59, 59), Some(1_709_251_199));
        assert_eq!(at(2024, 3, 1, 0, 0, 0), Some(1_709_251_200));
        assert_eq!(at(2026, 11, 30, 15, 48, 43), Some(1_796_053_723));
        assert_eq!(at(2100, 3, 1, 0, 0, 0), Some(4_107_542_400));
        assert_eq!(at(1980, 1, 1, 0, 0, 0), None);
        assert_eq!(at(2024, 13, 1, 0, 0, 0), None);
        assert_eq!(at(2024, 0, 1, 0, 0, 0), None);
    }

    #[test]
    fn reads_every_mode() {
        let wanted = Fields { year: 2026, month: 11, day: 30, hour: 15, minute: 48, second: 43 };
        assert_eq!(decode([0x43, 0x48, 0x15, 0x30, 0x11, 0x26], 2), wanted);
        assert_eq!(decode([43, 48, 15, 30, 11, 26], 6), wanted);
        assert_eq!(decode([0x43, 0x48, 0x83, 0x30, 0x11, 0x26], 0), wanted);
        assert_eq!(decode([43, 48, 0x83, 30, 11, 26], 4), wanted);
        assert_eq!(decode([0, 0, 0x12, 1, 1, 0], 0).hour, 0);
        assert_eq!(decode([0, 0, 0x92, 1, 1, 0], 0).hour, 12);
    }
}
