//! The ways into the kernel and out of it.
//!
//! An interrupt of user mode finds RSP0 at the end of the running task's context, so the processor and the stubs push
//! the registers right where they belong; `syscall` does the same by hand. Then the stack is the core's own, empty.

use core::arch::{asm, global_asm};

use super::apic;
use super::context::{BY_CALL, CONTEXT_BYTES, Context};
use super::descriptors::{CoreState, USER_CODE, USER_DATA};
use crate::arch::{Fault, Interrupt};
use crate::kernel::entry::{on_call, on_fault, on_interrupt};
use ipc::abi::FaultKind;

/// Bytes between the stubs of two vectors.
const STUB: usize = 16;

global_asm!(
    ".section .text.entry, \"ax\"",
    ".globl x86_vectors, x86_last, x86_call, x86_resume",
    // One stub a vector: error code (or 0) and vector. Those with an error code: SDM 6.3.1, table 6-1.
    ".balign 16",
    "x86_vectors:",
    ".set vector, 0",
    ".rept 256",
    ".balign {stub}",
    ".if (vector == 8) || ((vector >= 10) && (vector <= 14)) || (vector == 17) || (vector == 21) || (vector == 29) || (vector == 30)",
    ".else",
    "push 0",
    ".endif",
    "push vector",
    "jmp x86_common",
    ".set vector, vector + 1",
    ".endr",
    "",
    "x86_common:",
    "test byte ptr [rsp + 24], 3", // The interrupted code's privilege.
    "jz x86_from_kernel",
    "push rdi",
    "push rsi",
    "push rdx",
    "push rcx",
    "push rax",
    "push r8",
    "push r9",
    "push r10",
    "push r11",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "swapgs",
    "mov rdi, gs:[0]",
    "mov rsp, gs:[8]",
    // Direction and alignment-check flags are still the user's.
    "push 2",
    "popfq",
    "xor ebp, ebp",
    "call {user_trap}",
    "",
    // From idle: an interrupt, whose context is forgotten. Anything else is a bug.
    "x86_from_kernel:",
    "mov rsi, rsp",
    "mov edi, dword ptr [rsp]",
    "cmp edi, 32",
    "jb 2f",
    "mov rsi, gs:[0]",
    "mov rsp, gs:[8]",
    "call {idle_interrupt}",
    "2:",
    "call {kernel_fault}",
    "",
    // NMI, double fault, machine check: on stacks of their own, at any moment, `gs` unknown.
    ".balign {stub}",
    "x86_last:",
    "mov edi, 2",
    "mov rsi, rsp",
    "jmp {last}",
    ".balign {stub}",
    "mov edi, 8",
    "lea rsi, [rsp + 8]",
    "jmp {last}",
    ".balign {stub}",
    "mov edi, 18",
    "mov rsi, rsp",
    "jmp {last}",
    "",
    // `syscall`: rcx and r11 hold rip and rflags; interrupts and all other flags are off by SFMASK. Nothing is trusted
    // of the user's stack pointer: it is stored, not used.
    ".balign 16",
    "x86_call:",
    "swapgs",
    "mov gs:[24], rsp",
    "mov rsp, gs:[16]",
    "push {user_data}",
    "push qword ptr gs:[24]",
    "push r11",
    "push {user_code}",
    "push rcx",
    "push 0",
    "push {by_call}",
    "push rdi",
    "push rsi",
    "push rdx",
    "push rcx",
    "push rax",
    "push r8",
    "push r9",
    "push r10",
    "push r11",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "mov rdi, gs:[0]",
    "mov rsp, gs:[8]",
    "xor ebp, ebp",
    "call {call}",
    "",
    // Back to user mode; rdi: the context. `sysret` for what a system call saved: rcx and r11 are clobbered by contract,
    // and rip can't be non-canonical (where `sysret` would fault in ring 0), for a `syscall` instruction ends below
    // USER_END, which is far below 2^47. All else by `iretq`, which restores everything.
    "x86_resume:",
    "mov rsp, rdi",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "pop r11",
    "pop r10",
    "pop r9",
    "pop r8",
    "pop rax",
    "pop rcx",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "cmp qword ptr [rsp], {by_call}",
    "jne 2f",
    "mov rcx, [rsp + 16]",
    "mov r11, [rsp + 32]",
    "mov rsp, [rsp + 40]",
    "swapgs",
    "sysretq",
    "2:",
    "add rsp, 16",
    "swapgs",
    "iretq",
    ".text",
    stub = const STUB,
    user_trap = sym user_trap,
    idle_interrupt = sym idle_interrupt,
    kernel_fault = sym kernel_fault,
    last = sym last,
    call = sym call,
    user_data = const USER_DATA,
    user_code = const USER_CODE,
    by_call = const BY_CALL,
);
const _: () = assert!(ipc::abi::USER_END < 1 << 47 && CONTEXT_BYTES.is_multiple_of(16));

