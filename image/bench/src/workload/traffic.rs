//! Publishers and subscribers, and the loop that drives a pair of them.

use crate::client::Client;
use crate::mqtt::{self, Packet};
use crate::stats::{Times, times};
use anyhow::{Result, bail};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Instant;

/// Payloads begin with the time when they were sent.
pub const SMALLEST: usize = 8;

/// Sends messages and keeps the books of their acknowledgements.
pub struct Publisher {
    client: Client,
    topic: String,
    payload: Vec<u8>,
    qos: u8,
    /// Zero of the times in payloads; the subscriber's is the same.
    epoch: Instant,
    pub sent: u64,
    acknowledged: u64,
}

impl Publisher {
    pub fn new(client: Client, topic: String, size: usize, qos: u8, epoch: Instant) -> Self {
        let payload = vec![b'x'; size.max(SMALLEST)];
        Publisher { client, topic, payload, qos, epoch, sent: 0, acknowledged: 0 }
    }

    /// Adds one message to what is to be sent.
    pub fn publish(&mut self) {
        let now = self.epoch.elapsed().as_micros() as u64;
        self.payload[..SMALLEST].copy_from_slice(&now.to_be_bytes());
        // 0 is no identifier; windows are far shorter than the cycle.
        let identifier = (self.sent % 65_000) as u16 + 1;
        mqtt::publish(&mut self.client.output, &self.topic, &self.payload, self.qos, identifier);
        self.sent += 1;
    }

    /// Messages that the server has not acknowledged; none with QoS 0.
    pub fn unacknowledged(&self) -> u64 {
        if self.qos == 0 { 0 } else { self.sent - self.acknowledged }
    }

    /// Bytes that wait for the socket.
    pub fn waiting(&self) -> usize {
        self.client.output.len()
    }

    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let ready = self.client.poll(cx)?;
        let acknowledged = &mut self.acknowledged;
        self.client.packets(|packet, output| {
            match packet {
                Packet::PubAck(_) | Packet::PubComp(_) => *acknowledged += 1,
                Packet::PubRec(identifier) => mqtt::acknowledge(output, mqtt::PUBREL, identifier),
                other => bail!("a publisher got {other:?}"),
            }
            Ok(())
        })?;
        self.client.poll_send(cx)?;
        ready.map(Ok)
    }
}

/// Receives messages and acknowledges them.
pub struct Subscriber {
    client: Client,
    epoch: Instant,
    pub received: u64,
    /// Where the sum of several subscribers is kept.
    sum: Arc<AtomicU64>,
    pub times: Times,
}

impl Subscriber {
    pub fn new(client: Client, sum: Arc<AtomicU64>, epoch: Instant) -> Self {
        Subscriber { client, epoch, received: 0, sum, times: times() }
    }

    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let ready = self.client.poll(cx)?;
        let before = self.received;
        let (received, times) = (&mut self.received, &mut self.times);
        // One look at the clock for all that came together.
        let now = self.epoch.elapsed().as_micros() as u64;
        self.client.packets(|packet, output| {
            match packet {
                Packet::Publish { qos, identifier, payload } => {
                    *received += 1;
                    if let Some(sent) = payload.first_chunk() {
                        times.saturating_record(now.saturating_sub(u64::from_be_bytes(*sent)));
                    }
                    match qos {
                        0 => {}
                        1 => mqtt::acknowledge(output, mqtt::PUBACK, identifier),
                        _ => mqtt::acknowledge(output, mqtt::PUBREC, identifier),
                    }
                }
                Packet::PubRel(identifier) => mqtt::acknowledge(output, mqtt::PUBCOMP, identifier),
                other => bail!("a subscriber got {other:?}"),
            }
            Ok(())
        })?;
        if self.received > before {
            self.sum.fetch_add(self.received - before, Relaxed);
        }
        // The acknowledgements leave now, not when the next message comes.
        self.client.poll_send(cx)?;
        ready.map(Ok)
    }
}

/// A publisher and its subscriber, driven by one task.
pub struct Pair {
    pub from: Publisher,
    pub to: Subscriber,
}

impl Pair {
    /// Messages that are under way or not yet acknowledged.
    pub fn in_flight(&self) -> u64 {
        (self.from.sent - self.to.received).max(self.from.unacknowledged())
    }

    /// Waits until something was sent or came.
    pub async fn step(&mut self) -> Result<()> {
        poll_fn(|cx| {
            let (from, to) = (self.from.poll(cx)?, self.to.poll(cx)?);
            if from.is_ready() || to.is_ready() { Poll::Ready(Ok(())) } else { Poll::Pending }
        })
        .await
    }
}
