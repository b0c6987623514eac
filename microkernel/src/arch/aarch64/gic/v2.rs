//! GICv2 (Arm Generic Interrupt Controller architecture specification, IHI 0048B) with a GICv2m frame for MSI
//! (Arm Server Base System Architecture, appendix "GICv2m architecture").

use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

use aarch64_cpu::asm::barrier;
use ipc::abi::{MAX_CORES, MsiMessage};

use super::super::mmio::Window;
use super::{Event, IPI, MAX_IRQS, PRIORITY};

// Distributor.
const GICD_CTLR: usize = 0x000;
const GICD_TYPER: usize = 0x004;
const GICD_ISENABLER: usize = 0x100;
const GICD_ICENABLER: usize = 0x180;
const GICD_ICPENDR: usize = 0x280;
const GICD_ICACTIVER: usize = 0x380;
const GICD_IPRIORITYR: usize = 0x400;
const GICD_ITARGETSR: usize = 0x800;
const GICD_ICFGR: usize = 0xc00;
const GICD_SGIR: usize = 0xf00;

// CPU interface.
const GICC_CTLR: usize = 0x00;
const GICC_PMR: usize = 0x04;
const GICC_BPR: usize = 0x08;
const GICC_IAR: usize = 0x0c;
const GICC_EOIR: usize = 0x10;

/// GICv2m: which SPIs belong to the frame.
const V2M_TYPER: usize = 0x08;
/// GICv2m: writing an SPI's number here makes it pending.
const V2M_SETSPI_NS: u64 = 0x40;

#[derive(Debug)]
pub struct Gic {
    distributor: Window,
    interface: Window,
    frame: Frame,
    timer: u32,
    /// The CPU interface mask of each core, which only that core can read. Written by its core in `start_core`; Relaxed,
    /// because others read it only after the core's `STARTED` flag (see the parent module's user).
    targets: [AtomicU8; MAX_CORES],
    /// The SPIs (by their number in the frame) that go to each core.
    routes: [Option<u8>; MAX_IRQS],
}

/// The GICv2m frame. `spis` 0: there is none.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// Physical: it goes into the device's MSI-X table.
    pub address: u64,
    pub first_spi: u32,
    pub spis: u32,
}

impl Frame {
    /// What MSI_TYPER says: first SPI in bits 25 to 16, count in bits 9 to 0.
    pub fn read(address: u64, registers: Window) -> Self {
        let typer = registers.read32(V2M_TYPER);
        Frame { address, first_spi: typer >> 16 & 0x3ff, spis: typer & 0x3ff }
    }
}

impl Gic {
    /// Turns the distributor on with every shared interrupt off.
    pub fn new(distributor: Window, interface: Window, frame: Frame, timer: u32) -> Self {
        let gic = Gic {
            distributor,
            interface,
            frame,
            timer,
            targets: [const { AtomicU8::new(0) }; MAX_CORES],
            routes: [None; MAX_IRQS],
        };
        distributor.write32(GICD_CTLR, 0);
        for word in 1..gic.lines() / 32 {
            distributor.write32(GICD_ICENABLER + 4 * word, !0);
            distributor.write32(GICD_ICPENDR + 4 * word, !0);
            distributor.write32(GICD_ICACTIVER + 4 * word, !0);
        }
        for word in 8..gic.lines() / 4 {
            distributor.write32(GICD_IPRIORITYR + 4 * word, u32::from_ne_bytes([PRIORITY; 4]));
        }
        distributor.write32(GICD_CTLR, 1);
        gic
    }

    /// Interrupts of the distributor, a multiple of 32 up to 1024 (GICD_TYPER.ITLinesNumber).
    fn lines(&self) -> usize {
        32 * ((self.distributor.read32(GICD_TYPER) & 0x1f) as usize + 1)
    }

    /// The calling core's part: its banked registers, its interface, its timer.
    pub fn start_core(&self, core: usize) {
        let d = self.distributor;
        // The first eight target registers are read-only and name the reader's own interface, byte for byte.
        let mask = (0..8).map(|word| d.read32(GICD_ITARGETSR + 4 * word)).fold(0, |all, one| all | one);
        let mask = mask.to_ne_bytes().iter().fold(0, |all, one| all | one);
        self.targets[core].store(mask, Relaxed);
        self.start_routes(core, mask);
        d.write32(GICD_ICENABLER, !0);
        d.write32(GICD_ICPENDR, !0);
        d.write32(GICD_ICACTIVER, !0);
        for word in 0..8 {
            d.write32(GICD_IPRIORITYR + 4 * word, u32::from_ne_bytes([PRIORITY; 4]));
        }
        d.write32(GICD_ISENABLER, 1 << IPI | 1 << self.timer);
        self.interface.write32(GICC_PMR, 0xff);
        self.interface.write32(GICC_BPR, 0);
        // EOImodeNS 0: a write of EOIR drops the priority and deactivates at once.
        self.interface.write32(GICC_CTLR, 1);
    }

    /// Takes the most urgent pending interrupt of this core and ends it.
    pub fn take(&self) -> Event {
        let iar = self.interface.read32(GICC_IAR);
        let event = match iar & 0x3ff {
            1020..=1023 => return Event::None,
            IPI => Event::Ipi,
            id if id == self.timer => Event::Timer,
            id => Event::Device(id),
        };
        if event == Event::Timer {
            // The line is level: it must fall before the interrupt is deactivated, or it is taken again at once.
            super::super::timer::mask();
        }
        self.interface.write32(GICC_EOIR, iar);
        // What the sender of the interrupt wrote before it (DMA, a core's mailbox) must be seen by what we read next:
        // orders the load of IAR (Device) before loads of Normal memory.
        barrier::dsb(barrier::SY);
        event
    }

    /// Wakes another core; all that we stored before is visible to it when it takes the interrupt.
    pub fn send_ipi(&self, core: usize) {
        // IHI 0048B leaves ordering to the processor: stores before the one that sends the SGI.
        barrier::dsb(barrier::ISHST);
        let target = self.targets[core].load(Relaxed) as u32;
        self.distributor.write32(GICD_SGIR, target << 16 | IPI);
    }

    /// The message that raises SPI number `index` (below MAX_IRQS) of the frame, which goes to `core` from the time when
    /// that core starts: its interface's number is not known before.
    pub fn bind_msi(&mut self, index: u32, core: usize) -> Option<MsiMessage> {
        let id = self.frame.first_spi.checked_add(index)?;
        if index >= self.frame.spis || !(32..1020).contains(&id) || id as usize >= self.lines() {
            return None;
        }
        let (word, shift) = (id as usize / 16, id % 16 * 2);
        let config = self.distributor.read32(GICD_ICFGR + 4 * word);
        // Edge-triggered: a message is an event, and one that comes while the interrupt is active stays pending.
        self.distributor.write32(GICD_ICFGR + 4 * word, config & !(3 << shift) | 2 << shift);
        self.routes[index as usize] = Some(core as u8);
        Some(MsiMessage { address: self.frame.address + V2M_SETSPI_NS, data: id, reserved: 0 })
    }

    /// Sends the core's SPIs to its interface, and enables them. One that was raised before has stayed pending.
    fn start_routes(&self, core: usize, mask: u8) {
        for (index, route) in self.routes.iter().enumerate() {
            if *route == Some(core as u8) {
                let id = self.frame.first_spi as usize + index;
                self.distributor.write8(GICD_ITARGETSR + id, mask);
                self.distributor.write32(GICD_ISENABLER + 4 * (id / 32), 1 << (id % 32));
            }
        }
    }
}
