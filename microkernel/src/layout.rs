//! The kernel's own addresses, besides its image and the physical map.

use crate::paging::PAGE;

/// Stacks: one slot a core, each guard, stack, guard.
pub const STACKS: u64 = 0xffff_ffff_a000_0000;
pub const STACK_SLOT: u64 = 4 * PAGE;
pub const STACK_BYTES: u64 = 2 * PAGE;

/// The window to device registers, 16 MiB.
pub const DEVICES: u64 = 0xffff_ffff_c000_0000;
pub const DEVICES_END: u64 = DEVICES + (16 << 20);

/// First byte of a core's stack; the page before and the page after are not mapped.
pub const fn stack_bottom(core: usize) -> u64 {
    STACKS + core as u64 * STACK_SLOT + PAGE
}

pub const fn stack_top(core: usize) -> u64 {
    stack_bottom(core) + STACK_BYTES
}
