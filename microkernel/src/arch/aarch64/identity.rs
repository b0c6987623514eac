//! Two low mappings for the time on the loader's tables: the code that switches tables, at its physical address, and the
//! UART, so that a kernel that can't even build its tables can say so.
//!
//! They hang in tables of our own in TTBR0. Page attributes use MAIR's last two entries, which neither the loader (it needs
//! two, and counts from 0) nor the kernel uses; they mean the same before and after the switch.

use core::arch::asm;
use core::cell::UnsafeCell;

use aarch64_cpu::asm::barrier;
use aarch64_cpu::registers::{MAIR_EL1, PAR_EL1, Readable, TCR_EL1, TTBR0_EL1, Writeable};

use super::mmio::Window;
use super::{cache, start, uart};

/// Entries 6 (Device-nGnRE) and 7 (normal, write-back).
pub const MAIR: u64 = 0x04 << 48 | 0xff << 56;
const MAIR_MASK: u64 = 0xffff << 48;
const DEVICE: u64 = 6 << 2;
const NORMAL: u64 = 7 << 2;

const TABLE: u64 = 0b11;
/// Access flag, and not executable by EL0.
const LEAF: u64 = 1 << 10 | 1 << 54 | 1;
const READ_ONLY: u64 = 1 << 7;
const NO_EXECUTE: u64 = 1 << 53;
const INNER_SHAREABLE: u64 = 3 << 8;

/// Levels 0 to 3 of the architecture's count.
#[repr(C, align(4096))]
struct Tables([UnsafeCell<[u64; 512]>; 4]);

// SAFETY: written once, by the boot core before there are others.
unsafe impl Sync for Tables {}

static TABLES: Tables = Tables([const { UnsafeCell::new([0; 512]) }; 4]);

/// Physical address of something that is mapped, by asking the MMU.
pub fn physical(virt: usize) -> u64 {
    // SAFETY: translates, and changes PAR_EL1 alone.
    unsafe { asm!("at s1e1r, {}", in(reg) virt, options(nostack, preserves_flags)) };
    barrier::isb(barrier::SY);
    let par = PAR_EL1.get();
    assert!(par & 1 == 0, "the kernel image isn't mapped");
    par & 0x0000_ffff_ffff_f000 | virt as u64 & 0xfff
}

/// Points TTBR0 to these mappings, unless it does already; returns its value. On the boot core first.
pub fn install() -> u64 {
    let root = physical(TABLES.0[0].get() as usize);
    if TTBR0_EL1.get() == root {
        return root;
    }
    // Walks by TTBR0 off, what the loader had there forgotten, ours in place, walks on.
    const WALK_0: u64 = 0xffff;
    const OFF: u64 = 1 << 7;
    let tcr = TCR_EL1.get() & !WALK_0;
    TCR_EL1.set(tcr | OFF | 16);
    barrier::isb(barrier::SY);
    cache::flush_tlb();
    fill();
    MAIR_EL1.set(MAIR_EL1.get() & !MAIR_MASK | MAIR);
    TTBR0_EL1.set(root);
    barrier::dsb(barrier::ISHST);
    // 48 bits, 4 KiB, walks inner shareable and write-back.
    TCR_EL1.set(tcr | 16 | 3 << 12 | 1 << 10 | 1 << 8);
    barrier::isb(barrier::SY);
    if let Some(uart) = uart_window() {
        uart::init(uart);
    }
    root
}

fn fill() {
    let (code, _) = start::switch_code();
    let page = physical(code as usize) & !0xfff;
    let index = |level: u32| (page >> (39 - 9 * level)) as usize & 511;
    for level in 0..3 {
        let next = physical(TABLES.0[level + 1].get() as usize);
        // SAFETY: the boot core's, see `Tables`; other cores fill in what stands there already, word by word.
        unsafe { (*TABLES.0[level].get())[index(level as u32)] = next | TABLE };
    }
    // SAFETY: as above.
    unsafe {
        (*TABLES.0[3].get())[index(3)] = page | LEAF | 2 | READ_ONLY | INNER_SHAREABLE | NORMAL;
        if index(0) == 0 && index(1) != 0 {
            // The first gigabyte, which holds the UART.
            (*TABLES.0[1].get())[0] = LEAF | NO_EXECUTE | DEVICE;
        }
    }
}

/// The default UART, through the low mapping.
fn uart_window() -> Option<Window> {
    // SAFETY: only the boot core writes the table, earlier.
    let mapped = unsafe { (*TABLES.0[1].get())[0] == LEAF | NO_EXECUTE | DEVICE };
    // SAFETY: mapped as device memory; nothing else is at this address on the machines that we know.
    mapped.then(|| unsafe { Window::new(uart::DEFAULT as usize) })
}

/// The UART before [`start::enter_kernel`].
pub fn uart() -> Option<Window> {
    install();
    uart_window()
}
