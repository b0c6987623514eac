//! PCI functions for the driver tasks, and the entropy device for ourselves.

use crate::machine::{self, Ecam, Pages};
use crate::random;
use alloc::vec::Vec;
use ipc::boot::{Device, Dma, Window};
use rt::Task;
use supervisor::Config;
use supervisor::entropy::Entropy;
use supervisor::function::{self, Layout, Structures};
use supervisor::pci::{self, Found, Placer};
use supervisor::platform::PciHost;

/// A driver task and what it drives. Its regions are named after it: `NAME.bar`, and its interrupt `NAME`.
struct Driver {
    task: &'static str,
    device_type: u16,
    /// DMA regions that the device may be given.
    dma: &'static [&'static str],
}

const DRIVERS: [Driver; 1] =
    [Driver { task: "nic", device_type: function::NET, dma: &["nic.queues", "frame.a", "frame.b"] }];

/// Why a function can't be used.
type Problem = &'static str;

pub struct Devices<'a> {
    config: &'a Config,
    space: Ecam,
    setup: Pages,
    found: Vec<Found>,
    placer: Placer,
    /// Already somebody's.
    taken: Vec<Found>,
}

impl<'a> Devices<'a> {
    /// `None`: the machine or the system has no PCI.
    pub fn find(task: &Task, config: &'a Config, host: Option<&PciHost>) -> Option<Self> {
        let (host, ecam, setup) = (host?, task.region("ecam")?, task.region("setup")?);
        let mut space = Ecam::new(ecam, host.clone());
        let found = pci::enumerate(&mut space, host);
        let placer = Placer::new(&mut space, host, &found);
        Some(Devices { config, space, setup: Pages::new(setup), found, placer, taken: Vec::new() })
    }

    pub fn count(&self) -> usize {
        self.found.len()
    }

    /// The device of driver `task`, ready to be driven; all zero where the task drives nothing or there is none.
    pub fn for_task(&mut self, task: &str) -> Device {
        let Some(driver) = DRIVERS.iter().find(|d| d.task == task) else { return Device::default() };
        let Some(found) = self.take(driver.device_type) else { return Device::default() };
        match self.prepare(driver, &found) {
            Ok(device) => {
                rt::log!(Info, "{task}: PCI function {}", found.function);
                device
            }
            Err(problem) => {
                rt::log!(Error, "{task}: PCI function {}: {problem}", found.function);
                Device::default()
            }
        }
    }

    fn take(&mut self, device_type: u16) -> Option<Found> {
        let free = |f: &&Found| function::device_type(f) == Some(device_type) && !self.taken.contains(f);
        let found = *self.found.iter().find(free)?;
        self.taken.push(found);
        Some(found)
    }

    /// BARs placed, decoding and bus mastering on, structures found.
    fn structures(&mut self, found: &Found) -> Result<Structures, Problem> {
        let bars =
            self.placer.place(&mut self.space, found.function).map_err(|_| "no room for its registers")?;
        let structures = function::structures(&mut self.space, found.function, &bars);
        let structures = structures.map_err(|e| match e {
            function::Error::NotModern => "not a modern virtio device",
            function::Error::Structure => "its structures make no sense",
        })?;
        pci::enable(&mut self.space, found.function);
        Ok(structures)
    }

    fn prepare(&mut self, driver: &Driver, found: &Found) -> Result<Device, Problem> {
        let structures = self.structures(found)?;
        let mut device = Device {
            present: 1,
            pci_vendor_device: found.vendor as u32 | (found.device as u32) << 16,
            notify_multiplier: structures.notify_multiplier,
            config_vector: virtio::pci::NO_VECTOR,
            ..Device::default()
        };
        let layout = self.map_registers(driver, &structures, &mut device)?;
        device.queue_vector = self.interrupt(driver, found, &structures, &layout)?;
        for (slot, name) in device.dma.iter_mut().zip(driver.dma) {
            let region = self.config.region(name).ok_or("the system lacks one of its DMA regions")?;
            slot.name[..name.len()].copy_from_slice(name.as_bytes());
            *slot = Dma { phys: machine::phys(region.index), len: region.pages as u64 * 4096, ..*slot };
        }
        Ok(device)
    }

    /// Maps the structures in the driver's address space.
    fn map_registers(&self, driver: &Driver, s: &Structures, device: &mut Device) -> Result<Layout, Problem> {
        let bar = alloc::format!("{}.bar", driver.task);
        let region = self.config.region(&bar).ok_or("the system has no region for its registers")?;
        let mut layout = Layout::default();
        let mut window =
            |place| layout.add(place, region.pages).ok_or("its registers don't fit their region");
        device.common = window(s.common)?;
        device.config = s.config.map_or(Ok(Window::default()), &mut window)?;
        device.isr = s.isr.map_or(Ok(Window::default()), &mut window)?;
        device.notify = window(s.notify)?;
        for m in &layout.mappings {
            if !machine::map(region.index, m.first_page, m.pages, m.phys) {
                return Err("its registers lie where no device may be");
            }
        }
        Ok(layout)
    }

    /// Routes MSI-X entry 0 to the driver. The table stays out of the driver's reach: a message is a memory write.
    fn interrupt(
        &mut self,
        driver: &Driver,
        found: &Found,
        structures: &Structures,
        layout: &Layout,
    ) -> Result<u16, Problem> {
        let msix = structures.msix.ok_or("no MSI-X")?;
        if layout.touches(msix.table) {
            return Err("its interrupt table shares a page with its registers");
        }
        let irq = self.config.irq(driver.task).ok_or("the system has no interrupt for it")?;
        let message = machine::bind_msi(irq, found.function.requester_id());
        let message = message.ok_or("the interrupt controller takes no messages")?;
        let table = self.setup.map(msix.table.phys, 16).ok_or("its interrupt table can't be mapped")?;
        // SAFETY: just mapped, for us alone.
        unsafe { machine::write_msix_entry(table, &message) };
        function::enable_msix(&mut self.space, found.function, &msix);
        Ok(0)
    }

    /// Reads the entropy device, if there is one, and switches it off.
    pub fn entropy(&mut self, task: &Task, entropy: &mut Entropy, ticks_per_second: u64) {
        let (Some(found), Some(memory)) = (self.take(function::ENTROPY), task.region("rng.queue")) else {
            return;
        };
        let read = self.structures(&found).and_then(|structures| {
            random::device(&structures, &mut self.setup, memory, ticks_per_second)
                .map_err(|_| "it gives no random bytes")
        });
        pci::disable(&mut self.space, found.function);
        match read {
            Ok(bytes) => entropy.absorb("virtio-rng", &bytes),
            Err(problem) => rt::log!(Warn, "entropy device {}: {problem}", found.function),
        }
    }
}
