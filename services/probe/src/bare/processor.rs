//! Instructions that user mode may not use, or that can't be carried out.

use crate::memory::misdeeds;
use crate::misdeed::{Misdeed, Outcome::*};
use core::arch::asm;

/// One instruction, or a few.
macro_rules! instruction {
    ($($line:literal),+) => {
        |_| {
            // SAFETY: none: this is the misdeed. The kernel stops the task before a register is missed.
            unsafe { asm!($($line),+) };
            Survived
        }
    };
}

#[cfg(target_arch = "x86_64")]
pub const ALL: &[Misdeed] = misdeeds! {
    "an illegal instruction" => instruction!("ud2"),
    "a breakpoint" => instruction!("int3"),
    "a division by zero" => instruction!("xor ecx, ecx", "xor edx, edx", "mov eax, 1", "div ecx"),
    "to switch interrupts off" => instruction!("cli"),
    "to halt" => instruction!("hlt"),
    "to read a model-specific register" => instruction!("mov ecx, 0xc0000080", "rdmsr"),
    "to write a model-specific register" => instruction!("mov ecx, 0xc0000080", "xor eax, eax", "xor edx, edx", "wrmsr"),
    "to read the page-table root" => instruction!("mov rax, cr3"),
    "to write the page-table root" => instruction!("xor eax, eax", "mov cr3, rax"),
    "to write a debug register" => instruction!("xor eax, eax", "mov dr7, rax"),
    "to load a descriptor table" => instruction!("sub rsp, 16", "lidt [rsp]"),
    "to read where the descriptor table is" => instruction!("sub rsp, 16", "sidt [rsp]"),
    "to invalidate a page" => instruction!("invlpg [rsp]"),
    "to swap the kernel's base register" => instruction!("swapgs"),
    "to return to the kernel" => instruction!("sysretq"),
    "the interrupt of other systems" => instruction!("int 0x80"),
    "to enter by another door" => instruction!("sysenter"),
    "the interrupt of the timer" => instruction!("int 0x20"),
    "a port of the keyboard" => instruction!("in al, 0x64"),
    "a port of PCI" => instruction!("mov dx, 0xcf8", "in eax, dx"),
    "a port of the serial line" => instruction!("mov dx, 0x3f8", "mov al, 33", "out dx, al"),
    "a step with the trap flag" => instruction!("pushfq", "or qword ptr [rsp], 0x100", "popfq", "nop", "nop"),
    "a stack in the kernel" => instruction!("mov rsp, -4096", "push rax"),
    "to jump to a non-canonical address" => instruction!("mov rax, 0x1234000000000000", "jmp rax"),
    "to load a segment of the kernel" => instruction!("mov ax, 8", "mov ss, ax"),
};

#[cfg(target_arch = "aarch64")]
pub const ALL: &[Misdeed] = misdeeds! {
    "an illegal instruction" => instruction!("udf #0"),
    "a breakpoint" => instruction!("brk #1"),
    "to switch interrupts off" => instruction!("msr daifset, #15"),
    "to read the page-table root" => instruction!("mrs x9, ttbr0_el1"),
    "to write the page-table root" => instruction!("msr ttbr0_el1, xzr"),
    "to write the vectors" => instruction!("msr vbar_el1, xzr"),
    "to read the system control register" => instruction!("mrs x9, sctlr_el1"),
    "to change the exception level's state" => instruction!("msr spsr_el1, xzr"),
    "to invalidate all translations" => instruction!("tlbi vmalle1"),
    "to set the timer" => instruction!("msr cntv_cval_el0, xzr"),
    "to return from an exception" => instruction!("eret"),
    "to call the hypervisor" => instruction!("hvc #0"),
    "to call the secure monitor" => instruction!("smc #0"),
    "to choose a stack pointer" => instruction!("msr spsel, #1"),
    "to read a performance counter" => instruction!("mrs x9, pmccntr_el0"),
    "a stack in the kernel" => instruction!("mov x9, #-4096", "mov sp, x9", "str x9, [sp, #-16]!"),
    "a misaligned stack" => instruction!("mov x9, #0x5558", "mov sp, x9", "str x9, [sp]"),
    "another system call door" => instruction!("svc #77", "mov x8, #99", "svc #1"),
};
