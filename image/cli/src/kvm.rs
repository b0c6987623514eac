//! Whether KVM runs a guest at the processor's speed.
//!
//! `/dev/kvm` can be there and yet interpret every instruction (nested in a machine that has no such support), which is
//! a hundred times slower than QEMU's emulation. So: a guest of three instructions counts down, and is timed.

use kvm_bindings::kvm_userspace_memory_region;
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd, VmFd};
use std::time::{Duration, Instant};

/// Rounds of the guest's loop, two instructions each: 0.03 ms on a processor, 0.1 s when interpreted.
const ROUNDS: u16 = 50_000;
const LIMIT: Duration = Duration::from_millis(10);

/// True when KVM is there and fast.
pub fn usable() -> bool {
    count_down().is_ok_and(|time| time < LIMIT)
}

/// Pages for the guest: one, at its physical address 0.
#[repr(align(4096))]
struct Page([u8; 4096]);

fn count_down() -> Result<Duration, kvm_ioctls::Error> {
    let vm = Kvm::new()?.create_vm()?;
    let mut page = Box::new(Page([0; 4096]));
    page.0[..CODE.len()].copy_from_slice(CODE);
    let region = kvm_userspace_memory_region {
        slot: 0,
        flags: 0,
        guest_phys_addr: 0,
        memory_size: size_of::<Page>() as u64,
        userspace_addr: page.0.as_mut_ptr() as u64,
    };
    // SAFETY: the page is ours alone, and outlives the machine and its processor, which are dropped first (declared later).
    unsafe { vm.set_user_memory_region(region)? };
    let mut cpu = vm.create_vcpu(0)?;
    prepare(&vm, &mut cpu)?;
    let start = Instant::now();
    let ended = matches!(cpu.run()?, VcpuExit::Hlt | VcpuExit::MmioWrite(..));
    let time = start.elapsed();
    drop((cpu, vm, page));
    if ended { Ok(time) } else { Err(kvm_ioctls::Error::new(0)) }
}

/// Real mode: `dec cx; jnz -3; hlt`.
#[cfg(target_arch = "x86_64")]
const CODE: &[u8] = &[0x49, 0x75, 0xfd, 0xf4];

#[cfg(target_arch = "x86_64")]
fn prepare(_: &VmFd, cpu: &mut VcpuFd) -> Result<(), kvm_ioctls::Error> {
    let mut segments = cpu.get_sregs()?;
    segments.cs.base = 0;
    segments.cs.selector = 0;
    cpu.set_sregs(&segments)?;
    let mut registers = cpu.get_regs()?;
    registers.rip = 0;
    registers.rcx = ROUNDS.into();
    registers.rflags = 2;
    cpu.set_regs(&registers)
}

/// `movz w0, #ROUNDS; subs w0, w0, #1; b.ne -4; mov x1, #0x10000; str w0, [x1]`: the store leaves the guest.
#[cfg(target_arch = "aarch64")]
const CODE: &[u8] = &{
    let words: [u32; 5] =
        [0x5280_0000 | (ROUNDS as u32) << 5, 0x7100_0400, 0x54ff_ffe1, 0xd2a0_0021, 0xb900_0020];
    let mut bytes = [0; 20];
    let mut i = 0;
    while i < 20 {
        bytes[i] = (words[i / 4] >> (8 * (i % 4))) as u8;
        i += 1;
    }
    bytes
};

/// A processor starts at address 0 after its reset.
#[cfg(target_arch = "aarch64")]
fn prepare(vm: &VmFd, cpu: &mut VcpuFd) -> Result<(), kvm_ioctls::Error> {
    let mut target = kvm_bindings::kvm_vcpu_init::default();
    vm.get_preferred_target(&mut target)?;
    cpu.vcpu_init(&target)
}
