//! A task's memory as the manifest has it, beside what the page tables of a running image say.

use ipc::abi::{BOOT_VADDR, CLOCK_VADDR, EPOCH_VADDR, HEAP_VADDR, PAGE};
use ipc::manifest::{self, EXECUTE, REGION_BOOT_ONLY, RegionKind, System, WRITE};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;

const PAGE_BYTES: u64 = PAGE as u64;

/// What a task may do with a page, and whether a device answers there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    pub write: bool,
    pub execute: bool,
    pub device: bool,
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let letter = |on: bool, letter: char| if on { letter } else { '-' };
        write!(f, "r{}{}", letter(self.write, 'w'), letter(self.execute, 'x'))?;
        if self.device { f.write_str(" device") } else { Ok(()) }
    }
}

impl Serialize for Rights {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Code, data, stack and heap: of this task alone.
    Private,
    Ram,
    Dma,
    Device,
    Firmware,
    /// Pages that the kernel writes.
    Kernel,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Kind::Private => "private",
            Kind::Ram => "memory",
            Kind::Dma => "DMA memory",
            Kind::Device => "device",
            Kind::Firmware => "firmware",
            Kind::Kernel => "kernel's page",
        })
    }
}

/// One row of a task's address space.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Mapping {
    pub name: String,
    pub kind: Kind,
    pub start: u64,
    pub bytes: u64,
    pub rights: Rights,
    /// The one task that may write it; none: the kernel.
    pub writer: Option<String>,
    /// Gone after the seal.
    pub boot_only: bool,
    /// Of the page tables; absent: not measured.
    pub measured: Option<Measured>,
    /// Which memory it is, in the whole system.
    #[serde(skip)]
    object: Object,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Measured {
    pub bytes: u64,
    /// Of all its pages; several only where they differ.
    pub rights: Vec<Rights>,
    /// Where its first page lies.
    pub physical: Option<u64>,
}

/// What a physical page belongs to: one of these, never two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Object {
    Segment(usize, usize),
    Region(u32),
    Fixed(u64),
}

impl Mapping {
    fn end(&self) -> u64 {
        self.start + self.bytes
    }

    /// What was measured, for a person.
    pub fn verdict(&self) -> String {
        let Some(measured) = &self.measured else { return "not".into() };
        let rights: Vec<String> = measured.rights.iter().map(|r| r.to_string()).collect();
        match measured.bytes {
            0 => "not mapped".into(),
            bytes if bytes == self.bytes => rights.join(", "),
            bytes => format!("{} ({} of it)", rights.join(", "), builder::value::bytes(bytes)),
        }
    }

    /// The supervisor decides at boot how much of it there is.
    fn is_bound(&self) -> bool {
        matches!(self.kind, Kind::Device | Kind::Firmware)
    }
}

/// Every task's address space after the manifest.
pub fn expected(system: &System) -> Vec<Vec<Mapping>> {
    let all = system.tasks.iter().enumerate();
    all.map(|(number, task)| {
        let mut rows = segments(system, number, task);
        rows.extend(system.task_maps(task).iter().map(|map| region(system, map)));
        rows.extend(fixed(number));
        rows.sort_by_key(|m| m.start);
        rows
    })
    .collect()
}

fn segments(system: &System, number: usize, task: &manifest::Task) -> Vec<Mapping> {
    let rows = system.task_segments(task).iter().enumerate();
    rows.map(|(i, s)| {
        let (write, execute) = (s.flags & WRITE != 0, s.flags & EXECUTE != 0);
        let bytes = s.pages as u64 * PAGE_BYTES;
        let name = match (write, execute) {
            _ if s.vaddr == HEAP_VADDR => "heap",
            _ if s.vaddr + bytes == task.stack_top => "stack",
            (_, true) => "text",
            (true, _) => "data",
            _ => "constants",
        };
        Mapping {
            name: name.into(),
            kind: Kind::Private,
            start: s.vaddr,
            bytes,
            rights: Rights { write, execute, device: false },
            writer: write.then(|| manifest::name(&task.name).into()),
            boot_only: false,
            measured: None,
            object: Object::Segment(number, i),
        }
    })
    .collect()
}

fn region(system: &System, map: &manifest::Map) -> Mapping {
    let region = &system.regions[map.region as usize];
    let kind = match region.kind {
        k if k == RegionKind::Dma as u16 => Kind::Dma,
        k if k == RegionKind::Device as u16 => Kind::Device,
        k if k == RegionKind::Firmware as u16 => Kind::Firmware,
        _ => Kind::Ram,
    };
    let owner = &system.tasks[region.owner as usize];
    let written = system.maps.iter().any(|m| m.region == map.region && m.rights & WRITE != 0);
    Mapping {
        name: manifest::name(&region.name).into(),
        kind,
        start: map.vaddr,
        bytes: region.pages as u64 * PAGE_BYTES,
        rights: Rights { write: map.rights & WRITE != 0, execute: false, device: kind == Kind::Device },
        writer: written.then(|| manifest::name(&owner.name).into()),
        boot_only: region.flags & REGION_BOOT_ONLY != 0,
        measured: None,
        object: Object::Region(map.region),
    }
}

