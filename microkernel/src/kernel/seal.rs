//! `Seal`: the end of the boot phase.
//!
//! No TLB shootdown is needed, now or later. Before `Seal` only the boot core runs a task, and it flushes after every
//! change. The other cores flush everything in [`Core::see_seal`] before they run their first task, and after that no
//! table changes: it couldn't, for no mapping allows to write one.

use core::fmt::Write;
use core::sync::atomic::Ordering;

use ipc::abi::{Audit, PAGE};
use ipc::manifest::{EXECUTE, MAPS, REGION_BOOT_ONLY, RegionKind, WRITE};

use super::Kernel;
use super::boot_phase::{bound_flags, maps_of};
use super::core::Core;
use super::task::Task;
use crate::arch::{Arch, Format, Machine};
use crate::audit::{self, Stretch};
use crate::layout::{STACK_BYTES, stack_bottom};
use crate::memory::Range;
use crate::paging::{Flags, Memory, Space};
use crate::panic::Console;

const PAGE_U64: u64 = PAGE as u64;

/// Unmaps what was for boot only, makes the page tables read-only, audits, and lets the tasks run.
pub fn seal(core: &mut Core) -> Audit {
    let kernel = core.kernel;
    unmap_boot_only(kernel);
    protect_tables(kernel);
    Arch::flush_all();
    let audit = audit(kernel);
    if !audit::is_clean(&audit) {
        panic!("the audit failed: {audit:?}");
    }
    if kernel.has_flag(MAPS) {
        print_maps(kernel);
    }
    // Release: the final tables; pairs with `see_seal` on the other cores.
    kernel.sealed.store(true, Ordering::Release);
    for gate in kernel.cores {
        let tasks = kernel.tasks.iter().filter(|t| core::ptr::eq(&kernel.cores[t.core], gate));
        let bits = tasks.fold(0, |bits, t| bits | 1 << t.index);
        // SeqCst: pairs with the swap in `look_around`.
        gate.attention.fetch_or(bits, Ordering::SeqCst);
    }
    Arch::seal_announce(kernel.cores.len());
    core.look_around();
    audit
}

fn unmap_boot_only(kernel: &Kernel) {
    for (i, region) in kernel.system.regions.iter().enumerate() {
        if region.flags & REGION_BOOT_ONLY == 0 {
            continue;
        }
        for (task, map) in maps_of(kernel, i) {
            let space = kernel.space(kernel.tasks[task].root);
            for page in 0..region.pages as u64 {
                // `install` made the path.
                let _ = space.set(map.vaddr + page * PAGE_U64, None);
            }
        }
    }
}

/// Makes the pages of all tables read-only in the physical map. The tables that do the mapping come last, and of these the
/// one that maps itself; `boot::tables` saw to it that one maps all of them.
fn protect_tables(kernel: &Kernel) {
    let space: Space<Arch> = kernel.space(kernel.root);
    let at = |phys: u64| phys.wrapping_add(kernel.map.offset);
    let pages = || (kernel.tables.start..kernel.tables.end).step_by(PAGE);
    let turn = |phys: u64| match space.leaf_table(at(phys)) {
        Some(own) if own == phys => 2,
        _ if pages()
            .step_by(512)
            .chain([kernel.tables.end - PAGE_U64])
            .any(|p| space.leaf_table(at(p)) == Some(phys)) =>
        {
            1
        }
        _ => 0,
    };
    for now in 0..=2 {
        for page in pages().filter(|&p| turn(p) == now) {
            if space.set(at(page), Some((page, Flags::KERNEL_RODATA))).is_err() {
                panic!("page tables without a table");
            }
        }
    }
}

fn audit(kernel: &Kernel) -> Audit {
    let mut audit = Audit {
        tasks: kernel.tasks.len() as u32,
        cores: kernel.cores.len() as u32,
        kernel_text_bytes: kernel.text.bytes() as u32,
        ..Default::default()
    };
    let kernel_space: Space<Arch> = kernel.space(kernel.root);
    audit::kernel(&mut audit, &kernel_space, kernel.tables, kernel.text);
    for core in 0..kernel.cores.len() {
        audit::guard(&mut audit, &kernel_space, stack_bottom(core) - PAGE_U64);
        audit::guard(&mut audit, &kernel_space, stack_bottom(core) + STACK_BYTES);
    }
    for task in kernel.tasks {
        let space = kernel.space(task.root);
        audit::task(&mut audit, &space, kernel.tables, &|vaddr| expected(kernel, task, &space, vaddr));
        if Arch::KERNEL_SHARES_ROOT && !space.shares_upper_half(&kernel_space) {
            audit.shared_beyond_manifest += 1;
        }
        let stack = task
            .segments
            .iter()
            .find(|p| end_of(p.segment.vaddr, p.segment.pages) == task.manifest.stack_top);
        match stack {
            Some(stack) => {
                audit::guard(&mut audit, &space, stack.segment.vaddr - PAGE_U64);
                audit::guard(&mut audit, &space, task.manifest.stack_top);
            }
            None => audit.missing_guards += 2,
        }
    }
    audit
}

