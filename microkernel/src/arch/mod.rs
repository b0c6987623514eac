//! The one interface between the kernel and the processor: [`Machine`] and [`Format`], which `arch/x86_64` and
//! `arch/aarch64` both implement. Nothing outside this folder names a register; nothing inside schedules.
//!
//! # How the kernel runs
//! The kernel always runs with interrupts disabled, on one small stack a core, and is entered only from user mode or
//! from [`Machine::idle`]. An entry saves *all* user registers in the running task's [`Machine::Context`] (whose
//! address is in the core's [`Machine::CoreState`]), sets the stack pointer to the top of the core's stack, and calls one
//! of the three functions of `crate::kernel::entry` with the core's state, which never return: they end in
//! [`Machine::resume`] or [`Machine::idle`]:
//! `on_call(*mut CoreState) -> !`, `on_fault(*mut CoreState, Fault) -> !`, `on_interrupt(*mut CoreState, Interrupt) -> !`.
//! An interrupt that arrives in `idle` discards the idle context in the same way. Any other exception in kernel mode is a
//! bug: `panic!`.
//!
//! # Order of calls
//! Boot core: `early_console` (may come first), `init_boot`, `init_core`, then `enter_kernel` (own page tables, own
//! stack), and at last `resume` of the supervisor. The other cores come from the loader (Limine MP) straight into
//! `crate::kernel::secondary_entry`, on the loader's tables and stack, and go the same way: `init_core`,
//! `enter_kernel`, `idle`. On all cores `sealed` when the boot phase ends.
//!
//! The binary's entry symbol is `_start` in `main.rs`, plain Rust on the loader's stack.

pub mod aarch64;
pub mod x86_64;

#[cfg(all(target_os = "none", target_arch = "aarch64"))]
pub use aarch64::Aarch64 as Arch;
#[cfg(all(target_os = "none", target_arch = "x86_64"))]
pub use x86_64::X86 as Arch;

use core::sync::atomic::{AtomicBool, Ordering};

use crate::paging::{Entry, Flags};
use ipc::abi::{FaultKind, MsiMessage, PlatformDesc};

/// Encoding of page table entries. Both architectures: 4 KiB pages, four levels of 512 entries, 48-bit addresses; level 3 is the
/// root, level 0 holds 4 KiB leaves, level 1 may hold 2 MiB leaves. Pure: implemented without `cfg`, so that the host
/// tests it (`impl Machine` is for bare targets only).
pub trait Format {
    /// The kernel's half of the address space hangs in the root of every task (x86) or has a root of its own (TTBR1).
    const KERNEL_SHARES_ROOT: bool;
    /// An entry that points to the next lower table. `user`: the table belongs to a task's half.
    fn table(phys: u64, user: bool) -> u64;
    /// A leaf at `level` 0 or 1. Entries for the kernel are global, those of a task carry its address-space number.
    /// The access flag is set, so that hardware never writes a table that is read-only (aarch64).
    fn leaf(phys: u64, level: u32, flags: Flags) -> u64;
    /// Inverse of both. Must report what the *hardware* allows, for the audit walks with it. Rights of upper levels
    /// don't restrict (they are encoded as "all").
    fn decode(entry: u64, level: u32) -> Entry;
}

/// A fault of user code, decoded from the exception. Stack overflow is told from the address by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub kind: FaultKind,
    /// Faulting address for memory faults, else 0.
    pub address: u64,
}

/// An interrupt, after the controller was told (acknowledged and ended).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    /// The one-shot timer.
    Timer,
    /// Another core has set something in this core's `attention` word.
    Ipi,
    /// An interrupt of the manifest, by its index.
    Device(usize),
    /// Nothing to do.
    Spurious,
}

/// What `init_boot` and `platform` may use to reach devices: a window of kernel addresses with preallocated tables.
pub trait DeviceWindow {
    /// Maps `len` bytes at `phys` (any alignment) uncached, readable and writable by the kernel, and returns the
    /// address for `phys`. `None`: the window (16 MiB) is full. Not after `Seal`.
    fn map(&mut self, phys: u64, len: u64) -> Option<*mut u8>;
}

