//! Pairs of a device that publishes and an operator that subscribes to it, with a window of messages under way.

use super::Bench;
use super::traffic::{Pair, Publisher, Subscriber};
use crate::outcome::Outcome;
use anyhow::{Result, ensure};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Messages through the broker, as many as a window lets through
///
/// A message counts when its subscriber has it.
///
/// Example: urmqtt bench throughput --pairs 10 --qos 1 --payload 1024 --pids-of mosquitto
#[derive(clap::Args, Clone, Debug)]
#[group(skip)]
#[command(verbatim_doc_comment)]
pub struct Options {
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub pairs: u32,
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=2))]
    pub qos: u8,
    /// Bytes of a message, at least 8
    #[arg(long, default_value_t = 64, value_name = "BYTES")]
    pub payload: usize,
    /// Messages of a pair under way or not acknowledged
    #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub window: u64,
    /// Messages written at once when so many of the window are free [default: half the window]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub batch: Option<u64>,
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    pub seconds: f64,
}

impl Options {
    fn batch(&self) -> u64 {
        self.batch.unwrap_or(self.window / 2).clamp(1, self.window)
    }
}

pub async fn run(options: &Options, bench: &Bench) -> Result<Outcome> {
    let mut outcome = Outcome::new("throughput")
        .setting("qos", options.qos)
        .setting("payload", options.payload)
        .setting("pairs", options.pairs)
        .setting("window", options.window)
        .setting("batch", options.batch());
    let received = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for pair in pairs(bench, options.pairs, options.qos, options.payload, &received).await? {
        tasks.spawn(drive(pair, options.window, options.batch()));
    }
    let time = Duration::from_secs_f64(options.seconds);
    tokio::select! {
        units = bench.measure(&mut outcome, ("message", "messages"), time, || received.load(Relaxed)) => {
            ensure!(units? > 0, "no message came in {time:?}");
        }
        Some(ended) = tasks.join_next() => ended??,
    }
    Ok(outcome)
}

/// Devices 1 to `count`, each with an operator that has subscribed to its topic.
pub async fn pairs(
    bench: &Bench,
    count: u32,
    qos: u8,
    payload: usize,
    received: &Arc<AtomicU64>,
) -> Result<Vec<Pair>> {
    let operator = bench.target.operator("bench".into())?;
    let devices = (1..=count).map(|n| bench.target.device(n, false)).collect::<Result<Vec<_>>>()?;
    let topics: Vec<_> = devices.iter().map(|d| format!("devices/{}/bench", d.id)).collect();
    let operators = (1..=count).map(|n| operator.named(format!("bench-{n}"))).collect();
    let (from, mut to) = (bench.open(devices, 8).await?, bench.open(operators, 8).await?);
    for (client, topic) in to.iter_mut().zip(&topics) {
        client.subscribe(topic, qos).await?;
    }
    let epoch = Instant::now();
    let pair = |((from, to), topic)| Pair {
        from: Publisher::new(from, topic, payload, qos, epoch),
        to: Subscriber::new(to, received.clone(), epoch),
    };
    Ok(from.into_iter().zip(to).zip(topics).map(pair).collect())
}

async fn drive(mut pair: Pair, window: u64, batch: u64) -> Result<()> {
    loop {
        if pair.in_flight() + batch <= window {
            while pair.in_flight() < window {
                pair.from.publish();
            }
        }
        pair.step().await?;
    }
}