/// What the kernel gives every task, and the supervisor besides.
fn fixed(number: usize) -> impl Iterator<Item = Mapping> {
    let all = [("clock", CLOCK_VADDR), ("epochs", EPOCH_VADDR), ("boot", BOOT_VADDR)];
    all.into_iter().take(if number == 0 { 3 } else { 2 }).map(|(name, start)| Mapping {
        name: name.into(),
        kind: Kind::Kernel,
        start,
        bytes: PAGE_BYTES,
        rights: Rights { write: false, execute: false, device: false },
        writer: None,
        boot_only: false,
        measured: None,
        object: Object::Fixed(start),
    })
}

/// A line of the kernel's: a stretch of a task's page tables.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch {
    pub task: usize,
    pub start: u64,
    pub end: u64,
    pub rights: Rights,
    pub physical: u64,
}

impl Stretch {
    /// `map TASK START END RIGHTS MEMORY PHYSICAL`; `None`: another line.
    pub fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.strip_prefix("map ")?.split_whitespace().collect();
        let [task, start, end, rights, memory, physical] = words[..] else { return None };
        let number = |text| u64::from_str_radix(text, 16).ok();
        let write = rights.as_bytes().get(1)? == &b'w';
        let execute = rights.as_bytes().get(2)? == &b'x';
        Some(Stretch {
            task: task.parse().ok()?,
            start: number(start)?,
            end: number(end)?,
            rights: Rights { write, execute, device: memory == "device" },
            physical: number(physical)?,
        })
    }
}

/// Where page tables and manifest disagree, about neighbouring pages.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    pub task: String,
    pub start: u64,
    pub end: u64,
    pub what: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} {:#x}..{:#x}: {}", self.task, self.start, self.end, self.what)
    }
}

/// Where a package's manifest and that of the image that was measured disagree. Both are sorted by address. (Code that was built
/// anew may have other sizes; then this says so.)
pub fn manifests_differ(task: &str, package: &[Mapping], measured: &[Mapping]) -> Option<Difference> {
    let same = |a: &Mapping, b: &Mapping| {
        (&a.name, a.kind, a.start, a.bytes, a.rights) == (&b.name, b.kind, b.start, b.bytes, b.rights)
    };
    let end = package.len().max(measured.len());
    let at =
        (0..end).find(|&i| !matches!((package.get(i), measured.get(i)), (Some(a), Some(b)) if same(a, b)));
    let row = at.filter(|_| !package.is_empty()).and_then(|i| package.get(i).or(measured.get(i)))?;
    let what = format!("{} is another in the package than in the image that was measured", row.name);
    Some(Difference { task: task.into(), start: row.start, end: row.end(), what })
}

/// Compares every page, fills in what was measured, and returns all differences. `tasks` have the tasks' names, `spaces` their
/// address spaces after the manifest.
pub fn compare(tasks: &[String], spaces: &mut [Vec<Mapping>], stretches: &[Stretch]) -> Vec<Difference> {
    let mut differences = Differences(Vec::new());
    // What each physical page belongs to, and its first user.
    let mut owners: BTreeMap<u64, (Object, u64)> = BTreeMap::new();
    for (number, space) in spaces.iter_mut().enumerate() {
        let task = &tasks[number];
        let mut pages: BTreeMap<u64, (u64, Rights)> = BTreeMap::new();
        for s in stretches.iter().filter(|s| s.task == number) {
            let steps = (s.start..s.end).step_by(PAGE).enumerate();
            pages.extend(steps.map(|(i, at)| (at, (s.physical + i as u64 * PAGE_BYTES, s.rights))));
        }
        for row in space {
            measure(task, row, &mut pages, &mut owners, &mut differences);
        }
        for (at, (_, rights)) in pages {
            differences.add(task, at, format!("mapped {rights}, and not in the manifest"));
        }
    }
    for s in stretches.iter().filter(|s| s.task >= tasks.len()) {
        differences.add(&format!("task {}", s.task), s.start, "not in the manifest".into());
    }
    differences.0
}

/// Takes what belongs to `row` out of `pages`.
fn measure(
    task: &str,
    row: &mut Mapping,
    pages: &mut BTreeMap<u64, (u64, Rights)>,
    owners: &mut BTreeMap<u64, (Object, u64)>,
    differences: &mut Differences,
) {
    let mut measured = Measured::default();
    for at in (row.start..row.end()).step_by(PAGE) {
        let Some((physical, rights)) = pages.remove(&at) else {
            if !row.boot_only && !row.is_bound() {
                differences.add(
                    task,
                    at,
                    format!("{} is {} in the manifest, and not mapped", row.name, row.rights),
                );
            }
            continue;
        };
        measured.bytes += PAGE_BYTES;
        measured.physical.get_or_insert(physical);
        if !measured.rights.contains(&rights) {
            measured.rights.push(rights);
        }
        if row.boot_only {
            differences.add(task, at, format!("{} is mapped {rights} after the seal", row.name));
        } else if rights != row.rights {
            differences.add(
                task,
                at,
                format!("{} is {} in the manifest, and mapped {rights}", row.name, row.rights),
            );
        }
        let here = (row.object, at - row.start);
        if *owners.entry(physical).or_insert(here) != here {
            differences.add(task, at, format!("{} shares memory with something else", row.name));
        }
    }
    row.measured = Some(measured);
}

struct Differences(Vec<Difference>);

impl Differences {
    /// Neighbouring pages of which the same is true are one.
    fn add(&mut self, task: &str, at: u64, what: String) {
        match self.0.last_mut() {
            Some(last) if last.task == task && last.end == at && last.what == what => last.end += PAGE_BYTES,
            _ => self.0.push(Difference { task: task.into(), start: at, end: at + PAGE_BYTES, what }),
        }
    }
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
