//! The system with every name resolved: numbers of tasks, regions and bits, addresses, handles, sizes of rings.

use crate::value::Name;
use ipc::manifest::{Cap, RegionKind};

/// What the manifest's tables are written from.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub tasks: Vec<Task>,
    pub regions: Vec<Region>,
    pub irqs: Vec<Irq>,
    pub links: Vec<Link>,
    pub early_log: bool,
    /// The kernel prints every task's mappings.
    pub maps: bool,
}

#[derive(Clone, Debug)]
pub struct Task {
    pub name: String,
    pub program: Name,
    /// Which service's settings the task gets.
    pub config: Name,
    pub priority: u8,
    pub core: u16,
    pub budget_us: u32,
    pub period_us: u32,
    pub stack_pages: u32,
    pub heap_pages: u32,
    pub simd: bool,
    pub serial: bool,
    pub restart: crate::system::Restart,
    /// Tasks that learn of this one's restart.
    pub neighbours: u64,
    pub caps: Vec<NamedCap>,
    pub ends: Vec<End>,
    pub maps: Vec<Map>,
    /// Bits of its word that are given out.
    pub bits: u16,
}

/// A capability; the handle is its place in the task's list.
#[derive(Clone, Debug)]
pub struct NamedCap {
    /// Empty: the signal of a link, which the link's description names.
    pub name: String,
    pub cap: Cap,
}

/// One side of a link, as its task knows it.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// In [`Plan::links`].
    pub link: usize,
    /// 0: side A, 1: side B.
    pub side: usize,
    pub signal: u16,
    pub bit: u16,
}

#[derive(Clone, Debug)]
pub struct Link {
    /// As side A and side B name it.
    pub names: [String; 2],
    pub tasks: [u16; 2],
    pub connections: bool,
    pub capacity: u32,
    /// Regions of the halves that side A and side B write.
    pub halves: [usize; 2],
    pub pools: [Option<Pool>; 2],
}

#[derive(Clone, Copy, Debug)]
pub struct Pool {
    pub region: usize,
    pub buffers: u32,
    pub size: u32,
    /// Another link's pool, passed on.
    pub borrowed: bool,
}

#[derive(Clone, Debug)]
pub struct Region {
    pub name: String,
    pub kind: RegionKind,
    /// `ipc::manifest::REGION_*`.
    pub flags: u16,
    pub owner: u16,
    pub pages: u32,
    pub vaddr: u64,
}

#[derive(Clone, Debug)]
pub struct Map {
    pub region: usize,
    /// Name in the task's own info page; `None`: part of a link.
    pub name: Option<String>,
    pub write: bool,
}

#[derive(Clone, Debug)]
pub struct Irq {
    pub name: String,
    pub task: u16,
    pub bit: u16,
}

impl Plan {
    pub fn task(&self, name: &str) -> Option<u16> {
        self.tasks.iter().position(|t| t.name == name).map(|i| i as u16)
    }

    /// Bytes of ordinary memory: regions, stacks and heaps.
    pub fn memory(&self) -> u64 {
        let ram = |r: &&Region| matches!(r.kind, RegionKind::Ram | RegionKind::Dma);
        let regions: u64 = self.regions.iter().filter(ram).map(|r| r.pages as u64).sum();
        let private: u64 = self.tasks.iter().map(|t| t.stack_pages as u64 + t.heap_pages as u64).sum();
        (regions + private) * ipc::abi::PAGE as u64
    }
}
