//! From the loader to the first task.
//!
//! [`start`] runs on the loader's page tables and stack: it reads the loader's answers, builds the kernel's page tables, the
//! tasks and the cores, and enters the new tables. From then on nothing is allocated.

mod install;
mod limine;
mod tables;

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use ipc::abi::{KERNEL_BOOT_MAGIC, KernelBoot, MAX_CORES, PAGE as PAGE_USIZE};
use ipc::manifest::{REGION_TRACE, System, TASK_SIMD, TRACE};
use ipc::package::Package;
use zerocopy::FromZeros;

use crate::arch::{Arch, BootFacts, Format, Machine, Registers};
use crate::kernel::boot_phase::{BootPhase, Window, write_clock};
use crate::kernel::core::Core;
use crate::kernel::task::{FaultCell, Local, Status, Task};
use crate::kernel::{self, BootTimes, FixedPages, Gate, IrqLine, Kernel, MemoryMap, control};
use crate::layout::stack_top;
use crate::memory::{BootMemory, MAX_RANGES, Range};
use crate::paging::{PAGE, PhysicalMap, Space, TableSource};
use crate::sched::Budget;
use crate::trace::TraceBuffer;
use install::{Error, slice};
use limine::{Answers, Use};

/// How long the other cores may take to come up, seconds.
const SECONDARIES_SECONDS: u64 = 5;

/// The boot core, from the loader.
pub fn start() -> ! {
    let answers = match limine::answers() {
        Ok(answers) => answers,
        Err(reason) => panic!("{reason}"),
    };
    match prepare(&answers) {
        Ok(()) => enter(0),
        Err(Error::Memory) => panic!("not enough memory for this manifest"),
        Err(Error::Manifest(what)) => panic!("the manifest is wrong: {what}"),
    }
}

/// Another core, from the loader. `extra` is its index.
unsafe extern "C" fn secondary_entry(cpu: &::limine::mp::Cpu) -> ! {
    enter(cpu.extra.load(Ordering::Acquire) as usize)
}

/// Sets the core up and goes to its own stack.
fn enter(index: usize) -> ! {
    let Some(gate) = kernel::get().and_then(|k| k.cores.get(index)) else {
        panic!("core {index} is unknown")
    };
    let core = gate.core.load(Ordering::Acquire);
    let main = if index == 0 { boot_main } else { secondary_main };
    // SAFETY: `core` was made for this core, whose first step this is; `state` is its first field. `prepare` completed the
    // kernel's tables.
    unsafe {
        Arch::init_core(&raw mut (*core).state, index, gate.stack_top);
        Arch::enter_kernel(main, index)
    }
}

/// The boot core on its own tables: waits for the other cores and starts the supervisor.
extern "C" fn boot_main(_: usize) -> ! {
    // SAFETY: the per-core pointer is set, and this is the only code on this core.
    let core = unsafe { Core::enter(Arch::core()) };
    let kernel = core.kernel;
    write_clock(kernel);
    let hz = Arch::counter_hz();
    // SAFETY: the kernel's own page; its reader has not started.
    unsafe { (*kernel.map.at::<KernelBoot>(kernel.pages.boot)).ticks_per_second = hz };
    let late = core.now + SECONDARIES_SECONDS * hz;
    for (index, gate) in kernel.cores.iter().enumerate().skip(1) {
        while !gate.online.load(Ordering::Acquire) {
            if Arch::counter() > late {
                panic!("core {index} does not start");
            }
            core::hint::spin_loop();
        }
    }
    control::start(core, kernel.tasks[0].slot);
    core.dispatch()
}

extern "C" fn secondary_main(index: usize) -> ! {
    // SAFETY: as in `boot_main`.
    let core = unsafe { Core::enter(Arch::core()) };
    let kernel = core.kernel;
    kernel.cores[index].online.store(true, Ordering::Release);
    Arch::seal_await(&kernel.sealed);
    core.look_around();
    core.dispatch()
}

