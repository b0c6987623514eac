//! What the loader asks of UEFI.

use core::ffi::c_void;

use ipc::package::MAX_PAYLOAD;
use loader::date::{Fields, unix_time};
use loader::memory::{Error, Kind, MemoryMap};
use loader::verify::Refusal;
use uefi::boot::{self, AllocateType, MemoryType};
use uefi::proto::loaded_image::LoadedImage;
use uefi::proto::media::file::{File, FileAttribute, FileInfo, FileMode, RegularFile};
use uefi::proto::rng::Rng;
use uefi::table::cfg::ConfigTableEntry;
use uefi::{Guid, Status, cstr16, guid, runtime, system};

use crate::Reason;

const PAGE: usize = 4096;
/// Where the package may lie: within reach of what comes after us.
#[cfg(target_arch = "x86_64")]
const HIGHEST: u64 = (4 << 30) - 1;
#[cfg(target_arch = "aarch64")]
const HIGHEST: u64 = (1 << 48) - 1;

/// The whole file, page aligned.
pub fn package() -> Result<&'static [u8], Reason> {
    let fail = |what| move |e: uefi::Error| Reason::File(what, e.status());
    let mut volume = boot::get_image_file_system(boot::image_handle()).map_err(fail("boot volume"))?;
    let mut root = volume.open_volume().map_err(fail("boot volume"))?;
    let file = root.open(cstr16!("\\urmqtt\\package"), FileMode::Read, FileAttribute::empty());
    let file = file.map_err(|_| Refusal::NoPackage)?;
    let mut file = file.into_regular_file().ok_or(Refusal::NoPackage)?;
    let len = size(&mut file).map_err(fail("package's size"))?;
    if len > MAX_PAYLOAD + PAGE as u64 {
        return Err(Reason::File("package", Status::BAD_BUFFER_SIZE));
    }
    let bytes = allocate(len as usize)?;
    let mut done = 0;
    while done < bytes.len() {
        // Some firmware can't read all at once.
        let end = (done + (1 << 20)).min(bytes.len());
        match file.read(&mut bytes[done..end]).map_err(|e| Reason::File("package", e.status()))? {
            0 => return Err(Reason::File("package", Status::END_OF_FILE)),
            n => done += n,
        }
    }
    Ok(bytes)
}

fn size(file: &mut RegularFile) -> uefi::Result<u64> {
    let mut buffer = Aligned([0; 512]);
    let info = file.get_info::<FileInfo>(&mut buffer.0).map_err(|e| e.to_err_without_payload())?;
    Ok(info.file_size())
}

#[repr(align(8))]
struct Aligned([u8; 512]);

/// Zeroed memory that the memory map will call ours.
fn allocate(len: usize) -> Result<&'static mut [u8], Reason> {
    let place = AllocateType::MaxAddress(HIGHEST);
    let pages = boot::allocate_pages(place, MemoryType::LOADER_DATA, len.div_ceil(PAGE).max(1))
        .map_err(|e| Reason::File("memory for the package", e.status()))?;
    // SAFETY: just allocated, never freed, and nobody else's.
    unsafe {
        core::ptr::write_bytes(pages.as_ptr(), 0, len.div_ceil(PAGE).max(1) * PAGE);
        Ok(core::slice::from_raw_parts_mut(pages.as_ptr(), len))
    }
}

/// Random bytes of the firmware, if it has a generator.
pub fn entropy(buffer: &mut [u8]) -> &[u8] {
    let handle = boot::get_handle_for_protocol::<Rng>();
    let filled = handle.and_then(|h| boot::open_protocol_exclusive::<Rng>(h)?.get_rng(None, buffer));
    if filled.is_ok() { buffer } else { &[] }
}

/// The unsigned command line: what is ASCII of it.
pub fn load_options(buffer: &mut [u8]) -> &[u8] {
    let image = boot::open_protocol_exclusive::<LoadedImage>(boot::image_handle());
    let mut len = 0;
    if let Ok(image) = image
        && let Ok(options) = image.load_options_as_cstr16()
    {
        for (to, from) in buffer.iter_mut().zip(options.iter()) {
            *to = u8::try_from(u16::from(*from)).unwrap_or(b'?');
            len += 1;
        }
    }
    &buffer[..len]
}

/// Physical addresses of firmware's tables.
pub struct Tables {
    pub rsdp: Option<u64>,
    pub dtb: Option<u64>,
    pub system: Option<u64>,
}

const DTB_GUID: Guid = guid!("b1b621d5-f19c-41a5-830b-d9152c69aae0");

/// The device tree is copied: firmware may keep it in memory that it gives back.
pub fn tables() -> Result<Tables, Reason> {
    let find = |wanted: Guid| {
        system::with_config_table(|table| table.iter().find(|e| e.guid == wanted).map(|e| e.address as u64))
    };
    let rsdp = find(ConfigTableEntry::ACPI2_GUID).or_else(|| find(ConfigTableEntry::ACPI_GUID));
    let dtb = find(DTB_GUID).map(copy_tree).transpose()?.flatten();
    let system = uefi::table::system_table_raw().map(|t| t.as_ptr().cast::<c_void>() as u64);
    Ok(Tables { rsdp, dtb, system })
}

fn copy_tree(at: u64) -> Result<Option<u64>, Reason> {
    // SAFETY: firmware says that a device tree starts there; it is mapped and whole while boot services run.
    let header = unsafe { &*(at as *const [u8; 8]) };
    let Some(len) = loader::dtb::size(header) else { return Ok(None) };
    let copy = allocate(len)?;
    // SAFETY: as above, of the length in its header.
    copy.copy_from_slice(unsafe { core::slice::from_raw_parts(at as *const u8, len) });
    Ok(Some(copy.as_ptr() as u64))
}

/// Seconds since 1970 of the firmware's clock.
pub fn date() -> Option<i64> {
    let time = runtime::get_time().ok()?;
    let fields = Fields {
        year: time.year(),
        month: time.month(),
        day: time.day(),
        hour: time.hour(),
        minute: time.minute(),
        second: time.second(),
    };
    // The zone is what local time lacks of UTC, in minutes; unspecified is taken for UTC.
    let zone = i64::from(time.time_zone().unwrap_or(0));
    Some(unix_time(fields)? + zone * 60)
}

/// Firmware's final map.
pub fn memory(map: &impl uefi::mem::memory_map::MemoryMap) -> Result<MemoryMap, Error> {
    let mut memory = MemoryMap::new();
    let usable = |kind| matches!(kind, Kind::Usable | Kind::Firmware);
    for pass in [true, false] {
        for entry in map.entries() {
            let kind = kind(entry.ty);
            if usable(kind) == pass {
                memory.add(entry.phys_start, entry.page_count.saturating_mul(PAGE as u64), kind)?;
            }
        }
    }
    Ok(memory)
}

fn kind(ty: MemoryType) -> Kind {
    match ty {
        MemoryType::CONVENTIONAL => Kind::Usable,
        MemoryType::BOOT_SERVICES_CODE | MemoryType::BOOT_SERVICES_DATA => Kind::Firmware,
        MemoryType::LOADER_CODE | MemoryType::LOADER_DATA => Kind::Loader,
        MemoryType::ACPI_RECLAIM => Kind::AcpiReclaimable,
        MemoryType::ACPI_NON_VOLATILE => Kind::AcpiNvs,
        MemoryType::UNUSABLE => Kind::Bad,
        _ => Kind::Reserved,
    }
}
