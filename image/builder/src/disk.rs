//! A disk image: GPT with one EFI system partition that holds the loader and the package.
//!
//! The same input gives the same bytes: identifiers are derived from the package, and files have no time.

use gpt::disk::LogicalBlockSize;
use gpt::{GptConfig, mbr, partition_types};
use ipc::package::Arch;
use sha2::{Digest, Sha256};
use std::io::{self, Cursor, Write};
use uuid::Uuid;

const SECTOR: u64 = 512;
/// Partitions start and end on these.
const ALIGN: u64 = 1 << 20;
/// FAT16 has enough clusters for what we put there, and firmware reads it.
const SMALLEST: u64 = 16 << 20;

/// Where the loader looks for its package.
pub const PACKAGE_PATH: &str = "urmqtt/package";

#[derive(Debug, thiserror::Error)]
#[error("cannot make the disk image")]
pub struct Error(#[from] io::Error);

/// The whole disk, in memory.
pub fn image(arch: Arch, loader: &[u8], package: &[u8]) -> Result<Vec<u8>, Error> {
    let digest: [u8; 32] = Sha256::digest(package).into();
    let file_system = esp(arch, loader, package, &digest)?;
    let disk_len = ALIGN + file_system.len() as u64 + ALIGN;
    let mut disk = vec![0; disk_len as usize];
    disk[ALIGN as usize..][..file_system.len()].copy_from_slice(&file_system);
    partition(&mut disk, file_system.len() as u64, &digest).map_err(io::Error::other)?;
    Ok(disk)
}

/// The EFI system partition; a second package (for an update) would fit too.
fn esp(arch: Arch, loader: &[u8], package: &[u8], digest: &[u8; 32]) -> io::Result<Vec<u8>> {
    let content = loader.len() as u64 + 2 * package.len() as u64;
    let len = (content + content / 4).max(SMALLEST).next_multiple_of(ALIGN);
    let mut bytes = vec![0; len as usize];
    let volume = u32::from_le_bytes([digest[0], digest[1], digest[2], digest[3]]);
    let options = fatfs::FormatVolumeOptions::new().volume_id(volume).volume_label(*b"URMQTT     ");
    fatfs::format_volume(Cursor::new(&mut bytes[..]), options)?;
    let fs = fatfs::FileSystem::new(Cursor::new(&mut bytes[..]), fatfs::FsOptions::new())?;
    let root = fs.root_dir();
    root.create_dir("EFI")?.create_dir("BOOT")?;
    root.create_dir("urmqtt")?;
    let name = match arch {
        Arch::X86_64 => "EFI/BOOT/BOOTX64.EFI",
        Arch::Aarch64 => "EFI/BOOT/BOOTAA64.EFI",
    };
    for (path, content) in [(name, loader), (PACKAGE_PATH, package)] {
        let mut file = root.create_file(path)?;
        file.write_all(content)?;
        file.flush()?;
    }
    drop(root);
    fs.unmount()?;
    Ok(bytes)
}

fn partition(disk: &mut [u8], len: u64, digest: &[u8; 32]) -> Result<(), gpt::GptError> {
    let sectors = disk.len() as u64 / SECTOR;
    let protective = mbr::ProtectiveMBR::with_lb_size(u32::try_from(sectors - 1).unwrap_or(u32::MAX));
    let mut device = Cursor::new(disk);
    protective.overwrite_lba0(&mut device).map_err(|e| gpt::GptError::from(io::Error::other(e)))?;
    // Version 8 (RFC 9562): the bits are ours to choose.
    let guid = |n: usize| Uuid::new_v8(digest[n..n + 16].try_into().expect("16 bytes"));
    let config = GptConfig::new().writable(true).logical_block_size(LogicalBlockSize::Lb512);
    let mut table = config.create_from_device(&mut device, Some(guid(0)))?;
    let (first, count) = (ALIGN / SECTOR, len / SECTOR);
    let id = 1;
    table.add_partition_at("urMQTT", id, first, count, partition_types::EFI, 0)?;
    let mut partitions = table.partitions().clone();
    if let Some(esp) = partitions.get_mut(&id) {
        esp.part_guid = guid(16);
    }
    table.update_partitions(partitions)?;
    table.write()?;
    Ok(())
}
