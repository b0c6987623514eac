//! What the loader tells, by the Limine boot protocol (base revision 2, the last that maps all memory in the direct map
//! and that our loader speaks). Everything is read here, once, and checked for what the rest relies on.

use core::ffi::CStr;

use limine::BaseRevision;
use limine::file::File;
use limine::firmware_type::FirmwareType;
use limine::memory_map::EntryType;
use limine::mp::Cpu;
use limine::request::{
    DateAtBootRequest, DeviceTreeBlobRequest, ExecutableAddressRequest, ExecutableCmdlineRequest,
    FirmwareTypeRequest, HhdmRequest, MemoryMapRequest, ModuleRequest, MpRequest, RequestsEndMarker,
    RequestsStartMarker, RsdpRequest, StackSizeRequest,
};
use limine::response::MpResponse;

use crate::memory::Range;
use crate::paging::PAGE;

#[used]
#[unsafe(link_section = ".requests_start")]
static START: RequestsStartMarker = RequestsStartMarker::new();
#[used]
#[unsafe(link_section = ".requests")]
static REVISION: BaseRevision = BaseRevision::with_revision(2);
#[used]
#[unsafe(link_section = ".requests")]
static HHDM: HhdmRequest = HhdmRequest::new();
#[used]
#[unsafe(link_section = ".requests")]
static MEMORY: MemoryMapRequest = MemoryMapRequest::new();
#[used]
#[unsafe(link_section = ".requests")]
static MODULES: ModuleRequest = ModuleRequest::with_revision(0);
#[used]
#[unsafe(link_section = ".requests")]
static COMMAND_LINE: ExecutableCmdlineRequest = ExecutableCmdlineRequest::new();
#[used]
#[unsafe(link_section = ".requests")]
static RSDP: RsdpRequest = RsdpRequest::new();
#[used]
#[unsafe(link_section = ".requests")]
static DTB: DeviceTreeBlobRequest = DeviceTreeBlobRequest::new();
#[used]
#[unsafe(link_section = ".requests")]
static ADDRESS: ExecutableAddressRequest = ExecutableAddressRequest::new();
#[used]
#[unsafe(link_section = ".requests")]
static PROCESSORS: MpRequest = MpRequest::new();
#[used]
#[unsafe(link_section = ".requests")]
static DATE: DateAtBootRequest = DateAtBootRequest::new();
#[used]
#[unsafe(link_section = ".requests")]
static FIRMWARE: FirmwareTypeRequest = FirmwareTypeRequest::new();
#[used]
#[unsafe(link_section = ".requests")]
static STACK: StackSizeRequest = StackSizeRequest::new().with_size(64 << 10);
#[used]
#[unsafe(link_section = ".requests_end")]
static END: RequestsEndMarker = RequestsEndMarker::new();

/// A device tree beyond this is no device tree.
const MAX_DTB: u64 = 2 << 20;

/// The loader's answers. References point into its memory, which is only mapped until the kernel has its own tables.
#[derive(Clone, Copy)]
pub struct Answers {
    /// Virtual minus physical address of the direct map.
    pub offset: u64,
    pub image: Image,
    pub package: &'static [u8],
    pub entropy: &'static [u8],
    pub command_line: &'static [u8],
    /// Physical; 0: none.
    pub rsdp: u64,
    pub dtb: Range,
    /// 1 direct, 2 BIOS, 3 UEFI (`ipc::abi::KernelBoot`).
    pub firmware: u32,
    /// Seconds since 1970; 0: unknown.
    pub wall_seconds: u64,
    processors: Option<&'static MpResponse>,
}

/// Where the kernel's image was put.
#[derive(Clone, Copy, Debug)]
pub struct Image {
    pub phys: u64,
    pub virt: u64,
}

/// The loader's word for a stretch of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    Usable,
    /// Kernel, package, entropy.
    Image,
    /// RAM in use: firmware tables, the loader's own.
    Ram,
    Other,
}

