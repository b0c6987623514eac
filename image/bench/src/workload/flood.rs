//! One publisher that doesn't wait for anything but its socket.

use super::Bench;
use super::traffic::{Publisher, Subscriber};
use crate::outcome::Outcome;
use anyhow::Result;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// One publisher of QoS 0 that never waits: how much is delivered, and what it does to the server's memory
///
/// Example: urmqtt bench flood --payload 64 --seconds 10 --pids-of mosquitto
#[derive(clap::Args, Clone, Debug)]
#[group(skip)]
#[command(verbatim_doc_comment)]
pub struct Options {
    #[arg(long, default_value_t = 64, value_name = "BYTES")]
    pub payload: usize,
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    pub seconds: f64,
}

#[derive(Default)]
struct Shared {
    sent: AtomicU64,
    received: Arc<AtomicU64>,
    stop: AtomicBool,
}

/// Written to the socket at once: a TLS record's worth.
const BATCH: usize = 16 << 10;
/// So much silence after the flood means that nothing more comes.
const QUIET: Duration = Duration::from_millis(700);

pub async fn run(options: &Options, bench: &Bench) -> Result<Outcome> {
    let mut outcome = Outcome::new("flood").setting("payload", options.payload);
    let device = bench.target.device(1, false)?;
    let topic = format!("devices/{}/bench", device.id);
    let mut clients = bench.open(vec![device, bench.target.operator("bench-1".into())?], 2).await?;
    let (mut to, from) = (clients.remove(1), clients.remove(0));
    to.subscribe(&topic, 0).await?;
    let (shared, epoch) = (Arc::new(Shared::default()), Instant::now());
    let publisher = Publisher::new(from, topic, options.payload, 0, epoch);
    let mut subscriber = Subscriber::new(to, shared.received.clone(), epoch);
    let mut tasks = JoinSet::new();
    tasks.spawn(publish(publisher, shared.clone()));
    tasks.spawn(async move {
        loop {
            poll_fn(|cx| subscriber.poll(cx)).await?;
        }
    });
    let before = bench.sample()?;
    let time = Duration::from_secs_f64(options.seconds);
    tokio::select! {
        units = bench.measure(&mut outcome, ("message", "messages"), time, || shared.received.load(Relaxed)) => { units?; }
        Some(ended) = tasks.join_next() => ended??,
    }
    shared.stop.store(true, Relaxed);
    let flooding = epoch.elapsed();
    let flooded = bench.sample()?;
    settle(&shared.received).await;
    let (sent, received) = (shared.sent.load(Relaxed), shared.received.load(Relaxed));
    outcome.figure("sent", sent as f64 / flooding.as_secs_f64(), "/s");
    outcome.figure("delivered", received as f64 * 100.0 / sent.max(1) as f64, "%");
    if let (Some(before), Some(flooded)) = (before, flooded) {
        let grown = flooded.proportional as f64 - before.proportional as f64;
        outcome.figure("memory grown by", grown, "B");
    }
    Ok(outcome)
}

async fn publish(mut publisher: Publisher, shared: Arc<Shared>) -> Result<()> {
    loop {
        let stop = shared.stop.load(Relaxed);
        while !stop && publisher.waiting() < BATCH {
            publisher.publish();
        }
        poll_fn(|cx| publisher.poll(cx)).await?;
        shared.sent.store(publisher.sent, Relaxed);
    }
}

/// What the server still has comes; at most ten seconds of it.
async fn settle(received: &AtomicU64) {
    let began = Instant::now();
    let (mut last, mut since) = (received.load(Relaxed), Instant::now());
    while since.elapsed() < QUIET && began.elapsed() < Duration::from_secs(10) {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let now = received.load(Relaxed);
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
}
