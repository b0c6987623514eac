//! Everything between "the package is ours" and the jump: kernel in memory, page tables, answers to the kernel's requests.
//!
//! No processor is touched here and memory is reached through slices only, so all of it runs in host tests.

use core::fmt;

use ipc::package::{Arch, Package};

use crate::arena::{Arena, Full};
use crate::cpus::Cpus;
use crate::kernel::{self, Kernel};
use crate::limine::{self, Feature, HHDM, Requests};
use crate::memory::{self, Kind, MAX_REGIONS, MemoryMap, PAGE};
use crate::paging::{Access, Format, Tables, most_tables};
use crate::words;

/// Stack of each processor: what the kernel asks for, within these bounds.
const MIN_STACK: u64 = 64 << 10;
const MAX_STACK: u64 = 256 << 10;
const GIB: u64 = 1 << 30;

/// A machine as its front end found it. Addresses are physical.
#[derive(Debug)]
pub struct Machine<'a> {
    pub memory: MemoryMap,
    /// Verified, at this page-aligned address.
    pub package: Package<'a>,
    pub package_at: u64,
    /// Limine's firmware type, where it has one: 0 BIOS, 2 64-bit UEFI.
    pub firmware: Option<u64>,
    pub rsdp: Option<u64>,
    pub dtb: Option<u64>,
    pub efi_system_table: Option<u64>,
    /// Seconds since 1970.
    pub date: Option<i64>,
    /// Random bytes from firmware.
    pub entropy: &'a [u8],
    /// Whatever command line came beside the package.
    pub unsigned_line: &'a [u8],
    pub cpus: Cpus,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    Memory(memory::Error),
    Kernel(kernel::Error),
    Requests(limine::Error),
    /// An internal estimate was too small.
    Arena,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Memory(e) => e.fmt(f),
            Error::Kernel(e) => e.fmt(f),
            Error::Requests(e) => e.fmt(f),
            Error::Arena => f.write_str("loader's arena is too small"),
        }
    }
}

impl From<memory::Error> for Error {
    fn from(e: memory::Error) -> Self {
        Error::Memory(e)
    }
}

impl From<Full> for Error {
    fn from(Full: Full) -> Self {
        Error::Arena
    }
}

/// Memory taken from the machine for the kernel's image and for the arena.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    pub kernel: Kernel<'a>,
    pub image: u64,
    pub arena: u64,
    pub arena_pages: u64,
}

/// Takes that memory; all of it below `limit`.
pub fn places<'a, F: Format>(machine: &mut Machine<'a>, limit: u64) -> Result<Places<'a>, Error> {
    let kernel = Kernel::parse(machine.package.kernel(), F::ARCH).map_err(Error::Kernel)?;
    let package = machine.package_at..machine.package_at + machine.package.payload().len() as u64;
    machine.memory.set(package.start, package.end, Kind::Executable)?;
    let image = machine.memory.take(kernel.bytes() / PAGE, limit, Kind::Executable)?;
    let regions = machine.memory.regions().len() as u64 + 2;
    let tables = most_tables(top(&machine.memory), 2 * regions + 2, kernel.bytes());
    let stacks = machine.cpus.all().len() as u64 * MAX_STACK / PAGE;
    let lists = (MAX_REGIONS as u64 * 32).div_ceil(PAGE) + 8;
    let arena_pages = tables + stacks + lists;
    let arena = machine.memory.take(arena_pages, limit, Kind::Loader)?;
    Ok(Places { kernel, image, arena, arena_pages })
}

/// What the jump needs.
#[derive(Debug)]
pub struct Prepared<F> {
    pub tables: Tables<F>,
    pub entry: u64,
    /// One past the highest byte of the first processor's stack; each other processor's is `stack_bytes` higher.
    pub stack_top: u64,
    pub stack_bytes: u64,
    pub processors: Option<Processors>,
}

/// Loads the kernel into `image` and fills the arena. `here`: pages that are mapped at their physical address too,
/// readable and executable, for the code that changes page tables.
pub fn prepare<F: Format>(
    machine: &Machine<'_>,
    places: &Places<'_>,
    image: &mut [u8],
    arena: &mut Arena<'_>,
    here: &[u64],
) -> Result<Prepared<F>, Error> {
    let kernel = &places.kernel;
    kernel.load(image);
    let requests = Requests::scan(image).map_err(Error::Requests)?;

    let tables = Tables::new(arena)?;
    map_memory::<F>(&tables, arena, &machine.memory)?;
    for s in kernel.segments() {
        let access = Access { write: s.write, execute: s.execute, device: false };
        tables.map(arena, s.base, places.image + (s.base - kernel.base()), s.end - s.base, access)?;
    }
    for page in here {
        tables.map(arena, *page, *page, PAGE, Access::CODE)?;
    }

    let wished = requests.argument(image, Feature::StackSize).unwrap_or(0);
    let stack_bytes = wished.clamp(MIN_STACK, MAX_STACK).next_multiple_of(PAGE);
    let stacks = arena.pages(machine.cpus.all().len() as u64 * stack_bytes / PAGE)?;
    let entry = requests.argument(image, Feature::EntryPoint).unwrap_or(kernel.entry);
    if !kernel.segments().iter().any(|s| s.execute && (s.base..s.end).contains(&entry)) {
        return Err(Error::Kernel(kernel::Error::Entry));
    }

    let mut answers = Answers { requests, image, arena };
    answers.firmware(machine)?;
    answers.files(machine, places)?;
    answers.memory(&machine.memory)?;
    let processors = answers.processors::<F>(machine)?;
    answers.give(Feature::StackSize, &[0])?;
    answers.give(Feature::EntryPoint, &[0])?;
    requests.accept(image);
    Ok(Prepared { tables, entry, stack_top: HHDM + stacks + stack_bytes, stack_bytes, processors })
}

