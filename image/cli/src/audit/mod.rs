//! `urmqtt audit`: what each service may do, what its page tables allow, and what it is made of.

mod dependencies;
mod graph;
mod html;
mod inputs;
mod measure;
mod memory;
mod packaged;
mod report;
mod sbom;
mod source;
mod text;

use crate::build;
use anyhow::{Context, Result, bail};
use builder::check;
use builder::config::Config;
use builder::plan::Plan;
use builder::system::System;
use packaged::Package;
use report::{Report, Request};
use std::path::PathBuf;

/// Print what each service may do, what its page tables allow, where bytes of others come in, and what it is made of
///
/// The task graph says what a service may do, the package what is mapped where, a running image what its page tables allow; the
/// ELF file says what it weighs, cargo what it is linked with, its source how long it is and how much of it is unsafe.
///
/// Examples:
///   urmqtt audit                         all services, in short
///   urmqtt audit tcp                     one, with every mapping and crate
///   urmqtt audit tcp --json              everything, for programs
///   urmqtt audit --measure               boot the image, and compare its page tables with the manifest
///   urmqtt audit --measure --html audit.html
///   urmqtt audit --sbom out/sbom         CycloneDX, one file for each service and one for the image
///   urmqtt audit --graph docs/graph.svg  the task graph as a picture
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// One service; default: all
    service: Option<String>,
    /// Task graph: a name in image/systems, or a file
    #[arg(long, default_value = "default", value_name = "NAME")]
    system: String,
    /// The user's configuration
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[arg(long, value_enum, default_value_t = crate::Arch::X86_64)]
    arch: crate::Arch,
    /// Package to look into [default: out/ARCH/urmqtt.pkg]
    #[arg(long, value_name = "FILE")]
    package: Option<PathBuf>,
    /// Boot a development image that prints its page tables; any difference from the manifest is an error
    #[arg(long)]
    measure: bool,
    /// Folder of the certificates that the measured image gets
    #[arg(long, default_value = "certs", env = "CERTS", value_name = "DIR")]
    certs: PathBuf,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Write one self-contained page about the whole image
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write software bills of materials
    #[arg(long, value_name = "DIR")]
    sbom: Option<PathBuf>,
    /// Draw the task graph as SVG
    #[arg(long, value_name = "FILE")]
    graph: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<()> {
    let source = build::system(&args.system)?;
    let config = Config::parse(&build::config(args.config.as_deref())?)?;
    let plan = check::plan(&source, &source.parse::<System>()?, &config)?;
    let mut report = args.report(&plan)?;
    if args.measure {
        args.measure(&mut report)?;
    }
    let svg = graph::svg(&plan, &report.services, report.kernel_text());
    if let Some(path) = &args.graph {
        std::fs::write(path, &svg).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if let Some(path) = &args.html {
        html::write(&report, &svg, path)?;
    }
    if let Some(folder) = &args.sbom {
        let written = sbom::write(&report, folder)?;
        eprintln!("{} files in {}", written.len(), folder.display());
    }
    if let Some(name) = &args.service {
        let known = report.services.iter().map(|s| s.name.clone()).collect::<Vec<_>>().join(", ");
        report.services.retain(|s| &s.name == name);
        if report.services.is_empty() {
            bail!("there is no service {name}; the system has {known}");
        }
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        text::print(&report, args.service.is_some());
    }
    verdict(&report)
}

/// Differences end with an error, after everything was printed.
fn verdict(report: &Report) -> Result<()> {
    let differences = report.measurement.iter().flat_map(|m| &m.differences);
    let lines: Vec<String> = differences.map(|d| format!("  {d}")).collect();
    if !lines.is_empty() {
        bail!("the page tables are not what the manifest says:\n{}", lines.join("\n"));
    }
    Ok(())
}

impl Args {
    /// What an image of this task graph and architecture is built from and into.
    fn build(&self) -> build::Args {
        build::Args {
            config: self.config.clone(),
            system: self.system.clone(),
            arch: self.arch,
            artifacts: None,
            out: None,
            certs: self.certs.clone(),
            key: None,
            dev: false,
            maps: false,
            command_line: String::new(),
            json: false,
        }
    }

    fn report(&self, plan: &Plan) -> Result<Report> {
        let (package, note) = self.package(plan)?;
        let artifacts = self.build().artifacts();
        let (system, arch) = (&self.system, self.arch);
        Request { system, plan, arch, artifacts: &artifacts, package: package.as_ref(), note }.report()
    }

    /// The package, if there is one of this plan; else why not.
    fn package(&self, plan: &Plan) -> Result<(Option<Package>, Option<String>)> {
        let path = self.package.clone().unwrap_or_else(|| self.build().package());
        if self.package.is_none() && !path.exists() {
            let note = format!("There is no {}; make images-{} builds it.", path.display(), self.arch.name());
            return Ok((None, Some(note)));
        }
        let package = Package::read(&path)?;
        if package.is_of(plan)? {
            return Ok((Some(package), None));
        }
        let note = format!("{} was built from another task graph or configuration.", path.display());
        if self.package.is_some() { bail!("{note}") } else { Ok((None, Some(note))) }
    }

    fn measure(&self, report: &mut Report) -> Result<()> {
        let (mut measurement, spaces) = measure::measure(self.build())?;
        for (service, space) in report.services.iter_mut().zip(spaces) {
            measurement.differences.extend(memory::manifests_differ(
                &service.name,
                &service.mappings,
                &space,
            ));
            service.mappings = space;
        }
        report.measurement = Some(measurement);
        Ok(())
    }
}
