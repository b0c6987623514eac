//! System calls, signals, faults and the fixed addresses of a task's address space.
//!
//! Registers. x86_64: `syscall`, number in `rax`, arguments in `rdi rsi rdx r10`, results in `rax rdx`; `rcx` and
//! `r11` are clobbered. aarch64: `svc #0`, number in `x8`, arguments in `x0..x3`, results in `x0 x1`. All other
//! registers, SIMD included, are preserved. Misuse of a call is a [`FaultKind::BadCall`] of the caller.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most tasks that a manifest can hold: a set of tasks fits one word.
pub const MAX_TASKS: usize = 64;
/// Most cores that the kernel starts.
pub const MAX_CORES: usize = 64;
pub const PAGE: usize = 4096;

/// Numbers of the system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Call {
    /// `wait(mask, deadline) -> (bits, now)`: blocks until `word & mask != 0` or `now >= deadline`. Takes the bits
    /// out of the word. `deadline` and `now` are raw counter ticks (TSC, CNTVCT); [`NEVER`] waits for ever, 0 polls.
    Wait = 0,
    /// `signal(cap)`: sets the capability's bit in the peer's word; never blocks.
    Signal = 1,
    /// `signal_wait(cap, mask, deadline) -> (bits, now)`: both in one entry.
    SignalWait = 2,
    /// `irq_ack(cap)`: unmasks the interrupt; it stays masked from its signal until then.
    IrqAck = 3,
    /// `exit(kind, ptr, len)`: ends the caller. See [`Exit`]; the message (UTF-8, at most 256 bytes are kept) is
    /// copied into the fault record.
    Exit = 4,
    /// `task_ctl(cap, op) -> status`: see [`TaskOp`].
    TaskCtl = 5,
    /// `task_read(cap, what, ptr, len) -> bytes`: see [`TaskInfoKind`].
    TaskRead = 6,
    /// `sys_ctl(op, a, b, c) -> (status, value)`: see [`SysOp`]. Needs the `Sys` capability, always handle 0 of the
    /// supervisor.
    SysCtl = 7,
    /// `log(ptr, len)`: early console, at most 512 bytes. Needs the manifest's `EARLY_LOG` flag.
    Log = 8,
}

impl Call {
    pub const fn from_number(number: u64) -> Option<Self> {
        Some(match number {
            0 => Call::Wait,
            1 => Call::Signal,
            2 => Call::SignalWait,
            3 => Call::IrqAck,
            4 => Call::Exit,
            5 => Call::TaskCtl,
            6 => Call::TaskRead,
            7 => Call::SysCtl,
            8 => Call::Log,
            _ => return None,
        })
    }
}

/// A deadline that never comes.
pub const NEVER: u64 = u64::MAX;

/// Bit 63 of every task's word: a neighbour restarted (its epoch has changed); set by the kernel.
pub const SIGNAL_RESTART: u32 = 63;
/// Bit 62, supervisor only: a task faulted or exited; ask each with `task_read`. Set by the kernel.
pub const SIGNAL_FAULT: u32 = 62;

/// First argument of [`Call::Exit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Exit {
    /// "Restart me", without a report.
    Clean = 0,
    /// A panic, with its message.
    Panic = 1,
}

/// Second argument of [`Call::TaskCtl`]. Status: 0 done, 1 under way on another core (the result shows in
/// `task_read`), a [`FaultKind::BadCall`] of the caller on misuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum TaskOp {
    /// Pristine segments, zeroed link halves, epoch + 1, RESTART to the neighbours, then ready. Also the first
    /// start. The task must be stopped (never started, faulted, exited or held).
    Start = 0,
    /// Stop a running task without a fault.
    Hold = 1,
    /// Make the task fault as if it had touched unmapped memory (development images only).
    InjectFault = 2,
}

/// Second argument of [`Call::TaskRead`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum TaskInfoKind {
    /// A [`FaultRecord`].
    Fault = 0,
    /// A [`TaskStatus`].
    Status = 1,
}

