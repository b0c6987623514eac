//! Certificates and key of the server, and the CA whose clients it serves: PEM files to the DER that goes into the image.

use crate::config;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Default)]
pub struct Pki {
    pub certificate_chain: Vec<Vec<u8>>,
    pub private_key: Vec<u8>,
    pub authorities: Vec<Vec<u8>>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}", path.display())]
    Pem { path: PathBuf, source: rustls_pki_types::pem::Error },
    #[error("{}: there is no certificate in it", .0.display())]
    Empty(PathBuf),
}

impl Pki {
    /// The files that the configuration names, or those of the folder.
    pub fn read(config: &config::Pki, folder: &Path) -> Result<Self, Error> {
        let path = |named: &Option<PathBuf>, name: &str| named.clone().unwrap_or_else(|| folder.join(name));
        let key = path(&config.key, "server.key");
        let private =
            PrivateKeyDer::from_pem_file(&key).map_err(|source| Error::Pem { path: key, source })?;
        Ok(Pki {
            certificate_chain: certificates(path(&config.certificate, "server.crt"))?,
            private_key: private.secret_der().to_vec(),
            authorities: certificates(path(&config.ca, "ca.crt"))?,
        })
    }
}

fn certificates(path: PathBuf) -> Result<Vec<Vec<u8>>, Error> {
    let read = || -> Result<Vec<Vec<u8>>, rustls_pki_types::pem::Error> {
        CertificateDer::pem_file_iter(&path)?.map(|c| Ok(c?.to_vec())).collect()
    };
    match read() {
        Ok(all) if all.is_empty() => Err(Error::Empty(path)),
        Ok(all) => Ok(all),
        Err(source) => Err(Error::Pem { path, source }),
    }
}
