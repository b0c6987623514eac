//! The firmware's tables: ACPI over a small physical memory, and a device tree.
#![no_main]

use supervisor::acpi::{self, Memory};
use supervisor::dtb;

struct Physical<'a>(&'a [u8]);

impl<'a> Memory<'a> for Physical<'a> {
    fn bytes(&self, phys: u64, len: usize) -> Option<&'a [u8]> {
        let from = usize::try_from(phys).ok()?;
        self.0.get(from..from.checked_add(len)?)
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((first, rest)) = data.split_first() else { return };
    match first % 2 {
        0 => drop(acpi::discover(&Physical(rest), 0)),
        _ => drop(dtb::discover(rest)),
    }
});
