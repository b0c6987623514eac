//! Which broker, and as whom.

use anyhow::{Context, Result};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Where the broker is.
#[derive(clap::Args, Clone, Debug)]
#[group(skip)]
pub struct Options {
    #[arg(long, default_value = "127.0.0.1", value_name = "NAME", help_heading = "Target")]
    pub host: String,
    #[arg(long, default_value_t = 8883, value_name = "PORT", help_heading = "Target")]
    pub port: u16,
    /// Folder as `urmqtt certs` makes it
    #[arg(long, default_value = "certs", env = "CERTS", value_name = "DIR", help_heading = "Target")]
    pub certs: PathBuf,
    /// Connect from this address (loopback has one port range for each)
    #[arg(long, value_name = "ADDRESS", help_heading = "Target")]
    pub source: Option<IpAddr>,
}

/// A broker, looked up once.
#[derive(Clone, Debug)]
pub struct Target {
    pub address: SocketAddr,
    pub name: ServerName<'static>,
    pub source: Option<IpAddr>,
    certs: PathBuf,
    verifier: Arc<Verifier>,
}

/// A client: its identifier, and its certificate's settings, to be used for many connections.
#[derive(Clone, Debug)]
pub struct Identity {
    pub id: String,
    pub config: Arc<ClientConfig>,
}

impl Identity {
    /// The same certificate with another identifier.
    pub fn named(&self, id: String) -> Self {
        Identity { id, config: self.config.clone() }
    }
}

impl Target {
    pub fn new(options: &Options) -> Result<Self> {
        let place = (options.host.as_str(), options.port);
        let mut addresses =
            place.to_socket_addrs().with_context(|| format!("cannot find the host {}", options.host))?;
        // IPv4 first: a broker on `localhost` often listens there only.
        let found: Vec<_> = addresses.by_ref().collect();
        let address = found.iter().find(|a| a.is_ipv4()).or(found.first()).copied();
        Ok(Target {
            address: address.with_context(|| format!("{} has no address", options.host))?,
            name: ServerName::try_from(options.host.clone())
                .with_context(|| format!("{} is no host name", options.host))?,
            source: options.source,
            certs: options.certs.clone(),
            verifier: Arc::new(Verifier::new(&options.certs.join("ca.crt"))?),
        })
    }

    /// Device `n`, from 1. Its identifier is its certificate's name.
    pub fn device(&self, n: u32, resume: bool) -> Result<Identity> {
        let id = format!("dev-{n:05}");
        let config = self.config(&format!("devices/{id}"), resume).with_context(|| {
            format!("device {n}; `urmqtt certs --dir {} --devices N` makes them", self.certs.display())
        })?;
        Ok(Identity { id, config })
    }

    /// The operator, who may have any identifier and see any topic.
    pub fn operator(&self, id: String) -> Result<Identity> {
        Ok(Identity { id, config: self.config("operator", false)? })
    }

    pub fn certs(&self) -> &Path {
        &self.certs
    }

    fn config(&self, name: &str, resume: bool) -> Result<Arc<ClientConfig>> {
        let at = |extension| self.certs.join(format!("{name}.{extension}"));
        let (certificate, key) = (at("crt"), at("key"));
        let chain = CertificateDer::pem_file_iter(&certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .with_context(|| format!("cannot read the certificate {}", certificate.display()))?;
        let key = PrivateKeyDer::from_pem_file(&key)
            .with_context(|| format!("cannot read the key {}", key.display()))?;
        let mut config = ClientConfig::builder_with_provider(provider().clone())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(self.verifier.clone())
            .with_client_auth_cert(chain, key)?;
        config.resumption = if resume { Resumption::in_memory_sessions(2) } else { Resumption::disabled() };
        Ok(Arc::new(config))
    }
}

/// One cipher suite, so that all servers do the same work whatever they would choose: the one that each must have (RFC 8446,
/// section 9.1).
fn provider() -> &'static Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    PROVIDER.get_or_init(|| {
        let mut provider = ring::default_provider();
        provider.cipher_suites = vec![ring::cipher_suite::TLS13_AES_128_GCM_SHA256];
        Arc::new(provider)
    })
}

/// Checks the server's certificate once, and later only that it is the same: the generator's processor time is better spent
/// on more load. That the server has the certificate's key is checked every time.
#[derive(Debug)]
struct Verifier {
    full: Arc<WebPkiServerVerifier>,
    good: OnceLock<CertificateDer<'static>>,
}

impl Verifier {
    fn new(ca: &Path) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        let broken = || format!("cannot read the CA's certificate {}", ca.display());
        for certificate in CertificateDer::pem_file_iter(ca).with_context(broken)? {
            roots.add(certificate.with_context(broken)?).with_context(broken)?;
        }
        let full =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider().clone()).build()?;
        Ok(Verifier { full, good: OnceLock::new() })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.good.get().is_some_and(|good| good == end_entity) {
            return Ok(ServerCertVerified::assertion());
        }
        let verified = self.full.verify_server_cert(end_entity, intermediates, name, ocsp, now)?;
        let _ = self.good.set(end_entity.clone().into_owned());
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.full.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.full.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.full.supported_verify_schemes()
    }
}
