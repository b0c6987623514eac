//! `sys_ctl`: what the supervisor may do, most of it until `Seal` only.

use ipc::abi::{Clock, PAGE, PlatformDesc, SysOp};
use ipc::manifest::{Map, READ, RegionKind, WRITE};
use zerocopy::{FromZeros, IntoBytes};

use core::sync::atomic::Ordering;

use super::call::Misuse;
use super::core::Core;
use super::{Kernel, seal};
use crate::arch::{Arch, DeviceWindow, Machine};
use crate::clock;
use crate::layout::{DEVICES, DEVICES_END};
use crate::memory::Range;
use crate::paging::{Flags, Memory, Space};

/// What exists on the boot core until `Seal`, and with it the right to the calls marked *boot*.
#[derive(Debug)]
pub struct BootPhase {
    pub window: Window,
    platform_known: bool,
}

impl BootPhase {
    pub fn new(window: Window) -> Self {
        BootPhase { window, platform_known: false }
    }
}

/// Status and value of a `sys_ctl`.
type Answer = Result<(u64, u64), Misuse>;
const DONE: Answer = Ok((0, 0));
const REFUSED: Answer = Ok((1, 0));

/// The caller holds `Sys`.
pub fn sys_ctl(core: &mut Core, slot: u8, [op, a, b, c]: [u64; 4]) -> Answer {
    const REBOOT: u64 = SysOp::Reboot as u64;
    const POWER_OFF: u64 = SysOp::PowerOff as u64;
    const TRACE: u64 = SysOp::Trace as u64;
    match op {
        REBOOT => Arch::reboot(),
        POWER_OFF => Arch::power_off(),
        TRACE if a <= 1 => {
            core.kernel.tracing.store(a == 1, Ordering::Relaxed);
            DONE
        }
        _ if core.boot.is_some() => boot_call(core, slot, op, [a, b, c]),
        _ => Err(Misuse),
    }
}

fn boot_call(core: &mut Core, slot: u8, op: u64, [a, b, c]: [u64; 3]) -> Answer {
    match op {
        o if o == SysOp::Map as u64 => map(core.kernel, a, b, c),
        o if o == SysOp::Phys as u64 => phys(core.kernel, a),
        o if o == SysOp::BindMsi as u64 => bind_msi(core, slot, a, b, c),
        o if o == SysOp::Platform as u64 => platform(core, slot, a, b),
        o if o == SysOp::Seal as u64 => {
            core.boot.take_if(|boot| boot.platform_known).ok_or(Misuse)?;
            let audit = seal::seal(core);
            let memory = core.kernel.memory_of(core.task(slot));
            let bytes = audit.as_bytes();
            memory.write(a, &bytes[..(b as usize).min(bytes.len())]).ok_or(Misuse)?;
            DONE
        }
        _ => Err(Misuse),
    }
}

/// Binds pages of a region to physical memory, in every task that maps it.
fn map(kernel: &Kernel, region: u64, span: u64, phys: u64) -> Answer {
    let index = usize::try_from(region).map_err(|_| Misuse)?;
    let row = kernel.system.regions.get(index).ok_or(Misuse)?;
    let device = row.kind == RegionKind::Device as u16;
    if !device && row.kind != RegionKind::Firmware as u16 {
        return Err(Misuse);
    }
    let (first, pages) = (span >> 32, span & 0xffff_ffff);
    let range = Range::new(phys, pages * PAGE as u64);
    let inside = pages > 0 && first + pages <= row.pages as u64 && phys.is_multiple_of(PAGE as u64);
    let taken = if device { kernel.memory_map.is_ram(range) } else { kernel.memory_map.is_owned(range) };
    if !inside || range.end > 1 << 48 || taken || Arch::is_protected(phys, range.bytes()) {
        return REFUSED;
    }
    // Break before make: the pages may have been bound to something else before, and a processor that has both in its TLB
    // is free to mix them (aarch64). Only this core has run a task, so flushing here is enough.
    let set_all = |bind: bool| {
        for (task, map) in maps_of(kernel, index) {
            let space = kernel.space(kernel.tasks[task].root);
            for page in 0..pages {
                let at = map.vaddr + (first + page) * PAGE as u64;
                let leaf = bind.then_some((phys + page * PAGE as u64, bound_flags(device, map)));
                space.set(at, leaf).map_err(|_| Misuse)?;
            }
        }
        Ok(())
    };
    set_all(false)?;
    Arch::flush_all();
    set_all(true)?;
    Arch::entries_written();
    DONE
}

/// Rights of a page of a `Device` or `Firmware` region.
pub fn bound_flags(device: bool, map: &Map) -> Flags {
    let write = device && map.rights & (READ | WRITE) == READ | WRITE;
    let memory = if device { Memory::Device } else { Memory::Normal };
    Flags { memory, ..Flags::user(write, false) }
}

