//! A kernel for the loader's tests: it looks at all that the Limine protocol promises, says what it got, and starts the
//! other processors. Each line starts with `testkernel:`; the last is `testkernel: done`, or `testkernel: FAILED ...`.
#![no_std]
#![no_main]

mod machine;

use core::fmt::Write;
use core::sync::atomic::Ordering::{Acquire, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};

use ipc::package::Package;
use limine::memmap::{MEMMAP_BOOTLOADER_RECLAIMABLE, MEMMAP_EXECUTABLE_AND_MODULES, MEMMAP_USABLE};
use limine::request::*;
use limine::{BaseRevision, RequestsEndMarker, RequestsStartMarker};
use machine::Uart;

#[used]
#[unsafe(link_section = ".limine_start")]
static START: RequestsStartMarker = RequestsStartMarker::new();
#[used]
#[unsafe(link_section = ".limine_end")]
static END: RequestsEndMarker = RequestsEndMarker::new();

macro_rules! request {
    ($name:ident: $type:ty = $value:expr) => {
        #[used]
        #[unsafe(link_section = ".limine")]
        static $name: $type = $value;
    };
}

const STACK: u64 = 128 << 10;

request!(REVISION: BaseRevision = BaseRevision::with_revision(2));
request!(HHDM: HhdmRequest = HhdmRequest::new());
request!(MEMORY: MemmapRequest = MemmapRequest::new());
request!(MODULES: ModulesRequest = ModulesRequest::new());
request!(LINE: ExecutableCmdlineRequest = ExecutableCmdlineRequest::new());
request!(STACK_SIZE: StackSizeRequest = StackSizeRequest::new(STACK));
request!(RSDP: RsdpRequest = RsdpRequest::new());
request!(DTB: DtbRequest = DtbRequest::new());
request!(ADDRESS: ExecutableAddressRequest = ExecutableAddressRequest::new());
request!(FILE: ExecutableFileRequest = ExecutableFileRequest::new());
request!(PROCESSORS: MpRequest = MpRequest::new(0));
request!(DATE: DateAtBootRequest = DateAtBootRequest::new());
request!(FIRMWARE: FirmwareTypeRequest = FirmwareTypeRequest::new());
request!(EFI: EfiRequest = EfiRequest::new());

/// Each processor sets its bit; Release, with the Acquire of `processors`.
static STARTED: AtomicU64 = AtomicU64::new(0);
/// Zeroed memory that the file doesn't have.
static ZEROED: [AtomicU32; 5000] = [const { AtomicU32::new(0) }; 5000];

macro_rules! say {
    ($($t:tt)*) => {{ let _ = writeln!(Uart, "testkernel: {}\r", format_args!($($t)*)); }};
}

macro_rules! check {
    ($condition:expr) => {
        assert!($condition, stringify!($condition))
    };
}

/// Called by [`machine`] on the loader's stack, with its top.
pub extern "C" fn main(stack_top: u64) -> ! {
    check!(REVISION.is_supported());
    let hhdm = HHDM.response().expect("hhdm").offset;
    Uart::use_direct_map(hhdm);
    say!("entered, direct map at {hhdm:#x}");
    machine::check_state();
    check!(stack_top.is_multiple_of(16) && STACK_SIZE.response().is_some());
    check!(ZEROED.iter().all(|z| z.load(Acquire) == 0));
    touch_stack(stack_top);
    addresses(hhdm);
    memory(hhdm);
    package(hhdm);
    firmware();
    processors();
    say!("done");
    machine::halt()
}

/// All of the stack that was asked for is there.
fn touch_stack(top: u64) {
    for at in (top - STACK..top - 4096).step_by(512) {
        // SAFETY: our own stack, far below what is in use.
        unsafe { (at as *mut u64).write_volatile(at) };
    }
}

fn addresses(hhdm: u64) {
    let address = ADDRESS.response().expect("executable address");
    let same = |virt: u64| {
        let direct = hhdm + address.physical_base + (virt - address.virtual_base);
        // SAFETY: both map the kernel's text.
        unsafe { *(virt as *const u64) == *(direct as *const u64) }
    };
    check!(
        address.virtual_base == 0xffff_ffff_8000_0000
            && same(address.virtual_base)
            && same(main as *const () as u64)
    );
    let file = FILE.response().expect("executable file").executable_file();
    check!(file.path() == "/kernel" && file.data().starts_with(b"\x7fELF"));
}

