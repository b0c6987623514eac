//! x86_64: the last steps before the kernel, in long mode with an identity map of the first 4 GiB.

use core::arch::{asm, naked_asm};
use core::fmt;

use crate::acpi;
use crate::arena::Arena;
use crate::memory::{Kind, PAGE};
use crate::paging::X86;
use crate::prepare::{self, Machine, places, prepare};

pub mod clock;
pub mod port;
mod processors;

const GIB4: u64 = 4 << 30;

#[derive(Clone, Copy, Debug)]
pub enum Error {
    Prepare(prepare::Error),
    /// The processor can't forbid execution of pages.
    NoExecuteDisable,
    /// Firmware left five-level paging on.
    FiveLevels,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Prepare(e) => e.fmt(f),
            Error::NoExecuteDisable => f.write_str("processor has no execute-disable bit"),
            Error::FiveLevels => f.write_str("firmware has five-level paging switched on"),
        }
    }
}

impl From<prepare::Error> for Error {
    fn from(e: prepare::Error) -> Self {
        Error::Prepare(e)
    }
}

/// Physical memory below 4 GiB, where firmware's tables are.
///
/// # Safety
/// The first 4 GiB are mapped at their physical addresses, and nobody writes what is read here for `'a`.
pub unsafe fn physical<'a>(at: u64, len: usize) -> Option<&'a [u8]> {
    let end = at.checked_add(len as u64)?;
    // SAFETY: in the identity map, whatever it holds, and not at 0; the caller promises that it stays unchanged.
    (at != 0 && end <= GIB4).then(|| unsafe { core::slice::from_raw_parts(at as *const u8, len) })
}

/// Enters the kernel; comes back only with the reason why not.
///
/// # Safety
/// Nothing but this function runs, on one processor; the first 4 GiB are mapped writable at their physical
/// addresses, and the machine's memory map is true: usable memory is nobody's, our own code and data are not in it.
pub unsafe fn handoff(machine: &mut Machine<'_>) -> Error {
    // SAFETY: no more interrupts; the handlers are firmware's.
    unsafe { asm!("cli", options(nomem, nostack)) };
    if let Err(e) = check_processor() {
        return e;
    }
    // SAFETY: as the caller promises; tables in usable memory are none of ACPI's.
    let read = |at, len| unsafe { physical(at, len) };
    let madt = machine.rsdp.and_then(|rsdp| acpi::table(&read, rsdp, b"APIC"));
    if let Some(madt) = madt {
        acpi::processors(madt, &mut machine.cpus);
    }
    let places = match places::<X86>(machine, GIB4) {
        Ok(places) => places,
        Err(e) => return e.into(),
    };
    let trampoline = match machine.memory.take(1, 640 << 10, Kind::Loader) {
        Ok(page) => page,
        Err(e) => return prepare::Error::Memory(e).into(),
    };
    // SAFETY: `places` took these from usable memory below 4 GiB, so they are mapped, ours alone, and disjoint.
    let (image, arena) = unsafe {
        let image = core::slice::from_raw_parts_mut(places.image as *mut u8, places.kernel.bytes() as usize);
        let arena =
            core::slice::from_raw_parts_mut(places.arena as *mut u8, (places.arena_pages * PAGE) as usize);
        (image, arena)
    };
    let mut arena = Arena::new(places.arena, arena);
    let code = enter as *const () as u64 / PAGE * PAGE;
    let mut prepared =
        match prepare::<X86>(machine, &places, image, &mut arena, &[code, code + PAGE, trampoline]) {
            Ok(prepared) => prepared,
            Err(e) => return e.into(),
        };
    let gdt = match arena.words(&GDT) {
        Ok(gdt) => gdt,
        Err(full) => return prepare::Error::from(full).into(),
    };
    let gdt = Descriptor { limit: (size_of_val(&GDT) - 1) as u16, base: gdt };

    mask_interrupts(madt);
    if let Some(list) = &mut prepared.processors {
        let start = processors::Start {
            trampoline,
            root: prepared.tables.high,
            gdt,
            stack_top: prepared.stack_top,
            stack_bytes: prepared.stack_bytes,
        };
        // SAFETY: the trampoline page is ours and mapped in the kernel's tables; the rest is what `prepare` made.
        unsafe { processors::start(&start, machine.cpus.all(), list, &mut arena) };
    }
    // SAFETY: the tables map the kernel, its stack and this function's page; the rest of the loader is done with.
    unsafe { enter(prepared.tables.high, &gdt, prepared.stack_top, prepared.entry) }
}

fn check_processor() -> Result<(), Error> {
    let no_execute = core::arch::x86_64::__cpuid(0x8000_0001).edx & 1 << 20 != 0;
    let cr4: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, cr4", out(reg) cr4, options(nomem, nostack, preserves_flags)) };
    match (no_execute, cr4 & 1 << 12 != 0) {
        (false, _) => Err(Error::NoExecuteDisable),
        (_, true) => Err(Error::FiveLevels),
        _ => Ok(()),
    }
}