/// Where things are that the architecture needs at boot.
#[derive(Clone, Copy, Debug)]
pub struct BootFacts {
    /// Virtual minus physical address of the physical map: the same before and after `enter_kernel`.
    pub physical_offset: u64,
    /// Virtual minus physical address of the kernel image.
    pub image_offset: u64,
    /// Root of the kernel's page tables (physical).
    pub kernel_root: u64,
    /// Cores that will run, this one included.
    pub cores: usize,
    /// Interrupts in the manifest.
    pub irqs: usize,
    /// `Machine::private_pages` pages of zeroed memory, physically contiguous, 64 KiB aligned, in the physical map.
    pub private_phys: u64,
    /// Any root table whose user half is empty (aarch64: TTBR0 while no task runs).
    pub empty_root: u64,
}

/// The processor, the interrupt controller and the clock. All functions concern the core that calls them unless they
/// say otherwise, and are called with interrupts disabled.
///
/// # Safety
/// The implementation keeps the promises of this module's text; the kernel's memory safety rests on them.
pub unsafe trait Machine: Format {
    /// All user registers but SIMD state. `repr(C)`; its address stays fixed.
    type Context: Registers;
    /// What entry code finds through the per-core pointer (`gs`, `TPIDR_EL1`): stack top, current context. It is the
    /// *first* field of [`crate::kernel::core::Core`], so the pointer is a pointer to both.
    type CoreState: Default;

    // ---- Console and end -------------------------------------------------------------------------------------------

    /// Writes to the early console (COM1; PL011), waiting at most a bounded time a byte. Works at any time, on any core,
    /// in panics, before `init_boot` where the architecture's default UART can be reached then, else does nothing.
    fn early_console(bytes: &[u8]);
    /// Reset. Tries the ways of `PlatformDesc`, then the architecture's own, then a triple fault or an endless halt.
    fn reboot() -> !;
    fn power_off() -> !;

    // ---- Boot ------------------------------------------------------------------------------------------------------

    /// Pages of contiguous memory that the architecture wants for itself (ITS tables and the like).
    fn private_pages(cores: usize, irqs: usize) -> usize;
    /// Once, on the boot core, on the loader's page tables, after the kernel's own were built: chooses CPU features,
    /// sets up the console and what needs no discovery. May map devices.
    fn init_boot(facts: &BootFacts, window: &mut dyn DeviceWindow);
    /// On each core: control registers, descriptor tables or vectors, feature bits, the core's own interrupt controller as
    /// far as it is known. `state` is at the core's final address; sets the per-core pointer to it. `index`: core
    /// number, 0 the boot core. `stack_top`: of the core's kernel stack.
    ///
    /// # Safety
    /// `state` is the first field of this core's `Core`, used by no other core.
    unsafe fn init_core(state: *mut Self::CoreState, index: usize, stack_top: u64);
    /// Switches to the kernel's page tables and the core's own stack, and calls `main` with `argument`.
    ///
    /// # Safety
    /// `init_core` was called; the tables of [`BootFacts::kernel_root`] map the image as it is mapped now.
    unsafe fn enter_kernel(main: extern "C" fn(usize) -> !, argument: usize) -> !;
    /// Checks and uses what discovery found: interrupt controller, reset register, power-off port, a better clock.
    /// Once, on the boot core, in the boot phase. The other cores do their part in `sealed`. The error is shown.
    fn platform(desc: &PlatformDesc, window: &mut dyn DeviceWindow) -> Result<(), &'static str>;
    /// The range holds an interrupt controller (or another device of the kernel's): no task may map it.
    fn is_protected(phys: u64, len: u64) -> bool;
    /// On the other cores, in the boot phase: sleeps as deeply as the core can until `flag` is true. May also never
    /// return, where [`Machine::seal_announce`] makes an `Ipi` (x86).
    fn seal_await(flag: &AtomicBool) {
        while !flag.load(Ordering::Acquire) {
            core::hint::spin_loop();
        }
    }
    /// On the boot core, after that flag was set: ends `seal_await` on the other cores.
    fn seal_announce(_cores: usize) {}
    /// On every core, when the boot phase has ended and page tables have become read-only: flush the whole TLB,
    /// finish the core's interrupt controller, enable its timer and IPI.
    fn sealed();

    /// Random bytes from the processor, for the supervisor's page: how many of `into` were written. 0 also where user
    /// mode can ask the processor itself (x86).
    fn entropy(into: &mut [u8]) -> usize {
        let _ = into;
        0
    }
    /// `ipc::abi::Clock::isa`.
    fn isa() -> u32 {
        0
    }

