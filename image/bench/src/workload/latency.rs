//! How long a message takes from its publisher to its subscriber at a rate that tires nobody.

use super::traffic::Pair;
use super::{Bench, throughput};
use crate::outcome::Outcome;
use crate::stats::times;
use anyhow::{Result, ensure};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval_at};

/// Time from publisher to subscriber at a modest rate: p50, p99, p99.9, max
///
/// Publishers send by the clock and don't wait for answers, so a server that stalls is seen in every message it delays.
///
/// Example: urmqtt bench latency --pairs 10 --rate 500 --seconds 20
#[derive(clap::Args, Clone, Debug)]
#[group(skip)]
#[command(verbatim_doc_comment)]
pub struct Options {
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub pairs: u32,
    /// Messages a second, of all pairs together
    #[arg(long, default_value_t = 500.0, value_name = "N")]
    pub rate: f64,
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=2))]
    pub qos: u8,
    #[arg(long, default_value_t = 64, value_name = "BYTES")]
    pub payload: usize,
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    pub seconds: f64,
}

pub async fn run(options: &Options, bench: &Bench) -> Result<Outcome> {
    ensure!(options.rate > 0.0 && options.pairs > 0, "--rate and --pairs are above 0");
    let mut outcome = Outcome::new("latency")
        .setting("qos", options.qos)
        .setting("payload", options.payload)
        .setting("pairs", options.pairs)
        .setting("rate", options.rate);
    let received = Arc::new(AtomicU64::new(0));
    let pairs = throughput::pairs(bench, options.pairs, options.qos, options.payload, &received).await?;
    let period = Duration::from_secs_f64(f64::from(options.pairs) / options.rate);
    let (mut tasks, count) = (JoinSet::new(), (options.seconds / period.as_secs_f64()).ceil() as u64);
    for (n, pair) in pairs.into_iter().enumerate() {
        // The pairs' moments are spread over the period.
        let phase = period.mul_f64(n as f64 / f64::from(options.pairs));
        tasks.spawn(drive(pair, period, phase, count));
    }
    let bar = bench.bar("latency", u64::from(options.pairs));
    let (mut all, mut lost) = (times(), 0);
    while let Some(pair) = tasks.join_next().await {
        let pair = pair??;
        all.add(&pair.to.times)?;
        lost += pair.from.sent - pair.to.received;
        bar.inc(1);
    }
    bar.finish_and_clear();
    outcome.times("latency", &all);
    outcome.figure("messages measured", all.len() as f64, "");
    outcome.figure("messages lost", lost as f64, "");
    Ok(outcome)
}

async fn drive(mut pair: Pair, period: Duration, phase: Duration, count: u64) -> Result<Pair> {
    let mut clock = interval_at(tokio::time::Instant::now() + phase, period);
    clock.set_missed_tick_behavior(MissedTickBehavior::Burst);
    while pair.from.sent < count {
        tokio::select! {
            _ = clock.tick() => pair.from.publish(),
            step = pair.step() => step?,
        }
    }
    // What is under way may still come; what doesn't come within this time is lost.
    let rest = async {
        while pair.in_flight() > 0 {
            pair.step().await?;
        }
        anyhow::Ok(())
    };
    if let Ok(ended) = tokio::time::timeout(Duration::from_secs(3), rest).await {
        ended?;
    }
    Ok(pair)
}
