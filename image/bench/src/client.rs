//! An MQTT client over TLS that is driven by hand: what is to be sent is collected and sent at once, and packets are looked
//! at where they were received.

use crate::mqtt::{self, Packet};
use crate::target::{Identity, Target};
use anyhow::{Context as _, Result, bail};
use bytes::{Buf, BytesMut};
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// How long a connection may take from the first packet to CONNACK.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Long enough that nobody has to send PINGREQ during a measurement.
const KEEP_ALIVE: u16 = 1200;
/// A receive buffer grows in such steps.
const CHUNK: usize = 16 << 10;

/// How far a connection came, for the count of what failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Tcp,
    Tls,
    Mqtt,
    Late,
}

impl Stage {
    pub fn name(self) -> &'static str {
        match self {
            Stage::Tcp => "TCP connect failed",
            Stage::Tls => "TLS handshake failed",
            Stage::Mqtt => "CONNECT refused",
            Stage::Late => "connect took too long",
        }
    }
}

/// A connection that did not come about.
#[derive(Debug)]
pub struct Failed {
    pub stage: Stage,
    pub source: anyhow::Error,
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {:#}", self.stage.name(), self.source)
    }
}

impl std::error::Error for Failed {}

pub struct Client {
    stream: TlsStream<TcpStream>,
    input: BytesMut,
    /// What is to be sent; [`Client::poll`] sends it.
    pub output: BytesMut,
    unflushed: bool,
}

impl Client {
    /// TCP, TLS, CONNECT, CONNACK.
    pub async fn connect(target: &Target, identity: &Identity) -> Result<Self, Failed> {
        let connecting = Self::steps(target, identity);
        tokio::time::timeout(PATIENCE, connecting).await.unwrap_or_else(|_| {
            Err(Failed { stage: Stage::Late, source: anyhow::anyhow!("no CONNACK within {PATIENCE:?}") })
        })
    }

    async fn steps(target: &Target, identity: &Identity) -> Result<Self, Failed> {
        let at = |stage| move |source| Failed { stage, source };
        let tcp = dial(target).await.map_err(at(Stage::Tcp))?;
        let stream = TlsConnector::from(identity.config.clone())
            .connect(target.name.clone(), tcp)
            .await
            .map_err(|e| at(Stage::Tls)(e.into()))?;
        let mut client = Client { stream, input: BytesMut::new(), output: BytesMut::new(), unflushed: false };
        client.hello(&identity.id).await.map_err(at(Stage::Mqtt))?;
        Ok(client)
    }

    async fn hello(&mut self, id: &str) -> Result<()> {
        mqtt::connect(&mut self.output, id, KEEP_ALIVE);
        match self
            .answer(|packet| if let Packet::ConnAck { code } = packet { Some(code) } else { None })
            .await?
        {
            0 => Ok(()),
            code => bail!("CONNACK {code}"),
        }
    }

    pub async fn subscribe(&mut self, filter: &str, qos: u8) -> Result<()> {
        mqtt::subscribe(&mut self.output, 1, filter, qos);
        match self
            .answer(|packet| if let Packet::SubAck { code } = packet { Some(code) } else { None })
            .await?
        {
            code if code == qos => Ok(()),
            code => bail!("SUBSCRIBE {filter} with QoS {qos} answered by {code:#x}"),
        }
    }

    /// Sends, and waits for the packet that `wanted` knows. Buffers are small afterwards: the client may stay idle.
    async fn answer<T>(&mut self, wanted: impl Fn(Packet<'_>) -> Option<T>) -> Result<T> {
        let mut found = None;
        while found.is_none() {
            poll_fn(|cx| self.poll(cx)).await?;
            self.packets(|packet, _| {
                found = found.take().or_else(|| wanted(packet));
                Ok(())
            })?;
        }
        if self.input.is_empty() && self.output.is_empty() {
            (self.input, self.output) = Default::default();
        }
        found.context("no answer")
    }

    /// Sends what is in `output` and receives. Ready when something came, or when all is sent that was to be sent.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let sent = self.poll_send(cx)?;
        let received = self.poll_receive(cx)?;
        if sent || received { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// Sends what is in `output`; whether that is done. True only if there was something.
    pub fn poll_send(&mut self, cx: &mut Context<'_>) -> Result<bool> {
        let had = self.unflushed || !self.output.is_empty();
        while !self.output.is_empty() {
            match Pin::new(&mut self.stream).poll_write(cx, &self.output)? {
                Poll::Ready(0) => bail!("the connection was closed"),
                Poll::Ready(n) => self.output.advance(n),
                Poll::Pending => return Ok(false),
            }
            self.unflushed = true;
        }
        if self.unflushed && Pin::new(&mut self.stream).poll_flush(cx)?.is_ready() {
            self.unflushed = false;
        }
        Ok(had && !self.unflushed)
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Result<bool> {
        if self.input.capacity() - self.input.len() < CHUNK / 4 {
            self.input.reserve(CHUNK);
        }
        match pin!(self.stream.read_buf(&mut self.input)).poll(cx)? {
            Poll::Ready(0) => bail!("the server closed the connection"),
            Poll::Ready(_) => Ok(true),
            Poll::Pending => Ok(false),
        }
    }

    /// Hands every received packet to `each`, with the output for answers.
    pub fn packets(&mut self, mut each: impl FnMut(Packet<'_>, &mut BytesMut) -> Result<()>) -> Result<()> {
        let mut done = 0;
        while let Some((packet, length)) = mqtt::first(&self.input[done..])? {
            each(packet, &mut self.output)?;
            done += length;
        }
        self.input.advance(done);
        Ok(())
    }

    /// DISCONNECT, then waits for the server to close, so that the next connection doesn't meet this one's end.
    pub async fn close(mut self) -> Result<()> {
        let closing = async {
            self.stream.write_all(&mqtt::DISCONNECT).await?;
            self.stream.shutdown().await?;
            self.input.clear();
            while self.stream.read_buf(&mut self.input).await? > 0 {
                self.input.clear();
            }
            std::io::Result::Ok(())
        };
        // A server that resets the connection has closed it, too.
        tokio::time::timeout(PATIENCE, closing).await.context("the server didn't close")?.ok();
        Ok(())
    }

    pub fn resumed(&self) -> bool {
        self.stream.get_ref().1.handshake_kind() == Some(rustls::HandshakeKind::Resumed)
    }

    pub fn cipher(&self) -> String {
        let suite = self.stream.get_ref().1.negotiated_cipher_suite();
        suite.map_or_else(String::new, |suite| format!("{:?}", suite.suite()))
    }
}

async fn dial(target: &Target) -> Result<TcpStream> {
    let address = target.address;
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if let Some(source) = target.source {
        socket.set_reuseaddr(true)?;
        socket.bind(SocketAddr::new(source, 0))?;
    }
    let stream = socket.connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
