//! What a service is linked with, as cargo resolves it.

use super::inputs::Input;
use super::source;
use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId, TargetKind};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

#[derive(Clone, Debug, Serialize)]
pub struct Crate {
    pub name: String,
    pub version: String,
    /// Part of this project.
    pub own: bool,
    pub license: Option<String>,
    /// Of the archive that cargo compiled, as Cargo.lock has it.
    pub sha256: Option<String>,
    #[serde(flatten)]
    pub source: source::Count,
    /// What it uses itself, as `NAME VERSION`.
    pub uses: Vec<String>,
}

impl Crate {
    /// Unique among all crates.
    pub fn id(&self) -> String {
        format!("{} {}", self.name, self.version)
    }

    /// The licence as an SPDX expression; older crates write a slash for OR.
    pub fn spdx(&self) -> Option<String> {
        let license = self.license.as_deref()?;
        Some(license.split('/').map(str::trim).collect::<Vec<_>>().join(" OR "))
    }
}

/// The resolved graph of the workspace, with the tasks' programs as they are in an image.
pub struct Graph {
    metadata: Metadata,
    checksums: HashMap<String, String>,
    counts: HashMap<PackageId, source::Count>,
}

#[derive(Deserialize)]
struct Lock {
    package: Vec<Locked>,
}

#[derive(Deserialize)]
struct Locked {
    name: String,
    version: String,
    checksum: Option<String>,
}

impl Graph {
    /// `platform`: a target that cargo knows by name.
    pub fn read(programs: &[&str], platform: &str) -> Result<Self> {
        // The feature that makes a program of the library: what runs without the kernel calls it otherwise.
        let bare = |p: &str| p == "microkernel" || p.starts_with("loader-");
        let feature = |p: &&str| format!("{p}/{}", if bare(p) { "bare" } else { "task" });
        let features = programs.iter().map(feature).collect::<Vec<_>>().join(",");
        let mut command = MetadataCommand::new();
        if let Some(cargo) = std::env::var_os("CARGO") {
            command.cargo_path(cargo);
        }
        let options = ["--locked", "--filter-platform", platform, "--features", &features];
        let metadata = command
            .other_options(options.map(str::to_string))
            .exec()
            .context("`cargo metadata` doesn't work here")?;
        let lock = metadata.workspace_root.join("Cargo.lock");
        let lock: Lock = toml::from_str(&std::fs::read_to_string(&lock)?)
            .with_context(|| format!("cannot read {lock}"))?;
        let checksums = lock.package.into_iter();
        let checksums = checksums.filter_map(|p| Some((format!("{} {}", p.name, p.version), p.checksum?)));
        Ok(Graph { metadata, checksums: checksums.collect(), counts: HashMap::new() })
    }

    /// The program itself and all that is compiled into it, sorted; macros and build scripts are not.
    pub fn closure(&mut self, program: &str) -> Result<Vec<Crate>> {
        let packages = self.packages(program)?;
        packages.iter().map(|p| self.describe(p)).collect()
    }

    /// Where bytes of others come into the program, from its own table and those of the own crates beneath it.
    pub fn inputs(&self, program: &str) -> Result<Vec<Input>> {
        let mut inputs = Vec::new();
        for package in self.packages(program)?.iter().filter(|p| p.source.is_none()) {
            let Some(table) = package.metadata.get("urmqtt").and_then(|t| t.get("inputs")) else { continue };
            let rows: Vec<Input> = serde_json::from_value(table.clone())
                .with_context(|| format!("{}: package.metadata.urmqtt.inputs", package.manifest_path))?;
            // Its own first.
            let at = if package.name == program { 0 } else { inputs.len() };
            inputs.splice(at..at, rows);
        }
        inputs.into_iter().map(|input| input.locate(&|name| self.folder(name))).collect()
    }

    /// The source of one of the workspace's crates.
    fn folder(&self, name: &str) -> Option<PathBuf> {
        let package = self.metadata.workspace_packages().into_iter().find(|p| p.name == name)?;
        let root = package.manifest_path.parent()?.strip_prefix(&self.metadata.workspace_root).ok()?;
        Some(root.join("src").into())
    }

    fn packages(&self, program: &str) -> Result<Vec<Package>> {
        let resolve = self.metadata.resolve.as_ref().context("cargo resolved nothing")?;
        let nodes: HashMap<_, _> = resolve.nodes.iter().map(|n| (&n.id, n)).collect();
        let root = self.metadata.workspace_packages().into_iter().find(|p| p.name == program);
        let root = root.with_context(|| format!("the workspace has no package {program}"))?;
        let (mut todo, mut found) = (vec![root.id.clone()], BTreeMap::new());
        while let Some(id) = todo.pop() {
            let package = &self.metadata[&id];
            if is_macro(package)
                || found.insert((package.name.to_string(), package.version.to_string()), id.clone()).is_some()
            {
                continue;
            }
            todo.extend(nodes[&id].deps.iter().filter(|d| is_linked(d)).map(|d| d.pkg.clone()));
        }
        Ok(found.into_values().map(|id| self.metadata[&id].clone()).collect())
    }

    fn describe(&mut self, package: &Package) -> Result<Crate> {
        let source = match self.counts.get(&package.id) {
            Some(count) => *count,
            None => {
                let folder = package.manifest_path.parent().context("a manifest has a folder")?.join("src");
                let count = source::count(folder.as_std_path())?;
                self.counts.insert(package.id.clone(), count);
                count
            }
        };
        let nodes = &self.metadata.resolve.as_ref().context("cargo resolved nothing")?.nodes;
        let node = nodes.iter().find(|n| n.id == package.id).context("cargo resolved it")?;
        let used = node.deps.iter().filter(|d| is_linked(d)).map(|d| &self.metadata[&d.pkg]);
        let mut uses: Vec<String> =
            used.filter(|p| !is_macro(p)).map(|p| format!("{} {}", p.name, p.version)).collect();
        uses.sort();
        Ok(Crate {
            name: package.name.to_string(),
            version: package.version.to_string(),
            own: package.source.is_none(),
            license: package.license.clone(),
            sha256: self.checksums.get(&format!("{} {}", package.name, package.version)).cloned(),
            source,
            uses,
        })
    }
}

fn is_macro(package: &Package) -> bool {
    package.targets.iter().any(|t| t.kind.contains(&TargetKind::ProcMacro))
}

fn is_linked(dependency: &cargo_metadata::NodeDep) -> bool {
    dependency.dep_kinds.iter().any(|k| k.kind == DependencyKind::Normal)
}
