//! `urmqtt verify`: what the loader would say of a package, on the host.

use anyhow::{Context, Result, anyhow, bail};
use builder::{keys, package};
use loader::verify::{PublicKey, verify};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::path::PathBuf;
use zerocopy::IntoBytes;

/// Check a package's signature and list what is in it
///
/// The same code as in the loader says yes or no; in addition each entry's SHA-256 is computed anew.
///
/// Example: urmqtt verify out/x86_64/urmqtt.pkg --key release.pub
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    package: PathBuf,
    /// minisign public key [default: the development key's]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let key = args.key.clone().unwrap_or_else(|| PathBuf::from(keys::DEVELOPMENT).with_extension("pub"));
    let text =
        std::fs::read_to_string(&key).with_context(|| format!("cannot read the key {}", key.display()))?;
    let key = PublicKey::parse(&text).map_err(|e| anyhow!("{}: {e}", key.display()))?;
    let file = std::fs::read(&args.package)
        .with_context(|| format!("cannot read the package {}", args.package.display()))?;
    let words = package::aligned(&file);
    let verified = verify(&words.as_bytes()[..file.len()], &key, None)
        .map_err(|refusal| anyhow!("{} is refused: {refusal}", args.package.display()))?;
    let package = verified.package;
    for entry in package.entries {
        if entry.sha256 != <[u8; 32]>::from(Sha256::digest(package.bytes(entry))) {
            bail!("{}: the entry {} doesn't have its own SHA-256", args.package.display(), entry.name());
        }
    }
    let hex = |digest: &[u8]| digest.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let header = package.header;
    if args.json {
        let entries: Vec<_> = package
            .entries
            .iter()
            .map(|e| json!({ "name": e.name(), "bytes": e.len, "sha256": hex(&e.sha256) }))
            .collect();
        let result = json!({
            "arch": package.arch().name(), "image_version": header.image_version, "bytes": file.len(),
            "command_line": package.command_line(), "comment": verified.trusted_comment, "entries": entries,
        });
        println!("{result:#}");
        return Ok(());
    }
    println!("{}: good, {} bytes, {}", args.package.display(), file.len(), verified.trusted_comment);
    if !package.command_line().is_empty() {
        println!("command line: {}", package.command_line());
    }
    for entry in package.entries {
        println!("{}  {:>9}  {}", hex(&entry.sha256), entry.len, entry.name());
    }
    Ok(())
}
