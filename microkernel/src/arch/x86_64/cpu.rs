//! Control registers and processor features.

use core::arch::x86_64::{__cpuid, __cpuid_count, CpuidResult};
use core::sync::atomic::{AtomicBool, Ordering};

use x86_64::registers::control::{Cr0, Cr0Flags, Cr4, Cr4Flags, Efer, EferFlags};
use x86_64::registers::model_specific::Msr;

/// Reset value (SDM 11.12.4): entry 0 write-back, entry 3 uncached. Those are the two that `format` uses; loaders may have
/// changed others.
const PAT: u64 = 0x0007_0406_0007_0406;

/// All cores have the boot core's features: set once before the others start.
static PCID: AtomicBool = AtomicBool::new(false);

/// A leaf of CPUID; zeros where the processor (or hypervisor) doesn't have it.
pub fn cpuid(leaf: u32, subleaf: u32) -> CpuidResult {
    let base = leaf & 0xffff_0000;
    let asked = base != 0x4000_0000 || is_virtual();
    if asked && leaf <= __cpuid(base).eax {
        __cpuid_count(leaf, subleaf)
    } else {
        CpuidResult { eax: 0, ebx: 0, ecx: 0, edx: 0 }
    }
}

/// A hypervisor says that it is there.
pub fn is_virtual() -> bool {
    __cpuid(1).ecx >> 31 & 1 == 1
}

/// # Safety
/// The register exists and the value keeps the kernel's assumptions.
pub unsafe fn write_msr(number: u32, value: u64) {
    // SAFETY: the caller's promise.
    unsafe { Msr::new(number).write(value) }
}

/// # Safety
/// The register exists.
pub unsafe fn read_msr(number: u32) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { Msr::new(number).read() }
}

/// Once, on the boot core: what all cores will use.
pub fn choose() {
    // SDM 4.10.1. Bit 17 of leaf 1 ECX.
    PCID.store(cpuid(1, 0).ecx >> 17 & 1 == 1, Ordering::Relaxed);
}

pub fn has_pcid() -> bool {
    PCID.load(Ordering::Relaxed)
}

/// Sets the core's control registers; on every core, may be repeated.
pub fn setup() {
    assert!(cpuid(0x8000_0001, 0).edx >> 20 & 1 == 1, "the processor has no NX");
    let features = cpuid(7, 0);
    let mut cr4 = Cr4Flags::PHYSICAL_ADDRESS_EXTENSION
        | Cr4Flags::PAGE_GLOBAL
        | Cr4Flags::MACHINE_CHECK_EXCEPTION
        | Cr4Flags::OSFXSR
        | Cr4Flags::OSXMMEXCPT_ENABLE;
    let optional = [
        (cpuid(1, 0).ecx >> 26, Cr4Flags::OSXSAVE),
        (features.ebx >> 7, Cr4Flags::SUPERVISOR_MODE_EXECUTION_PROTECTION),
        (features.ebx >> 20, Cr4Flags::SUPERVISOR_MODE_ACCESS_PREVENTION),
        (features.ecx >> 2, Cr4Flags::USER_MODE_INSTRUCTION_PREVENTION),
    ];
    for (bit, flag) in optional {
        cr4.set(flag, bit & 1 == 1);
    }
    cr4.set(Cr4Flags::PCID, Cr4::read().contains(Cr4Flags::PCID));
    let mut cr0 = Cr0::read();
    cr0.insert(Cr0Flags::WRITE_PROTECT | Cr0Flags::NUMERIC_ERROR | Cr0Flags::MONITOR_COPROCESSOR);
    cr0.remove(Cr0Flags::EMULATE_COPROCESSOR | Cr0Flags::TASK_SWITCHED);
    // SAFETY: long mode and paging stay on; NXE comes before any table of ours. What is not in `cr4` (FSGSBASE, CET,
    // VMX …) is off: nobody uses it.
    unsafe {
        Efer::write(
            EferFlags::SYSTEM_CALL_EXTENSIONS
                | EferFlags::LONG_MODE_ENABLE
                | EferFlags::LONG_MODE_ACTIVE
                | EferFlags::NO_EXECUTE_ENABLE,
        );
        Cr0::write(cr0);
        Cr4::write(cr4);
        write_msr(0x277, PAT);
    }
}

/// Turns PCIDs on. CR3 must name PCID 0 (SDM 4.10.1), as it does after the switch to the kernel's tables.
pub fn enable_pcid() {
    if has_pcid() {
        // SAFETY: see above; with PCIDs every CR3 that the kernel loads has one.
        unsafe { Cr4::update(|cr4| cr4.insert(Cr4Flags::PCID)) };
    }
    flush_all();
}

/// Clearing CR4.PGE drops every translation of every PCID, global ones too (SDM 4.10.4.1; APM 5.5.2).
pub fn flush_all() {
    let cr4 = Cr4::read();
    // SAFETY: the tables are good; only the TLB changes.
    unsafe {
        Cr4::write(cr4 - Cr4Flags::PAGE_GLOBAL);
        Cr4::write(cr4 | Cr4Flags::PAGE_GLOBAL);
    }
}