/// The direct map: 4 GiB, and all memory above that. See `docs/decisions/0031-direct-map.md`.
fn map_memory<F: Format>(tables: &Tables<F>, arena: &mut Arena<'_>, memory: &MemoryMap) -> Result<(), Full> {
    let known = memory.regions().iter().filter(|r| !matches!(r.kind, Kind::Reserved | Kind::Bad));
    match F::ARCH {
        Arch::X86_64 => {
            // Cache types of devices are the business of the range registers (MTRRs) that firmware has set.
            tables.map(arena, HHDM, 0, 4 * GIB, Access::ALL)?;
            for region in known.filter(|r| r.end > 4 * GIB) {
                let base = region.base.max(4 * GIB);
                tables.map(arena, HHDM + base, base, region.end - base, Access::ALL)?;
            }
        }
        Arch::Aarch64 => {
            let mut end = 0;
            for region in known {
                let hole = region.base.min(4 * GIB).saturating_sub(end);
                tables.map(arena, HHDM + end, end, hole, Access::DEVICE)?;
                tables.map(arena, HHDM + region.base, region.base, region.end - region.base, Access::ALL)?;
                end = region.end;
            }
            tables.map(arena, HHDM + end, end, (4 * GIB).saturating_sub(end), Access::DEVICE)?;
        }
    }
    Ok(())
}

/// End of the direct map.
fn top(memory: &MemoryMap) -> u64 {
    let known = memory.regions().iter().filter(|r| !matches!(r.kind, Kind::Reserved | Kind::Bad));
    known.map(|r| r.end).max().unwrap_or(0).max(4 * GIB)
}

/// Writes responses.
struct Answers<'a, 'm> {
    requests: Requests,
    image: &'a mut [u8],
    arena: &'a mut Arena<'m>,
}

impl Answers<'_, '_> {
    /// A response of these words, if the kernel asked for it. The first word of all is the response's revision.
    fn give(&mut self, feature: Feature, words: &[u64]) -> Result<(), Full> {
        if self.requests.wants(feature) {
            let response = self.arena.words(words)?;
            self.requests.answer(self.image, feature, response);
        }
        Ok(())
    }

    fn firmware(&mut self, machine: &Machine<'_>) -> Result<(), Full> {
        let name = self.arena.text(&["urMQTT loader"])?;
        let version = self.arena.text(&[env!("CARGO_PKG_VERSION")])?;
        self.give(Feature::Info, &[0, name, version])?;
        self.give(Feature::DirectMap, &[0, HHDM])?;
        self.give(Feature::PagingMode, &[0, 0])?;
        if let Some(kind) = machine.firmware {
            self.give(Feature::FirmwareType, &[0, kind])?;
        }
        let tables = [
            (Feature::Rsdp, machine.rsdp),
            (Feature::DeviceTree, machine.dtb),
            (Feature::EfiSystemTable, machine.efi_system_table),
        ];
        for (feature, address) in tables {
            if let Some(address) = address {
                self.give(feature, &[0, HHDM + address])?;
            }
        }
        if let Some(date) = machine.date {
            self.give(Feature::Date, &[0, date as u64])?;
        }
        Ok(())
    }

    fn files(&mut self, machine: &Machine<'_>, places: &Places<'_>) -> Result<(), Full> {
        let mut line = [""; 2 * words::BOOT_WORDS.len() + 1];
        line[0] = machine.package.command_line();
        for (pair, word) in line[1..].chunks_mut(2).zip(words::allowed(machine.unsigned_line)) {
            pair.copy_from_slice(&[" ", word]);
        }
        let line = self.arena.text(&line)?;
        self.give(Feature::CommandLine, &[0, line])?;

        let payload = machine.package.payload();
        // The kernel is a part of the payload.
        let within = machine.package.kernel().as_ptr() as u64 - payload.as_ptr() as u64;
        let kernel = (HHDM + machine.package_at + within, machine.package.kernel().len());
        let file = self.file(kernel, "/kernel", line)?;
        self.give(Feature::ExecutableFile, &[0, file])?;
        self.give(Feature::ExecutableAddress, &[0, places.image, places.kernel.base()])?;

        let mut modules = [0; 2];
        modules[0] = self.file((HHDM + machine.package_at, payload.len()), "/package", 0)?;
        let mut count = 1;
        if !machine.entropy.is_empty() {
            let bytes = self.arena.bytes(machine.entropy)?;
            modules[1] = self.file((bytes, machine.entropy.len()), "/entropy", 0)?;
            count = 2;
        }
        let list = self.arena.words(&modules)?;
        self.give(Feature::Modules, &[0, count, list])
    }

