//! Segment, task-state and interrupt descriptors, and the per-core state that entry code uses.

use core::arch::asm;
use core::cell::UnsafeCell;

use super::context::Context;
use super::cpu::write_msr;
use super::entry;

/// Selectors. `sysret` wants user data right before user code (SDM 5.8.8); there is no 32-bit code segment, so user code
/// can't leave 64-bit mode.
const KERNEL_CODE: u16 = 0x08;
const KERNEL_DATA: u16 = 0x10;
pub const USER_DATA: u64 = 0x18 | 3;
pub const USER_CODE: u64 = 0x20 | 3;
const TSS: u16 = 0x28;

const GDT: [u64; 7] = [
    0,
    0x00af_9b00_0000_ffff,
    0x00cf_9300_0000_ffff,
    0x00cf_f300_0000_ffff,
    0x00af_fb00_0000_ffff,
    0, // The TSS, 16 bytes.
    0,
];

/// MSRs of `syscall` (SDM volume 4, table 2-2).
const STAR: u32 = 0xc000_0081;
const LSTAR: u32 = 0xc000_0082;
const SFMASK: u32 = 0xc000_0084;
const FS_BASE: u32 = 0xc000_0100;
pub const GS_BASE: u32 = 0xc000_0101;
const KERNEL_GS_BASE: u32 = 0xc000_0102;
const SYSENTER_CS: u32 = 0x174;
/// `syscall` clears every flag but the fixed one: interrupts, direction, trap, alignment check (which would open SMAP),
/// nested task.
const CLEARED_FLAGS: u64 = 0x003f_7fd5;

/// The byte of the I/O bitmap with COM1's eight ports.
const COM1_BYTE: usize = 0x3f8 / 8;

/// Task-state segment with an I/O bitmap up to port 0x3ff; what lies beyond the segment's limit is denied (SDM volume 1,
/// 18.5.2).
#[derive(Debug)]
#[repr(C, packed(4))]
struct TaskState {
    reserved0: u32,
    rsp: [u64; 3],
    reserved1: u64,
    ist: [u64; 7],
    reserved2: u64,
    reserved3: u16,
    bitmap_offset: u16,
    bitmap: [u8; COM1_BYTE + 1],
    /// The processor reads two bytes at a time: one more of ones.
    end: u8,
}

/// A stack for what may come at any moment: NMI, double fault, machine check.
#[derive(Debug)]
#[repr(C, align(16))]
struct LastStack([u8; 4096]);

/// Per-core state; `gs` points to it in kernel mode. Entry code knows the offsets of the first four fields.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct CoreState {
    /// Offset 0: its own address.
    this: *mut CoreState,
    /// Offset 8.
    pub stack_top: u64,
    /// Offset 16: end of the running task's context, as RSP0.
    pub context_end: u64,
    /// Offset 24: the user's stack pointer for a moment.
    scratch: u64,
    pub index: usize,
    /// What CR0.TS says.
    pub simd_allowed: bool,
    task_state: TaskState,
    gdt: [u64; 7],
    last_stacks: [LastStack; 3],
}

impl Default for CoreState {
    fn default() -> Self {
        CoreState {
            this: core::ptr::null_mut(),
            stack_top: 0,
            context_end: 0,
            scratch: 0,
            index: 0,
            simd_allowed: true,
            task_state: TaskState {
                reserved0: 0,
                rsp: [0; 3],
                reserved1: 0,
                ist: [0; 7],
                reserved2: 0,
                reserved3: 0,
                bitmap_offset: core::mem::offset_of!(TaskState, bitmap) as u16,
                bitmap: [0xff; COM1_BYTE + 1],
                end: 0xff,
            },
            gdt: GDT,
            last_stacks: [const { LastStack([0; 4096]) }; 3],
        }
    }
}

impl CoreState {
    /// The next entry from user mode saves its registers in `context`.
    pub fn set_context(&mut self, context: *mut Context) {
        let end = context.wrapping_add(1).addr() as u64;
        self.context_end = end;
        self.task_state.rsp[0] = end;
    }

    pub fn context(&self) -> *mut Context {
        (self.context_end as *mut Context).wrapping_sub(1)
    }

