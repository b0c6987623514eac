//! Software bills of materials: CycloneDX 1.5 as JSON, one for each service and one for the image. The same input gives the same
//! bytes, so they carry no time and no serial number.

use super::dependencies::Crate;
use super::packaged::Elf;
use super::report::Report;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A program of the image: what it is called, what cargo calls it, and what it is made of.
struct Program<'r> {
    name: &'r str,
    package: &'r str,
    /// CycloneDX's word.
    kind: &'static str,
    elf: Option<&'r Elf>,
    crates: &'r [Crate],
}

/// Other things' references by each thing's.
type Edges = BTreeMap<String, Vec<String>>;

/// Writes all of them into `folder`; their paths.
pub fn write(report: &Report, folder: &Path) -> Result<Vec<PathBuf>> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut boms = vec![("urmqtt", image(report))];
    let services = programs(report).take(report.services.len());
    boms.extend(services.map(|program| (program.name, alone(&program))));
    boms.into_iter()
        .map(|(name, bom)| {
            let path = folder.join(format!("{name}-{}.cdx.json", report.arch));
            let text = format!("{bom:#}\n");
            std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            Ok(path)
        })
        .collect()
}

/// The services first, in their order.
fn programs(report: &Report) -> impl Iterator<Item = Program<'_>> {
    let services = report.services.iter().map(|s| Program {
        name: &s.name,
        package: &s.program,
        kind: "application",
        elf: s.elf.as_ref(),
        crates: &s.dependencies,
    });
    let parts = report.parts.iter().map(|p| Program {
        name: &p.name,
        package: &p.name,
        kind: if p.name == "microkernel" { "operating-system" } else { "firmware" },
        elf: p.elf.as_ref(),
        crates: &p.dependencies,
    });
    services.chain(parts)
}

/// One program.
fn alone(program: &Program) -> Value {
    let (mut crates, mut edges) = (BTreeMap::new(), Edges::new());
    program.collect(&mut crates, &mut edges);
    document(program.component(), Vec::new(), &crates, edges)
}

/// Everything that runs.
fn image(report: &Report) -> Value {
    let (mut crates, mut edges) = (BTreeMap::new(), Edges::new());
    programs(report).for_each(|program| program.collect(&mut crates, &mut edges));
    edges.insert("image".into(), edges.keys().cloned().collect());
    let mut root = json!({
        "type": "firmware", "bom-ref": "image", "name": "urmqtt", "version": VERSION,
        "description": format!("urMQTT image for {}", report.arch),
    });
    if let Some(package) = &report.package {
        root["hashes"] = sha256(&package.sha256);
    }
    document(root, programs(report).map(|p| p.component()).collect(), &crates, edges)
}

fn document(
    root: Value,
    mut components: Vec<Value>,
    crates: &BTreeMap<String, &Crate>,
    mut edges: Edges,
) -> Value {
    components.extend(crates.values().map(|c| library(c)));
    for c in crates.values() {
        let used = c.uses.iter().filter(|id| crates.contains_key(*id));
        edges.insert(reference(&c.id()), used.map(|id| reference(id)).collect());
    }
    let edges: Vec<_> = edges.iter().map(|(from, to)| json!({ "ref": from, "dependsOn": to })).collect();
    json!({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {
            "tools": [{ "vendor": "urMQTT", "name": "urmqtt audit", "version": VERSION }],
            "component": root,
        },
        "components": components,
        "dependencies": edges,
    })
}

impl<'r> Program<'r> {
    fn is_root(&self, c: &Crate) -> bool {
        c.own && c.name == self.package
    }

    fn reference(&self) -> String {
        format!("program:{}", self.name)
    }

    /// Adds what it is linked with, and what it uses itself.
    fn collect(&self, crates: &mut BTreeMap<String, &'r Crate>, edges: &mut Edges) {
        crates.extend(self.crates.iter().filter(|c| !self.is_root(c)).map(|c| (c.id(), c)));
        let root = self.crates.iter().find(|c| self.is_root(c));
        let uses = root.map_or(&[][..], |c| &c.uses[..]);
        edges.insert(self.reference(), uses.iter().map(|id| reference(id)).collect());
    }

    fn component(&self) -> Value {
        let mut component = json!({ "type": self.kind, "bom-ref": self.reference(), "name": self.name });
        if let Some(root) = self.crates.iter().find(|c| self.is_root(c)) {
            component["version"] = json!(root.version);
            describe(&mut component, root);
        }
        if let Some(elf) = self.elf {
            component["hashes"] = sha256(&elf.sha256);
        }
        component
    }
}

fn reference(id: &str) -> String {
    format!("crate:{}", id.replace(' ', "@"))
}

fn library(c: &Crate) -> Value {
    let mut component = json!({
        "type": "library", "bom-ref": reference(&c.id()), "name": c.name, "version": c.version,
    });
    if let Some(digest) = &c.sha256 {
        component["hashes"] = sha256(digest);
    }
    if !c.own {
        // A name on crates.io has no character that would have to be escaped; a version may have a plus.
        component["purl"] = json!(format!("pkg:cargo/{}@{}", c.name, c.version.replace('+', "%2B")));
    }
    describe(&mut component, c);
    component
}

fn sha256(digest: &str) -> Value {
    json!([{ "alg": "SHA-256", "content": digest }])
}

/// Licence, and what was counted in the source.
fn describe(component: &mut Value, c: &Crate) {
    if let Some(license) = c.spdx() {
        component["licenses"] = json!([{ "expression": license }]);
    }
    let unsafe_code = &c.source.unsafe_code;
    let rows = [
        ("lines", c.source.lines),
        ("unsafe-blocks", unsafe_code.blocks),
        ("unsafe-functions", unsafe_code.functions),
        ("unsafe-impls", unsafe_code.impls),
    ];
    let rows = rows.map(|(name, n)| json!({ "name": format!("urmqtt:{name}"), "value": n.to_string() }));
    component["properties"] = json!(rows);
}
