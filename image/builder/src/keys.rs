//! The key that signs packages: minisign's key files.

use minisign::{KeyPair, PublicKey, SecretKey, SecretKeyBox};
use std::io;
use std::path::{Path, PathBuf};

/// As the loader expects it; minisign doesn't sign this line.
const UNTRUSTED_COMMENT: &str = "signature of an urMQTT package";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}", path.display())]
    Key { path: PathBuf, source: minisign::PError },
    #[error("cannot sign")]
    Sign(#[source] minisign::PError),
}

/// Where the development key is. It has no passphrase and is good for nothing but development.
pub const DEVELOPMENT: &str = "out/keys/development.key";

/// Makes the key pair `secret` and `secret` with the extension `pub`, without a passphrase, unless it is there.
pub fn ensure(secret: &Path) -> Result<(), Error> {
    if secret.exists() {
        return Ok(());
    }
    let io = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::Io { path, source }
    };
    let key = |source| Error::Key { path: secret.to_owned(), source };
    if let Some(folder) = secret.parent() {
        std::fs::create_dir_all(folder).map_err(io(folder))?;
    }
    let pair = KeyPair::generate_unencrypted_keypair().map_err(key)?;
    let public = secret.with_extension("pub");
    let public_text = pair.pk.to_box().map_err(key)?.to_string();
    std::fs::write(&public, public_text).map_err(io(&public))?;
    let secret_text =
        pair.sk.to_box(Some("minisign secret key, without a passphrase")).map_err(key)?.to_string();
    // Last: a secret key that is there means that the pair is.
    write_private(secret, secret_text.as_bytes()).map_err(io(secret))
}

/// Writes a file that only its owner may read.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)
}

/// Reads a secret key; asks for the passphrase when it has one.
pub fn read_secret(path: &Path) -> Result<SecretKey, Error> {
    let text = std::fs::read_to_string(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
    let key = |source| Error::Key { path: path.to_owned(), source };
    let boxed = || SecretKeyBox::from_string(&text).map_err(key);
    boxed()?.into_unencrypted_secret_key().or_else(|_| boxed()?.into_secret_key(None).map_err(key))
}

/// The signature text that follows a payload. The same bytes give the same signature.
pub fn sign(secret: &SecretKey, payload: &[u8], trusted_comment: &str) -> Result<String, Error> {
    let public = PublicKey::from_secret_key(secret).map_err(Error::Sign)?;
    let signature =
        minisign::sign(Some(&public), secret, payload, Some(trusted_comment), Some(UNTRUSTED_COMMENT));
    Ok(signature.map_err(Error::Sign)?.into_string())
}
