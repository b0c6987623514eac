//! The kernel binary: entry and panic; everything else is in the library.
#![no_std]
#![no_main]

#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    microkernel::panic::panic(info)
}

/// Entered by the loader (Limine boot protocol) with a stack of at least 64 KiB, interrupts off.
#[unsafe(no_mangle)]
extern "C" fn _start() -> ! {
    microkernel::boot::start()
}
