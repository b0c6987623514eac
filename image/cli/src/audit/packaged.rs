//! A package as the auditor has it before them: its manifest, and whether it holds the code that is in the artifacts.

use super::memory::{self, Mapping};
use anyhow::{Context, Result, anyhow};
use builder::elf::Program;
use builder::package::aligned;
use builder::plan::Plan;
use ipc::manifest::{self, System};
use ipc::package::{self, MANIFEST};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use zerocopy::IntoBytes;

pub struct Package {
    pub facts: Facts,
    words: Vec<u64>,
}

/// What is said of it.
#[derive(Clone, Debug, Serialize)]
pub struct Facts {
    pub path: PathBuf,
    pub bytes: usize,
    /// Of the whole file, signature included.
    pub sha256: String,
    pub image_version: u64,
    pub command_line: String,
    pub development: bool,
}

/// An ELF file among the artifacts, and where to find it in the package.
#[derive(Clone, Debug, Serialize)]
pub struct Elf {
    pub path: PathBuf,
    pub bytes: usize,
    pub sha256: String,
    /// What builds just this file anew, and prints its SHA-256.
    pub rebuild: String,
    /// The package holds exactly these bytes; absent: there is no package.
    pub packaged: Option<bool>,
    /// What the package's index says of the parts that are loaded.
    pub segments: Vec<Segment>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Segment {
    pub name: String,
    pub bytes: usize,
    pub sha256: String,
}

pub fn hex(digest: &[u8]) -> String {
    digest.iter().map(|b| format!("{b:02x}")).collect()
}

impl Package {
    pub fn read(path: &Path) -> Result<Self> {
        let file =
            std::fs::read(path).with_context(|| format!("cannot read the package {}", path.display()))?;
        let mut package = Package {
            facts: Facts {
                path: path.to_owned(),
                bytes: file.len(),
                sha256: hex(&Sha256::digest(&file)),
                image_version: 0,
                command_line: String::new(),
                development: false,
            },
            words: aligned(&file),
        };
        let parsed = package.parsed()?;
        let (version, line) = (parsed.header.image_version, parsed.command_line().to_string());
        let development = package.system()?.header.flags & manifest::DEVELOPMENT != 0;
        let facts = &mut package.facts;
        (facts.image_version, facts.command_line, facts.development) = (version, line, development);
        Ok(package)
    }

    fn parsed(&self) -> Result<package::Package<'_>> {
        package::Package::parse(self.words.as_bytes())
            .map_err(|e| anyhow!("{}: {e}", self.facts.path.display()))
    }

    fn entry(&self, name: &str) -> Result<&[u8]> {
        let parsed = self.parsed()?;
        let entry = parsed.entries.iter().find(|e| e.name() == name);
        let entry = entry.with_context(|| format!("{}: no {name}", self.facts.path.display()))?;
        Ok(parsed.bytes(entry))
    }

    fn system(&self) -> Result<System<'_>> {
        System::parse(self.entry(MANIFEST)?)
            .map_err(|e| anyhow!("{}: the manifest is refused: {e:?}", self.facts.path.display()))
    }

    /// Names of the tasks, and each one's address space.
    pub fn spaces(&self) -> Result<(Vec<String>, Vec<Vec<Mapping>>)> {
        let system = self.system()?;
        let names = system.tasks.iter().map(|t| manifest::name(&t.name).to_string()).collect();
        Ok((names, memory::expected(&system)))
    }

    /// It was built from this plan: the same tasks and regions.
    pub fn is_of(&self, plan: &Plan) -> Result<bool> {
        let system = self.system()?;
        let tasks =
            system.tasks.iter().map(|t| manifest::name(&t.name)).eq(plan.tasks.iter().map(|t| &*t.name));
        let regions = system.regions.iter().map(|r| (manifest::name(&r.name), r.pages, r.owner));
        // The info pages follow.
        let regions = regions.take(plan.regions.len());
        Ok(tasks && regions.eq(plan.regions.iter().map(|r| (&*r.name, r.pages, r.owner))))
    }

    /// Every loaded byte of `task` is `program`'s.
    fn holds(&self, task: &str, program: &Program) -> bool {
        let same = |s: &builder::elf::Segment| {
            self.entry(&format!("task/{task}/{}", s.name)).is_ok_and(|bytes| bytes == s.bytes)
        };
        program.segments.iter().all(same)
    }
}

/// The facts about a task's ELF file; `None`: it is not built.
pub fn elf(
    folder: &Path,
    task: &str,
    program: &str,
    arch: package::Arch,
    package: Option<&Package>,
) -> Option<Elf> {
    let path = folder.join(program);
    let file = std::fs::read(&path).ok()?;
    let parsed = Program::parse(&file, arch).ok()?;
    let segments = parsed.segments.iter().map(|s| Segment {
        name: s.name.clone(),
        bytes: s.bytes.len(),
        sha256: hex(&Sha256::digest(&s.bytes)),
    });
    Some(Elf {
        bytes: file.len(),
        sha256: hex(&Sha256::digest(&file)),
        rebuild: format!("image/artifacts.sh {} {program} && sha256sum {}", arch.name(), path.display()),
        packaged: package.map(|p| p.holds(task, &parsed)),
        segments: segments.collect(),
        path,
    })
}

/// The same about a file that is not cut into segments: the kernel, which the package holds as it is, and the loaders.
pub fn plain(folder: &Path, name: &str, arch: package::Arch, package: Option<&Package>) -> Option<Elf> {
    let path = folder.join(name);
    let file = std::fs::read(&path).ok()?;
    let packaged = package.filter(|_| name == package::KERNEL);
    Some(Elf {
        bytes: file.len(),
        sha256: hex(&Sha256::digest(&file)),
        rebuild: format!("image/artifacts.sh {} {name} && sha256sum {}", arch.name(), path.display()),
        packaged: packaged.map(|p| p.entry(name).is_ok_and(|bytes| bytes == file)),
        segments: Vec::new(),
        path,
    })
}
