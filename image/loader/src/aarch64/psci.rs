//! Power State Coordination Interface (Arm DEN 0022), over HVC or SMC.

use core::arch::asm;
use core::mem::offset_of;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Acquire;

use super::enter::Context;
use super::seconds;
use crate::acpi::Conduit;

const CPU_ON: u64 = 0xc400_0003;
const SYSTEM_OFF: u64 = 0x8400_0008;

/// Starts processor `index` at `entry` with its context. True: it has parked.
pub fn start(conduit: Conduit, id: u64, entry: u64, contexts: u64, index: usize) -> bool {
    let context = Context::at(contexts, index);
    if call(conduit, CPU_ON, [id, entry, context]) != 0 {
        return false;
    }
    let parked = (context + offset_of!(Context, parked) as u64) as *const AtomicU64;
    // SAFETY: a word of the arena, which is mapped here; the other processor writes it as a whole.
    let parked = unsafe { &*parked };
    let patience = seconds() + 2;
    // Acquire: pairs with the `stlr` of `urmqtt_enter`.
    while parked.load(Acquire) == 0 {
        if seconds() > patience {
            return false;
        }
        core::hint::spin_loop();
    }
    true
}

/// Comes back if firmware can't.
pub fn power_off(conduit: Conduit) {
    call(conduit, SYSTEM_OFF, [0; 3]);
}

fn call(conduit: Conduit, function: u64, [a, b, c]: [u64; 3]) -> i64 {
    macro_rules! through {
        ($instruction:literal) => {{
            let result;
            // SAFETY: PSCI keeps memory as it is (SMC Calling Convention 2.6: x0 to x17 may change).
            unsafe {
                asm!($instruction, inlateout("x0") function => result, inlateout("x1") a => _, inlateout("x2") b => _,
                    inlateout("x3") c => _, out("x4") _, out("x5") _, out("x6") _, out("x7") _, out("x8") _, out("x9") _,
                    out("x10") _, out("x11") _, out("x12") _, out("x13") _, out("x14") _, out("x15") _, out("x16") _,
                    out("x17") _, options(nostack));
            }
            result
        }};
    }
    match conduit {
        Conduit::Hvc => through!("hvc #0"),
        Conduit::Smc => through!("smc #0"),
    }
}
