//! Front end for PVH (`qemu -kernel`, microVMs) and multiboot2 (GRUB): the package comes as the first module.
#![no_std]
#![no_main]

mod entry;
mod multiboot2;
mod pvh;

use core::fmt::Write;

use ipc::package::Arch;
use loader::cpus::Cpus;
use loader::memory::{self, Kind, MemoryMap};
use loader::prepare::Machine;
use loader::verify::{PublicKey, Refusal, verify};
use loader::x86_64::{self, port::Serial};

const KEY: &str = include_str!(env!("URMQTT_PUBLIC_KEY"));

/// What a boot loader told us, whichever it was.
pub struct Handed {
    pub memory: MemoryMap,
    /// The first module.
    pub package: Option<&'static [u8]>,
    pub rsdp: Option<u64>,
    pub firmware: Option<u64>,
    pub line: Line,
}

/// The unsigned command line, copied: where it lies is memory that the loader may take.
pub struct Line {
    bytes: [u8; 256],
    len: usize,
}

impl Line {
    /// Up to the first zero, as much as fits.
    pub fn copy(bytes: &[u8]) -> Self {
        let mut line = Line { bytes: [0; 256], len: 0 };
        line.len = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len()).min(256);
        line.bytes[..line.len].copy_from_slice(&bytes[..line.len]);
        line
    }
}

/// Called once, from `entry`, in long mode, on a stack of our own.
extern "sysv64" fn start(magic: u32, info: u32) -> ! {
    let mut serial = Serial::new();
    let handed = match magic {
        entry::PVH => pvh::read(info.into()),
        entry::MULTIBOOT2 => multiboot2::read(info.into()),
        _ => Err("entered by neither PVH nor multiboot2"),
    };
    match handed {
        Ok(handed) => boot(handed, &mut serial),
        Err(reason) => say(&mut serial, &reason),
    }
    x86_64::halt()
}

/// Comes back only when there is nothing to boot.
fn boot(mut handed: Handed, serial: &mut Serial) {
    let found = handed.package.ok_or(Refusal::NoPackage);
    let verified = found.and_then(|file| verify(file, &PublicKey::parse(KEY)?, Some(Arch::X86_64)));
    let package = match verified {
        Ok(verified) => verified.package,
        Err(refusal) => return say(serial, &refusal),
    };
    if let Err(error) = own(&mut handed.memory) {
        return say(serial, &error);
    }
    let mut machine = Machine {
        memory: handed.memory,
        package,
        package_at: package.payload().as_ptr() as u64,
        firmware: handed.firmware,
        rsdp: handed.rsdp,
        dtb: None,
        efi_system_table: None,
        date: x86_64::clock::now(),
        entropy: &[],
        unsigned_line: &handed.line.bytes[..handed.line.len],
        cpus: Cpus::new(x86_64::own_id()),
    };
    // SAFETY: one processor runs, interrupts are off, `entry` has mapped 4 GiB, and `own` has taken our image out of
    // the usable memory.
    let error = unsafe { x86_64::handoff(&mut machine) };
    say(serial, &error);
}

/// Takes our own image out of the memory map.
fn own(memory: &mut MemoryMap) -> Result<(), memory::Error> {
    unsafe extern "C" {
        static image_start: [u8; 0];
        static image_end: [u8; 0];
    }
    let (start, end) = (&raw const image_start as u64, &raw const image_end as u64);
    memory.set(start, end, Kind::Loader)
}

fn say(serial: &mut Serial, reason: &dyn core::fmt::Display) {
    // The serial line has no errors.
    let _ = writeln!(serial, "\r\nurmqtt: refused to boot: {reason}\r");
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    say(&mut Serial::new(), &info);
    x86_64::halt()
}
