//! `urmqtt key`: the development key.

use anyhow::Result;
use std::path::PathBuf;

/// Make the development signing key if it isn't there, and print the path of its public half
///
/// The loader is built with the public key; packages are signed with the secret one. For real images, make a key pair
/// with `minisign -G` and keep it off the build machine.
///
/// Example: URMQTT_PUBLIC_KEY=$(urmqtt key) make artifacts
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Folder of the key pair
    #[arg(long, default_value = "out/keys", value_name = "DIR")]
    dir: PathBuf,
}

pub fn run(args: &Args) -> Result<()> {
    let secret = builder::keys::development(&args.dir)?;
    println!("{}", std::path::absolute(secret.with_extension("pub"))?.display());
    Ok(())
}