/// First argument of [`Call::SysCtl`]. Those marked *boot* are faults after [`SysOp::Seal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum SysOp {
    Reboot = 0,
    PowerOff = 1,
    /// `(on)`: trace records on (1) or off (0).
    Trace = 2,
    /// *boot* `(region, first_page << 32 | pages, phys)`: binds pages of a `Device` or `Firmware` region of the manifest to
    /// physical memory in every task that maps the region. Refused (status 1) when the physical range touches RAM that
    /// the kernel has given out or could give out, the kernel, the package, an interrupt controller, or leaves the region.
    Map = 3,
    /// *boot* `(region) -> (0, phys)`: physical base of a `Dma` region, for the device.
    Phys = 4,
    /// *boot* `(irq, requester_id) -> (0, value)`: binds an MSI to the manifest's interrupt and leaves the message in
    /// the caller's [`MsiMessage`] at pointer `c`.
    BindMsi = 5,
    /// *boot* `(ptr to PlatformDesc, len)`: what discovery found; needed before `BindMsi` and before `Seal`.
    Platform = 6,
    /// *boot*: unmaps every boot-only region, makes the page tables read-only, audits, starts time and the other cores'
    /// scheduling. Leaves an [`Audit`] at pointer `a`, length `b`. Tasks that were started before run from now on.
    Seal = 7,
}

/// What a `BindMsi` gives back: to be written in the device's MSI-X table.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct MsiMessage {
    pub address: u64,
    pub data: u32,
    pub reserved: u32,
}

/// Result of the walk over all page tables at `Seal`; the last four must be 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Audit {
    pub tasks: u32,
    pub cores: u32,
    /// Mapped 4 KiB pages of all tasks and of the kernel.
    pub pages: u64,
    /// Pages that are writable and executable.
    pub wx_violations: u32,
    /// Page-table pages that any mapping can write.
    pub writable_tables: u32,
    /// Pages mapped in more tasks, or with more rights, than the manifest says.
    pub shared_beyond_manifest: u32,
    /// Missing guard pages (stacks of tasks and of the kernel).
    pub missing_guards: u32,
    pub kernel_text_bytes: u32,
    pub reserved: u32,
}

/// Discovery's result, in numbers. All addresses physical; 0 means "not there".
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PlatformDesc {
    /// aarch64: 2 or 3.
    pub gic_version: u32,
    /// aarch64: INTID of the EL1 virtual timer (27 where the tables say nothing).
    pub timer_intid: u32,
    pub gicd: u64,
    /// GICv2: CPU interface.
    pub gicc: u64,
    /// GICv3: the redistributor region and its length.
    pub gicr: u64,
    pub gicr_len: u64,
    pub its: u64,
    /// GICv2m frame, with the SPIs that it owns.
    pub v2m: u64,
    pub v2m_first_spi: u32,
    pub v2m_spis: u32,
    /// x86: FADT reset register: address space (0 memory, 1 port), address, value.
    pub reset_space: u32,
    pub reset_value: u32,
    pub reset_address: u64,
    /// x86: ACPI PM timer port; PM1a control port and SLP_TYPa of S5 for power off.
    pub pm_timer_port: u32,
    pub pm1a_control_port: u32,
    pub s5_sleep_type: u32,
    /// aarch64: how PSCI is called: 1 by HVC, 2 by SMC, 0 unknown.
    pub psci_conduit: u32,
    /// Console UART for the kernel's last words: 0 where the architecture's default is right.
    pub uart: u64,
}

/// Written by the kernel before the supervisor starts, mapped read-only at [`BOOT_VADDR`] in the supervisor only.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct KernelBoot {
    pub magic: [u8; 8],
    /// Physical; 0 where absent.
    pub rsdp: u64,
    pub dtb: u64,
    pub dtb_len: u64,
    /// Seconds since 1970 from the firmware at boot, and the counter value that belongs to it.
    pub wall_seconds: u64,
    pub wall_ticks: u64,
    pub ticks_per_second: u64,
    pub memory_bytes: u64,
    pub free_bytes: u64,
    pub cores: u32,
    /// 1 direct (PVH, Image), 2 BIOS, 3 UEFI.
    pub firmware: u32,
    /// Firmware's entropy: valid bytes, then the bytes.
    pub entropy_len: u32,
    pub reserved: u32,
    pub entropy: [u8; 64],
    pub command_line: [u8; 256],
}
pub const KERNEL_BOOT_MAGIC: [u8; 8] = *b"urmqKB01";

