//! The interrupt controller: GICv2 with v2m, or GICv3 with ITS, behind one type.
//!
//! All interrupts have one priority; the order of work is the scheduler's business. Interrupt `irq` of the manifest is
//! SPI `first + irq` of the v2m frame or LPI `8192 + irq`, so no table translates. Messages are edges: nothing is
//! masked between an interrupt and its acknowledgement, the kernel coalesces.

pub mod command;
mod its;
mod v2;
mod v3;

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use ipc::abi::{MsiMessage, PlatformDesc};

use super::{cache, timer};
use crate::arch::{DeviceWindow, Interrupt};
use aarch64_cpu::asm::barrier;

pub use v3::own_affinity;

/// Interrupts of the manifest that can be bound.
pub const MAX_IRQS: usize = 32;
/// The software interrupt that means "look at your mailbox".
const IPI: u32 = 0;
/// Every interrupt's: above the mask (0xff), with the bits that every implementation has.
const PRIORITY: u8 = 0xa0;

/// An acknowledged interrupt, in the controller's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    None,
    Timer,
    Ipi,
    Device(u32),
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one, in static memory")]
pub enum Gic {
    V2 { gic: v2::Gic, first_spi: u32 },
    V3 { gic: v3::Gic, its: Option<its::Its>, affinities: &'static [AtomicU32] },
}

impl Gic {
    /// Sets up what `desc` names; `affinities` are those of the cores, by their number.
    pub fn new(
        desc: &PlatformDesc,
        affinities: &'static [AtomicU32],
        memory: Memory,
        window: &mut dyn DeviceWindow,
    ) -> Result<Self, &'static str> {
        if !(16..32).contains(&timer_of(desc)) {
            return Err("the timer's interrupt is not a private one");
        }
        match desc.gic_version {
            2 => Self::new_v2(desc, window),
            3 => Self::new_v3(desc, affinities, memory, window),
            _ => Err("an interrupt controller of an unknown version"),
        }
    }

    fn new_v2(desc: &PlatformDesc, window: &mut dyn DeviceWindow) -> Result<Self, &'static str> {
        let distributor = map(window, desc.gicd, V2_DISTRIBUTOR_BYTES)?;
        let interface = map(window, desc.gicc, V2_INTERFACE_BYTES)?;
        let frame = match (desc.v2m, desc.v2m_spis) {
            (0, _) => v2::Frame { address: 0, first_spi: 0, spis: 0 },
            // The tables may leave it to the frame's own register.
            (address, 0) => v2::Frame::read(address, map(window, address, V2M_BYTES)?),
            (address, spis) => v2::Frame { address, first_spi: desc.v2m_first_spi, spis },
        };
        let gic = v2::Gic::new(distributor, interface, frame, timer_of(desc));
        Ok(Gic::V2 { gic, first_spi: frame.first_spi })
    }

    fn new_v3(
        desc: &PlatformDesc,
        affinities: &'static [AtomicU32],
        memory: Memory,
        window: &mut dyn DeviceWindow,
    ) -> Result<Self, &'static str> {
        let distributor = map(window, desc.gicd, V3_DISTRIBUTOR_BYTES)?;
        cache::clean_and_invalidate(memory.properties().virt, PROPERTY_BYTES);
        let mut its = match desc.its {
            0 => None,
            its => Some(its::Its::new(map(window, its, ITS_BYTES)?, its, memory)?),
        };
        let frames = v3::Frames { physical: desc.gicr, end: desc.gicr.saturating_add(desc.gicr_len), window };
        let mut result = Ok(());
        let gic =
            v3::Gic::new(distributor, frames, affinities, &memory, timer_of(desc), |core, redistributor| {
                if let Some(its) = &mut its
                    && result.is_ok()
                {
                    result = its.add_core(core, redistributor);
                }
            })?;
        result?;
        Ok(Gic::V3 { gic, its, affinities })
    }

    /// The calling core's part. `core` is its number.
    pub fn start_core(&self, core: usize) {
        match self {
            Gic::V2 { gic, .. } => gic.start_core(core),
            Gic::V3 { gic, .. } => gic.start_core(),
        }
    }

    /// Acknowledges and ends the most urgent interrupt of the calling core.
    pub fn take(&self) -> Interrupt {
        let (event, first) = match self {
            Gic::V2 { gic, first_spi } => (gic.take(), *first_spi),
            Gic::V3 { gic, .. } => (gic.take(), v3::FIRST_LPI),
        };
        match event {
            Event::None => Interrupt::Spurious,
            Event::Timer => Interrupt::Timer,
            Event::Ipi => Interrupt::Ipi,
            Event::Device(id) => match id.checked_sub(first) {
                Some(irq) if (irq as usize) < MAX_IRQS => Interrupt::Device(irq as usize),
                _ => Interrupt::Spurious,
            },
        }
    }

    pub fn send_ipi(&self, core: usize) {
        match self {
            Gic::V2 { gic, .. } => gic.send_ipi(core),
            Gic::V3 { gic, affinities, .. } => gic.send_ipi(affinities[core].load(Relaxed)),
        }
    }

    /// Routes messages of `requester` to `core`. Boot phase, boot core.
    pub fn bind(&mut self, irq: usize, core: usize, requester: u32) -> Result<MsiMessage, &'static str> {
        if irq >= MAX_IRQS {
            return Err("more interrupts than the kernel binds");
        }
        match self {
            Gic::V2 { gic, .. } => {
                gic.bind_msi(irq as u32, core).ok_or("no SPI left for message-signalled interrupts")
            }
            Gic::V3 { its: Some(its), .. } => its.bind(irq, core, requester),
            Gic::V3 { its: None, .. } => Err("no ITS: no message-signalled interrupts"),
        }
    }
}

