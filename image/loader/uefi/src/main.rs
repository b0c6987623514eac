//! Front end for UEFI: the package is the file `\urmqtt\package` on the volume that we were started from.
#![no_std]
#![no_main]

mod firmware;

use core::fmt::{Display, Write};
use core::time::Duration;

use ipc::package::Arch;
use loader::cpus::Cpus;
use loader::prepare::Machine;
use loader::verify::{PublicKey, Refusal, verify};
use uefi::runtime::ResetType;
use uefi::{Status, boot, entry, runtime, system};

#[cfg(target_arch = "aarch64")]
use loader::aarch64 as arch;
#[cfg(target_arch = "x86_64")]
use loader::x86_64 as arch;

const KEY: &str = include_str!(env!("URMQTT_PUBLIC_KEY"));
#[cfg(target_arch = "x86_64")]
const ARCH: Arch = Arch::X86_64;
#[cfg(target_arch = "aarch64")]
const ARCH: Arch = Arch::Aarch64;
/// Limine's name for 64-bit UEFI.
const UEFI: u64 = 2;

#[entry]
fn main() -> Status {
    let reason = match load() {
        Ok(verified) => run(verified),
        Err(reason) => reason,
    };
    refuse(&reason)
}

/// Why nothing is booted.
enum Reason {
    Refusal(Refusal),
    File(&'static str, Status),
}

impl Display for Reason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Reason::Refusal(refusal) => refusal.fmt(f),
            Reason::File(what, status) => write!(f, "{what}: {status}"),
        }
    }
}

impl From<Refusal> for Reason {
    fn from(refusal: Refusal) -> Self {
        Reason::Refusal(refusal)
    }
}

/// Reads and verifies the package while firmware can still say why not.
fn load() -> Result<ipc::package::Package<'static>, Reason> {
    // A watchdog that firmware has set would cut off a slow disk.
    let _ = boot::set_watchdog_timer(0, 0xffff_ffff, None);
    let file = firmware::package()?;
    let package = verify(file, &PublicKey::parse(KEY)?, Some(ARCH))?.package;
    // What can be found out about the kernel now is said now.
    loader::kernel::Kernel::parse(package.kernel(), ARCH)
        .map_err(|_| Reason::File("package's kernel", Status::LOAD_ERROR))?;
    Ok(package)
}

/// Leaves firmware and enters the kernel; comes back only if firmware can't be left.
fn run(package: ipc::package::Package<'static>) -> Reason {
    let mut entropy = [0; 64];
    let mut line = [0; 256];
    let entropy = firmware::entropy(&mut entropy);
    let line = firmware::load_options(&mut line);
    let tables = match firmware::tables() {
        Ok(tables) => tables,
        Err(reason) => return reason,
    };
    let date = firmware::date();
    // SAFETY: no protocol is open and no event of ours exists; from here on only our own memory and code is used.
    let map = unsafe { boot::exit_boot_services(None) };
    let memory = match firmware::memory(&map) {
        Ok(memory) => memory,
        Err(error) => last_words(&error),
    };
    // The list lies in memory that is already described as ours.
    core::mem::forget(map);
    let mut machine = Machine {
        memory,
        package,
        package_at: package.payload().as_ptr() as u64,
        firmware: Some(UEFI),
        rsdp: tables.rsdp,
        dtb: tables.dtb,
        efi_system_table: tables.system,
        date,
        entropy,
        unsigned_line: line,
        cpus: Cpus::new(arch::own_id()),
    };
    // SAFETY: boot services are over, so we are alone, on one processor; firmware's identity map covers all memory,
    // and its map says what is ours.
    #[cfg(target_arch = "x86_64")]
    let error = unsafe { arch::handoff(&mut machine) };
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    let error = unsafe { arch::handoff(&mut machine, u64::MAX) };
    last_words(&error)
}

/// Says why, leaves time to read it, and powers off.
fn refuse(reason: &dyn Display) -> ! {
    // A console that fails has nobody to tell.
    let _ = system::with_stdout(|out| writeln!(out, "\r\nurmqtt: refused to boot: {reason}\r"));
    boot::stall(Duration::from_secs(10));
    runtime::reset(ResetType::SHUTDOWN, Status::SECURITY_VIOLATION, None)
}

/// Without firmware there is only the PC's serial line.
fn last_words(error: &dyn Display) -> ! {
    #[cfg(target_arch = "x86_64")]
    let _ = writeln!(arch::port::Serial::new(), "\r\nurmqtt: refused to boot: {error}\r");
    #[cfg(not(target_arch = "x86_64"))]
    let _ = error;
    arch::halt()
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    last_words(&info.message())
}
