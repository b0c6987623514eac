//! Client certificates, with a memory of chains whose signatures were verified: of two signature checks in a handshake, a device that comes
//! back costs one, which proves that it holds the key.
//!
//! A signature over the same bytes stays right, so what is remembered is the digest of the whole chain as it was presented, and the time in
//! which all of its certificates are valid. Outside of that time, and for any other bytes, the chain is verified in full.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use ring::digest::{Context, SHA256};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use spin::Mutex;
use x509_cert::Certificate;
use x509_cert::der::Decode;

pub struct Verifier {
    inner: Arc<dyn ClientCertVerifier>,
    /// By the digest's first bytes. The task has one thread: nobody waits for the lock, which rustls's `Sync` asks for.
    seen: Mutex<Vec<Option<Chain>>>,
}

/// A verified chain.
#[derive(Clone, Copy)]
struct Chain {
    digest: [u8; 32],
    /// Seconds since 1970, inclusive.
    from: u64,
    until: u64,
}

impl Verifier {
    /// Remembers at most `chains`, 56 bytes each; 0: none.
    pub fn new(inner: Arc<dyn ClientCertVerifier>, chains: usize) -> Self {
        Verifier { inner, seen: Mutex::new(alloc::vec![None; chains]) }
    }

    fn remembers(&self, digest: &[u8; 32], now: u64) -> bool {
        let seen = self.seen.lock();
        let chain = seen.get(index(digest, seen.len())).copied().flatten();
        chain.is_some_and(|c| c.digest == *digest && (c.from..=c.until).contains(&now))
    }

    fn remember(&self, chain: Chain) {
        let mut seen = self.seen.lock();
        let index = index(&chain.digest, seen.len());
        if let Some(place) = seen.get_mut(index) {
            *place = Some(chain);
        }
    }
}

fn index(digest: &[u8; 32], len: usize) -> usize {
    let [a, b, c, d, ..] = *digest;
    u32::from_le_bytes([a, b, c, d]) as usize % len.max(1)
}

/// Digest of the presented certificates, each with its length.
fn digest<'c>(chain: impl Iterator<Item = &'c CertificateDer<'c>>) -> Option<[u8; 32]> {
    let mut context = Context::new(&SHA256);
    for der in chain {
        context.update(&(der.len() as u64).to_le_bytes());
        context.update(der);
    }
    context.finish().as_ref().try_into().ok()
}

/// The time in which every one of the certificates is valid.
fn validity<'c>(chain: impl Iterator<Item = &'c CertificateDer<'c>>) -> Option<(u64, u64)> {
    chain.into_iter().try_fold((0, u64::MAX), |(from, until), der| {
        let certificate = Certificate::from_der(der).ok()?;
        let validity = certificate.tbs_certificate().validity();
        let seconds = |t: x509_cert::time::Time| t.to_unix_duration().as_secs();
        Some((from.max(seconds(validity.not_before)), until.min(seconds(validity.not_after))))
    })
}

impl ClientCertVerifier for Verifier {
    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let chain = || core::iter::once(end_entity).chain(intermediates);
        let digest = digest(chain());
        if digest.is_some_and(|d| self.remembers(&d, now.as_secs())) {
            return Ok(ClientCertVerified::assertion());
        }
        let verified = self.inner.verify_client_cert(end_entity, intermediates, now)?;
        if let (Some(digest), Some((from, until))) = (digest, validity(chain())) {
            self.remember(Chain { digest, from, until });
        }
        Ok(verified)
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
    use core::time::Duration;
    use std::vec;

    /// Accepts every chain but a certain length, and counts.
    #[derive(Debug, Default)]
    struct Counting(AtomicU32);

    impl ClientCertVerifier for Counting {
        fn verify_client_cert(
            &self,
            end_entity: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: UnixTime,
        ) -> Result<ClientCertVerified, Error> {
            self.0.fetch_add(1, Relaxed);
            if end_entity.len() == 1 {
                Err(Error::NoCertificatesPresented)
            } else {
                Ok(ClientCertVerified::assertion())
            }
        }
        fn root_hint_subjects(&self) -> &[DistinguishedName] {
            &[]
        }
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(Error::HandshakeNotComplete)
        }
        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(Error::HandshakeNotComplete)
        }
        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![]
        }
    }

    #[test]
    fn the_same_chain_is_verified_once_while_it_is_valid() {
        let inner = Arc::new(Counting::default());
        let verifier = Verifier::new(inner.clone(), 64);
        let leaf = CertificateDer::from(include_bytes!("testing/server.der").as_slice());
        let root = CertificateDer::from(include_bytes!("testing/ca.der").as_slice());
        let (from, until) = validity([&leaf, &root].into_iter()).unwrap();
        let verify = |chain: &[&CertificateDer<'_>], at: u64| {
            let above: Vec<_> = chain[1..].iter().map(|&c| c.clone()).collect();
            let before = inner.0.load(Relaxed);
            verifier
                .verify_client_cert(chain[0], &above, UnixTime::since_unix_epoch(Duration::from_secs(at)))
                .is_ok()
                && inner.0.load(Relaxed) == before
        };
        assert!(!verify(&[&leaf, &root], from));
        assert!(verify(&[&leaf, &root], from) && verify(&[&leaf, &root], until), "remembered");
        assert!(!verify(&[&leaf, &root], until + 1), "no longer valid");
        assert!(!verify(&[&leaf, &root], from - 1), "not valid yet");
        assert!(!verify(&[&leaf], from), "another chain");
        let mut forged = leaf.to_vec();
        *forged.last_mut().unwrap() ^= 1;
        assert!(!verify(&[&CertificateDer::from(forged)], from), "another signature");
        let refused = CertificateDer::from(vec![0]);
        assert!(!verify(&[&refused], from) && !verify(&[&refused], from), "refusals are not remembered");
    }

    #[test]
    fn memory_is_bounded() {
        let leaf = CertificateDer::from(include_bytes!("testing/server.der").as_slice());
        for chains in [0, 1] {
            let verifier = Verifier::new(Arc::new(Counting::default()), chains);
            for above in 0..10 {
                let now = UnixTime::since_unix_epoch(Duration::from_secs(2_000_000_000));
                let above = vec![leaf.clone(); above];
                verifier.verify_client_cert(&leaf, &above, now).unwrap();
            }
            assert_eq!(verifier.seen.lock().len(), chains);
        }
    }
}
