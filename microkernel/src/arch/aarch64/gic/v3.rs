//! GICv3 (GIC architecture specification, IHI 0069): distributor, one redistributor a core, system-register CPU
//! interface. Devices interrupt by message through the ITS ([`super::its`]); shared peripheral interrupts stay off.

use core::arch::asm;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use aarch64_cpu::asm::barrier;
use aarch64_cpu::registers::{MPIDR_EL1, Readable};

use crate::arch::DeviceWindow;

use super::super::cache;
use super::super::mmio::Window;
use super::command::{self, Coherence};
use super::{Event, IPI, Memory, PRIORITY, wait_until};

// Distributor.
const GICD_CTLR: usize = 0x0000;
const GICD_TYPER: usize = 0x0004;
const GICD_IGROUPR: usize = 0x0080;
const GICD_ICENABLER: usize = 0x0180;
const GICD_CTLR_RWP: u32 = 1 << 31;
/// EnableGrp1(A), affinity routing: the bits are in the same place with one and with two security states. Group 0 is
/// left off.
const GICD_CTLR_ON: u32 = 1 << 4 | 1 << 1;

// Redistributor, first frame.
const GICR_CTLR: usize = 0x0000;
const GICR_TYPER: usize = 0x0008;
const GICR_WAKER: usize = 0x0014;
const GICR_PROPBASER: usize = 0x0070;
const GICR_PENDBASER: usize = 0x0078;
const GICR_CTLR_ENABLE_LPIS: u32 = 1;
const GICR_CTLR_RWP: u32 = 1 << 3;
const GICR_TYPER_VLPIS: u64 = 1 << 1;
const GICR_TYPER_LAST: u64 = 1 << 4;

// Redistributor, second frame: SGIs and PPIs.
const SGI: usize = 0x1_0000;
const GICR_IGROUPR0: usize = SGI + 0x0080;
const GICR_ISENABLER0: usize = SGI + 0x0100;
const GICR_ICENABLER0: usize = SGI + 0x0180;
const GICR_ICPENDR0: usize = SGI + 0x0280;
const GICR_ICACTIVER0: usize = SGI + 0x0380;
const GICR_IPRIORITYR: usize = SGI + 0x0400;

/// Two frames of 64 KiB.
const FRAME_BYTES: u64 = 0x2_0000;

/// Interrupt numbers of LPIs start here; with [`ID_BITS`] there are as many again.
pub const FIRST_LPI: u32 = 8192;
/// The fewest that the architecture knows for LPIs.
pub const ID_BITS: u32 = 14;

/// A core's redistributor, as the ITS has to name it.
#[derive(Clone, Copy, Debug)]
pub struct Redistributor {
    pub physical: u64,
    pub processor: u16,
}

#[derive(Debug)]
pub struct Gic {
    timer: u32,
}

impl Gic {
    /// Turns the distributor on, finds the redistributor of each core by its affinity (Aff3.Aff2.Aff1.Aff0, a byte
    /// each) and sets all of them up, LPIs included: their registers are not banked, so one core can do it.
    /// `found` is told the redistributor of each core.
    pub fn new(
        distributor: Window,
        mut frames: Frames<'_>,
        affinities: &[AtomicU32],
        memory: &Memory,
        timer: u32,
        mut found: impl FnMut(usize, Redistributor),
    ) -> Result<Self, &'static str> {
        Self::start_distributor(distributor)?;
        let mut missing = affinities.len();
        while missing > 0 {
            let (physical, registers) = frames.next()?;
            let typer = registers.read64(GICR_TYPER);
            let affinity = (typer >> 32) as u32;
            if let Some(core) = affinities.iter().position(|a| a.load(Relaxed) == affinity) {
                start_redistributor(registers, core, memory, timer)?;
                found(core, Redistributor { physical, processor: (typer >> 8) as u16 });
                missing -= 1;
            }
            if typer & GICR_TYPER_LAST != 0 && missing > 0 {
                return Err("no GIC redistributor for a core");
            }
        }
        Ok(Gic { timer })
    }

    fn start_distributor(d: Window) -> Result<(), &'static str> {
        let settled = || wait_until(|| d.read32(GICD_CTLR) & GICD_CTLR_RWP == 0);
        d.write32(GICD_CTLR, 0);
        if !settled() {
            return Err("the GIC distributor doesn't answer");
        }
        let words = (d.read32(GICD_TYPER) & 0x1f) as usize + 1;
        for word in 1..words {
            d.write32(GICD_ICENABLER + 4 * word, !0);
            d.write32(GICD_IGROUPR + 4 * word, !0);
        }
        d.write32(GICD_CTLR, GICD_CTLR_ON);
        if settled() { Ok(()) } else { Err("the GIC distributor doesn't answer") }
    }

    /// The calling core's CPU interface.
    pub fn start_core(&self) {
        // SAFETY: system registers of the interrupt controller alone; ID_AA64PFR0_EL1.GIC or the GIC version found by
        // discovery says that they are there. SRE must take effect (isb) before the others are touched.
        unsafe {
            asm!(
                "mrs {t}, icc_sre_el1",
                "orr {t}, {t}, #1",
                "msr icc_sre_el1, {t}",
                "isb",
                "mov {t}, #0xff",
                "msr icc_pmr_el1, {t}",
                "msr icc_bpr1_el1, xzr",
                // EOImode 0: EOIR drops the priority and deactivates.
                "msr icc_ctlr_el1, xzr",
                "mov {t}, #1",
                "msr icc_igrpen1_el1, {t}",
                "isb",
                t = out(reg) _,
                options(nostack),
            );
        }
    }

    /// Takes the most urgent pending interrupt of this core and ends it.
    pub fn take(&self) -> Event {
        let iar: u64;
        // SAFETY: acknowledging changes the interrupt controller's state only.
        unsafe { asm!("mrs {}, icc_iar1_el1", out(reg) iar, options(nostack)) };
        // The acknowledgement must be complete before anything that could make the interrupt pending again, and what
        // its sender wrote before it must be seen by what we read next (IHI 0069, "Observability of the effects of
        // accesses to the GIC registers": a DSB after the read of IAR).
        barrier::dsb(barrier::SY);
        let id = iar as u32 & 0xff_ffff;
        let event = match id {
            1020..=1023 => return Event::None,
            IPI => Event::Ipi,
            id if id == self.timer => Event::Timer,
            id => Event::Device(id),
        };
        if event == Event::Timer {
            // The line is level: it must fall before the interrupt is deactivated, or it is taken again at once.
            super::super::timer::mask();
        }
        // SAFETY: as above. LPIs have no active state; for them this is the priority drop alone.
        unsafe { asm!("msr icc_eoir1_el1, {}", "isb", in(reg) iar, options(nostack)) };
        event
    }

    /// Wakes another core; all that we stored before is visible to it when it takes the interrupt.
    pub fn send_ipi(&self, affinity: u32) {
        let [aff0, aff1, aff2, aff3] = affinity.to_le_bytes().map(u64::from);
        let value =
            aff3 << 48 | (aff0 >> 4) << 44 | aff2 << 32 | (IPI as u64) << 24 | aff1 << 16 | 1 << (aff0 & 0xf);
        // A write of a system register isn't ordered by store barriers on its own: DSB completes our stores first.
        barrier::dsb(barrier::ISHST);
        // SAFETY: sends a software interrupt.
        unsafe { asm!("msr icc_sgi1r_el1, {}", "isb", in(reg) value, options(nostack)) };
    }
}

