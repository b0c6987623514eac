//! The boot phase, from the kernel's page to the seal.

use crate::devices::Devices;
use crate::machine::{self, Firmware};
use crate::random;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use ipc::abi::{Audit, KernelBoot, TaskOp};
use ipc::boot::{Boot, Device};
use rt::Task;
use supervisor::acpi::Memory;
use supervisor::entropy::{Entropy, Seeds};
use supervisor::platform::{Error, Platform};
use supervisor::{Config, acpi, dtb};

/// Finds the hardware, starts all tasks, seals, and says so.
pub fn boot(task: &Task, config: &Config) -> Seeds {
    let kernel = machine::kernel_boot();
    let platform = discover(task, kernel).unwrap_or_else(|error| {
        rt::log!(Error, "the firmware's tables are of no use: {error:?}");
        Platform::default()
    });
    machine::platform(&platform.desc);
    map_uart(config, platform.uart);
    let mut devices = Devices::find(task, config, platform.pci.as_ref());
    let mut entropy = gather(kernel, &platform);
    if let Some(devices) = &mut devices {
        devices.entropy(task, &mut entropy, kernel.ticks_per_second);
    }
    let sources: Vec<String> =
        entropy.sources().iter().map(|(name, n)| format!("{name} ({n} bytes)")).collect();
    let weak = sources.is_empty();
    let mut seeds = entropy
        .finish(config.development)
        .unwrap_or_else(|_| panic!("no source of random numbers but the clock: refused"));
    for (number, name) in tasks(config) {
        let device = devices.as_mut().map_or(Device::default(), |d| d.for_task(name));
        write_boot_page(task, name, &seeds.next(), Some(device));
        start(task, name);
        rt::log!(Debug, "task {number} {name} started");
    }
    let functions = devices.as_ref().map_or(0, Devices::count);
    drop(devices);
    let audit = machine::seal();
    report(kernel, &platform, &audit, functions);
    match weak {
        true => rt::log!(Warn, "entropy: none but the clock; keys of this boot can be guessed"),
        false => rt::log!(Info, "entropy: {}", sources.join(", ")),
    }
    seeds
}

/// All tasks but the supervisor.
pub fn tasks(config: &Config) -> impl Iterator<Item = (u16, &str)> {
    config.tasks.iter().enumerate().skip(1).map(|(i, t)| (i as u16, t.name.as_str()))
}

fn discover(task: &Task, kernel: &KernelBoot) -> Result<Platform, Error> {
    let firmware = Firmware::new(task.region("firmware").ok_or(Error::NoTables)?);
    if kernel.dtb != 0 {
        let len = usize::try_from(kernel.dtb_len).map_err(|_| Error::Unreadable)?;
        return dtb::discover(firmware.bytes(kernel.dtb, len).ok_or(Error::Unreadable)?);
    }
    if kernel.rsdp != 0 {
        return acpi::discover(&firmware, kernel.rsdp);
    }
    Err(Error::NoTables)
}

/// aarch64: the console's UART.
fn map_uart(config: &Config, uart: u64) {
    let Some(region) = config.region("uart").filter(|_| uart != 0) else { return };
    if !machine::map(region.index, 0, 1, uart) {
        rt::log!(Error, "the serial line lies where no device may be");
    }
}

fn gather(kernel: &KernelBoot, platform: &Platform) -> Entropy {
    let mut entropy = Entropy::default();
    if let Some(bytes) = random::processor() {
        entropy.absorb("processor", &bytes);
    }
    let len = (kernel.entropy_len as usize).min(kernel.entropy.len());
    entropy.absorb("firmware", &kernel.entropy[..len]);
    entropy.absorb("device tree", &platform.seed);
    entropy.stir("ticks", rt::ticks_now());
    entropy.stir("wall clock", kernel.wall_seconds);
    entropy.stir("wall ticks", kernel.wall_ticks);
    entropy
}

/// Fills the page of a stopped task. `device`: `None` leaves what it had.
pub fn write_boot_page(task: &Task, name: &str, seed: &[u8; 32], device: Option<Device>) {
    let region = task.region(&format!("boot.{name}")).expect("the builder gives each task a boot page");
    let page = region.base.cast::<Boot>();
    // SAFETY: a page of ours that the task only reads, and it is stopped; zeros are a valid `Boot`.
    let boot = unsafe { &mut *page };
    boot.magic = ipc::boot::MAGIC;
    boot.seed = *seed;
    if let Some(device) = device {
        boot.device = device;
    }
}

/// Starts a stopped task (again).
pub fn start(task: &Task, name: &str) {
    rt::task_ctl(control(task, name), TaskOp::Start);
}

/// The handle that controls task `name`.
pub fn control(task: &Task, name: &str) -> u16 {
    task.cap(&format!("task:{name}")).expect("the supervisor controls all tasks").handle
}

fn report(kernel: &KernelBoot, platform: &Platform, audit: &Audit, functions: usize) {
    rt::log!(
        Info,
        "audit: {} tasks, {} cores, {} pages, W^X violations: {}, writable page-table pages: {}, \
         pages shared beyond the manifest: {}, missing guards: {}",
        audit.tasks,
        audit.cores,
        audit.pages,
        audit.wx_violations,
        audit.writable_tables,
        audit.shared_beyond_manifest,
        audit.missing_guards
    );
    let sound =
        [audit.wx_violations, audit.writable_tables, audit.shared_beyond_manifest, audit.missing_guards];
    assert!(sound == [0; 4], "the audit failed: {audit:?}");
    rt::log!(
        Info,
        "machine: {} MiB, {} MiB free, kernel text {} KiB, {functions} PCI functions, {}",
        kernel.memory_bytes >> 20,
        kernel.free_bytes >> 20,
        audit.kernel_text_bytes.div_ceil(1024),
        match platform.iommu {
            true => "IOMMU present but not used: devices reach all memory",
            false => "no IOMMU: devices reach all memory",
        }
    );
    rt::log!(Info, "sealed {} ms after the kernel's start", rt::now_ns() / 1_000_000);
}
