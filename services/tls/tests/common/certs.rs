//! Certificates of a small fleet, and rustls clients that hold them.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType, SigningKey};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{CipherSuite, ClientConfig, ClientConnection, RootCertStore};
use std::sync::Arc;

#[derive(Clone)]
pub struct Party {
    pub der: Vec<u8>,
    pub key: Vec<u8>,
}

pub struct Certs {
    pub ca_der: Vec<u8>,
    issuer: Issuer<'static, KeyPair>,
    pub server: Party,
}

pub fn device(name: &str) -> CertificateParams {
    named(Some(name), &[])
}

pub fn named(common_name: Option<&str>, uris: &[&str]) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "fleet");
    if let Some(name) = common_name {
        params.distinguished_name.push(DnType::CommonName, name);
    }
    params.subject_alt_names = uris.iter().map(|u| SanType::URI((*u).try_into().unwrap())).collect();
    params
}

impl Certs {
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "fleet CA");
        let ca_der = params.self_signed(&key).unwrap().der().to_vec();
        let issuer = Issuer::new(params, key);
        let server = CertificateParams::new(vec!["broker.test".to_string()]).unwrap();
        let server = signed(server, &issuer);
        Certs { ca_der, issuer, server }
    }

    pub fn issue(&self, params: CertificateParams) -> Party {
        signed(params, &self.issuer)
    }

    /// A client with `party`'s certificate, offering `suites` (all of TLS 1.3 when empty).
    pub fn client(&self, party: Option<&Party>, suites: &[CipherSuite]) -> ClientConnection {
        self.client_with(party, suites, None, &[&rustls::version::TLS13])
    }

    pub fn client_with(
        &self,
        party: Option<&Party>,
        suites: &[CipherSuite],
        fragment: Option<usize>,
        versions: &[&'static rustls::SupportedProtocolVersion],
    ) -> ClientConnection {
        let mut provider = default_provider();
        if !suites.is_empty() {
            provider.cipher_suites.retain(|s| suites.contains(&s.suite()));
        }
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(self.ca_der.clone())).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match party {
            Some(p) => config
                .with_client_auth_cert(
                    vec![CertificateDer::from(p.der.clone())],
                    PrivateKeyDer::try_from(p.key.clone()).unwrap(),
                )
                .unwrap(),
            None => config.with_no_client_auth(),
        };
        config.max_fragment_size = fragment;
        ClientConnection::new(Arc::new(config), ServerName::try_from("broker.test").unwrap()).unwrap()
    }
}

fn signed(params: CertificateParams, issuer: &Issuer<'_, impl SigningKey>) -> Party {
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, issuer).unwrap();
    Party { der: certificate.der().to_vec(), key: key.serialize_der() }
}
