//! How rustls is set up: TLS 1.3 only, three suites, a client certificate always.

use crate::config::Config;
use crate::record::Suite;
use crate::tap::Tap;
use crate::verifier::Verifier;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use core::time::Duration;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{cipher_suite, default_provider, kx_group};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::time_provider::TimeProvider;
use rustls::{CipherSuite, RootCertStore, ServerConfig};

/// Seconds since 1970 as the task's caller tells them; 0: unknown, and then no certificate is valid.
#[derive(Debug, Default)]
pub struct WallClock(AtomicU64);

impl WallClock {
    /// Relaxed here and below: one thread.
    pub fn set(&self, seconds: u64) {
        self.0.store(seconds, Relaxed);
    }
}

impl TimeProvider for WallClock {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = self.0.load(Relaxed);
        (seconds != 0).then(|| UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

/// Why the service can't start.
#[derive(Debug)]
pub enum ConfigError {
    /// Certificate `0` of the authorities.
    Authority(usize, rustls::Error),
    NoAuthority,
    PrivateKey(&'static str),
    /// Among others: the key isn't the certificate's.
    Certificate(rustls::Error),
    /// The cryptography gives wrong answers.
    SelfTest,
}

impl core::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            ConfigError::Authority(index, e) => write!(f, "authority's certificate {index}: {e}"),
            ConfigError::NoAuthority => f.write_str("no authority's certificate"),
            ConfigError::PrivateKey(what) => write!(f, "private key: {what}"),
            ConfigError::Certificate(e) => write!(f, "certificate: {e}"),
            ConfigError::SelfTest => f.write_str("the cryptography fails its known-answer test"),
        }
    }
}

/// ring through rustls, with AES-128 first: the server's order counts, or OpenSSL's clients would always take AES-256.
fn provider() -> CryptoProvider {
    CryptoProvider {
        cipher_suites: alloc::vec![
            cipher_suite::TLS13_AES_128_GCM_SHA256,
            cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
            cipher_suite::TLS13_AES_256_GCM_SHA384,
        ],
        kx_groups: alloc::vec![kx_group::X25519, kx_group::SECP256R1],
        ..default_provider()
    }
}

/// The suite of a handshake that rustls has finished.
pub fn suite(suite: CipherSuite) -> Option<Suite> {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => Some(Suite::Aes128Gcm),
        CipherSuite::TLS13_AES_256_GCM_SHA384 => Some(Suite::Aes256Gcm),
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => Some(Suite::ChaCha20Poly1305),
        _ => None,
    }
}

/// Also the builder's check of what it puts into an image.
pub fn server_config(
    config: &Config,
    clock: Arc<WallClock>,
    tap: Arc<Tap>,
) -> Result<Arc<ServerConfig>, ConfigError> {
    let mut roots = RootCertStore::empty();
    for (index, der) in config.authorities.iter().enumerate() {
        roots.add(CertificateDer::from(der.clone())).map_err(|e| ConfigError::Authority(index, e))?;
    }
    let provider = Arc::new(provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .map_err(|_| ConfigError::NoAuthority)?;
    let verifier = Arc::new(Verifier::new(verifier, config.limits.verified_certificates as usize));
    let key = PrivateKeyDer::try_from(config.private_key.clone()).map_err(ConfigError::PrivateKey)?;
    let chain: Vec<_> = config.certificate_chain.iter().cloned().map(CertificateDer::from).collect();
    let mut server = ServerConfig::builder_with_details(provider, clock)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(ConfigError::Certificate)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(ConfigError::Certificate)?;
    server.ignore_client_order = true;
    server.send_tls13_tickets = 0;
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.key_log = tap;
    Ok(Arc::new(server))
}
