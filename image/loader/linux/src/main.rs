//! Front end for whatever boots a Linux Image on aarch64 (`qemu -kernel`): the package comes as initial RAM disk, everything
//! else as device tree.
#![no_std]
#![no_main]

mod entry;
mod map;

use core::fmt::{Display, Write};

use ipc::package::Arch;
use loader::aarch64::{self, psci, uart};
use loader::acpi::Conduit;
use loader::cpus::Cpus;
use loader::dtb::Tree;
use loader::memory::{Kind, MemoryMap, PAGE};
use loader::prepare::Machine;
use loader::verify::{PublicKey, Refusal, verify};
use uart::Serial;

const KEY: &str = include_str!(env!("URMQTT_PUBLIC_KEY"));

/// Called once, from `entry`, on a stack of our own, with only the memory around our image and the tree mapped.
extern "C" fn start(dtb: u64) -> ! {
    // SAFETY: `entry` has mapped the GiB where the tree starts; whoever boots an Image keeps the tree within 2 MiB.
    let tree = unsafe { aarch64::tree(dtb) }.and_then(|bytes| Some((Tree::parse(bytes)?, bytes.len())));
    let Some((tree, len)) = tree else { aarch64::halt() };
    let registers = tree.uart().filter(|&at| map::device(at));
    // SAFETY: mapped as device memory just now.
    let mut serial = unsafe { Serial::new(registers) };
    match boot(&tree, dtb, len as u64) {
        Ok(error) => refused(&mut serial, &error),
        Err(reason) => refused(&mut serial, &reason),
    }
    stop(tree.conduit())
}

/// Why there is nothing to boot. The text of other errors comes out of `Ok`: they are too different for one type.
enum Reason {
    Refusal(Refusal),
    Text(&'static str),
}

impl Display for Reason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Reason::Refusal(refusal) => refusal.fmt(f),
            Reason::Text(text) => f.write_str(text),
        }
    }
}

impl From<Refusal> for Reason {
    fn from(refusal: Refusal) -> Self {
        Reason::Refusal(refusal)
    }
}

/// Comes back only when there is nothing to boot.
fn boot(tree: &Tree<'_>, dtb: u64, dtb_len: u64) -> Result<aarch64::Error, Reason> {
    let mut memory = MemoryMap::new();
    let too_long = |_| Reason::Text("memory map has too many regions");
    tree.memory(&mut memory).map_err(too_long)?;
    memory.regions().iter().filter(|r| r.kind == Kind::Usable).for_each(|r| map::memory(r.base, r.end));

    let (from, to) = tree.initrd().ok_or(Refusal::NoPackage)?;
    if !from.is_multiple_of(PAGE) {
        return Err(Reason::Text("package does not start at a page"));
    }
    let inside = memory.regions().iter().any(|r| r.kind == Kind::Usable && r.base <= from && to <= r.end);
    let file = to.checked_sub(from).filter(|_| inside).ok_or(Refusal::NoPackage)?;
    // SAFETY: in memory that the tree tells of, mapped just now, written by nobody.
    let file = unsafe { aarch64::physical(from, file as usize) }.ok_or(Refusal::NoPackage)?;
    let package = verify(file, &PublicKey::parse(KEY)?, Some(Arch::Aarch64))?.package;

    for (start, end) in [image(), (dtb, dtb + dtb_len)] {
        memory.set(start / PAGE * PAGE, end.next_multiple_of(PAGE), Kind::Loader).map_err(too_long)?;
    }
    let clock = tree.clock().filter(|&at| map::device(at));
    let mut machine = Machine {
        memory,
        package,
        package_at: from,
        firmware: None,
        rsdp: None,
        dtb: Some(dtb),
        efi_system_table: None,
        // SAFETY: mapped as device memory just now.
        date: clock.and_then(|at| unsafe { uart::clock(at) }),
        entropy: tree.seed(),
        unsigned_line: tree.bootargs(),
        cpus: Cpus::new(aarch64::own_id()),
    };
    // SAFETY: one processor runs, interrupts are off, the memory below the limit is mapped, and our image, the tree and
    // what the tree reserves are not usable.
    Ok(unsafe { aarch64::handoff(&mut machine, map::LIMIT) })
}

/// Start and end of our own image.
fn image() -> (u64, u64) {
    unsafe extern "C" {
        static image_start: [u8; 0];
        static image_end: [u8; 0];
    }
    (&raw const image_start as u64, &raw const image_end as u64)
}

fn refused(serial: &mut Serial, reason: &dyn Display) {
    // The serial line has no errors.
    let _ = writeln!(serial, "\r\nurmqtt: refused to boot: {reason}\r");
}

/// Leaves the line readable for a while, then powers off.
fn stop(conduit: Option<Conduit>) -> ! {
    let end = aarch64::seconds() + 10;
    while aarch64::seconds() < end {
        core::hint::spin_loop();
    }
    if let Some(conduit) = conduit {
        psci::power_off(conduit);
    }
    aarch64::halt()
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    aarch64::halt()
}
