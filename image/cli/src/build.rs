//! `urmqtt build`: configuration and artifacts to a signed package and a disk image.

use crate::Arch;
use anyhow::{Context, Result, anyhow, bail};
use builder::diagnostic::Source;
use builder::package::{self, Package, Request};
use builder::{disk, keys};
use std::path::{Path, PathBuf};

/// Check the configuration and build the signed image
///
/// Example: urmqtt build --config site.toml --arch aarch64 --key release.key
#[derive(clap::Args, Clone, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The user's configuration; without it the defaults count (image/urmqtt.toml shows all)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Task graph: a name in image/systems, or a file
    #[arg(long, default_value = "default", value_name = "NAME")]
    pub system: String,
    #[arg(long, value_enum, default_value_t = Arch::native())]
    pub arch: Arch,
    /// Folder of kernel, tasks and loaders [default: out/ARCH/artifacts]
    #[arg(long, value_name = "DIR")]
    pub artifacts: Option<PathBuf>,
    /// Folder for the results [default: out/ARCH, out/ARCH-dev, out/ARCH-SYSTEM]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Folder of ca.crt, server.crt and server.key
    #[arg(long, default_value = "certs", env = "CERTS", value_name = "DIR")]
    pub certs: PathBuf,
    /// minisign secret key [default: the development key in out/keys, made on first use]
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Development image: commands on the serial line, addresses in the log
    #[arg(long)]
    pub dev: bool,
    /// The kernel prints every task's mappings when it seals them (with --dev; `urmqtt audit --measure` reads them)
    #[arg(long)]
    pub maps: bool,
    /// Words for the kernel and tasks, inside the signature
    #[arg(long, default_value = "", value_name = "WORDS")]
    pub command_line: String,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

impl Args {
    /// Each kind of image has its folder.
    pub fn out(&self) -> PathBuf {
        let kind = match (self.system.as_str(), self.dev) {
            ("default", false) => String::new(),
            ("default", true) => "-dev".into(),
            (system, _) => format!("-{}", Path::new(system).file_stem().unwrap_or_default().display()),
        };
        self.out.clone().unwrap_or_else(|| Path::new("out").join(format!("{}{kind}", self.arch.name())))
    }

    pub fn artifacts(&self) -> PathBuf {
        self.artifacts.clone().unwrap_or_else(|| Path::new("out").join(self.arch.name()).join("artifacts"))
    }

    pub fn package(&self) -> PathBuf {
        self.out().join("urmqtt.pkg")
    }

    pub fn disk(&self) -> PathBuf {
        self.out().join("disk.img")
    }
}

pub fn run(args: &Args) -> Result<()> {
    let built = build(args)?;
    let path = args.package();
    if args.json {
        let result = serde_json::json!({
            "package": path, "bytes": built.file.len(), "memory": built.plan.memory(),
            "tasks": built.plan.tasks.iter().map(|t| &t.name).collect::<Vec<_>>(),
        });
        println!("{result}");
    } else {
        let (kib, mib) = (built.file.len() >> 10, built.plan.memory() >> 20);
        println!("{}: {kib} KiB, {} tasks, {mib} MiB of memory", path.display(), built.plan.tasks.len());
    }
    Ok(())
}

/// Builds the package and writes it.
pub fn build(args: &Args) -> Result<Package> {
    let system = system(&args.system)?;
    let config = config(args.config.as_deref())?;
    let development = PathBuf::from(keys::DEVELOPMENT);
    let secret = args.key.as_ref().unwrap_or(&development);
    if args.key.is_none() {
        keys::ensure(secret)?;
    }
    let secret = keys::read_secret(secret)?;
    let request = Request {
        arch: args.arch.package(),
        system: &system,
        config: &config,
        development: args.dev,
        maps: args.maps,
        artifacts: &args.artifacts(),
        certs: &args.certs,
        command_line: &args.command_line,
    };
    let built = package::build(&request, &secret).map_err(explain)?;
    let out = args.out();
    std::fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    let path = args.package();
    std::fs::write(&path, &built.file).with_context(|| format!("cannot write {}", path.display()))?;
    write_disk(args, &built)?;
    Ok(built)
}

/// The disk image, if there is a UEFI loader for it.
fn write_disk(args: &Args, built: &Package) -> Result<()> {
    let loader = args.artifacts().join("loader.efi");
    if !loader.exists() {
        return Ok(());
    }
    let loader = std::fs::read(&loader).with_context(|| format!("cannot read {}", loader.display()))?;
    let image = disk::image(args.arch.package(), &loader, &built.file)?;
    std::fs::write(args.disk(), image).with_context(|| format!("cannot write {}", args.disk().display()))
}

/// The builder's errors, with what to do next.
pub fn explain(error: package::Error) -> anyhow::Error {
    match error {
        package::Error::Config(diagnostics) => diagnostics.into(),
        package::Error::Io { path, source } if source.kind() == std::io::ErrorKind::NotFound => {
            anyhow!("{} is missing; `make artifacts` builds it", path.display())
        }
        error @ package::Error::Pki(_) => anyhow::Error::from(error)
            .context("`urmqtt certs` makes what is missing, or name another folder with --certs"),
        other => other.into(),
    }
}

/// The task graph by name or path.
pub fn system(name: &str) -> Result<Source> {
    let is_path = name.ends_with(".toml");
    let path =
        if is_path { PathBuf::from(name) } else { Path::new("image/systems").join(format!("{name}.toml")) };
    if !path.exists() {
        let known = std::fs::read_dir("image/systems").into_iter().flatten().flatten();
        let mut names: Vec<_> =
            known.filter_map(|e| Some(e.path().file_stem()?.to_string_lossy().into_owned())).collect();
        names.sort();
        bail!("there is no task graph {}; image/systems has: {}", path.display(), names.join(", "));
    }
    Source::read(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// The configuration that was named, or `urmqtt.toml` if there is one, or the defaults.
pub fn config(path: Option<&Path>) -> Result<Source> {
    let default = Path::new("urmqtt.toml");
    match path {
        None if !default.exists() => Ok(Source::new("urmqtt.toml", "")),
        path => {
            let path = path.unwrap_or(default);
            Source::read(path).with_context(|| format!("cannot read the configuration {}", path.display()))
        }
    }
}
