//! `rustls-peer PORT CERTS`: TLS 1.3 with a mandatory client certificate on 127.0.0.1:PORT, by rustls and aws-lc-rs, on one thread.
//! A client's first bytes are answered with an MQTT CONNACK; what it says after that is read and forgotten.

use anyhow::{Context, Result};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::{RootCertStore, ServerConfig, version::TLS13};

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let first = words.next();
    if first.as_deref() == Some("--version") {
        println!("rustls-peer {}", env!("CARGO_PKG_VERSION"));
        return Ok(());
    }
    let port: u16 = first.and_then(|p| p.parse().ok()).context("usage: rustls-peer PORT CERTS")?;
    let config = Arc::new(config(&words.next().context("usage: rustls-peer PORT CERTS")?)?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        loop {
            let (socket, _) = listener.accept().await?;
            let acceptor = TlsAcceptor::from(config.clone());
            tokio::spawn(async move { serve(acceptor, socket).await });
        }
    })
}

/// As urMQTT's: no tickets, no resumption.
fn config(certs: &str) -> Result<ServerConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(format!("{certs}/ca.crt"))? {
        roots.add(certificate?)?;
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build()?;
    let chain = CertificateDer::pem_file_iter(format!("{certs}/server.crt"))?.collect::<Result<_, _>>()?;
    let key = PrivateKeyDer::from_pem_file(format!("{certs}/server.key"))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

async fn serve(acceptor: TlsAcceptor, socket: TcpStream) -> Result<()> {
    socket.set_nodelay(true)?;
    let mut stream = acceptor.accept(socket).await?;
    let mut bytes = [0; 1024];
    if stream.read(&mut bytes).await? > 0 {
        stream.write_all(&[0x20, 2, 0, 0]).await?;
        stream.flush().await?;
        while stream.read(&mut bytes).await? > 0 {}
    }
    Ok(())
}