fn memory(hhdm: u64) {
    let entries = MEMORY.response().expect("memory map").entries();
    let mut usable = 0;
    for pair in entries.windows(2) {
        check!(pair[0].base + pair[0].length <= pair[1].base);
    }
    for e in entries {
        check!(e.base.is_multiple_of(4096) && e.length.is_multiple_of(4096) && e.length > 0);
        if e.type_ == MEMMAP_USABLE {
            check!(e.base > 0);
            usable += e.length;
            for at in [e.base, e.base + e.length - 8] {
                // SAFETY: usable memory is ours, and in the direct map.
                unsafe { ((hhdm + at) as *mut u64).write_volatile(at) };
            }
        }
    }
    let kind = |virt: u64| {
        let phys = virt - hhdm;
        entries.iter().find(|e| (e.base..e.base + e.length).contains(&phys)).map(|e| e.type_)
    };
    let stack = &usable as *const u64 as u64;
    check!(kind(stack) == Some(MEMMAP_BOOTLOADER_RECLAIMABLE));
    check!(kind(entries.as_ptr() as u64) == Some(MEMMAP_BOOTLOADER_RECLAIMABLE));
    let module = MODULES.response().expect("modules").modules()[0].data().as_ptr() as u64;
    check!(kind(module) == Some(MEMMAP_EXECUTABLE_AND_MODULES));
    check!(kind(hhdm + ADDRESS.response().unwrap().physical_base) == Some(MEMMAP_EXECUTABLE_AND_MODULES));
    say!("{} regions of memory, {} KiB usable", entries.len(), usable >> 10);
}

fn package(hhdm: u64) {
    let modules = MODULES.response().expect("modules").modules();
    let package = Package::parse(modules[0].data()).expect("package");
    check!(
        modules[0].path() == "/package" && (modules[0].data().as_ptr() as u64 - hhdm).is_multiple_of(4096)
    );
    check!(package.kernel().as_ptr() == FILE.response().unwrap().executable_file().data().as_ptr());
    let line = LINE.response().expect("command line").cmdline();
    say!(
        "package of {} bytes, version {}, command line '{line}'",
        modules[0].data().len(),
        package.header.image_version
    );
    match modules.get(1) {
        Some(file) => {
            check!(file.path() == "/entropy" && file.data().iter().any(|&b| b != 0));
            say!("{} bytes of entropy", file.data().len());
        }
        None => say!("no entropy"),
    }
}

fn firmware() {
    // SAFETY: the protocol's pointers, if there, are to the tables.
    let starts = |at: *const (), magic: &[u8]| unsafe { core::slice::from_raw_parts(at.cast::<u8>(), magic.len()) } == magic;
    let rsdp = RSDP.response().map(|r| r.address as *const ());
    let dtb = DTB.response().map(|r| r.dtb_ptr);
    check!(
        rsdp.is_none_or(|at| starts(at, b"RSD PTR "))
            && dtb.is_none_or(|at| starts(at, &[0xd0, 0x0d, 0xfe, 0xed]))
    );
    check!(rsdp.is_some() || dtb.is_some());
    say!(
        "rsdp {}, dtb {}, efi {}, firmware {:?}, date {:?}",
        rsdp.is_some(),
        dtb.is_some(),
        EFI.response().is_some(),
        FIRMWARE.response().map(|f| f.firmware_type),
        DATE.response().map(|d| d.timestamp),
    );
}

fn processors() {
    let response = PROCESSORS.response().expect("processors");
    let cpus = response.cpus();
    check!(machine::id(cpus[0]) == machine::boot_id(response));
    for cpu in &cpus[1..] {
        cpu.bootstrap(machine::other_start, 0xabc);
    }
    let all = (1u64 << cpus.len()) - 2;
    let mut patience = 2_000_000_000u64;
    while STARTED.load(Acquire) != all && patience > 0 {
        patience -= 1;
        core::hint::spin_loop();
    }
    check!(STARTED.load(Acquire) == all);
    say!("{} processors", cpus.len());
}

/// Called by [`machine`] on another processor, with the pointer that it came with.
extern "C" fn other(info: *const (), stack_top: u64) -> ! {
    touch_stack(stack_top);
    machine::check_state();
    let cpus = PROCESSORS.response().unwrap().cpus();
    let index = cpus.iter().position(|c| core::ptr::from_ref(*c).cast() == info).expect("a known processor");
    check!(machine::id(cpus[index]) == machine::own_id() && cpus[index].extra_argument() == 0xabc);
    STARTED.fetch_or(1 << index, Release);
    machine::halt()
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    say!("FAILED {info}");
    machine::halt()
}
