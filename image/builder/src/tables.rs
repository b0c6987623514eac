//! The manifest's documents, written from a [`Plan`].

use crate::elf::Program;
use crate::plan::{End, Plan, Task};
use ipc::abi::{HEAP_VADDR, INFO_VADDR, PAGE, STACK_TOP};
use ipc::manifest::{self, Slice, Span, info};
use zerocopy::{FromZeros, Immutable, IntoBytes};

/// Where the package holds something.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    pub offset: u64,
    pub len: u64,
}

/// What a task brings along: its code, where its segments lie, and its info document.
pub struct Parts<'p> {
    pub program: &'p Program,
    pub segments: Vec<Place>,
    pub info: Place,
}

/// Bytes of a document: a header, then tables, each 8-byte aligned.
struct Document(Vec<u8>);

impl Document {
    fn new(header: usize) -> Self {
        Document(vec![0; header])
    }

    fn table<T: IntoBytes + Immutable>(&mut self, entries: &[T]) -> Span {
        self.0.resize(self.0.len().next_multiple_of(8), 0);
        let span = Span { offset: self.0.len() as u32, count: entries.len() as u32 };
        self.0.extend_from_slice(entries.as_bytes());
        span
    }

    fn finish(mut self, header: &(impl IntoBytes + Immutable)) -> Vec<u8> {
        self.0[..size_of_val(header)].copy_from_slice(header.as_bytes());
        self.0.resize(self.0.len().next_multiple_of(8), 0);
        self.0
    }
}

/// A name as the manifest holds it; the checks see to it that it fits.
fn name(text: &str) -> [u8; 16] {
    let mut name = [0; 16];
    name[..text.len()].copy_from_slice(text.as_bytes());
    name
}

/// Header flags of an image.
pub fn flags(plan: &Plan, development: bool) -> u32 {
    let flag = |on: bool, flag: u32| if on { flag } else { 0 };
    flag(development, manifest::DEVELOPMENT)
        | flag(plan.early_log, manifest::EARLY_LOG)
        | flag(plan.maps, manifest::MAPS)
}

/// The system manifest. `parts` belong to the plan's tasks, in order.
pub fn system(plan: &Plan, parts: &[Parts], development: bool) -> Vec<u8> {
    let (mut tasks, mut segments, mut maps, mut caps) = (vec![], vec![], vec![], vec![]);
    let mut regions: Vec<manifest::Region> = plan.regions.iter().map(region).collect();
    for (i, (task, part)) in plan.tasks.iter().zip(parts).enumerate() {
        let slice = |first: usize, all: usize| Slice { first: first as u32, count: (all - first) as u32 };
        let firsts = (segments.len(), maps.len(), caps.len());
        segments.extend(task_segments(task, part));
        maps.push(manifest::Map { region: regions.len() as u32, rights: manifest::READ, vaddr: INFO_VADDR });
        regions.push(info_region(i, task, part.info));
        maps.extend(task.maps.iter().map(|m| manifest::Map {
            region: m.region as u32,
            rights: rights(m.write),
            vaddr: plan.regions[m.region].vaddr,
        }));
        caps.extend(task.caps.iter().map(|c| c.cap));
        tasks.push(manifest::Task {
            name: name(&task.name),
            core: task.core,
            priority: task.priority,
            flags: if task.simd { manifest::TASK_SIMD } else { 0 }
                | if task.serial { manifest::TASK_COM1 } else { 0 },
            budget_us: task.budget_us,
            period_us: task.period_us,
            reserved: 0,
            entry: part.program.entry,
            stack_top: STACK_TOP,
            segments: slice(firsts.0, segments.len()),
            maps: slice(firsts.1, maps.len()),
            caps: slice(firsts.2, caps.len()),
            neighbours: task.neighbours,
        });
    }
    let irqs: Vec<_> =
        plan.irqs.iter().map(|q| manifest::Irq { task: q.task, bit: q.bit, reserved: 0 }).collect();
    let mut document = Document::new(size_of::<manifest::Header>());
    let header = manifest::Header {
        magic: manifest::MAGIC,
        flags: flags(plan, development),
        reserved: 0,
        tasks: document.table(&tasks),
        segments: document.table(&segments),
        regions: document.table(&regions),
        maps: document.table(&maps),
        caps: document.table(&caps),
        irqs: document.table(&irqs),
    };
    document.finish(&header)
}

