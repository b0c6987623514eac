//! Saved registers, exception vectors, and the way back to EL0.
//!
//! While a task runs, SP_EL1 points to its [`Context`], so an exception stores straight into it, without a scratch
//! register; TPIDR_EL1 points to the core's [`CoreState`], whose first word is the stack for the kernel.

use core::arch::{asm, global_asm};
use core::mem::offset_of;

use aarch64_cpu::registers::{ESR_EL1, FAR_EL1, Readable, TPIDR_EL1, VBAR_EL1, Writeable};
use ipc::abi::{FaultKind, NEVER};

use super::{fault, interrupts, keys};
use crate::arch::{Fault, Registers};
use crate::kernel::entry;

/// PSTATE.I in a saved program status.
pub const IRQ_MASKED: u64 = 1 << 7;

/// What a task is between two of its instructions, SIMD apart.
#[derive(Debug)]
#[repr(C, align(16))]
pub struct Context {
    x: [u64; 31],
    sp: u64,
    pc: u64,
    /// From SPSR_EL1; EL0t with interrupts enabled is 0.
    pub(super) pstate: u64,
    tpidr: u64,
    /// APIAKey, low half first; not read back, for EL0 can't change it.
    key: [u64; 2],
    unused: u64,
}

const _: () = {
    assert!(offset_of!(Context, sp) == 248);
    assert!(offset_of!(Context, pc) == 256);
    assert!(offset_of!(Context, tpidr) == 272);
};

/// What belongs to a core. The vectors read `stack_top` at offset 0.
#[derive(Debug)]
#[repr(C)]
pub struct CoreState {
    pub(super) stack_top: u64,
    pub(super) index: usize,
    /// The key in the processor's register.
    key: [u64; 2],
    /// Deadline of `timer_set` while the interrupt controller isn't there yet.
    pub(super) deadline: u64,
    /// The context whose interrupts were masked because one came too early.
    pub(super) quieted: *mut Context,
}

impl Default for CoreState {
    fn default() -> Self {
        let quieted = core::ptr::null_mut();
        CoreState { stack_top: 0, index: 0, key: [0; 2], deadline: NEVER, quieted }
    }
}

/// The calling core's state; null before `init_core`.
pub fn core() -> *mut CoreState {
    TPIDR_EL1.get() as *mut CoreState
}

impl Registers for Context {
    fn new(pc: u64, sp: u64) -> Self {
        Context { x: [0; 31], sp, pc, pstate: 0, tpidr: 0, key: keys::fresh(), unused: 0 }
    }

    fn pc(&self) -> u64 {
        self.pc
    }

    fn sp(&self) -> u64 {
        self.sp
    }

    fn call(&self) -> (u64, [u64; 4]) {
        (self.x[8], [self.x[0], self.x[1], self.x[2], self.x[3]])
    }

    fn set_results(&mut self, first: u64, second: u64) {
        (self.x[0], self.x[1]) = (first, second);
    }
}

/// Makes exceptions of this core come here.
pub fn init_core() {
    unsafe extern "C" {
        static exception_vectors: u8;
    }
    VBAR_EL1.set(&raw const exception_vectors as u64);
}

/// # Safety
/// As for [`crate::arch::Machine::resume`]; `pointer_auth`: the processor has FEAT_PAuth.
pub unsafe fn resume(context: *mut Context, pointer_auth: bool) -> ! {
    if pointer_auth {
        // SAFETY: both belong to this core while the kernel runs on it; the key's registers are there, and the
        // exception return makes them take effect.
        unsafe {
            let (key, state) = ((*context).key, &mut *core());
            if state.key != key {
                state.key = key;
                // APIAKeyLo_EL1, APIAKeyHi_EL1.
                asm!("msr s3_0_c2_c1_0, {}", "msr s3_0_c2_c1_1, {}", in(reg) key[0], in(reg) key[1], options(nostack));
            }
        }
    }
    unsafe extern "C" {
        fn exception_return(context: *mut Context) -> !;
    }
    // SAFETY: the caller's promise.
    unsafe { exception_return(context) }
}

/// A synchronous exception from EL0.
extern "C" fn lower_synchronous(_context: *mut Context) -> ! {
    match fault::decode(ESR_EL1.get()) {
        // SAFETY: called by the vector, on a fresh stack; the same below.
        fault::Syndrome::SystemCall => unsafe { entry::on_call(core()) },
        fault::Syndrome::Fault { kind, has_address } => {
            let address = if has_address { FAR_EL1.get() } else { 0 };
            // SAFETY: see above.
            unsafe { entry::on_fault(core(), Fault { kind, address }) }
        }
    }
}

/// An interrupt while a task ran.
extern "C" fn lower_interrupt(context: *mut Context) -> ! {
    interrupts::from_task(context)
}

