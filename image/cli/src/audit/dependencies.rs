//! What a service is linked with, as cargo resolves it.

use super::unsafe_code;
use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId, TargetKind};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

#[derive(Clone, Debug, Serialize)]
pub struct Crate {
    pub name: String,
    pub version: String,
    /// Part of this project.
    pub own: bool,
    pub license: Option<String>,
    #[serde(rename = "unsafe")]
    pub unsafe_code: unsafe_code::Count,
}

/// The resolved graph of the workspace, with the tasks' programs as they are in an image.
pub struct Graph {
    metadata: Metadata,
    counts: HashMap<PackageId, unsafe_code::Count>,
}

impl Graph {
    pub fn read(programs: &[&str]) -> Result<Self> {
        let features = programs.iter().map(|p| format!("{p}/bare")).collect::<Vec<_>>().join(",");
        let mut command = MetadataCommand::new();
        if let Some(cargo) = std::env::var_os("CARGO") {
            command.cargo_path(cargo);
        }
        let options = ["--locked", "--filter-platform", "x86_64-unknown-none", "--features", &features];
        let metadata = command
            .other_options(options.map(str::to_string))
            .exec()
            .context("`cargo metadata` doesn't work here")?;
        Ok(Graph { metadata, counts: HashMap::new() })
    }

    /// The program itself and all that is compiled into it, sorted; macros and build scripts are not.
    pub fn closure(&mut self, program: &str) -> Result<Vec<Crate>> {
        let resolve = self.metadata.resolve.as_ref().context("cargo resolved nothing")?;
        let nodes: HashMap<_, _> = resolve.nodes.iter().map(|n| (&n.id, n)).collect();
        let root = self.metadata.workspace_packages().into_iter().find(|p| p.name == program);
        let root = root.with_context(|| format!("the workspace has no package {program}"))?;
        let (mut todo, mut found) = (vec![root.id.clone()], BTreeMap::new());
        while let Some(id) = todo.pop() {
            let package = &self.metadata[&id];
            let is_macro = package.targets.iter().any(|t| t.kind.contains(&TargetKind::ProcMacro));
            if is_macro
                || found.insert((package.name.to_string(), package.version.to_string()), id.clone()).is_some()
            {
                continue;
            }
            let normal =
                |d: &&cargo_metadata::NodeDep| d.dep_kinds.iter().any(|k| k.kind == DependencyKind::Normal);
            todo.extend(nodes[&id].deps.iter().filter(normal).map(|d| d.pkg.clone()));
        }
        let packages: Vec<Package> = found.into_values().map(|id| self.metadata[&id].clone()).collect();
        packages.iter().map(|p| self.describe(p)).collect()
    }

    fn describe(&mut self, package: &Package) -> Result<Crate> {
        let count = match self.counts.get(&package.id) {
            Some(count) => *count,
            None => {
                let folder = package.manifest_path.parent().context("a manifest has a folder")?.join("src");
                let count = unsafe_code::count(folder.as_std_path())?;
                self.counts.insert(package.id.clone(), count);
                count
            }
        };
        Ok(Crate {
            name: package.name.to_string(),
            version: package.version.to_string(),
            own: package.source.is_none(),
            license: package.license.clone(),
            unsafe_code: count,
        })
    }
}