/// Everything up to the switch to the kernel's tables.
fn prepare(answers: &Answers) -> Result<(), Error> {
    let wall_ticks = Arch::counter();
    let map = PhysicalMap { offset: answers.offset };
    let usable = limine::memory_map().filter(|(_, u)| *u == Use::Usable).map(|(range, _)| range);
    // SAFETY: the loader says that the memory is usable, and its direct map holds it.
    let memory = &mut unsafe { BootMemory::new(map, usable) };
    let system = manifest(answers)?;
    let package =
        Range::new(answers.package.as_ptr().addr() as u64 - map.offset, answers.package.len() as u64);
    let cores = 1 + answers.secondaries().take(MAX_CORES - 1).count();

    let space = tables::kernel_space(memory, map, answers.image, cores)?;
    let mut window = Window::new(space);
    let empty_root = memory.take_table().ok_or(Error::Memory)?;
    let private_pages = Arch::private_pages(cores, system.irqs.len()).max(1) as u64;
    let facts = BootFacts {
        physical_offset: map.offset,
        image_offset: answers.image.virt - answers.image.phys,
        kernel_root: space.root(),
        cores,
        irqs: system.irqs.len(),
        private_phys: memory.take(private_pages, 64 << 10).ok_or(Error::Memory)?,
        empty_root,
    };
    Arch::init_boot(&facts, &mut window);

    // First all memory, then the map of it.
    let mut page = || memory.take(1, PAGE).ok_or(Error::Memory);
    let pages = FixedPages { clock: page()?, epochs: page()?, boot: page()? };
    let regions = install::regions(memory, map, &system, package)?;
    let tasks = tasks(memory, map, &system, package, regions, pages, cores)?;
    let gates = slice(memory, map, cores, |memory, i| gate(memory, map, i))?;
    let locals = slice(memory, map, cores, |memory, core| locals(memory, map, tasks, core))?;
    let irqs = slice(memory, map, system.irqs.len(), |_, _| Ok(IrqLine::default()))?;
    let reach = slice(memory, map, MAX_RANGES + 1, |_, _| Ok(Range::default()))?;
    let kernel_at = room::<Kernel>(memory, map, 1)?;
    let tables = tables::physical_map(&space, memory, map.offset, package)?;
    reach.iter_mut().zip(memory.used().chain([package])).for_each(|(slot, range)| *slot = range);
    if Arch::KERNEL_SHARES_ROOT {
        for root in tasks.iter().map(|t| t.root).chain([empty_root]) {
            // SAFETY: roots made above, in the direct map, used by nobody yet.
            unsafe { Space::<Arch>::new(root, map) }.share_upper_half(&space);
        }
    }
    fill_boot_page(answers, map, pages.boot, wall_ticks, memory.free_bytes(), cores);

    let kernel = Kernel {
        map,
        system,
        tasks,
        cores: gates,
        irqs,
        package,
        regions,
        // SAFETY: a page of its own, zeroed; the kernel uses it by these atomics only.
        epochs: unsafe { &*map.at(pages.epochs) },
        pages,
        root: space.root(),
        text: tables::text(),
        tables,
        reach,
        memory_map: memory_map(memory, tables::image(answers.image), package),
        boot: BootTimes { wall_seconds: answers.wall_seconds, wall_ticks },
        tracing: AtomicBool::new(system.header.flags & TRACE != 0),
        sealed: AtomicBool::new(false),
    };
    // SAFETY: fresh memory, large and aligned enough, for ever.
    let kernel: &'static Kernel = unsafe {
        kernel_at.write(kernel);
        &*kernel_at
    };
    make_cores(kernel, locals, window);
    kernel::publish(kernel);
    start_secondaries(answers);
    Ok(())
}

/// The manifest of the package.
fn manifest(answers: &Answers) -> Result<System<'static>, Error> {
    let package = Package::parse(answers.package).map_err(|_| Error::Manifest("not a package"))?;
    System::parse(package.manifest()).map_err(|e| match e {
        ipc::manifest::Error::TooShort => Error::Manifest("too short"),
        ipc::manifest::Error::Magic => Error::Manifest("magic"),
        ipc::manifest::Error::Table(name) | ipc::manifest::Error::Entry(name, _) => Error::Manifest(name),
    })
}

/// Memory for `count` values.
fn room<T>(memory: &mut BootMemory, map: PhysicalMap, count: usize) -> Result<*mut T, Error> {
    const { assert!(align_of::<T>() <= PAGE_USIZE) };
    let pages = (count * size_of::<T>()).div_ceil(PAGE_USIZE).max(1) as u64;
    memory.take(pages, PAGE).map(|phys| map.at(phys)).ok_or(Error::Memory)
}

fn tasks(
    memory: &mut BootMemory,
    map: PhysicalMap,
    system: &System<'static>,
    package: Range,
    regions: &[u64],
    pages: FixedPages,
    cores: usize,
) -> Result<&'static [Task], Error> {
    let home = |row: &ipc::manifest::Task| row.core as usize % cores;
    slice(memory, map, system.tasks.len(), |memory, index| {
        let manifest = &system.tasks[index];
        let core = if index == 0 { 0 } else { home(manifest) };
        // The supervisor is on core 0, whatever its row says, so it comes first there.
        let before = system.tasks[..index]
            .iter()
            .enumerate()
            .filter(|&(i, t)| core == if i == 0 { 0 } else { home(t) });
        let slot = before.count() as u8;
        let (space, segments) = install::task(memory, map, system, index, package, regions, pages)?;
        Ok(Task {
            index,
            core,
            slot,
            manifest,
            caps: system.task_caps(manifest),
            segments,
            root: space.root(),
            token: Arch::space_token(space.root(), index as u16 + 1),
            word: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            request: AtomicU32::new(0),
            status: Status::default(),
            fault: FaultCell::default(),
        })
    })
    .map(|tasks| &*tasks)
}