    pub fn allow_com1(&mut self, allow: bool) {
        self.task_state.bitmap[COM1_BYTE] = if allow { 0 } else { 0xff };
    }

    /// Loads the core's tables and the MSRs of `syscall` and `gs`.
    ///
    /// # Safety
    /// `state` is at its final address and this core's own; `build_idt` was called.
    pub unsafe fn load(state: *mut CoreState, index: usize, stack_top: u64) {
        // SAFETY: the caller's promise.
        let s = unsafe { &mut *state };
        s.this = state;
        s.index = index;
        s.stack_top = stack_top;
        for (slot, stack) in s.last_stacks.iter().enumerate() {
            s.task_state.ist[slot] = (&raw const *stack).wrapping_add(1).addr() as u64;
        }
        let base = (&raw const s.task_state).addr() as u64;
        let limit = size_of::<TaskState>() as u64 - 1;
        // Available 64-bit TSS (SDM 7.2.3).
        s.gdt[5] = limit | (base & 0xff_ffff) << 16 | 0x89 << 40 | (base >> 24 & 0xff) << 56;
        s.gdt[6] = base >> 32;
        let gdt = Pointer { limit: size_of_val(&s.gdt) as u16 - 1, base: (&raw const s.gdt).addr() as u64 };
        let idt = Pointer { limit: size_of::<Idt>() as u16 - 1, base: IDT.0.get().addr() as u64 };
        // SAFETY: the tables are complete and stay where they are. The far return loads the new code selector, which is a
        // 64-bit ring-0 segment as the old one was. Data selectors other than SS may be null in 64-bit mode.
        unsafe {
            asm!(
                "lgdt [{gdt}]",
                "lidt [{idt}]",
                "push {code}",
                "lea {t}, [rip + 2f]",
                "push {t}",
                "retfq",
                "2:",
                "mov ss, {data:x}",
                "mov ds, {zero:x}",
                "mov es, {zero:x}",
                "mov fs, {zero:x}",
                "mov gs, {zero:x}",
                "ltr {tss:x}",
                gdt = in(reg) &gdt,
                idt = in(reg) &idt,
                code = const KERNEL_CODE as i32,
                t = out(reg) _,
                data = in(reg) KERNEL_DATA,
                zero = in(reg) 0u16,
                tss = in(reg) TSS,
            );
            write_msr(STAR, (KERNEL_DATA as u64 | 3) << 48 | (KERNEL_CODE as u64) << 32);
            write_msr(LSTAR, entry::call_entry());
            write_msr(SFMASK, CLEARED_FLAGS);
            write_msr(SYSENTER_CS, 0);
            write_msr(FS_BASE, 0);
            write_msr(KERNEL_GS_BASE, 0);
            write_msr(GS_BASE, state.addr() as u64);
        }
    }
}

#[repr(C, packed)]
struct Pointer {
    limit: u16,
    base: u64,
}

/// One table for all cores, built once by the boot core before it or any other loads it.
type Idt = [[u64; 2]; 256];
struct IdtCell(UnsafeCell<Idt>);
// SAFETY: written by `build_idt` only, before anybody reads it.
unsafe impl Sync for IdtCell {}
static IDT: IdtCell = IdtCell(UnsafeCell::new([[0; 2]; 256]));

/// Interrupt gates (SDM 6.14.1): interrupts off; only `int3` may be raised by user code. NMI, double fault and machine check
/// get a stack of their own.
pub fn build_idt() {
    // SAFETY: no other core runs, and this core has not loaded the table yet.
    let idt = unsafe { &mut *IDT.0.get() };
    for (vector, gate) in idt.iter_mut().enumerate() {
        let (address, stack) = match vector {
            2 => (entry::last_entry(0), 1),
            8 => (entry::last_entry(1), 2),
            18 => (entry::last_entry(2), 3),
            _ => (entry::vector_entry(vector), 0),
        };
        let ring = if vector == 3 { 3u64 } else { 0 };
        let low = address & 0xffff | (KERNEL_CODE as u64) << 16 | stack << 32 | 0x8e00 << 32 | ring << 45;
        *gate = [low | (address >> 16 & 0xffff) << 48, address >> 32];
    }
}
