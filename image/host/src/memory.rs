//! Shared memory: a memfd a region, and the pages that the kernel gives every task.

use anyhow::{Context, Result};
use builder::plan::{Plan, Pool, Region};
use ipc::abi::{Clock, MAX_TASKS, PAGE};
use ipc::boot::Boot;
use ipc::manifest::{REGION_RESET, RegionKind};
use ipc::pool::{OwnPool, PoolView};
use ipc::ring::{Epochs, Half};
use memmap2::MmapMut;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// A memfd, open for writing and for reading only.
pub struct Shared {
    pub write: OwnedFd,
    pub read: OwnedFd,
    pub len: u64,
}

impl Shared {
    pub fn new(name: &str, len: u64) -> Result<Self> {
        let write = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .context("cannot make a memfd")?;
        rustix::fs::ftruncate(&write, len)?;
        rustix::fs::fcntl_add_seals(&write, SealFlags::SHRINK | SealFlags::GROW)?;
        let path = format!("/proc/self/fd/{}", write.as_raw_fd());
        let read = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .context("cannot open a memfd for reading: is /proc mounted?")?;
        Ok(Shared { write, read, len })
    }

    /// With `bytes`, rounded up to whole pages; nobody can write it any more.
    pub fn constant(name: &str, bytes: &[u8]) -> Result<Self> {
        let shared = Shared::new(name, bytes.len().next_multiple_of(PAGE) as u64)?;
        shared.put(bytes)?;
        rustix::fs::fcntl_add_seals(&shared.write, SealFlags::WRITE | SealFlags::SEAL)?;
        Ok(shared)
    }

    /// Writes from the start.
    pub fn put(&self, bytes: &[u8]) -> Result<()> {
        let written = rustix::io::pwrite(&self.write, bytes, 0)?;
        anyhow::ensure!(written == bytes.len(), "a memfd took {written} of {} bytes", bytes.len());
        Ok(())
    }

    /// Mapped for the rest of this process's life, for reading only.
    pub fn map_read(&self) -> Result<*const u8> {
        // SAFETY: nobody can shrink it (sealed); it is accessed through atomics only, as shared memory must be.
        let map = unsafe { memmap2::Mmap::map(&self.read) }.context("cannot map a region")?;
        Ok(Box::leak(Box::new(map)).as_ptr())
    }

    /// As [`Shared::map_read`], for writing too.
    pub fn map_write(&self) -> Result<*mut u8> {
        // SAFETY: as above.
        let map = unsafe { MmapMut::map_mut(&self.write) }.context("cannot map a region")?;
        Ok(Box::leak(Box::new(map)).as_mut_ptr())
    }

    fn zero(&self) -> Result<()> {
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&self.write, punch, 0, self.len)?)
    }
}

pub struct Memory {
    /// By the plan's numbers; `None`: a device's registers or firmware's tables, which a process doesn't have.
    pub regions: Vec<Option<Shared>>,
    pub infos: Vec<Shared>,
    pub clock: Shared,
    pub epochs: Shared,
    epoch_words: MmapMut,
    lives: [u32; MAX_TASKS],
}

impl Memory {
    pub fn new(plan: &Plan, infos: &[Vec<u8>]) -> Result<Self> {
        let epochs = Shared::new("epochs", PAGE as u64)?;
        // SAFETY: ours alone to write; nobody can shrink it (sealed).
        let epoch_words = unsafe { MmapMut::map_mut(&epochs.write) }.context("cannot map the epochs")?;
        Ok(Memory {
            regions: plan.regions.iter().map(region).collect::<Result<_>>()?,
            infos: infos.iter().map(|info| Shared::constant("info", info)).collect::<Result<_>>()?,
            clock: Shared::constant("clock", clock().as_bytes())?,
            epochs,
            epoch_words,
            lives: [0; MAX_TASKS],
        })
    }

    /// The task's epoch: how often it was started.
    pub fn life(&self, task: usize) -> u32 {
        self.lives[task]
    }

