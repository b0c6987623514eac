//! The kernel's boot-phase calls and raw memory, as safe as they can be made. All of it ends with the seal.

use alloc::vec::Vec;
use core::cell::RefCell;
use core::ptr::NonNull;
use ipc::abi::{Audit, BOOT_VADDR, KERNEL_BOOT_MAGIC, KernelBoot, MsiMessage, PAGE, PlatformDesc, SysOp};
use rt::Region;
use safe_mmio::UniqueMmioPointer;
use safe_mmio::fields::ReadPureWrite;
use supervisor::acpi::Memory;
use supervisor::pci::{ConfigSpace, Function};
use supervisor::platform::PciHost;

/// What the kernel left for us.
pub fn kernel_boot() -> &'static KernelBoot {
    // SAFETY: the kernel maps this page read-only in the supervisor and fills it before the first instruction.
    let boot = unsafe { &*(BOOT_VADDR as *const KernelBoot) };
    assert_eq!(boot.magic, KERNEL_BOOT_MAGIC, "kernel and supervisor are of different builds");
    boot
}

/// A call without pointers.
fn plain(op: SysOp, a: u64, b: u64, c: u64) -> (u64, u64) {
    debug_assert!(!matches!(op, SysOp::BindMsi | SysOp::Platform | SysOp::Seal));
    // SAFETY: none of these operations takes a pointer.
    unsafe { rt::sys_ctl(op, a, b, c) }
}

/// Binds pages of a region. False: the kernel refuses the physical range.
pub fn map(region: u32, first_page: u32, pages: u32, phys: u64) -> bool {
    plain(SysOp::Map, region as u64, (first_page as u64) << 32 | pages as u64, phys).0 == 0
}

/// Physical base of a DMA region.
pub fn phys(region: u32) -> u64 {
    plain(SysOp::Phys, region as u64, 0, 0).1
}

pub fn platform(desc: &PlatformDesc) {
    // SAFETY: pointer and length are those of `desc`.
    unsafe {
        rt::sys_ctl(SysOp::Platform, desc as *const PlatformDesc as u64, size_of::<PlatformDesc>() as u64, 0)
    };
}

/// `None`: the interrupt controller has no message for it.
pub fn bind_msi(irq: u32, requester: u16) -> Option<MsiMessage> {
    let mut message = MsiMessage::default();
    let pointer = &mut message as *mut MsiMessage as u64;
    // SAFETY: the pointer is that of `message`.
    let (status, _) = unsafe { rt::sys_ctl(SysOp::BindMsi, irq as u64, requester as u64, pointer) };
    (status == 0).then_some(message)
}

pub fn seal() -> Audit {
    let mut audit = Audit::default();
    let pointer = &mut audit as *mut Audit as u64;
    // SAFETY: pointer and length are those of `audit`. The boot-only regions vanish; nothing of this module outlives the
    // boot phase.
    unsafe { rt::sys_ctl(SysOp::Seal, pointer, size_of::<Audit>() as u64, 0) };
    audit
}

pub fn reboot() -> ! {
    plain(SysOp::Reboot, 0, 0, 0);
    unreachable!("the machine goes on after its reset")
}

pub fn power_off() -> ! {
    plain(SysOp::PowerOff, 0, 0, 0);
    unreachable!("the machine goes on after its end")
}

/// Hands out the pages of a region, each once.
pub struct Pages {
    region: Region,
    next: u32,
}

impl Pages {
    pub fn new(region: Region) -> Self {
        Pages { region, next: 0 }
    }

    /// Maps physical bytes; the pointer is to the first of them.
    pub fn map(&mut self, at: u64, len: u64) -> Option<NonNull<u8>> {
        let within = at % PAGE as u64;
        let pages = u32::try_from(within.checked_add(len)?.div_ceil(PAGE as u64)).ok()?;
        let first = self.next;
        let end = first.checked_add(pages).filter(|&end| end as usize * PAGE <= self.region.len)?;
        map(self.region.index, first, pages, at - within).then_some(())?;
        self.next = end;
        NonNull::new(self.region.base.wrapping_add(first as usize * PAGE + within as usize))
    }
}

/// Firmware's tables.
pub struct Firmware(RefCell<Pages>, RefCell<Vec<(u64, usize, &'static [u8])>>);

impl Firmware {
    pub fn new(region: Region) -> Self {
        Firmware(RefCell::new(Pages::new(region)), RefCell::new(Vec::new()))
    }
}

impl Memory<'static> for Firmware {
    fn bytes(&self, phys: u64, len: usize) -> Option<&'static [u8]> {
        let mut known = self.1.borrow_mut();
        if let Some(&(.., bytes)) = known.iter().find(|&&(at, n, _)| (at, n) == (phys, len)) {
            return Some(bytes);
        }
        let base = self.0.borrow_mut().map(phys, len as u64)?;
        // SAFETY: just mapped, read-only, and written by nobody any more; what discovery keeps of it is copied before the
        // seal unmaps it.
        let bytes = unsafe { core::slice::from_raw_parts(base.as_ptr(), len) };
        known.push((phys, len, bytes));
        Some(bytes)
    }
}

/// Configuration space, mapped bus by bus.
pub struct Ecam {
    pages: Pages,
    host: PciHost,
    buses: Vec<(u8, Option<NonNull<u8>>)>,
}

impl Ecam {
    pub fn new(region: Region, host: PciHost) -> Self {
        Ecam { pages: Pages::new(region), host, buses: Vec::new() }
    }

    fn register(&mut self, f: Function, offset: u8) -> Option<Register> {
        const BUS: u64 = 1 << 20;
        if !(self.host.first_bus..=self.host.last_bus).contains(&f.bus) || f.device > 31 || f.function > 7 {
            return None;
        }
        let base = match self.buses.iter().find(|(bus, _)| *bus == f.bus) {
            Some(&(_, base)) => base,
            None => {
                let base = self.pages.map(self.host.ecam + f.bus as u64 * BUS, BUS);
                self.buses.push((f.bus, base));
                base
            }
        }?;
        let at = (f.device as usize) << 15 | (f.function as usize) << 12 | (offset & !3) as usize;
        // SAFETY: within the bus's 1 MiB, aligned; reads have no side effects, and the pointer doesn't outlive the call.
        Some(unsafe { Register::new(base.add(at).cast()) })
    }
}

type Register = UniqueMmioPointer<'static, ReadPureWrite<u32>>;

impl ConfigSpace for Ecam {
    fn read(&mut self, function: Function, offset: u8) -> u32 {
        self.register(function, offset).map_or(u32::MAX, |r| r.read())
    }

    fn write(&mut self, function: Function, offset: u8, value: u32) {
        if let Some(mut register) = self.register(function, offset) {
            register.write(value);
        }
    }
}

/// Writes entry 0 of an MSI-X table and unmasks it (PCI Express 5.0, section 7.7.2).
///
/// # Safety
/// `table` is a mapped MSI-X table that nothing else uses.
pub unsafe fn write_msix_entry(table: NonNull<u8>, message: &MsiMessage) {
    const UNMASKED: u32 = 0;
    let words = [message.address as u32, (message.address >> 32) as u32, message.data, UNMASKED];
    for (i, word) in words.into_iter().enumerate() {
        // SAFETY: by the caller; an entry has 16 bytes, and the table is 8-byte aligned.
        unsafe { Register::new(table.add(4 * i).cast()) }.write(word);
    }
}