/// An SError while a task ran: a bus error that was found late. It may stem from anything, so unless the processor
/// vouches that it concerns the task alone, nothing can be trusted any more.
extern "C" fn lower_error(_context: *mut Context) -> ! {
    let esr = ESR_EL1.get();
    if fault::error_is_contained(esr) {
        // SAFETY: called by the vector, on a fresh stack.
        unsafe { entry::on_fault(core(), Fault { kind: FaultKind::General, address: 0 }) }
    }
    panic!("system error, syndrome {esr:#x}")
}

/// Any exception in the kernel, and those that can't be: FIQ (nothing is in group 0), AArch32.
extern "C" fn unexpected(vector: u64, pc: u64, address: u64, sp: u64) -> ! {
    panic!(
        "exception {vector:#x} at {pc:#x}, syndrome {:#x}, address {address:#x}, stack {sp:#x}",
        ESR_EL1.get()
    )
}

/// For [`unexpected`]: the exception may be the kernel's stack having run into its guard page. Shared by all cores; two
/// that die at once may garble the message.
#[repr(C, align(16))]
struct Emergency([u8; 4096]);
static mut EMERGENCY: Emergency = Emergency([0; 4096]);

global_asm!(
    r#"
.section .text.vectors, "ax"

// Saves all registers in the context that SP points to, and goes to \handler(context) on the core's stack.
// 29 instructions of the 32 that a vector has.
.macro from_task handler
    .balign 0x80
    stp     x0, x1, [sp]
    stp     x2, x3, [sp, #16]
    stp     x4, x5, [sp, #32]
    stp     x6, x7, [sp, #48]
    stp     x8, x9, [sp, #64]
    stp     x10, x11, [sp, #80]
    stp     x12, x13, [sp, #96]
    stp     x14, x15, [sp, #112]
    stp     x16, x17, [sp, #128]
    stp     x18, x19, [sp, #144]
    stp     x20, x21, [sp, #160]
    stp     x22, x23, [sp, #176]
    stp     x24, x25, [sp, #192]
    stp     x26, x27, [sp, #208]
    stp     x28, x29, [sp, #224]
    mrs     x1, sp_el0
    mrs     x2, elr_el1
    mrs     x3, spsr_el1
    mrs     x4, tpidr_el0
    stp     x30, x1, [sp, #240]
    stp     x2, x3, [sp, #256]
    str     x4, [sp, #272]
    mov     x0, sp
    mrs     x1, tpidr_el1
    ldr     x1, [x1]
    mov     sp, x1
    mov     x29, xzr
    mov     x30, xzr
    b       \handler
.endm

.macro from_nowhere
    .balign 0x80
    mov     x0, #(. - exception_vectors)
    b       unexpected_exception
.endm

.balign 0x800
.global exception_vectors
exception_vectors:
    // From EL1 with SP_EL0, which is never selected.
    from_nowhere
    from_nowhere
    from_nowhere
    from_nowhere
    // From EL1.
    from_nowhere
    from_nowhere
    from_nowhere
    from_nowhere
    // From EL0: synchronous, IRQ, FIQ, SError.
    from_task {synchronous}
    from_task {interrupt}
    from_nowhere
    from_task {error}
    // From EL0 in AArch32, which no task is started in.
    from_nowhere
    from_nowhere
    from_nowhere
    from_nowhere
.balign 0x80

unexpected_exception:
    mrs     x1, elr_el1
    mrs     x2, far_el1
    mov     x3, sp
    adrp    x4, {emergency}
    add     x4, x4, :lo12:{emergency}
    add     x4, x4, #4096
    mov     sp, x4
    b       {unexpected}

// x0: the context. Interrupts are masked, so nothing can come between the change of SP and `eret`. Speculation past
// `eret` is stopped by the barriers behind it.
.global exception_return
exception_return:
    mov     sp, x0
    ldp     x30, x1, [sp, #240]
    ldp     x2, x3, [sp, #256]
    ldr     x4, [sp, #272]
    msr     sp_el0, x1
    msr     elr_el1, x2
    msr     spsr_el1, x3
    msr     tpidr_el0, x4
    ldp     x28, x29, [sp, #224]
    ldp     x26, x27, [sp, #208]
    ldp     x24, x25, [sp, #192]
    ldp     x22, x23, [sp, #176]
    ldp     x20, x21, [sp, #160]
    ldp     x18, x19, [sp, #144]
    ldp     x16, x17, [sp, #128]
    ldp     x14, x15, [sp, #112]
    ldp     x12, x13, [sp, #96]
    ldp     x10, x11, [sp, #80]
    ldp     x8, x9, [sp, #64]
    ldp     x6, x7, [sp, #48]
    ldp     x4, x5, [sp, #32]
    ldp     x2, x3, [sp, #16]
    ldp     x0, x1, [sp]
    eret
    dsb     nsh
    isb
.purgem from_task
.purgem from_nowhere
.text
"#,
    synchronous = sym lower_synchronous,
    interrupt = sym lower_interrupt,
    error = sym lower_error,
    unexpected = sym unexpected,
    emergency = sym EMERGENCY,
);