// Lengths of the register blocks.
pub const V2_DISTRIBUTOR_BYTES: u64 = 0x1000;
pub const V2_INTERFACE_BYTES: u64 = 0x1000;
pub const V2M_BYTES: u64 = 0x1000;
pub const V3_DISTRIBUTOR_BYTES: u64 = 0x1_0000;
pub const ITS_BYTES: u64 = 0x2_0000;

/// Interrupt of the EL1 virtual timer: 27 by the Base System Architecture where the tables say nothing.
fn timer_of(desc: &PlatformDesc) -> u32 {
    if desc.timer_intid == 0 { 27 } else { desc.timer_intid }
}

fn map(window: &mut dyn DeviceWindow, phys: u64, len: u64) -> Result<super::mmio::Window, &'static str> {
    if phys == 0 {
        return Err("a part of the interrupt controller is missing");
    }
    let base = window.map(phys, len).ok_or("no room to map the interrupt controller")?;
    // SAFETY: just mapped as device memory, for good; that it is what the tables say is the platform's word.
    Ok(unsafe { super::mmio::Window::new(base as usize) })
}

/// Waits at most 100 ms. False: it didn't happen.
fn wait_until(mut done: impl FnMut() -> bool) -> bool {
    let end = timer::now() + timer::hz() / 10;
    while !done() {
        if timer::now() > end {
            return false;
        }
    }
    true
}

/// Memory that the GIC reads and writes: 64 KiB units, of which three are shared and one a core is its pending table.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    phys: u64,
    offset: u64,
}

/// The largest page of an ITS table, and the alignment of queues and pending tables.
const UNIT: usize = 64 << 10;
/// One bit for each of 2^14 interrupt numbers.
const PENDING_BYTES: usize = 1 << 11;
/// One byte for each of 2^13 LPIs.
const PROPERTY_BYTES: usize = 1 << 13;
/// Eight translations of at most 32 bytes; also the alignment.
const ITT_BYTES: usize = 256;

const DEVICE_UNIT: usize = 0;
const COLLECTION_UNIT: usize = 1;
/// Command queue (4 KiB), property table (from 8 KiB), translation tables (from 16 KiB).
const SHARED_UNIT: usize = 2;
const PROPERTY_OFFSET: usize = 8 << 10;
const TRANSLATION_OFFSET: usize = 16 << 10;
const _: () = assert!(TRANSLATION_OFFSET + MAX_IRQS * ITT_BYTES <= UNIT);
const FIRST_PENDING_UNIT: usize = 3;

#[derive(Clone, Copy, Debug)]
struct Block {
    phys: u64,
    virt: *mut u8,
}

impl Memory {
    /// Bytes wanted for `cores`.
    pub const fn bytes(cores: usize) -> usize {
        (FIRST_PENDING_UNIT + cores) * UNIT
    }

    /// # Safety
    /// `bytes(cores)` zeroed bytes at `phys`, 64 KiB aligned, mapped at `phys + offset` as normal memory and used by
    /// nobody else.
    pub const unsafe fn new(phys: u64, offset: u64) -> Self {
        Memory { phys, offset }
    }

    fn block(&self, unit: usize, offset: usize) -> Block {
        let phys = self.phys + (unit * UNIT + offset) as u64;
        Block { phys, virt: phys.wrapping_add(self.offset) as *mut u8 }
    }

    fn devices(&self) -> Block {
        self.block(DEVICE_UNIT, 0)
    }

    fn collections(&self) -> Block {
        self.block(COLLECTION_UNIT, 0)
    }

    fn queue(&self) -> Block {
        self.block(SHARED_UNIT, 0)
    }

    fn properties(&self) -> Block {
        self.block(SHARED_UNIT, PROPERTY_OFFSET)
    }

    /// `slot` < MAX_IRQS.
    fn translations(&self, slot: usize) -> Block {
        self.block(SHARED_UNIT, TRANSLATION_OFFSET + slot * ITT_BYTES)
    }

    fn pending(&self, core: usize) -> Block {
        self.block(FIRST_PENDING_UNIT + core, 0)
    }

    /// Stores a command at byte `offset` of the queue, and cleans it to memory.
    fn write_command(&self, offset: usize, command: &command::Command) {
        let at = self.queue().virt.wrapping_add(offset);
        // SAFETY: `offset` is inside the queue, a multiple of 32; the memory is ours (`new`).
        unsafe { at.cast::<command::Command>().write_volatile(command.map(u64::to_le)) };
        cache::clean(at, size_of::<command::Command>());
    }

    /// Stores the configuration of LPI `8192 + index`, and cleans it to memory.
    fn write_property(&self, index: usize, value: u8) {
        let at = self.properties().virt.wrapping_add(index);
        // SAFETY: `index` < MAX_IRQS is inside the table; the memory is ours (`new`).
        unsafe { at.write_volatile(value) };
        cache::clean(at, 1);
        barrier::dsb(barrier::SY);
    }
}