/// The descriptors that the Limine protocol names.
const GDT: [u64; 7] = [
    0,
    0x0000_9b00_0000_ffff,
    0x0000_9300_0000_ffff,
    0x00cf_9b00_0000_ffff,
    0x00cf_9300_0000_ffff,
    0x00af_9b00_0000_0000,
    0x00cf_9300_0000_0000,
];

/// Operand of `lgdt`.
#[derive(Clone, Copy, Debug)]
#[repr(C, packed)]
struct Descriptor {
    limit: u16,
    base: u64,
}

/// Masks the legacy interrupt controllers, and the fixed and lowest-priority inputs of all I/O APICs.
fn mask_interrupts(madt: Option<&[u8]>) {
    const MASKED: u32 = 1 << 16;
    port::write(0x21, 0xff);
    port::write(0xa1, 0xff);
    for address in madt.into_iter().flat_map(acpi::io_apics) {
        if address == 0 || !address.is_multiple_of(16) {
            continue;
        }
        let (select, window) = (address as *mut u32, (address + 16) as *mut u32);
        // SAFETY: the registers of an I/O APIC that firmware tells of (82093AA datasheet 3.1): an index and a window.
        unsafe {
            select.write_volatile(1);
            let inputs = window.read_volatile() >> 16 & 0xff;
            for input in 0..=inputs {
                select.write_volatile(0x10 + 2 * input);
                let entry = window.read_volatile();
                if entry >> 8 & 7 <= 1 {
                    window.write_volatile(entry | MASKED);
                }
            }
        }
    }
}

/// Control register values of every processor at the kernel's entry.
const CR0: u32 = 1 << 31 | 1 << 16 | 1 << 5 | 1 << 4 | 1 << 1 | 1;
const CR4_PAE: u32 = 1 << 5;
const CR4: u32 = 1 << 7 | CR4_PAE;
const EFER: u32 = 0xc000_0080;
const EFER_LME: u32 = 1 << 8;
const EFER_NXE: u32 = 1 << 11;
const PAT: u32 = 0x277;
/// WB, WT, UC-, UC, and WP, WC, UC-, UC.
const PAT_LOW: u32 = 0x0007_0406;
const PAT_HIGH: u32 = 0x0007_0105;

/// Switches to the kernel's page tables and jumps: Limine's machine state at entry.
#[unsafe(naked)]
unsafe extern "sysv64" fn enter(root: u64, gdt: *const Descriptor, stack: u64, entry: u64) -> ! {
    naked_asm!(
        "cli",
        "cld",
        "lgdt [rsi]",
        "mov r8, rdx",
        "mov r9, rcx",
        "mov ecx, {efer}",
        "rdmsr",
        "or eax, {nxe}",
        "wrmsr",
        // Without PGE, the load of CR3 drops firmware's global translations as well.
        "mov eax, {pae}",
        "mov cr4, rax",
        "mov cr3, rdi",
        "mov eax, {cr4}",
        "mov cr4, rax",
        "mov eax, {cr0}",
        "mov cr0, rax",
        "mov ecx, {pat}",
        "mov eax, {pat_low}",
        "mov edx, {pat_high}",
        "wrmsr",
        "mov rsp, r8",
        "push 0x28",
        "lea rax, [rip + 2f]",
        "push rax",
        "retfq",
        "2:",
        "mov eax, 0x30",
        "mov ds, eax",
        "mov es, eax",
        "mov fs, eax",
        "mov gs, eax",
        "mov ss, eax",
        // The return address of the kernel's entry is 0.
        "push 0",
        "push r9",
        "xor eax, eax",
        "xor ebx, ebx",
        "xor ecx, ecx",
        "xor edx, edx",
        "xor esi, esi",
        "xor edi, edi",
        "xor ebp, ebp",
        "xor r8d, r8d",
        "xor r9d, r9d",
        "xor r10d, r10d",
        "xor r11d, r11d",
        "xor r12d, r12d",
        "xor r13d, r13d",
        "xor r14d, r14d",
        "xor r15d, r15d",
        "ret",
        efer = const EFER,
        nxe = const EFER_NXE,
        pae = const CR4_PAE,
        cr4 = const CR4,
        cr0 = const CR0,
        pat = const PAT,
        pat_low = const PAT_LOW,
        pat_high = const PAT_HIGH,
    )
}

/// Local APIC ID of the processor that we run on.
pub fn own_id() -> u64 {
    let id = core::arch::x86_64::__cpuid(1).ebx >> 24;
    // Leaf 0x0b has all 32 bits of it, where there.
    let x2apic = core::arch::x86_64::__cpuid(0).eax >= 0x0b;
    let topology = core::arch::x86_64::__cpuid_count(if x2apic { 0x0b } else { 1 }, 0);
    u64::from(if x2apic && topology.ebx != 0 { topology.edx } else { id })
}

/// Nothing more to do: until somebody resets the machine.
pub fn halt() -> ! {
    loop {
        // SAFETY: waits with interrupts off.
        unsafe { asm!("cli", "hlt", options(nomem, nostack)) };
    }
}