    /// The tasks' epochs, as a task sees them.
    pub fn epochs(&self) -> Result<Epochs<'static>> {
        let words = self.epochs.map_read()?.cast::<[AtomicU32; MAX_TASKS]>();
        // SAFETY: a whole page, mapped for ever, accessed as these atomics by all.
        Ok(Epochs::new(unsafe { &*words }))
    }

    /// The half that `region` is, as its reader sees it.
    pub fn half_to_read(&self, region: usize, capacity: u32) -> Result<Half<'static>> {
        let shared = self.regions[region].as_ref().context("a ring is memory")?;
        // SAFETY: the builder made the region of this capacity's size; mapped for ever, and only for loads.
        Ok(unsafe { Half::from_raw(shared.map_read()?, capacity) })
    }

    /// As [`Memory::half_to_read`], for who stands for the half's writer.
    pub fn half_to_write(&self, region: usize, capacity: u32) -> Result<Half<'static>> {
        let shared = self.regions[region].as_ref().context("a ring is memory")?;
        // SAFETY: the builder made the region of this capacity's size; mapped for ever and writable.
        Ok(unsafe { Half::from_raw(shared.map_write()?, capacity) })
    }

    /// A side's pool, for who stands for its owner, or for who passes another's on: none of them runs.
    pub fn own_pool(&self, pool: Option<Pool>) -> Result<OwnPool<'static>> {
        let Some(pool) = pool else { return Ok(OwnPool::empty()) };
        let shared = self.regions[pool.region].as_ref().context("a pool is memory")?;
        let (state, free) = (vec![0; pool.buffers as usize].leak(), vec![0; pool.buffers as usize].leak());
        // SAFETY: the builder made the region of this size; mapped for ever, and no process owns it.
        Ok(unsafe { OwnPool::from_raw(shared.map_write()?, pool.size as usize, state, free) })
    }

    /// A side's pool, as its neighbours see it.
    pub fn view(&self, pool: Option<Pool>) -> Result<PoolView<'static>> {
        let Some(pool) = pool else { return Ok(PoolView::empty()) };
        let shared = self.regions[pool.region].as_ref().context("a pool is memory")?;
        // SAFETY: the builder made the region of this size; mapped for ever, whole pages.
        Ok(unsafe { PoolView::from_raw(shared.map_read()?, pool.buffers, pool.size) })
    }

    /// What is done to memory when a task starts: zeroed halves, a fresh seed, then the next epoch. (Release, for the neighbours'
    /// acquire in `ipc::ring`: who sees the epoch sees the zeros.)
    pub fn renew(&mut self, plan: &Plan, task: usize) -> Result<()> {
        for (region, shared) in plan.regions.iter().zip(&self.regions) {
            if let (true, Some(shared)) =
                (region.flags & REGION_RESET != 0 && region.owner as usize == task, shared)
            {
                shared.zero()?;
            }
        }
        if let Some(map) = plan.tasks[task].maps.iter().find(|m| m.name.as_deref() == Some("boot")) {
            let mut boot = Boot { magic: ipc::boot::MAGIC, ..Boot::new_zeroed() };
            getrandom::fill(&mut boot.seed).map_err(|e| anyhow::anyhow!("no random numbers: {e}"))?;
            self.regions[map.region].as_ref().context("the boot page is memory")?.put(boot.as_bytes())?;
        }
        self.lives[task] += 1;
        let (words, _) =
            <[AtomicU32; MAX_TASKS]>::mut_from_prefix(&mut self.epoch_words).expect("a page is larger");
        words[task].store(self.lives[task], Ordering::Release);
        Ok(())
    }
}

fn region(region: &Region) -> Result<Option<Shared>> {
    match region.kind {
        RegionKind::Ram | RegionKind::Dma => {
            Shared::new(&region.name, region.pages as u64 * PAGE as u64).map(Some)
        }
        RegionKind::Device | RegionKind::Firmware => Ok(None),
    }
}

/// Nanoseconds of the monotonic clock; the tasks' time starts now.
fn clock() -> Clock {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Clock {
        base_ticks: now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64,
        mult: 1,
        shift: 0,
        isa: isa(),
        ticks_per_second: 1_000_000_000,
        wall_base_ns: wall,
    }
}

/// [`Clock::isa`], as the kernel of the image fills it.
fn isa() -> u32 {
    #[cfg(target_arch = "aarch64")]
    {
        use std::arch::is_aarch64_feature_detected as has;
        let field = |on: bool, value: u32, shift: u32| if on { value << shift } else { 0 };
        field(has!("aes"), 1, 4) | field(has!("pmull"), 1, 4) | field(has!("sha2"), 1, 12)
    }
    #[cfg(not(target_arch = "aarch64"))]
    0
}