/// All mappings of a region: task and row.
pub fn maps_of(kernel: &Kernel, region: usize) -> impl Iterator<Item = (usize, &'static Map)> {
    let system = kernel.system;
    system.tasks.iter().enumerate().flat_map(move |(task, row)| {
        system.task_maps(row).iter().filter(move |m| m.region as usize == region).map(move |m| (task, m))
    })
}

fn phys(kernel: &Kernel, region: u64) -> Answer {
    let index = usize::try_from(region).map_err(|_| Misuse)?;
    let row = kernel.system.regions.get(index).ok_or(Misuse)?;
    if row.kind == RegionKind::Dma as u16 { Ok((0, kernel.regions[index])) } else { Err(Misuse) }
}

fn bind_msi(core: &mut Core, slot: u8, irq: u64, requester: u64, ptr: u64) -> Answer {
    let kernel = core.kernel;
    let index = usize::try_from(irq).map_err(|_| Misuse)?;
    let row = kernel.system.irqs.get(index).ok_or(Misuse)?;
    let requester = u32::try_from(requester).map_err(|_| Misuse)?;
    if !core.boot.as_ref().is_some_and(|boot| boot.platform_known) {
        return Err(Misuse);
    }
    match Arch::irq_bind(index, kernel.tasks[row.task as usize].core, requester) {
        Ok(message) => {
            kernel.memory_of(core.task(slot)).write(ptr, message.as_bytes()).ok_or(Misuse)?;
            Ok((0, message.data as u64))
        }
        Err(reason) => refuse("interrupt", reason),
    }
}

fn platform(core: &mut Core, slot: u8, ptr: u64, len: u64) -> Answer {
    let kernel = core.kernel;
    let mut desc = PlatformDesc::new_zeroed();
    if len != size_of::<PlatformDesc>() as u64 {
        return Err(Misuse);
    }
    kernel.memory_of(core.task(slot)).read(ptr, desc.as_mut_bytes()).ok_or(Misuse)?;
    let boot = core.boot.as_mut().filter(|boot| !boot.platform_known).ok_or(Misuse)?;
    if let Err(reason) = Arch::platform(&desc, &mut boot.window) {
        return refuse("platform", reason);
    }
    if maps_protected(kernel) {
        return refuse("platform", "a task maps an interrupt controller");
    }
    boot.platform_known = true;
    write_clock(kernel);
    DONE
}

/// A device region was bound, before the controllers were known, to one of them.
fn maps_protected(kernel: &Kernel) -> bool {
    kernel.system.regions.iter().enumerate().filter(|(_, r)| r.kind == RegionKind::Device as u16).any(
        |(i, r)| {
            maps_of(kernel, i).any(|(task, map)| {
                let space: Space<Arch> = kernel.space(kernel.tasks[task].root);
                (0..r.pages as u64)
                    .filter_map(|p| space.lookup(map.vaddr + p * PAGE as u64))
                    .any(|(phys, _)| Arch::is_protected(phys, PAGE as u64))
            })
        },
    )
}

fn refuse(what: &str, reason: &str) -> Answer {
    [what, ": ", reason, "\r\n"].iter().for_each(|text| Arch::early_console(text.as_bytes()));
    REFUSED
}

/// Fills the page at `CLOCK_VADDR`.
pub fn write_clock(kernel: &Kernel) {
    let scale = clock::scale(Arch::counter_hz(), kernel.boot.wall_ticks, kernel.boot.wall_seconds);
    let page = Clock { isa: Arch::isa(), ..scale };
    // SAFETY: a page that the kernel handed out for this; tasks don't run while it changes.
    unsafe { kernel.map.at::<Clock>(kernel.pages.clock).write_volatile(page) }
}

/// The kernel's window to device registers; its tables are made at boot.
#[derive(Debug)]
pub struct Window {
    space: Space<Arch>,
    next: u64,
}

impl Window {
    pub fn new(space: Space<Arch>) -> Self {
        Window { space, next: DEVICES }
    }
}

impl DeviceWindow for Window {
    fn map(&mut self, phys: u64, len: u64) -> Option<*mut u8> {
        let page = PAGE as u64;
        let (first, offset) = (phys / page * page, phys % page);
        let bytes = offset.checked_add(len)?.checked_next_multiple_of(page)?;
        let at = self.next;
        let end = at.checked_add(bytes).filter(|&end| end <= DEVICES_END)?;
        for i in 0..bytes / page {
            self.space.set(at + i * page, Some((first + i * page, Flags::KERNEL_DEVICE))).ok()?;
        }
        Arch::entries_written();
        self.next = end;
        Some((at + offset) as *mut u8)
    }
}