fn gate(memory: &mut BootMemory, map: PhysicalMap, index: usize) -> Result<Gate, Error> {
    Ok(Gate {
        attention: AtomicU64::new(0),
        online: AtomicBool::new(index == 0),
        core: AtomicPtr::new(room::<Core>(memory, map, 1)?),
        stack_top: stack_top(index),
    })
}

/// What a core keeps of its tasks.
fn locals(
    memory: &mut BootMemory,
    map: PhysicalMap,
    tasks: &'static [Task],
    core: usize,
) -> Result<&'static mut [Local], Error> {
    let mine = || tasks.iter().filter(move |t| t.core == core);
    slice(memory, map, mine().count(), |memory, slot| {
        let task = mine().nth(slot).ok_or(Error::Manifest("tasks"))?;
        let simd = if task.manifest.flags & TASK_SIMD != 0 {
            room::<[u8; 64]>(memory, map, Arch::simd_bytes().div_ceil(64))?.cast()
        } else {
            core::ptr::null_mut()
        };
        Ok(Local {
            context: Registers::new(0, 0),
            task,
            priority: task.manifest.priority,
            deadline: 0,
            budget: Budget::default(),
            simd,
        })
    })
}

fn make_cores(kernel: &'static Kernel, locals: &'static mut [&'static mut [Local]], window: Window) {
    let mut boot = Some(BootPhase::new(window));
    for (index, (gate, locals)) in kernel.cores.iter().zip(locals).enumerate() {
        let mut core = Core::new(index, kernel, core::mem::take(locals));
        core.boot = boot.take();
        let mut regions = kernel.system.regions.iter().zip(kernel.regions);
        core.trace = regions
            .find(|(r, _)| r.flags & REGION_TRACE != 0 && r.file_offset == index as u64)
            // SAFETY: the region's memory is zeroed, and the kernel alone writes it (its owner's rights are to read).
            .and_then(|(r, phys)| unsafe {
                TraceBuffer::new(kernel.map.at(*phys), r.pages as usize * PAGE_USIZE)
            });
        // SAFETY: `gate` made room for one `Core`.
        unsafe { gate.core.load(Ordering::Relaxed).write(core) };
    }
}

/// Lets the other cores go. They wait for `Seal` in `secondary_main`.
fn start_secondaries(answers: &Answers) {
    for (cpu, index) in answers.secondaries().zip(1..MAX_CORES as u64) {
        // Release, and SeqCst in `write`: pairs with Acquire in `secondary_entry`.
        cpu.extra.store(index, Ordering::Release);
        cpu.goto_address.write(secondary_entry);
    }
}

fn memory_map(memory: &BootMemory, image: Range, package: Range) -> MemoryMap {
    let mut map = MemoryMap { owned: [Range::default(); _], other: [Range::default(); _] };
    let owned = memory.owned().chain([image, package]);
    map.owned.iter_mut().zip(owned).for_each(|(slot, range)| *slot = range);
    let last = map.other.len() - 1;
    let others = limine::memory_map().filter(|(_, u)| matches!(u, Use::Ram | Use::Image | Use::Usable));
    for (i, (range, _)) in others.enumerate() {
        if i <= last {
            map.other[i] = range;
        } else {
            // Too many: the last one covers all further ones and what is between them.
            let slot = &mut map.other[last];
            *slot = Range { start: slot.start.min(range.start), end: slot.end.max(range.end) };
        }
    }
    map
}

/// Fills the supervisor's page at `BOOT_VADDR`.
fn fill_boot_page(
    answers: &Answers,
    map: PhysicalMap,
    phys: u64,
    wall_ticks: u64,
    free_bytes: u64,
    cores: usize,
) {
    let mut page = KernelBoot::new_zeroed();
    page.magic = KERNEL_BOOT_MAGIC;
    page.rsdp = answers.rsdp;
    page.dtb = answers.dtb.start;
    page.dtb_len = answers.dtb.bytes();
    page.wall_seconds = answers.wall_seconds;
    page.wall_ticks = wall_ticks;
    page.memory_bytes = limine::memory_map().filter(|(_, u)| *u != Use::Other).map(|(r, _)| r.bytes()).sum();
    page.free_bytes = free_bytes;
    page.cores = cores as u32;
    page.firmware = answers.firmware;
    let given = copy(answers.entropy, &mut page.entropy);
    page.entropy_len = (given + Arch::entropy(&mut page.entropy[given..])) as u32;
    copy(answers.command_line, &mut page.command_line);
    // SAFETY: a page of the kernel's own.
    unsafe { map.at::<KernelBoot>(phys).write(page) };
}

/// Copies what fits; returns how much that is.
fn copy(from: &[u8], to: &mut [u8]) -> usize {
    let len = from.len().min(to.len());
    to[..len].copy_from_slice(&from[..len]);
    len
}
