//! Entry, state at entry, and console of both architectures.

pub use arch::{boot_id, check_state, halt, id, other_start, own_id};

/// The serial line that QEMU's machines have.
pub struct Uart;

impl core::fmt::Write for Uart {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        text.bytes().for_each(arch::put);
        Ok(())
    }
}

impl Uart {
    pub fn use_direct_map(hhdm: u64) {
        arch::HHDM.store(hhdm, core::sync::atomic::Ordering::Relaxed);
    }
}

#[cfg(target_arch = "x86_64")]
mod arch {
    use core::arch::{asm, naked_asm};
    use core::sync::atomic::AtomicU64;
    use limine::mp::{MpInfo, MpRespData};

    pub static HHDM: AtomicU64 = AtomicU64::new(0);

    #[unsafe(naked)]
    #[unsafe(no_mangle)]
    unsafe extern "C" fn kernel_start() -> ! {
        // The return address that the protocol promises is 0, above it lies nothing.
        naked_asm!("cmp qword ptr [rsp], 0", "jne 2f", "lea rdi, [rsp + 8]", "jmp {main}", "2: ud2", main = sym crate::main)
    }

    #[unsafe(naked)]
    pub unsafe extern "C" fn other_start(info: &MpInfo) -> ! {
        naked_asm!("lea rsi, [rsp + 8]", "jmp {other}", other = sym crate::other)
    }

    pub fn id(info: &MpInfo) -> u64 {
        info.lapic_id.into()
    }

    pub fn boot_id(response: &MpRespData) -> u64 {
        response.bsp_lapic_id.into()
    }

    pub fn own_id() -> u64 {
        u64::from(core::arch::x86_64::__cpuid(1).ebx >> 24)
    }

    pub fn check_state() {
        let (cr0, cr4, flags): (u64, u64, u64);
        let (cs, ss): (u16, u16);
        // SAFETY: reads registers.
        unsafe {
            asm!("mov {}, cr0", "mov {}, cr4", out(reg) cr0, out(reg) cr4);
            asm!("pushfq", "pop {}", out(reg) flags);
            asm!("mov {:x}, cs", "mov {:x}, ss", out(reg) cs, out(reg) ss);
        }
        assert!(cr0 & 0x8001_0001 == 0x8001_0001, "PG, WP, PE");
        assert!(cr4 & 1 << 5 != 0, "PAE");
        assert!(flags & (1 << 9 | 1 << 10) == 0, "IF, DF");
        assert!((cs, ss) == (0x28, 0x30), "segments");
        let (efer, low, high): (u32, u32, u32);
        // SAFETY: reads EFER, then the PAT.
        unsafe {
            asm!("rdmsr", in("ecx") 0xc000_0080u32, out("eax") efer, out("edx") _);
            asm!("rdmsr", in("ecx") 0x277u32, out("eax") low, out("edx") high);
        }
        assert!(efer & 0x900 == 0x900, "LME, NXE");
        assert!(low == 0x0007_0406 && high & 0xffff == 0x0105, "PAT");
    }

    pub fn put(byte: u8) {
        // SAFETY: COM1.
        unsafe { asm!("out dx, al", in("dx") 0x3f8u16, in("al") byte) };
    }

    pub fn halt() -> ! {
        loop {
            // SAFETY: waits for ever.
            unsafe { asm!("cli", "hlt") };
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod arch {
    use core::arch::{asm, naked_asm};
    use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use limine::mp::{MpInfo, MpRespData};

    pub static HHDM: AtomicU64 = AtomicU64::new(0);
    /// PL011 of QEMU's `virt`; the loader's direct map has it as device memory.
    const UART: u64 = 0x900_0000;

    #[unsafe(naked)]
    #[unsafe(no_mangle)]
    unsafe extern "C" fn kernel_start() -> ! {
        naked_asm!("cbnz x30, 2f", "cbnz x29, 2f", "mov x0, sp", "b {main}", "2: brk #1", main = sym crate::main)
    }

    #[unsafe(naked)]
    pub unsafe extern "C" fn other_start(info: &MpInfo) -> ! {
        naked_asm!("mov x1, sp", "b {other}", other = sym crate::other)
    }

    pub fn id(info: &MpInfo) -> u64 {
        info.mpidr
    }

    pub fn boot_id(response: &MpRespData) -> u64 {
        response.bsp_mpidr
    }

    pub fn own_id() -> u64 {
        let mpidr: u64;
        // SAFETY: reads a register.
        unsafe { asm!("mrs {}, mpidr_el1", out(reg) mpidr) };
        mpidr & 0xff_00ff_ffff
    }

    pub fn check_state() {
        let (el, sp, daif, sctlr, tcr): (u64, u64, u64, u64, u64);
        // SAFETY: reads registers.
        unsafe {
            asm!("mrs {}, currentel", "mrs {}, spsel", "mrs {}, daif", out(reg) el, out(reg) sp, out(reg) daif);
            asm!("mrs {}, sctlr_el1", "mrs {}, tcr_el1", out(reg) sctlr, out(reg) tcr);
        }
        assert!(el == 1 << 2 && sp == 0, "EL1t");
        assert!(daif == 0xf << 6, "DAIF");
        assert!(
            sctlr & (1 << 12 | 1 << 2 | 1) == (1 << 12 | 1 << 2 | 1) && sctlr & 2 == 0,
            "SCTLR {sctlr:#x}"
        );
        assert!(
            tcr & 0x3f == 16 && tcr >> 16 & 0x3f == 16 && tcr >> 30 & 3 == 2 && tcr >> 14 & 3 == 0,
            "TCR"
        );
        // SAFETY: reads the counters, which must not trap.
        unsafe { asm!("mrs {0}, cntvct_el0", "mrs {0}, cntpct_el0", out(reg) _) };
    }

    pub fn put(byte: u8) {
        // SAFETY: the data register of the UART, which never blocks under QEMU.
        unsafe { ((HHDM.load(Relaxed) + UART) as *mut u32).write_volatile(byte.into()) };
    }

    pub fn halt() -> ! {
        loop {
            // SAFETY: waits.
            unsafe { asm!("wfi") };
        }
    }
}
