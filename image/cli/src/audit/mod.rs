//! `urmqtt audit`: what each service may do, and what it is made of.

mod dependencies;
mod graph;
mod report;
mod unsafe_code;

use crate::{Arch, build};
use anyhow::{Context, Result, bail};
use builder::check;
use builder::config::Config;
use builder::system::System;
use std::path::PathBuf;

/// Print each service's capabilities, links, memory, code, dependencies and unsafe blocks
///
/// The task graph says what a service may do, its ELF file what it weighs, cargo what it is linked with, its source how much
/// of it is unsafe.
///
/// Example: urmqtt audit tcp --json
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
    #[arg(long, value_enum, default_value_t = Arch::X86_64)]
    arch: Arch,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Draw the task graph as SVG
    #[arg(long, value_name = "FILE")]
    graph: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<()> {
    let source = build::system(&args.system)?;
    let config = Config::parse(&build::config(args.config.as_deref())?)?;
    let plan = check::plan(&source, &source.parse::<System>()?, &config)?;
    let mut services = report::services(&plan, args.arch)?;
    if let Some(path) = &args.graph {
        let kernel = report::kernel_text(args.arch);
        std::fs::write(path, graph::svg(&plan, &services, kernel))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if let Some(name) = &args.service {
        let known = services.iter().map(|s| s.name.clone()).collect::<Vec<_>>().join(", ");
        services.retain(|s| &s.name == name);
        if services.is_empty() {
            bail!("there is no service {name}; the system has {known}");
        }
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&services)?);
    } else {
        services.iter().for_each(|s| print!("{s}"));
    }
    Ok(())
}
