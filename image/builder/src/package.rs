//! The package: kernel, manifest, info documents and segments in one signed file.

use crate::config::Config;
use crate::diagnostic::{Diagnostics, Source};
use crate::elf::{self, Program};
use crate::pki::Pki;
use crate::plan::Plan;
use crate::system::System;
use crate::tables::{self, Parts, Place};
use crate::{check, keys, service};
use ipc::package::{self, Arch, KERNEL, Kind, Layout, MANIFEST, Meta, Part};
use minisign::SecretKey;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use zerocopy::IntoBytes;

/// What an image is made of.
pub struct Request<'r> {
    pub arch: Arch,
    pub system: &'r Source,
    pub config: &'r Source,
    /// Development image, whatever the configuration says.
    pub development: bool,
    /// The kernel prints every task's mappings; in development images only.
    pub maps: bool,
    /// Folder with `kernel` and the tasks' ELF files.
    pub artifacts: &'r Path,
    /// Folder of `ca.crt`, `server.crt` and `server.key`, where the configuration names no others.
    pub certs: &'r Path,
    pub command_line: &'r str,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Config(#[from] Diagnostics),
    #[error("{}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{}", path.display())]
    Elf { path: PathBuf, source: elf::Error },
    #[error(transparent)]
    Key(#[from] keys::Error),
    #[error(transparent)]
    Pki(#[from] crate::pki::Error),
    #[error("only a development image prints its tasks' mappings: addresses are no secret there")]
    Maps,
    /// The builder contradicts the reader: a mistake of ours.
    #[error("the package that was written is refused: {0}")]
    Package(package::Error),
    #[error("the manifest that was written is refused: {0:?}")]
    Manifest(ipc::manifest::Error),
}

/// A package, and what it was made from.
pub struct Package {
    pub plan: Plan,
    pub config: Config,
    /// Payload and signature.
    pub file: Vec<u8>,
}

/// Reads and checks task graph and configuration.
pub fn plan(request: &Request) -> Result<(Plan, Config), Error> {
    let mut config = Config::parse(request.config)?;
    config.development |= request.development;
    let system: System = request.system.parse()?;
    let mut plan = check::plan(request.system, &system, &config)?;
    plan.maps = request.maps;
    if plan.maps && !config.development {
        return Err(Error::Maps);
    }
    Ok((plan, config))
}

/// The tasks' info documents, with their services' settings.
pub fn infos(request: &Request, plan: &Plan, config: &Config) -> Result<Vec<Vec<u8>>, Error> {
    let pki = match plan.tasks.iter().any(|t| t.config.as_str() == "tls") {
        true => Pki::read(&config.pki, request.certs)?,
        false => Pki::default(),
    };
    let inputs = service::Inputs { config, pki: &pki };
    let info = |i| tables::info(plan, i, &service::settings(plan, i, &inputs), config.development);
    Ok((0..plan.tasks.len()).map(info).collect())
}

/// Builds and signs the package.
pub fn build(request: &Request, secret: &SecretKey) -> Result<Package, Error> {
    let (plan, config) = plan(request)?;
    let infos = infos(request, &plan, &config)?;
    let kernel = read(&request.artifacts.join(KERNEL))?;
    let mut programs = Vec::new();
    for task in &plan.tasks {
        let path = request.artifacts.join(task.program.as_str());
        let file = read(&path)?;
        programs.push(Program::parse(&file, request.arch).map_err(|source| Error::Elf { path, source })?);
    }
    let payload = payload(request, &plan, &config, &kernel, &programs, &infos)?;
    let comment = format!("urMQTT {} image version {}", request.arch.name(), config.image.version.get());
    let signature = keys::sign(secret, payload.as_bytes(), &comment)?;
    let mut file = payload.as_bytes().to_vec();
    file.extend_from_slice(signature.as_bytes());
    Ok(Package { plan, config, file })
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|source| Error::Io { path: path.to_owned(), source })
}

/// Lays out all entries, then writes the manifest, which names their places.
fn payload(
    request: &Request,
    plan: &Plan,
    config: &Config,
    kernel: &[u8],
    programs: &[Program],
    infos: &[Vec<u8>],
) -> Result<Vec<u64>, Error> {
    let segments: usize = programs.iter().map(|p| p.segments.len()).sum();
    let mut layout = Layout::new(2 + infos.len() + segments);
    let mut place = |len: usize| Place { offset: layout.place(len as u64), len: len as u64 };
    place(kernel.len());
    // The places don't change the manifest's length, so a draft without them has the right one.
    let draft: Vec<_> = programs
        .iter()
        .map(|program| Parts {
            program,
            segments: vec![Place::default(); program.segments.len()],
            info: Place::default(),
        })
        .collect();
    place(tables::system(plan, &draft, config.development).len());
    let parts: Vec<_> = programs
        .iter()
        .zip(infos)
        .map(|(program, info)| Parts {
            program,
            info: place(info.len()),
            segments: program.segments.iter().map(|s| place(s.bytes.len())).collect(),
        })
        .collect();
    let manifest = tables::system(plan, &parts, config.development);
    ipc::manifest::System::parse(aligned(&manifest).as_bytes()).map_err(Error::Manifest)?;

    let mut names = Vec::new();
    for (task, program) in plan.tasks.iter().zip(programs) {
        names.push(format!("task/{}/info", task.name));
        names.extend(program.segments.iter().map(|s| format!("task/{}/{}", task.name, s.name)));
    }
    let mut contents = Vec::new();
    for (program, info) in programs.iter().zip(infos) {
        contents.push((Kind::Info, &info[..]));
        contents.extend(program.segments.iter().map(|s| (Kind::Segment, &s.bytes[..])));
    }
    let mut entries = vec![
        Part { kind: Kind::Kernel, name: KERNEL, bytes: kernel },
        Part { kind: Kind::Manifest, name: MANIFEST, bytes: &manifest },
    ];
    entries.extend(names.iter().zip(contents).map(|(name, (kind, bytes))| Part { kind, name, bytes }));
    let meta = Meta {
        arch: request.arch,
        image_version: config.image.version.get(),
        command_line: request.command_line,
    };
    let mut words = vec![0u64; layout.payload_len() as usize / 8];
    package::write(&meta, &entries, |b| Sha256::digest(b).into(), words.as_mut_bytes())
        .map_err(Error::Package)?;
    Ok(words)
}

/// A copy that is aligned as the readers want it.
pub fn aligned(bytes: &[u8]) -> Vec<u64> {
    let mut words = vec![0u64; bytes.len().div_ceil(8)];
    words.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
    words
}
