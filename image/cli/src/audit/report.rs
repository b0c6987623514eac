//! The facts about each service, and about the image that they make.

use super::dependencies::{Crate, Graph};
use super::inputs::Input;
use super::measure::Measurement;
use super::memory::Mapping;
use super::packaged::{self, Elf, Facts, Package};
use crate::Arch;
use anyhow::Result;
use builder::elf::Program;
use builder::plan::{Plan, Task};
use builder::value::bytes;
use ipc::abi::PAGE;
use ipc::manifest::{CapKind, EXECUTE, WRITE};
use serde::Serialize;
use std::path::Path;

/// All that is known of an image.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub system: String,
    pub arch: &'static str,
    /// Absent when there is none, or when it was built from something else: see `note`.
    pub package: Option<Facts>,
    pub note: Option<String>,
    /// Bytes of ordinary memory that the tasks have, all together.
    pub memory_bytes: u64,
    pub services: Vec<Service>,
    /// What runs beside the services: kernel and loaders.
    pub parts: Vec<Part>,
    pub measurement: Option<Measurement>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Part {
    pub name: String,
    pub role: &'static str,
    /// Bytes of code, if it is built and that can be told.
    pub text_bytes: Option<u64>,
    pub elf: Option<Elf>,
    pub dependencies: Vec<Crate>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Service {
    pub name: String,
    pub program: String,
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
    pub inputs: Vec<Input>,
    /// Every row of its address space; empty when there is no package.
    pub mappings: Vec<Mapping>,
    /// Absent when the artifacts are not built.
    pub code: Option<Code>,
    pub elf: Option<Elf>,
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

/// What a report is about.
pub struct Request<'r> {
    pub system: &'r str,
    pub plan: &'r Plan,
    pub arch: Arch,
    /// Folder of kernel, tasks and loaders.
    pub artifacts: &'r Path,
    pub package: Option<&'r Package>,
    pub note: Option<String>,
}

impl Request<'_> {
    /// The report without a measurement.
    pub fn report(self) -> Result<Report> {
        let mut services = self.services()?;
        if let Some(package) = self.package {
            let (_, spaces) = package.spaces()?;
            services.iter_mut().zip(spaces).for_each(|(service, space)| service.mappings = space);
        }
        let parts = self.parts()?;
        Ok(Report {
            system: self.system.into(),
            arch: self.arch.name(),
            package: self.package.map(|p| p.facts.clone()),
            memory_bytes: self.plan.memory(),
            services,
            parts,
            measurement: None,
            note: self.note,
        })
    }

    fn services(&self) -> Result<Vec<Service>> {
        let plan = self.plan;
        let mut programs: Vec<&str> = plan.tasks.iter().map(|t| t.program.as_str()).collect();
        programs.sort();
        programs.dedup();
        let mut graph = Graph::read(&programs, self.bare_target())?;
        let all = plan.tasks.iter().enumerate();
        all.map(|(i, task)| {
            let program = task.program.as_str();
            Ok(Service {
                name: task.name.clone(),
                program: program.into(),
                task: i,
                priority: task.priority,
                core: task.core,
                budget_us: task.budget_us,
                period_us: task.period_us,
                stack_bytes: pages(task.stack_pages),
                heap_bytes: pages(task.heap_pages),
                capabilities: self.capabilities(task),
                links: links(plan, task),
                regions: regions(plan, task),
                inputs: graph.inputs(program)?,
                mappings: Vec::new(),
                code: self.code(program),
                elf: packaged::elf(self.artifacts, &task.name, program, self.arch.package(), self.package),
                dependencies: graph.closure(program)?,
            })
        })
        .collect()
    }

    fn capabilities(&self, task: &Task) -> Vec<String> {
        let plan = self.plan;
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
        // No row of its table, but a right.
        let serial = (task.serial && self.arch == Arch::X86_64).then(|| "ports of COM1".to_string());
        task.caps.iter().filter_map(text).chain(serial).collect()
    }

    /// cargo's name for the target; the tasks' own targets have none that it knows without rustc's nightly switch.
    fn bare_target(&self) -> &'static str {
        match self.arch {
            Arch::X86_64 => "x86_64-unknown-none",
            Arch::Aarch64 => "aarch64-unknown-none-softfloat",
        }
    }

    fn parts(&self) -> Result<Vec<Part>> {
        let (direct, uefi) = match self.arch {
            Arch::X86_64 => ("loader-pvh", "x86_64-unknown-uefi"),
            Arch::Aarch64 => ("loader-linux", "aarch64-unknown-uefi"),
        };
        let bare = self.bare_target();
        let rows = [
            ("microkernel", "kernel", bare, "memory, scheduling, IPC"),
            (direct, "loader", bare, "the loader for direct boot"),
            ("loader-uefi", "loader.efi", uefi, "the loader for UEFI"),
        ];
        rows.into_iter()
            .map(|(name, file, target, role)| {
                Ok(Part {
                    name: name.into(),
                    role,
                    text_bytes: text_bytes(&self.artifacts.join(file)),
                    elf: packaged::plain(self.artifacts, file, self.arch.package(), self.package),
                    dependencies: Graph::read(&[name], target)?.closure(name)?,
                })
            })
            .collect()
    }

    fn code(&self, program: &str) -> Option<Code> {
        let file = std::fs::read(self.artifacts.join(program)).ok()?;
        let program = Program::parse(&file, self.arch.package()).ok()?;
        let sum = |flags: u32| {
            let of = program.segments.iter().filter(|s| s.flags & (WRITE | EXECUTE) == flags);
            of.map(|s| if flags == WRITE { pages(s.pages) } else { s.bytes.len() as u64 }).sum()
        };
        Some(Code { text_bytes: sum(EXECUTE), rodata_bytes: sum(0), data_bytes: sum(WRITE) })
    }
}

