//! Reading the sources of entropy.

use crate::machine::{self, Pages};
use core::ptr::NonNull;
use ipc::abi::PAGE;
use rt::Region;
use supervisor::function::Structures;
use virtio::{DeviceFault, Queue, Registers, Transport, VERSION_1, queue};

/// Random bytes of the processor's own generator.
#[cfg(target_arch = "x86_64")]
pub fn processor() -> Option<[u8; 32]> {
    use core::arch::x86_64::{__cpuid, __cpuid_count};
    // Leaf 7 EBX bit 18: RDSEED; leaf 1 ECX bit 30: RDRAND.
    let (seed, rand) = (__cpuid_count(7, 0).ebx >> 18 & 1 == 1, __cpuid(1).ecx >> 30 & 1 == 1);
    let mut bytes = [0; 32];
    for chunk in bytes.chunks_exact_mut(8) {
        // The generator may be exhausted for a moment.
        let word = (0..1000).find_map(|_| {
            if seed {
                rdseed()
            } else if rand {
                rdrand()
            } else {
                None
            }
        })?;
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    Some(bytes)
}

#[cfg(target_arch = "x86_64")]
fn rdseed() -> Option<u64> {
    let (value, ok): (u64, u8);
    // SAFETY: called only where CPUID says that the instruction exists.
    unsafe {
        core::arch::asm!("rdseed {}", "setc {}", out(reg) value, out(reg_byte) ok, options(nomem, nostack))
    };
    (ok == 1).then_some(value)
}

#[cfg(target_arch = "x86_64")]
fn rdrand() -> Option<u64> {
    let (value, ok): (u64, u8);
    // SAFETY: called only where CPUID says that the instruction exists.
    unsafe {
        core::arch::asm!("rdrand {}", "setc {}", out(reg) value, out(reg_byte) ok, options(nomem, nostack))
    };
    (ok == 1).then_some(value)
}

/// User mode can't ask whether RNDR exists; the kernel adds it to the firmware's bytes where it does.
#[cfg(target_arch = "aarch64")]
pub fn processor() -> Option<[u8; 32]> {
    None
}

const BYTES: usize = 64;
const QUEUE_SIZE: u16 = 2;
/// How long the device may take.
const TIMEOUT_MS: u64 = 200;

/// Reads the entropy device once (virtio 1.2, section 5.4), and leaves it in reset.
pub fn device(
    structures: &Structures,
    setup: &mut Pages,
    memory: Region,
    ticks_per_second: u64,
) -> Result<[u8; BYTES], DeviceFault> {
    let (common, notify) = (structures.common, structures.notify);
    let mut map = |place: supervisor::function::Place| setup.map(place.phys, place.len as u64);
    let (common, notify_base) = (map(common), map(notify));
    let (Some(common), Some(notify_base)) = (common, notify_base) else { return Err(DeviceFault::Config) };
    // SAFETY: just mapped, of these lengths, aligned as `function::structures` has checked, and used by nothing else.
    let mut registers = unsafe {
        let nothing = (NonNull::<u32>::dangling().cast(), 0);
        Registers::new(common, (notify_base, notify.len as usize), nothing, structures.notify_multiplier)
    };
    assert!(memory.len >= 2 * PAGE, "region rng.queue is too small");
    let phys = machine::phys(memory.index);
    let (mut slots, mut free) = ([queue::Slot::default(); QUEUE_SIZE as usize], [0; QUEUE_SIZE as usize]);
    // SAFETY: the region's first page, page aligned, which only this task maps; the queue's parts fit it.
    let mut queue = unsafe { Queue::new(memory.base, phys, &mut slots, &mut free) };
    let result = read(&mut registers, &mut queue, phys + PAGE as u64, ticks_per_second);
    registers.reset()?;
    result?;
    // SAFETY: the region's second page; the device is in reset and writes no more.
    Ok(unsafe { memory.base.add(PAGE).cast::<[u8; BYTES]>().read_volatile() })
}

fn read(
    registers: &mut Registers,
    queue: &mut Queue,
    buffer: u64,
    ticks_per_second: u64,
) -> Result<(), DeviceFault> {
    registers.reset()?;
    if registers.offered_features() & VERSION_1 == 0 {
        return Err(DeviceFault::Features);
    }
    registers.accept_features(VERSION_1)?;
    queue.reset(false);
    registers.enable_queue(0, queue.addresses(), virtio::pci::NO_VECTOR)?;
    registers.start();
    let deadline = rt::ticks_now().saturating_add(ticks_per_second / 1000 * TIMEOUT_MS);
    // The device may give fewer bytes than asked for: then the rest is asked for.
    let mut have = 0;
    while have < BYTES as u32 {
        let len = BYTES as u32 - have;
        if !queue.add(0, buffer + have as u64, len, true) {
            return Err(DeviceFault::Queue);
        }
        if queue.publish() {
            registers.notify(0);
        }
        let written = loop {
            match queue.take()? {
                Some((_, written)) => break written,
                None if rt::ticks_now() > deadline => return Err(DeviceFault::Used),
                None => core::hint::spin_loop(),
            }
        };
        have += written;
        if written == 0 {
            return Err(DeviceFault::Used);
        }
    }
    Ok(())
}
