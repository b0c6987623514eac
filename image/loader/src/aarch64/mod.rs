//! aarch64: the last steps before the kernel, with an identity map of all memory.
//!
//! Caches. All that the kernel or another processor reads before its own MMU is on, and all code that was written as data, is
//! cleaned to the point of coherency first ([`clean`]). Everything else was written through normal write-back,
//! inner-shareable mappings and is read through such, so the hardware keeps it coherent (Arm ARM B2.10, D7.5).

use core::arch::asm;
use core::fmt;
use core::ops::Range;

use crate::acpi::{self, Conduit};
use crate::arena::{Arena, Full};
use crate::dtb;
use crate::limine::HHDM;
use crate::memory::PAGE;
use crate::paging::Aarch64;
use crate::prepare::{self, Machine, Prepared, places, prepare};

mod enter;
pub mod psci;
pub mod uart;

use enter::{Context, urmqtt_enter};
pub use enter::{MAIR, SCTLR, tcr};

#[derive(Clone, Copy, Debug)]
pub enum Error {
    Prepare(prepare::Error),
    /// The processor has no 4 KiB pages.
    Granule,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Prepare(e) => e.fmt(f),
            Error::Granule => f.write_str("processor has no 4 KiB pages"),
        }
    }
}

impl From<prepare::Error> for Error {
    fn from(e: prepare::Error) -> Self {
        Error::Prepare(e)
    }
}

impl From<Full> for Error {
    fn from(full: Full) -> Self {
        Error::Prepare(full.into())
    }
}

/// Physical memory.
///
/// # Safety
/// Whatever firmware's tables point to is mapped at its physical address, and nobody writes what is read here for `'a`.
pub unsafe fn physical<'a>(at: u64, len: usize) -> Option<&'a [u8]> {
    let end = at.checked_add(len as u64)?;
    // SAFETY: the caller promises that it is mapped and stays unchanged; it isn't at 0 and doesn't wrap.
    (at != 0 && end < 1 << 48).then(|| unsafe { core::slice::from_raw_parts(at as *const u8, len) })
}

/// The device tree at an address.
///
/// # Safety
/// As for [`physical`].
pub unsafe fn tree<'a>(at: u64) -> Option<&'a [u8]> {
    // SAFETY: as the caller promises.
    let header = unsafe { physical(at, 8) }?;
    // SAFETY: as the caller promises.
    unsafe { physical(at, dtb::size(header.first_chunk()?)?) }
}

/// Affinity fields of the processor that we run on.
pub fn own_id() -> u64 {
    let mpidr: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mrs {}, mpidr_el1", out(reg) mpidr, options(nomem, nostack, preserves_flags)) };
    mpidr & 0xff_00ff_ffff
}

/// Enters the kernel; comes back only with the reason why not. What the kernel gets lies below `limit`.
///
/// # Safety
/// Nothing but this function runs, on one processor; memory below `limit` is mapped as normal write-back memory at its
/// physical addresses, and the machine's memory map is true: usable memory is nobody's, and our own code and data
/// are not in it.
pub unsafe fn handoff(machine: &mut Machine<'_>, limit: u64) -> Error {
    // SAFETY: no more interrupts; the handlers are firmware's.
    unsafe { asm!("msr daifset, #15", options(nomem, nostack)) };
    if !has_granule() {
        return Error::Granule;
    }
    // SAFETY: as the caller promises.
    let conduit = unsafe { discover(machine) };
    let places = match places::<Aarch64>(machine, limit) {
        Ok(places) => places,
        Err(e) => return e.into(),
    };
    // SAFETY: `places` took these from usable memory below the limit, so they are mapped, ours alone, and disjoint.
    let (image, arena) = unsafe {
        let image = core::slice::from_raw_parts_mut(places.image as *mut u8, places.kernel.bytes() as usize);
        let arena =
            core::slice::from_raw_parts_mut(places.arena as *mut u8, (places.arena_pages * PAGE) as usize);
        (image, arena)
    };
    let whole = [bounds(image), bounds(arena)];
    let mut arena = Arena::new(places.arena, arena);
    let code = enter::code().start / PAGE * PAGE;
    let mut prepared = match prepare::<Aarch64>(machine, &places, image, &mut arena, &[code, code + PAGE]) {
        Ok(prepared) => prepared,
        Err(e) => return e.into(),
    };
    // The other processors' contexts, then ours, so that one cleaning serves all.
    let contexts = match contexts(machine, &prepared, &mut arena) {
        Ok(contexts) => contexts,
        Err(full) => return full.into(),
    };
    for range in [&whole[0], &whole[1], &enter::code()] {
        clean(range);
    }
    // SAFETY: the kernel's code was written as data; nobody executes it yet.
    unsafe { asm!("dsb ish", "ic ialluis", "dsb ish", "isb", options(nostack, preserves_flags)) };

    if let (Some(list), Some(conduit)) = (&mut prepared.processors, conduit) {
        for index in 1..machine.cpus.all().len() {
            if psci::start(conduit, machine.cpus.all()[index].id, enter::code().start, contexts, index) {
                list.started(&mut arena, index);
            }
        }
    }
    // SAFETY: the context leads to the kernel by tables that map it, its stack and the code of `enter`.
    unsafe { urmqtt_enter(Context::at(contexts, 0)) }
}

