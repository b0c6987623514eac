//! Reset and power off.

use core::arch::asm;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use ipc::abi::PlatformDesc;
use x86_64::instructions::port::Port;

use crate::arch::DeviceWindow;

/// What discovery found; 0 or null: nothing. Written once in the boot phase.
static RESET_PORT: AtomicU32 = AtomicU32::new(0);
static RESET_MEMORY: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
static RESET_VALUE: AtomicU32 = AtomicU32::new(0);
static CONTROL_PORT: AtomicU32 = AtomicU32::new(0);
static SLEEP_TYPE: AtomicU32 = AtomicU32::new(0);

/// Sleep enable in the PM1 control register (ACPI 4.8.3.2.1).
const SLEEP_ENABLE: u16 = 1 << 13;

pub fn platform(desc: &PlatformDesc, window: &mut dyn DeviceWindow) -> Result<(), &'static str> {
    RESET_VALUE.store(desc.reset_value, Ordering::Relaxed);
    if desc.reset_space == 1 {
        RESET_PORT.store(desc.reset_address as u16 as u32, Ordering::Relaxed);
    } else if desc.reset_address != 0 {
        let at = window.map(desc.reset_address, 1).ok_or("no room for the reset register")?;
        RESET_MEMORY.store(at, Ordering::Relaxed);
    }
    CONTROL_PORT.store(desc.pm1a_control_port, Ordering::Relaxed);
    SLEEP_TYPE.store(desc.s5_sleep_type, Ordering::Relaxed);
    Ok(())
}

fn out(port: u16, value: u8) {
    // SAFETY: these ports end the system, which is the point.
    unsafe { Port::new(port).write(value) }
}

/// Some milliseconds, for a reset to take effect.
fn pause() {
    (0..2_000_000).for_each(|_| core::hint::spin_loop());
}

pub fn reboot() -> ! {
    let value = RESET_VALUE.load(Ordering::Relaxed) as u8;
    let memory = RESET_MEMORY.load(Ordering::Relaxed);
    if !memory.is_null() {
        // SAFETY: the mapped reset register.
        unsafe { memory.write_volatile(value) };
        pause();
    }
    if let port @ 1.. = RESET_PORT.load(Ordering::Relaxed) {
        out(port as u16, value);
        pause();
    }
    // The chipset's reset control register, and the keyboard controller.
    out(0xcf9, 2);
    out(0xcf9, 6);
    pause();
    out(0x64, 0xfe);
    pause();
    // A fault without a handler, and no handler for that: the processor shuts down and the board resets it.
    let none = [0u16; 5];
    // SAFETY: the end.
    unsafe { asm!("lidt [{}]", "int3", "2: hlt", "jmp 2b", in(reg) &none, options(noreturn)) }
}

pub fn power_off() -> ! {
    if let port @ 1.. = CONTROL_PORT.load(Ordering::Relaxed) {
        let sleep = (SLEEP_TYPE.load(Ordering::Relaxed) as u16 & 7) << 10 | SLEEP_ENABLE;
        // SAFETY: ends the system.
        unsafe { Port::new(port as u16).write(sleep) };
        pause();
    }
    loop {
        // SAFETY: interrupts are off, so this is the end.
        unsafe { asm!("hlt") };
    }
}
