//! The Interrupt Translation Service (IHI 0069, "The ITS"): (device, event) to an LPI of a core.
//!
//! Used in the boot phase by the boot core only; afterwards nothing is mapped, unmapped or masked. Tables are cleaned to
//! the point of coherency after each write, so it makes no difference whether the GIC looks into our caches.

use aarch64_cpu::asm::barrier;
use ipc::abi::{MAX_CORES, MsiMessage};

use super::super::cache;
use super::super::mmio::Window;
use super::command::{self, Coherence, Command, PAGE_BYTES, Table};
use super::v3::{FIRST_LPI, Redistributor};
use super::{Memory, PRIORITY, UNIT, wait_until};

const GITS_CTLR: usize = 0x0000;
const GITS_TYPER: usize = 0x0008;
const GITS_CBASER: usize = 0x0080;
const GITS_CWRITER: usize = 0x0088;
const GITS_CREADR: usize = 0x0090;
const GITS_BASER: usize = 0x0100;
const GITS_TRANSLATER: u64 = 0x1_0040;

/// Bytes of the command queue; its length is a multiple of 4 KiB.
const QUEUE_BYTES: usize = 4096;
/// Events that a device may have: as many as fit the smallest ITT (256 bytes) with the largest entry.
const EVENT_BITS: u32 = 3;
/// Devices that can have interrupts.
const DEVICES: usize = super::MAX_IRQS;

#[derive(Debug)]
pub struct Its {
    registers: Window,
    physical: u64,
    memory: Memory,
    targets_by_address: bool,
    /// Device numbers below this fit the table.
    device_limit: u32,
    /// The redistributor of each core, as commands name it.
    targets: [u64; MAX_CORES],
    /// Offset in the command queue.
    written: usize,
    /// Requester and events in use, in the order of first use.
    devices: [(u32, u32); DEVICES],
}

impl Its {
    pub fn new(registers: Window, physical: u64, memory: Memory) -> Result<Self, &'static str> {
        let typer = registers.read64(GITS_TYPER);
        if typer & 1 == 0 {
            return Err("the ITS has no physical LPIs");
        }
        registers.write32(GITS_CTLR, 0);
        // Quiescent: the tables may be changed.
        if !wait_until(|| registers.read32(GITS_CTLR) >> 31 == 1) {
            return Err("the ITS doesn't stop");
        }
        let mut its = Its {
            registers,
            physical,
            memory,
            targets_by_address: typer >> 19 & 1 == 1,
            device_limit: 0,
            targets: [0; MAX_CORES],
            written: 0,
            devices: [(0, 0); DEVICES],
        };
        its.set_tables(typer)?;
        its.set_queue();
        registers.write32(GITS_CTLR, 1);
        Ok(its)
    }

    /// Makes the collection of a core, before anything is bound to it.
    pub fn add_core(&mut self, core: usize, redistributor: Redistributor) -> Result<(), &'static str> {
        let Redistributor { physical, processor } = redistributor;
        let target = command::target(self.targets_by_address, physical, processor);
        self.targets[core] = target;
        self.run(&[command::mapc(core as u16, target), command::sync(target)])
    }

    /// Gives the ITS one 64 KiB table of devices and one of collections, flat: more devices than a PC has slots for
    /// buses, without a second level to fill.
    fn set_tables(&mut self, typer: u64) -> Result<(), &'static str> {
        for n in 0..8 {
            let register = GITS_BASER + 8 * n;
            let value = self.registers.read64(register);
            let entry = (value >> 48 & 0x1f) + 1;
            let block = match value >> 56 & 7 {
                t if t == Table::Device as u64 => {
                    let entries = (UNIT as u64 / entry) as u32;
                    self.device_limit = entries.min(1 << ((typer >> 13 & 0x1f) + 1).min(31));
                    self.memory.devices()
                }
                t if t == Table::Collection as u64 => self.memory.collections(),
                _ => {
                    // Not implemented, or virtual processors, of which there are none.
                    self.registers.write64(register, 0);
                    continue;
                }
            };
            cache::clean_and_invalidate(block.virt, UNIT);
            if !self.set_table(register, block.phys) {
                return Err("the ITS takes no table of ours");
            }
        }
        if self.device_limit == 0 { Err("the ITS has no device table") } else { Ok(()) }
    }

    /// Page size and shareability may be fixed in the implementation: what reads back counts.
    fn set_table(&self, register: usize, address: u64) -> bool {
        for page_size in (0..3).rev() {
            for coherence in [Coherence::Shared, Coherence::None] {
                let pages = UNIT as u64 / PAGE_BYTES[page_size];
                let value = command::baser(address, pages, page_size, false, coherence);
                self.registers.write64(register, value);
                let back = self.registers.read64(register);
                if back >> 8 & 3 == page_size as u64 && Coherence::read_back(back) == coherence {
                    return true;
                }
            }
        }
        false
    }

    fn set_queue(&mut self) {
        let queue = self.memory.queue();
        cache::clean_and_invalidate(queue.virt, QUEUE_BYTES);
        self.registers.write64(GITS_CBASER, command::cbaser(queue.phys, 1, Coherence::Shared));
        if Coherence::read_back(self.registers.read64(GITS_CBASER)) == Coherence::None {
            self.registers.write64(GITS_CBASER, command::cbaser(queue.phys, 1, Coherence::None));
        }
        self.registers.write64(GITS_CWRITER, 0);
        self.written = 0;
    }

    /// Queues the commands (fewer than the queue holds) and waits until all are done.
    fn run(&mut self, commands: &[Command]) -> Result<(), &'static str> {
        for command in commands {
            self.memory.write_command(self.written, command);
            self.written = (self.written + size_of::<Command>()) % QUEUE_BYTES;
        }
        // Commands (cleaned by `write_command`), then the doorbell.
        barrier::dsb(barrier::SY);
        self.registers.write64(GITS_CWRITER, self.written as u64);
        let done = || self.registers.read64(GITS_CREADR) as usize & 0xf_ffe0 == self.written;
        if wait_until(done) { Ok(()) } else { Err("the ITS refuses a command") }
    }

    /// Gives `requester` one more event, which raises LPI number `irq` in the collection of `core`.
    pub fn bind(&mut self, irq: usize, core: usize, requester: u32) -> Result<MsiMessage, &'static str> {
        if requester >= self.device_limit {
            return Err("the device's number is beyond the ITS's table");
        }
        let (slot, event) = self.next_event(requester).ok_or("too many interrupts for the ITS")?;
        let lpi = FIRST_LPI + irq as u32;
        // Priority in bits 7 to 2, enabled in bit 0.
        self.memory.write_property(irq, PRIORITY & 0xfc | 1);
        if event == 0 {
            let itt = self.memory.translations(slot);
            cache::clean_and_invalidate(itt.virt, super::ITT_BYTES);
            self.run(&[command::mapd(requester, itt.phys, EVENT_BITS)])?;
        }
        self.run(&[
            command::mapti(requester, event, lpi, core as u16),
            command::inv(requester, event),
            command::sync(self.targets[core]),
        ])?;
        self.devices[slot] = (requester, event + 1);
        Ok(MsiMessage { address: self.physical + GITS_TRANSLATER, data: event, reserved: 0 })
    }

    fn next_event(&self, requester: u32) -> Option<(usize, u32)> {
        let slot = self.devices.iter().position(|&(r, events)| events == 0 || r == requester)?;
        let event = self.devices[slot].1;
        (event < 1 << EVENT_BITS).then_some((slot, event))
    }
}