    /// `struct limine_file`: 112 bytes. Module paths double as their command lines.
    fn file(&mut self, (address, len): (u64, usize), path: &str, line: u64) -> Result<u64, Full> {
        let path = self.arena.text(&[path])?;
        let mut words = [0; 14];
        words[..5].copy_from_slice(&[0, address, len as u64, path, if line == 0 { path } else { line }]);
        self.arena.words(&words)
    }

    fn memory(&mut self, memory: &MemoryMap) -> Result<(), Full> {
        let first = memory.regions().first().map_or(Ok(0), |r| self.arena.words(&entry(r)))?;
        for region in memory.regions().get(1..).unwrap_or(&[]) {
            self.arena.words(&entry(region))?;
        }
        let count = memory.regions().len() as u64;
        let list = self.pointers(first, count, 24)?;
        self.give(Feature::MemoryMap, &[0, count, list])
    }

    /// An array of pointers to things that lie one after the other.
    fn pointers(&mut self, first: u64, count: u64, stride: u64) -> Result<u64, Full> {
        let list = self.arena.words(&[])?;
        for i in 0..count {
            self.arena.words(&[first + i * stride])?;
        }
        Ok(list)
    }

    /// With only the first processor in the list: the others are added when they have come up.
    fn processors<F: Format>(&mut self, machine: &Machine<'_>) -> Result<Option<Processors>, Full> {
        let Some(flags) = self.requests.argument(self.image, Feature::Processors) else {
            return Ok(None);
        };
        let cpus = machine.cpus.all();
        let stride = processor::<F>(0, 0).1 as u64 * 8;
        let first = self.arena.words(&[])?;
        for cpu in cpus {
            let (words, len) = processor::<F>(cpu.id, cpu.uid);
            self.arena.words(&words[..len])?;
        }
        let list = self.pointers(first, cpus.len() as u64, stride)?;
        let response = match F::ARCH {
            Arch::X86_64 => self.arena.words(&[0, cpus[0].id << 32, 1, list])?,
            Arch::Aarch64 => self.arena.words(&[0, 0, cpus[0].id, 1, list])?,
        };
        self.requests.answer(self.image, Feature::Processors, response);
        let count_at = response + if F::SPLIT { 24 } else { 16 };
        Ok(Some(Processors { first, stride, list, response, count_at, count: 1, x2apic: flags & 1 != 0 }))
    }
}

/// `struct limine_mp_info` and its length in words.
fn processor<F: Format>(id: u64, uid: u32) -> ([u64; 5], usize) {
    match F::ARCH {
        Arch::X86_64 => ([uid as u64 | id << 32, 0, 0, 0, 0], 4),
        Arch::Aarch64 => ([uid as u64, id, 0, 0, 0], 5),
    }
}

/// `struct limine_memmap_entry`.
fn entry(region: &memory::Region) -> [u64; 3] {
    let kind = match region.kind {
        Kind::Usable | Kind::Firmware => 0,
        Kind::Reserved => 1,
        Kind::AcpiReclaimable => 2,
        Kind::AcpiNvs => 3,
        Kind::Bad => 4,
        Kind::Loader => 5,
        Kind::Executable => 6,
    };
    [region.base, region.end - region.base, kind]
}

/// The processors' response while the others are being started. Pointers are of the direct map.
#[derive(Clone, Copy, Debug)]
pub struct Processors {
    first: u64,
    stride: u64,
    list: u64,
    response: u64,
    count_at: u64,
    count: u64,
    /// The kernel asks for x2APIC mode.
    pub x2apic: bool,
}

impl Processors {
    /// The structure of processor `index`, and the word in it that the kernel writes to send the processor on.
    pub fn info<F: Format>(&self, index: usize) -> (u64, u64) {
        let info = self.first + index as u64 * self.stride;
        (info, info + if F::SPLIT { 24 } else { 16 })
    }

    /// Processor `index` is parked and may be given to the kernel.
    pub fn started(&mut self, arena: &mut Arena<'_>, index: usize) {
        arena.set(self.list + self.count * 8, self.first + index as u64 * self.stride);
        self.count += 1;
        arena.set(self.count_at, self.count);
    }

    /// x86: the local APICs are in x2APIC mode.
    pub fn in_x2apic_mode(&self, arena: &mut Arena<'_>, boot_id: u64) {
        arena.set(self.response + 8, 1 | boot_id << 32);
    }
}

#[cfg(test)]
mod tests;
