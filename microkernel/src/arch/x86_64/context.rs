//! A task's saved registers.

use super::descriptors::{USER_CODE, USER_DATA};
use crate::arch::Registers;

/// RFLAGS: bit 1 is always set; interrupts enabled.
const FLAGS: u64 = 0x202;
/// `vector` of a context that a system call saved.
pub const BY_CALL: u64 = 0x100;

/// In the order of `entry`'s pushes, from the last to the first. The part from `rip` on is what the processor pushes:
/// RSP0 points to the context's end, so an interrupt of user mode saves itself right here. The processor aligns the
/// stack to 16 bytes before it pushes (SDM 6.14.2), so the end must be so aligned.
#[derive(Clone, Debug, Default)]
#[repr(C, align(16))]
pub struct Context {
    r15: u64,
    r14: u64,
    r13: u64,
    r12: u64,
    rbp: u64,
    rbx: u64,
    r11: u64,
    r10: u64,
    r9: u64,
    r8: u64,
    rax: u64,
    rcx: u64,
    rdx: u64,
    rsi: u64,
    rdi: u64,
    pub vector: u64,
    pub error: u64,
    rip: u64,
    cs: u64,
    rflags: u64,
    rsp: u64,
    ss: u64,
}

pub const CONTEXT_BYTES: usize = size_of::<Context>();
const _: () = assert!(CONTEXT_BYTES == 22 * 8);

impl Registers for Context {
    fn new(pc: u64, sp: u64) -> Self {
        Context { rip: pc, rsp: sp, cs: USER_CODE, ss: USER_DATA, rflags: FLAGS, ..Default::default() }
    }

    fn pc(&self) -> u64 {
        self.rip
    }

    fn sp(&self) -> u64 {
        self.rsp
    }

    fn call(&self) -> (u64, [u64; 4]) {
        (self.rax, [self.rdi, self.rsi, self.rdx, self.r10])
    }

    fn set_results(&mut self, first: u64, second: u64) {
        self.rax = first;
        self.rdx = second;
    }
}