fn rights(write: bool) -> u32 {
    if write { manifest::READ | manifest::WRITE } else { manifest::READ }
}

fn region(r: &crate::plan::Region) -> manifest::Region {
    manifest::Region {
        name: name(&r.name),
        kind: r.kind as u16,
        flags: r.flags,
        owner: r.owner,
        reserved: 0,
        pages: r.pages,
        reserved2: 0,
        file_offset: 0,
        file_len: 0,
    }
}

fn info_region(i: usize, task: &Task, place: Place) -> manifest::Region {
    manifest::Region {
        name: name(&format!("info.{}", task.name)),
        kind: manifest::RegionKind::Ram as u16,
        flags: 0,
        owner: i as u16,
        reserved: 0,
        pages: place.len.div_ceil(PAGE as u64) as u32,
        reserved2: 0,
        file_offset: place.offset,
        file_len: place.len,
    }
}

/// Code and data from the package, then stack and heap. What lies beside the stack is left unmapped.
fn task_segments(task: &Task, part: &Parts) -> Vec<manifest::Segment> {
    let mut segments: Vec<_> = part
        .program
        .segments
        .iter()
        .zip(&part.segments)
        .map(|(s, place)| manifest::Segment {
            vaddr: s.vaddr,
            pages: s.pages,
            flags: s.flags,
            file_offset: place.offset,
            file_len: place.len,
        })
        .collect();
    let rw = manifest::READ | manifest::WRITE;
    let stack = STACK_TOP - task.stack_pages as u64 * PAGE as u64;
    let zeros = |vaddr, pages, flags| manifest::Segment { vaddr, pages, flags, file_offset: 0, file_len: 0 };
    segments.push(zeros(stack, task.stack_pages, rw));
    segments.push(zeros(HEAP_VADDR, task.heap_pages, rw | manifest::KEEP));
    segments
}

/// The info document of task `i`, with the service's `config`.
pub fn info(plan: &Plan, i: usize, config: &[u8], development: bool) -> Vec<u8> {
    let task = &plan.tasks[i];
    let links: Vec<_> = task.ends.iter().map(|end| link(plan, end)).collect();
    let regions: Vec<_> = task
        .maps
        .iter()
        .filter_map(|m| Some((m.name.as_ref()?, m)))
        .map(|(called, m)| {
            let region = &plan.regions[m.region];
            info::Region {
                name: name(called),
                vaddr: region.vaddr,
                len: region.pages as u64 * PAGE as u64,
                index: m.region as u32,
                rights: rights(m.write),
                kind: region.kind as u16,
                flags: region.flags,
                owner: region.owner,
                reserved: 0,
            }
        })
        .collect();
    let caps: Vec<_> = task
        .caps
        .iter()
        .enumerate()
        .filter(|(_, c)| !c.name.is_empty())
        .map(|(handle, c)| info::NamedCap {
            name: name(&c.name),
            handle: handle as u16,
            kind: c.cap.kind,
            object: c.cap.object,
            bit: c.cap.bit,
        })
        .collect();
    let mut document = Document::new(size_of::<info::Header>());
    let header = info::Header {
        magic: info::MAGIC,
        name: name(&task.name),
        task: i as u16,
        flags: flags(plan, development) as u16,
        reserved: 0,
        heap_vaddr: HEAP_VADDR,
        heap_len: task.heap_pages as u64 * PAGE as u64,
        links: document.table(&links),
        regions: document.table(&regions),
        caps: document.table(&caps),
        config: document.table(config),
    };
    document.finish(&header)
}

fn link(plan: &Plan, end: &End) -> info::Link {
    let link = &plan.links[end.link];
    let other = 1 - end.side;
    let pool = |side: usize| match link.pools[side] {
        // A pool that is passed on is nobody's to take buffers from.
        Some(p) if !(p.borrowed && side == end.side) => {
            info::PoolDesc { vaddr: plan.regions[p.region].vaddr, buffers: p.buffers, size: p.size }
        }
        _ => info::PoolDesc::new_zeroed(),
    };
    info::Link {
        name: name(&link.names[end.side]),
        side: end.side as u16,
        peer: link.tasks[other],
        signal: end.signal,
        bit: end.bit,
        capacity: link.capacity,
        reserved: 0,
        mine: plan.regions[link.halves[end.side]].vaddr,
        theirs: plan.regions[link.halves[other]].vaddr,
        pool_mine: pool(end.side),
        pool_theirs: pool(other),
    }
}