fn pages(n: u32) -> u64 {
    n as u64 * PAGE as u64
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

/// Bytes of a program's code, if it is built.
fn text_bytes(path: &Path) -> Option<u64> {
    use object::{Object, ObjectSection, SectionKind};
    let file = std::fs::read(path).ok()?;
    let file = object::File::parse(&*file).ok()?;
    Some(file.sections().filter(|s| s.kind() == SectionKind::Text).map(|s| s.size()).sum())
}

impl Report {
    /// Bytes of the kernel's code, if it is built.
    pub fn kernel_text(&self) -> Option<u64> {
        self.parts.iter().find(|p| p.name == "microkernel")?.text_bytes
    }
}

impl Service {
    pub fn is_itself(&self, c: &Crate) -> bool {
        c.own && c.name == self.program
    }

    fn sums(&self, of: impl Fn(&Crate) -> usize) -> (usize, usize, usize) {
        let sum = |wanted: &dyn Fn(&Crate) -> bool| {
            self.dependencies.iter().filter(|c| wanted(c)).map(&of).sum::<usize>()
        };
        (sum(&|c| self.is_itself(c)), sum(&|c| c.own && !self.is_itself(c)), sum(&|c| !c.own))
    }

    /// Unsafe blocks: of the service, of the project's crates beneath it, of other crates.
    pub fn unsafe_blocks(&self) -> (usize, usize, usize) {
        self.sums(|c| c.source.unsafe_code.blocks)
    }

    /// Lines of code, likewise.
    pub fn lines(&self) -> (usize, usize, usize) {
        self.sums(|c| c.source.lines)
    }

    /// The compiler refuses unsafe code in its library.
    pub fn forbids_unsafe(&self) -> bool {
        self.dependencies.iter().any(|c| self.is_itself(c) && c.source.unsafe_code.forbidden)
    }

    pub fn foreign(&self) -> impl Iterator<Item = &Crate> {
        self.dependencies.iter().filter(|c| !c.own)
    }
}

impl Part {
    pub fn lines(&self) -> usize {
        self.dependencies.iter().filter(|c| c.own).map(|c| c.source.lines).sum()
    }

    /// Crates of others.
    pub fn foreign(&self) -> usize {
        self.dependencies.iter().filter(|c| !c.own).count()
    }

    pub fn unsafe_blocks(&self) -> usize {
        self.dependencies.iter().filter(|c| c.own).map(|c| c.source.unsafe_code.blocks).sum()
    }
}