    // ---- Time ------------------------------------------------------------------------------------------------------

    /// TSC or CNTVCT; the same on all cores, readable by tasks.
    fn counter() -> u64;
    /// Ticks a second. May change once, by `platform`.
    fn counter_hz() -> u64;
    /// One interrupt at `deadline` (ticks), or soon when that has passed. May come early; replaces an earlier setting.
    fn timer_set(deadline: u64);

    // ---- Interrupts ------------------------------------------------------------------------------------------------

    /// Routes MSI of the device `requester_id` to `core` as interrupt `irq` of the manifest and unmasks it.
    fn irq_bind(irq: usize, core: usize, requester_id: u32) -> Result<MsiMessage, &'static str>;
    /// From an interrupt until it is acknowledged. May do nothing where the controller can't (x86 MSI): the kernel
    /// then coalesces in software.
    fn irq_mask(irq: usize);
    fn irq_unmask(irq: usize);
    /// Makes `core` take [`Interrupt::Ipi`]. Stores before it are visible to the other core in its handler.
    fn ipi(core: usize);

    // ---- Address spaces --------------------------------------------------------------------------------------------

    /// What `switch_space` takes: root and address-space number (`id` 1..=MAX_TASKS) in the processor's format. A switch
    /// flushes nothing where the processor has such numbers.
    fn space_token(root: u64, id: u16) -> u64;
    /// # Safety
    /// The token's tables are complete and map the kernel.
    unsafe fn switch_space(token: u64);
    /// Drops every translation, also global ones and those of other address-space numbers, on this core.
    fn flush_all();
    /// After writing entries that were invalid before (aarch64: barrier; x86: nothing).
    fn entries_written();

    /// After the last write to memory that tasks will execute (text in the package, or a copy of it), through whatever
    /// mapping, and before the first of them runs. x86: nothing, instruction fetch is coherent there.
    ///
    /// # Safety
    /// The range is mapped readable.
    unsafe fn code_written(at: *const u8, len: usize) {
        let _ = (at, len);
    }

    // ---- Tasks -----------------------------------------------------------------------------------------------------

    /// Bytes of a SIMD state (64-byte aligned memory is given). Valid after `init_boot`.
    fn simd_bytes() -> usize;
    /// Makes `area` the state of a fresh task.
    ///
    /// # Safety
    /// `area`: `simd_bytes()` bytes, 64-byte aligned, of nobody else. The same for the next two.
    unsafe fn simd_reset(area: *mut u8);
    /// # Safety
    /// See `simd_reset`.
    unsafe fn simd_save(area: *mut u8);
    /// # Safety
    /// See `simd_reset`; the area was filled by `simd_reset` or `simd_save`.
    unsafe fn simd_restore(area: *const u8);
    /// SIMD instructions of user code run (true) or fault as `Illegal` (false).
    fn simd_allow(allow: bool);
    /// The running task may use COM1's ports (x86 only; does nothing elsewhere).
    fn com1_allow(allow: bool);
    /// Returns to user mode with these registers, and makes `context` the place where the next entry saves them.
    ///
    /// # Safety
    /// The right address space and SIMD state are in place; `context` stays valid until another one is resumed.
    unsafe fn resume(context: *mut Self::Context) -> !;
    /// Waits for an interrupt with interrupts enabled, on a fresh stack.
    fn idle() -> !;

    /// The per-core pointer as set by `init_core`; null before.
    fn core() -> *mut Self::CoreState;
    /// Fills with zeros. Override where the processor has a faster way.
    ///
    /// # Safety
    /// `len` bytes at `at` (both multiples of 4096) are writable and nobody's.
    unsafe fn zero_pages(at: *mut u8, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { core::ptr::write_bytes(at, 0, len) }
    }
}

/// What the kernel reads and writes in a saved context.
pub trait Registers {
    /// A fresh task: `pc`, `sp`, everything else 0, interrupts enabled. `sp` is 16-byte aligned; nothing is pushed.
    fn new(pc: u64, sp: u64) -> Self;
    fn pc(&self) -> u64;
    fn sp(&self) -> u64;
    /// System call number and arguments (see `ipc::abi`).
    fn call(&self) -> (u64, [u64; 4]);
    fn set_results(&mut self, first: u64, second: u64);
}