fn bounds(bytes: &[u8]) -> Range<u64> {
    let start = bytes.as_ptr() as u64;
    start..start + bytes.len() as u64
}

fn has_granule() -> bool {
    let features: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mrs {}, id_aa64mmfr0_el1", out(reg) features, options(nomem, nostack, preserves_flags)) };
    features >> 28 & 0xf != 0xf
}

/// Adds the processors that device tree or ACPI tell of, and says how PSCI is called.
///
/// # Safety
/// As for [`physical`].
unsafe fn discover(machine: &mut Machine<'_>) -> Option<Conduit> {
    if let Some(at) = machine.dtb {
        // SAFETY: as the caller promises.
        let tree = dtb::Tree::parse(unsafe { tree(at) }?)?;
        tree.processors(&mut machine.cpus);
        return tree.conduit();
    }
    // SAFETY: as the caller promises.
    let read = |at, len| unsafe { physical(at, len) };
    acpi::processors(acpi::table(&read, machine.rsdp?, b"APIC")?, &mut machine.cpus);
    acpi::conduit(acpi::table(&read, machine.rsdp?, b"FACP")?)
}

/// One context a processor, in order. Gives the physical address of the first.
fn contexts(machine: &Machine<'_>, prepared: &Prepared<Aarch64>, arena: &mut Arena<'_>) -> Result<u64, Full> {
    let first = arena.words(&[])?;
    for index in 0..machine.cpus.all().len() {
        let (info, goto_address) = match (index, &prepared.processors) {
            (1.., Some(list)) => list.info::<Aarch64>(index),
            _ => (0, 0),
        };
        let context = Context {
            mair: MAIR,
            tcr: tcr(),
            low: prepared.tables.low,
            high: prepared.tables.high,
            sctlr: SCTLR,
            stack: prepared.stack_top + index as u64 * prepared.stack_bytes,
            entry: if index == 0 { prepared.entry } else { 0 },
            info,
            goto_address,
            parked: 0,
        };
        arena.words(zerocopy::transmute_ref!(&context) as &[u64; 10])?;
    }
    Ok(first - HHDM)
}

/// Writes all cache lines of a range of memory back to the point of coherency, and forgets them.
pub fn clean(range: &Range<u64>) {
    let type_register: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mrs {}, ctr_el0", out(reg) type_register, options(nomem, nostack, preserves_flags)) };
    // DminLine: log2 of the words of the smallest data cache line.
    let line = 4u64 << (type_register >> 16 & 0xf);
    for at in (range.start / line * line..range.end).step_by(line as usize) {
        // SAFETY: cache maintenance changes no value that anybody sees through a coherent mapping.
        unsafe { asm!("dc civac, {}", in(reg) at, options(nostack, preserves_flags)) };
    }
    // SAFETY: a barrier.
    unsafe { asm!("dsb sy", options(nostack, preserves_flags)) };
}

/// Seconds of the system counter.
pub fn seconds() -> u64 {
    let (count, frequency): (u64, u64);
    // SAFETY: reads registers.
    unsafe {
        asm!("isb", "mrs {}, cntvct_el0", "mrs {}, cntfrq_el0", out(reg) count, out(reg) frequency, options(nomem, nostack));
    }
    count / frequency.max(1)
}

/// Nothing more to do: until somebody resets the machine.
pub fn halt() -> ! {
    loop {
        // SAFETY: waits.
        unsafe { asm!("wfi", options(nomem, nostack)) };
    }
}
