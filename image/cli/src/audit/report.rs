//! The facts about each service, and how they are printed.

use super::dependencies::{Crate, Graph};
use crate::Arch;
use anyhow::Result;
use builder::elf::Program;
use builder::plan::{Plan, Task};
use builder::value::bytes;
use ipc::abi::PAGE;
use ipc::manifest::{CapKind, EXECUTE, WRITE};
use serde::Serialize;
use std::fmt;
use std::path::Path;

#[derive(Clone, Debug, Serialize)]
pub struct Service {
    pub name: String,
    pub task: usize,
    pub priority: u8,
    pub core: u16,
    pub budget_us: u32,
    pub period_us: u32,
    pub stack_bytes: u64,
    pub heap_bytes: u64,
    pub capabilities: Vec<String>,
    pub links: Vec<Link>,
    pub regions: Vec<Region>,
    /// Absent when the artifacts are not built.
    pub code: Option<Code>,
    pub dependencies: Vec<Crate>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Link {
    pub name: String,
    pub peer: String,
    pub capacity: u32,
    /// Pools that this side writes, and those that it reads.
    pub writes: Vec<String>,
    pub reads: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Region {
    pub name: String,
    pub kind: String,
    pub bytes: u64,
    pub writable: bool,
    pub boot_only: bool,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Code {
    pub text_bytes: u64,
    pub rodata_bytes: u64,
    pub data_bytes: u64,
}

pub fn services(plan: &Plan, arch: Arch) -> Result<Vec<Service>> {
    let mut programs: Vec<&str> = plan.tasks.iter().map(|t| t.program.as_str()).collect();
    programs.sort();
    programs.dedup();
    let mut graph = Graph::read(&programs)?;
    let all = plan.tasks.iter().enumerate();
    all.map(|(i, task)| {
        Ok(Service {
            name: task.name.clone(),
            task: i,
            priority: task.priority,
            core: task.core,
            budget_us: task.budget_us,
            period_us: task.period_us,
            stack_bytes: pages(task.stack_pages),
            heap_bytes: pages(task.heap_pages),
            capabilities: capabilities(plan, task),
            links: links(plan, task),
            regions: regions(plan, task),
            code: code(task, arch),
            dependencies: graph.closure(task.program.as_str())?,
        })
    })
    .collect()
}

fn pages(n: u32) -> u64 {
    n as u64 * PAGE as u64
}

fn capabilities(plan: &Plan, task: &Task) -> Vec<String> {
    let text = |c: &builder::plan::NamedCap| {
        let object = c.cap.object as usize;
        match CapKind::from_number(c.cap.kind)? {
            CapKind::Signal => Some(format!("signal {} (bit {})", plan.tasks[object].name, c.cap.bit)),
            CapKind::Irq => Some(format!("interrupt {} (bit {})", plan.irqs[object].name, c.cap.bit)),
            CapKind::TaskCtl => Some(format!("stop, start, read {}", plan.tasks[object].name)),
            CapKind::Sys => Some("seal, reboot, power off".into()),
            CapKind::Null => None,
        }
    };
    task.caps.iter().filter_map(text).collect()
}

fn links(plan: &Plan, task: &Task) -> Vec<Link> {
    let one = |end: &builder::plan::End| {
        let link = &plan.links[end.link];
        let pool = |side: usize| {
            let pool = link.pools[side].as_ref()?;
            let text = format!(
                "{} ({} x {})",
                plan.regions[pool.region].name,
                pool.buffers,
                bytes(pool.size.into())
            );
            Some((text, pool.borrowed))
        };
        let (mine, theirs) = (pool(end.side), pool(1 - end.side));
        Link {
            name: link.names[end.side].clone(),
            peer: plan.tasks[link.tasks[1 - end.side] as usize].name.clone(),
            capacity: link.capacity,
            writes: mine.into_iter().filter(|(_, borrowed)| !borrowed).map(|(text, _)| text).collect(),
            reads: theirs.into_iter().map(|(text, _)| text).collect(),
        }
    };
    task.ends.iter().map(one).collect()
}

/// Memory beside the links and their pools.
fn regions(plan: &Plan, task: &Task) -> Vec<Region> {
    let pools: Vec<usize> = plan.links.iter().flat_map(|l| &l.pools).flatten().map(|p| p.region).collect();
    let beside = task.maps.iter().filter(|m| m.name.is_some() && !pools.contains(&m.region));
    beside
        .map(|m| {
            let region = &plan.regions[m.region];
            Region {
                name: region.name.clone(),
                kind: format!("{:?}", region.kind).to_lowercase(),
                bytes: pages(region.pages),
                writable: m.write,
                boot_only: region.flags & ipc::manifest::REGION_BOOT_ONLY != 0,
            }
        })
        .collect()
}

fn artifact(name: &str, arch: Arch) -> Option<Vec<u8>> {
    std::fs::read(Path::new("out").join(arch.name()).join("artifacts").join(name)).ok()
}

fn code(task: &Task, arch: Arch) -> Option<Code> {
    let program = Program::parse(&artifact(task.program.as_str(), arch)?, arch.package()).ok()?;
    let sum = |flags: u32| {
        let of = program.segments.iter().filter(|s| s.flags & (WRITE | EXECUTE) == flags);
        of.map(|s| if flags == WRITE { pages(s.pages) } else { s.bytes.len() as u64 }).sum()
    };
    Some(Code { text_bytes: sum(EXECUTE), rodata_bytes: sum(0), data_bytes: sum(WRITE) })
}

/// Bytes of the kernel's code, if it is built.
pub fn kernel_text(arch: Arch) -> Option<u64> {
    use object::{Object, ObjectSection, SectionKind};
    let file = artifact("kernel", arch)?;
    let kernel = object::File::parse(&*file).ok()?;
    Some(kernel.sections().filter(|s| s.kind() == SectionKind::Text).map(|s| s.size()).sum())
}

impl Service {
    /// Unsafe blocks: of the service, of the project's crates beneath it, of other crates.
    pub fn unsafe_blocks(&self) -> (usize, usize, usize) {
        let sum = |wanted: &dyn Fn(&&Crate) -> bool| {
            self.dependencies.iter().filter(wanted).map(|c| c.unsafe_code.blocks).sum()
        };
        let itself = |c: &&Crate| c.own && c.name == self.name;
        (sum(&itself), sum(&|c| c.own && !itself(c)), sum(&|c| !c.own))
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let budget = match self.period_us {
            0 => String::new(),
            period => format!(", {} of {period} us", self.budget_us),
        };
        writeln!(
            f,
            "{} (task {}, priority {}, core {}{budget})",
            self.name, self.task, self.priority, self.core
        )?;
        writeln!(f, "  memory        stack {}, heap {}", bytes(self.stack_bytes), bytes(self.heap_bytes))?;
        match &self.code {
            Some(c) => writeln!(
                f,
                "  code          {} KiB text, {} KiB constants, {} KiB data",
                c.text_bytes.div_ceil(1024),
                c.rodata_bytes.div_ceil(1024),
                c.data_bytes.div_ceil(1024)
            )?,
            None => writeln!(f, "  code          not built; `make artifacts` builds it")?,
        }
        list(f, "capabilities", self.capabilities.iter().cloned())?;
        list(f, "links", self.links.iter().map(Link::to_string))?;
        list(f, "regions", self.regions.iter().map(Region::to_string))?;
        let (own, others): (Vec<&Crate>, Vec<&Crate>) = self.dependencies.iter().partition(|c| c.own);
        let names = |crates: &[&Crate]| crates.iter().map(|c| &*c.name).collect::<Vec<_>>().join(", ");
        writeln!(f, "  own crates    {}", names(&own))?;
        writeln!(f, "  other crates  {}: {}", others.len(), names(&others))?;
        let (itself, beneath, foreign) = self.unsafe_blocks();
        let forbidden =
            self.dependencies.iter().any(|c| c.name == self.name && c.own && c.unsafe_code.forbidden);
        let note = if forbidden { " (its library forbids it)" } else { "" };
        writeln!(
            f,
            "  unsafe blocks {itself}{note}; {beneath} in own crates beneath, {foreign} in other crates\n"
        )
    }
}

/// One item a line, the title before the first.
fn list(f: &mut fmt::Formatter, title: &str, items: impl Iterator<Item = String>) -> fmt::Result {
    let mut title = title;
    for item in items {
        writeln!(f, "  {title:13} {item}")?;
        title = "";
    }
    Ok(())
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} with {}: rings of {}", self.name, self.peer, self.capacity)?;
        let pools = |title: &str, pools: &[String]| match pools {
            [] => String::new(),
            pools => format!("; {title} {}", pools.join(", ")),
        };
        write!(f, "{}{}", pools("writes", &self.writes), pools("reads", &self.reads))
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let rights = if self.writable { "read, write" } else { "read" };
        let phase = if self.boot_only { ", until the seal" } else { "" };
        write!(f, "{} ({}, {}): {rights}{phase}", self.name, self.kind, bytes(self.bytes))
    }
}