/// Reads all answers. The error is a sentence.
pub fn answers() -> Result<Answers, &'static str> {
    if !REVISION.is_supported() {
        return Err("the loader does not speak Limine base revision 2");
    }
    let offset = HHDM.get_response().ok_or("no direct map")?.offset();
    let address = ADDRESS.get_response().ok_or("no address of the image")?;
    let image = Image { phys: address.physical_base(), virt: address.virtual_base() };
    let modules = MODULES.get_response().ok_or("no modules")?.modules();
    let (package, others) = modules.split_first().ok_or("no package")?;
    let package = bytes(package);
    if !package.as_ptr().addr().is_multiple_of(PAGE as usize) || !package.len().is_multiple_of(PAGE as usize)
    {
        return Err("the package is not page aligned");
    }
    let entropy = others.iter().find(|f| is_entropy(f)).map_or(&[][..], |f| bytes(f));
    Ok(Answers {
        offset,
        image,
        package,
        entropy,
        command_line: COMMAND_LINE.get_response().map_or(&[], |r| r.cmdline().to_bytes()),
        rsdp: RSDP.get_response().map_or(0, |r| physical(r.address() as u64, offset)),
        dtb: DTB.get_response().map_or(Range::default(), |r| dtb(r.dtb_ptr().cast(), offset)),
        firmware: FIRMWARE.get_response().map_or(1, |r| match r.firmware_type() {
            FirmwareType::X86_BIOS => 2,
            FirmwareType::UEFI_32 | FirmwareType::UEFI_64 => 3,
            _ => 1,
        }),
        wall_seconds: DATE.get_response().map_or(0, |r| r.timestamp().as_secs()),
        processors: PROCESSORS.get_response(),
    })
}

/// The loader may give a physical address or one in the direct map.
fn physical(address: u64, offset: u64) -> u64 {
    if address >= offset { address - offset } else { address }
}

fn bytes(file: &File) -> &'static [u8] {
    // SAFETY: the loader put so many bytes there, and they stay there.
    unsafe { core::slice::from_raw_parts(file.addr(), file.size() as usize) }
}

fn is_entropy(file: &File) -> bool {
    let ends = |text: &CStr| text.to_bytes().ends_with(b"entropy");
    ends(file.path()) || ends(file.string())
}

/// The tree's span, by the length in its header (Devicetree Specification 5.2: magic, then total size, big-endian).
fn dtb(at: *const [u8; 8], offset: u64) -> Range {
    // SAFETY: the loader says that a device tree lies there.
    let [magic @ .., a, b, c, d] = unsafe { at.read_unaligned() };
    let len = u32::from_be_bytes([a, b, c, d]) as u64;
    if magic != [0xd0, 0x0d, 0xfe, 0xed] || len > MAX_DTB {
        return Range::default();
    }
    Range::new(physical(at.addr() as u64, offset), len)
}

/// The memory map, in the loader's order.
pub fn memory_map() -> impl Iterator<Item = (Range, Use)> + Clone {
    let entries = MEMORY.get_response().map_or(&[][..], |r| r.entries());
    entries.iter().map(|e| {
        let kind = match e.entry_type {
            EntryType::USABLE => Use::Usable,
            EntryType::EXECUTABLE_AND_MODULES => Use::Image,
            EntryType::ACPI_RECLAIMABLE | EntryType::ACPI_NVS | EntryType::BOOTLOADER_RECLAIMABLE => Use::Ram,
            _ => Use::Other,
        };
        (Range::new(e.base, e.length), kind)
    })
}

impl Answers {
    /// The other cores' records, without the boot core's.
    pub fn secondaries(&self) -> impl Iterator<Item = &'static Cpu> {
        let boot = self.processors.map(boot_core_id);
        let cpus = self.processors.map_or(&[][..], |r| r.cpus());
        cpus.iter().copied().filter(move |cpu| Some(core_id(cpu)) != boot)
    }
}

#[cfg(target_arch = "x86_64")]
fn boot_core_id(response: &MpResponse) -> u64 {
    response.bsp_lapic_id() as u64
}
#[cfg(target_arch = "x86_64")]
fn core_id(cpu: &Cpu) -> u64 {
    cpu.lapic_id as u64
}
#[cfg(target_arch = "aarch64")]
fn boot_core_id(response: &MpResponse) -> u64 {
    response.bsp_mpidr()
}
#[cfg(target_arch = "aarch64")]
fn core_id(cpu: &Cpu) -> u64 {
    cpu.mpidr
}