unsafe extern "C" {
    static x86_vectors: u8;
    static x86_last: u8;
    static x86_call: u8;
    fn x86_resume(context: *mut Context) -> !;
}

pub fn vector_entry(vector: usize) -> u64 {
    (&raw const x86_vectors).addr() as u64 + (vector * STUB) as u64
}

/// Of NMI, double fault, machine check.
pub fn last_entry(which: usize) -> u64 {
    (&raw const x86_last).addr() as u64 + (which * STUB) as u64
}

pub fn call_entry() -> u64 {
    (&raw const x86_call).addr() as u64
}

/// # Safety
/// As [`crate::arch::Machine::resume`]; `set_context` was called with it.
pub unsafe fn resume(context: *mut Context) -> ! {
    // SAFETY: the caller's promise.
    unsafe { x86_resume(context) }
}

/// Waits on the core's empty stack. `sti` takes effect after the next instruction, so no interrupt slips in before `hlt`
/// (SDM volume 2, STI).
pub fn idle() -> ! {
    // SAFETY: nothing of this stack is needed any more; an interrupt enters `x86_from_kernel`.
    unsafe {
        asm!("mov rsp, gs:[8]", "xor ebp, ebp", "2:", "sti", "hlt", "cli", "jmp 2b", options(noreturn));
    }
}

unsafe extern "C" fn call(state: *mut CoreState) -> ! {
    // SAFETY: entry code hands over the per-core pointer, on an empty stack.
    unsafe { on_call(state) }
}

unsafe extern "C" fn user_trap(state: *mut CoreState) -> ! {
    // SAFETY: as in `call`; the stub has just filled the context.
    unsafe {
        let context = &*(*state).context();
        match decode(context.vector as u8, context.error) {
            Ok(fault) => on_fault(state, fault),
            Err(interrupt) => on_interrupt(state, interrupt),
        }
    }
}

unsafe extern "C" fn idle_interrupt(vector: u32, state: *mut CoreState) -> ! {
    // SAFETY: as in `call`.
    unsafe { on_interrupt(state, apic::take(vector as u8)) }
}

/// What a vector below 32 means when user code raised it (SDM 6.15); others are interrupts.
fn decode(vector: u8, error: u64) -> Result<Fault, Interrupt> {
    let kind = match vector {
        0 => FaultKind::Divide,
        1 | 3 => FaultKind::Breakpoint,
        // #NM: SIMD without TASK_SIMD.
        6 | 7 => FaultKind::Illegal,
        14 => {
            // SDM 4.7: bit 4 instruction fetch, bit 1 write.
            let kind = match error {
                e if e & 1 << 4 != 0 => FaultKind::Execute,
                e if e & 1 << 1 != 0 => FaultKind::Write,
                _ => FaultKind::Read,
            };
            return Ok(Fault { kind, address: x86_64::registers::control::Cr2::read_raw() });
        }
        17 => FaultKind::Alignment,
        21 => FaultKind::ControlFlow,
        _ if vector < 32 => FaultKind::General,
        _ => return Err(apic::take(vector)),
    };
    Ok(Fault { kind, address: 0 })
}

/// What the processor pushes.
#[repr(C)]
struct Frame {
    rip: u64,
    cs: u64,
    rflags: u64,
    rsp: u64,
}

/// An exception in kernel mode: vector, error and frame lie on the stack.
unsafe extern "C" fn kernel_fault(vector: u32, at: *const u64) -> ! {
    // SAFETY: the stub pushed two words after the processor's frame.
    let (error, frame) = unsafe { (*at.add(1), &*at.add(2).cast::<Frame>()) };
    let address = x86_64::registers::control::Cr2::read_raw();
    panic!("exception {vector} in the kernel at {:#x}, error {error:#x}, address {address:#x}", frame.rip);
}

/// NMI, double fault, machine check.
unsafe extern "C" fn last(vector: u32, frame: *const Frame) -> ! {
    // SAFETY: the processor has just pushed it.
    let frame = unsafe { &*frame };
    let name = match vector {
        2 => "non-maskable interrupt",
        8 => "double fault",
        _ => "machine check",
    };
    panic!("{name} at {:#x}, stack {:#x}", frame.rip, frame.rsp);
}