/// Mapped read-only in every task at [`CLOCK_VADDR`]; constant after `Seal`.
/// `nanoseconds = (ticks - base) * mult >> shift`, in 128-bit arithmetic.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Clock {
    pub base_ticks: u64,
    pub mult: u64,
    pub shift: u32,
    /// What user mode may not read itself. aarch64: the low half of ID_AA64ISAR0_EL1 (cryptographic instructions), 0 where unknown.
    /// x86_64: 0, CPUID is there for everybody.
    pub isa: u32,
    pub ticks_per_second: u64,
    /// Nanoseconds since 1970 at `base_ticks`, from the firmware; 0 when unknown.
    pub wall_base_ns: u64,
}

/// Why a task stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum FaultKind {
    None = 0,
    /// Read of memory that is not mapped or not readable.
    Read = 1,
    Write = 2,
    Execute = 3,
    Illegal = 4,
    Divide = 5,
    Alignment = 6,
    Breakpoint = 7,
    /// System call misuse: number, handle, rights, pointer or phase. `address` holds the call's number.
    BadCall = 8,
    Panic = 9,
    /// Exit without fault.
    Exit = 10,
    Injected = 11,
    /// Stack guard page touched.
    StackOverflow = 12,
    /// Branch target or pointer authentication failure (aarch64), control protection (x86).
    ControlFlow = 13,
    General = 14,
    /// Stopped by `Hold`.
    Held = 15,
}

impl FaultKind {
    pub const fn from_number(n: u32) -> Option<Self> {
        Some(match n {
            0 => Self::None,
            1 => Self::Read,
            2 => Self::Write,
            3 => Self::Execute,
            4 => Self::Illegal,
            5 => Self::Divide,
            6 => Self::Alignment,
            7 => Self::Breakpoint,
            8 => Self::BadCall,
            9 => Self::Panic,
            10 => Self::Exit,
            11 => Self::Injected,
            12 => Self::StackOverflow,
            13 => Self::ControlFlow,
            14 => Self::General,
            15 => Self::Held,
            _ => return None,
        })
    }
}

/// A decoded fault. `kind` is a [`FaultKind`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FaultRecord {
    pub kind: u32,
    pub epoch: u32,
    pub pc: u64,
    pub address: u64,
    pub sp: u64,
    pub ticks: u64,
    pub message_len: u32,
    pub reserved: u32,
    pub message: [u8; 256],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum TaskState {
    Stopped = 0,
    Ready = 1,
    Waiting = 2,
    Faulted = 3,
    /// Budget used up until the period ends.
    Depleted = 4,
}

#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct TaskStatus {
    /// A [`TaskState`].
    pub state: u32,
    pub epoch: u32,
    pub core: u32,
    pub reserved: u32,
    pub run_ticks: u64,
    pub switches: u64,
}

/// Fixed addresses of every task's address space; the builder places segments, regions, heap and stack elsewhere.
pub const TEXT_VADDR: u64 = 0x0040_0000;
/// The task's constants ([`crate::manifest::info`]), read-only, from the signed package.
pub const INFO_VADDR: u64 = 0x1000_0000;
/// [`Clock`], read-only.
pub const CLOCK_VADDR: u64 = 0x1010_0000;
/// `[AtomicU32; MAX_TASKS]`, the epoch of each task, read-only. 0: never started.
pub const EPOCH_VADDR: u64 = 0x1010_1000;
/// [`KernelBoot`], supervisor only.
pub const BOOT_VADDR: u64 = 0x1010_2000;
/// Regions (links, pools, devices) start here, each followed by an unmapped page.
pub const REGION_VADDR: u64 = 0x2000_0000;
pub const HEAP_VADDR: u64 = 0x40_0000_0000;
/// One past the highest stack byte; an unmapped page lies on either side of the stack.
pub const STACK_TOP: u64 = 0x70_0000_0000;
/// No user mapping at or above this address.
pub const USER_END: u64 = 0x7f_ffff_f000;
