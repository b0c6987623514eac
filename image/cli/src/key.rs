//! `urmqtt key`: the key that signs packages.

use anyhow::Result;
use std::path::PathBuf;

/// Make a signing key without a passphrase if it isn't there, and print the path of its public half
///
/// The loader is built with the public key; packages are signed with the secret one. For real images, make a key pair
/// with `minisign -G`, which asks for a passphrase, and keep it off the build machine.
///
/// Example: URMQTT_PUBLIC_KEY=$(urmqtt key) make artifacts
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The secret half; the public one has the extension `pub`
    #[arg(default_value = builder::keys::DEVELOPMENT, value_name = "FILE")]
    secret: PathBuf,
}

pub fn run(args: &Args) -> Result<()> {
    builder::keys::ensure(&args.secret)?;
    println!("{}", std::path::absolute(args.secret.with_extension("pub"))?.display());
    Ok(())
}