/// The affinity of the calling core in the form that redistributors and MP records know.
pub fn own_affinity() -> u32 {
    affinity(MPIDR_EL1.get())
}

/// Aff3.Aff2.Aff1.Aff0 of a MPIDR value.
pub const fn affinity(mpidr: u64) -> u32 {
    ((mpidr >> 32 & 0xff) << 24 | mpidr & 0xff_ffff) as u32
}

/// The region of the redistributors, mapped as far as it is walked: it may be made for many more cores than there are.
pub struct Frames<'a> {
    pub physical: u64,
    pub end: u64,
    pub window: &'a mut dyn DeviceWindow,
}

impl Frames<'_> {
    /// The next redistributor: its physical address, and its two frames.
    fn next(&mut self) -> Result<(u64, Window), &'static str> {
        let physical = self.physical;
        if physical.checked_add(FRAME_BYTES).is_none_or(|end| end > self.end) {
            return Err("no GIC redistributor for a core");
        }
        let registers = super::map(self.window, physical, FRAME_BYTES)?;
        // With virtual LPIs (GICv4) there are two frames more.
        let virtual_lpis = registers.read64(GICR_TYPER) & GICR_TYPER_VLPIS != 0;
        self.physical += if virtual_lpis { 2 * FRAME_BYTES } else { FRAME_BYTES };
        Ok((physical, registers))
    }
}

fn start_redistributor(r: Window, core: usize, memory: &Memory, timer: u32) -> Result<(), &'static str> {
    // ProcessorSleep off, then ChildrenAsleep falls (IHI 0069, "Power management").
    r.write32(GICR_WAKER, r.read32(GICR_WAKER) & !2);
    if !wait_until(|| r.read32(GICR_WAKER) & 4 == 0) {
        return Err("a GIC redistributor doesn't wake");
    }
    r.write32(GICR_ICENABLER0, !0);
    if !wait_until(|| r.read32(GICR_CTLR) & GICR_CTLR_RWP == 0) {
        return Err("a GIC redistributor doesn't answer");
    }
    r.write32(GICR_ICPENDR0, !0);
    r.write32(GICR_ICACTIVER0, !0);
    r.write32(GICR_IGROUPR0, !0);
    for word in 0..8 {
        r.write32(GICR_IPRIORITYR + 4 * word, u32::from_ne_bytes([PRIORITY; 4]));
    }
    r.write32(GICR_ISENABLER0, 1 << IPI | 1 << timer);
    start_lpis(r, core, memory)
}

/// One property table for all cores, a pending table each. Does nothing where there are no LPIs.
fn start_lpis(r: Window, core: usize, memory: &Memory) -> Result<(), &'static str> {
    if r.read64(GICR_TYPER) & 1 == 0 {
        return Ok(());
    }
    if r.read32(GICR_CTLR) & GICR_CTLR_ENABLE_LPIS != 0 {
        // The base registers can't be changed any more.
        return Err("the firmware left the GIC's LPIs on");
    }
    let (properties, pending) = (memory.properties(), memory.pending(core));
    cache::clean_and_invalidate(pending.virt, super::PENDING_BYTES);
    r.write64(GICR_PROPBASER, command::propbaser(properties.phys, ID_BITS, Coherence::Shared));
    if Coherence::read_back(r.read64(GICR_PROPBASER)) == Coherence::None {
        r.write64(GICR_PROPBASER, command::propbaser(properties.phys, ID_BITS, Coherence::None));
    }
    r.write64(GICR_PENDBASER, command::pendbaser(pending.phys, Coherence::Shared));
    if Coherence::read_back(r.read64(GICR_PENDBASER)) == Coherence::None {
        r.write64(GICR_PENDBASER, command::pendbaser(pending.phys, Coherence::None));
    }
    // The tables are in memory before the GIC may look.
    barrier::dsb(barrier::SY);
    r.write32(GICR_CTLR, r.read32(GICR_CTLR) | GICR_CTLR_ENABLE_LPIS);
    barrier::dsb(barrier::SY);
    Ok(())
}