/// `map TASK START END RIGHTS MEMORY PHYSICAL`, numbers but the task's in hexadecimal: nothing but what the tables say, so that
/// somebody else compares it with the manifest. See docs/decisions/0080-measured-maps.md.
fn print_maps(kernel: &Kernel) {
    for task in kernel.tasks {
        audit::stretches(&kernel.space(task.root), &mut |s| {
            let right = |on: bool, letter: &'static str| if on { letter } else { "-" };
            let Stretch { vaddr, phys, pages, flags } = s;
            let (w, x) = (right(flags.write, "w"), right(flags.execute, "x"));
            let memory = if flags.memory == Memory::Device { "device" } else { "normal" };
            let end = vaddr + pages * PAGE_U64;
            // The serial line takes everything.
            let _ = write!(Console, "map {} {vaddr:x} {end:x} r{w}{x} {memory} {phys:x}\r\n", task.index);
        });
    }
}

fn end_of(vaddr: u64, pages: u32) -> u64 {
    vaddr + pages as u64 * PAGE_U64
}

/// What the manifest says about an address of a task.
fn expected(kernel: &Kernel, task: &Task, space: &Space<Arch>, vaddr: u64) -> Option<Stretch> {
    let covers = |base: u64, pages: u32| base <= vaddr && vaddr < end_of(base, pages);
    if let Some(fixed) = fixed_pages(kernel, task.index).find(|f| covers(f.vaddr, 1)) {
        return Some(fixed);
    }
    if let Some(p) = task.segments.iter().find(|p| covers(p.segment.vaddr, p.segment.pages)) {
        let flags = Flags::user(p.segment.flags & WRITE != 0, p.segment.flags & EXECUTE != 0);
        return Some(Stretch { vaddr: p.segment.vaddr, phys: p.phys, pages: p.segment.pages as u64, flags });
    }
    let maps = kernel.system.task_maps(task.manifest);
    let map = maps.iter().find(|m| covers(m.vaddr, kernel.system.regions[m.region as usize].pages))?;
    let region = &kernel.system.regions[map.region as usize];
    if region.flags & REGION_BOOT_ONLY != 0 {
        return None;
    }
    let device = region.kind == RegionKind::Device as u16;
    if device || region.kind == RegionKind::Firmware as u16 {
        // Bound by the supervisor: anything but the kernel's memory.
        let (phys, _) = space.lookup(vaddr)?;
        let page = Range::new(phys, PAGE_U64);
        let taken = if device { kernel.memory_map.is_ram(page) } else { kernel.memory_map.is_owned(page) };
        let free = !taken && !Arch::is_protected(phys, PAGE_U64);
        return free.then_some(Stretch { vaddr, phys, pages: 1, flags: bound_flags(device, map) });
    }
    let flags = Flags::user(map.rights & WRITE != 0, false);
    Some(Stretch {
        vaddr: map.vaddr,
        phys: kernel.regions[map.region as usize],
        pages: region.pages as u64,
        flags,
    })
}

/// The pages that the kernel gives every task, and the supervisor's own.
pub fn fixed_pages(kernel: &Kernel, task: usize) -> impl Iterator<Item = Stretch> {
    use ipc::abi::{BOOT_VADDR, CLOCK_VADDR, EPOCH_VADDR};
    let pages = kernel.pages;
    let all = [(CLOCK_VADDR, pages.clock), (EPOCH_VADDR, pages.epochs), (BOOT_VADDR, pages.boot)];
    let flags = Flags::user(false, false);
    all.into_iter().take(if task == 0 { 3 } else { 2 }).map(move |(vaddr, phys)| Stretch {
        vaddr,
        phys,
        pages: 1,
        flags,
    })
}
