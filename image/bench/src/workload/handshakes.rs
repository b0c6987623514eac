//! Connections that come and go: TCP, mTLS, CONNECT, CONNACK, DISCONNECT, close.

use super::{Bench, Failures};
use crate::client::Client;
use crate::outcome::Outcome;
use crate::stats::{Times, times};
use crate::target::Identity;
use anyhow::{Context, Result};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Storm of full mTLS handshakes, each with CONNECT, CONNACK and close
///
/// Example: urmqtt bench handshakes --port 8883 --workers 8 --seconds 10 --pids-of mosquitto
#[derive(clap::Args, Clone, Debug)]
#[group(skip)]
#[command(verbatim_doc_comment)]
pub struct Options {
    /// Connections at a time
    #[arg(long, default_value_t = 8, value_name = "N")]
    pub workers: u32,
    /// Different devices (certificates) that take turns; at least one for each worker
    #[arg(long, default_value_t = 8, value_name = "N")]
    pub devices: u32,
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    pub seconds: f64,
    /// Resume TLS sessions, and count how many really were
    #[arg(long)]
    pub resume: bool,
}

#[derive(Default)]
struct Shared {
    done: AtomicU64,
    resumed: AtomicU64,
    found: Mutex<Found>,
}

struct Found {
    times: Times,
    failures: Failures,
    cipher: String,
}

impl Default for Found {
    fn default() -> Self {
        Found { times: times(), failures: Failures::default(), cipher: String::new() }
    }
}

impl Found {
    fn connected(&mut self, elapsed: u64, client: &Client) {
        self.times.saturating_record(elapsed);
        if self.cipher.is_empty() {
            self.cipher = client.cipher();
        }
    }
}

pub async fn run(options: &Options, bench: &Bench) -> Result<Outcome> {
    let devices = options.devices.max(options.workers);
    let name = if options.resume { "resumed handshakes" } else { "handshakes" };
    let mut outcome = Outcome::new(name).setting("workers", options.workers).setting("devices", devices);
    let shared = Arc::new(Shared::default());
    let mut tasks = JoinSet::new();
    for worker in 0..options.workers {
        // Each has its own devices: a broker ends the older of two connections with the same identifier.
        let own: Vec<_> = (worker..devices)
            .step_by(options.workers as usize)
            .map(|n| bench.target.device(n + 1, options.resume))
            .collect::<Result<_>>()?;
        if worker == 0 || options.resume {
            for identity in &own {
                first(bench, identity).await?;
            }
        }
        tasks.spawn(work(bench.clone(), own, shared.clone()));
    }
    let time = Duration::from_secs_f64(options.seconds);
    bench.measure(&mut outcome, ("handshake", "handshakes"), time, || shared.done.load(Relaxed)).await?;
    if options.resume {
        let all = shared.done.load(Relaxed).max(1);
        outcome.figure("really resumed", shared.resumed.load(Relaxed) as f64 * 100.0 / all as f64, "%");
    }
    tasks.abort_all();
    let found = std::mem::take(&mut *shared.found.lock().expect("no worker panicked"));
    outcome.times("connect", &found.times);
    found.failures.report(&mut outcome);
    Ok(outcome.setting("cipher", found.cipher))
}

/// The one whose failure is told at once, and from which resumption gets its first ticket.
async fn first(bench: &Bench, identity: &Identity) -> Result<()> {
    let client = Client::connect(&bench.target, identity).await.context("the first connection")?;
    client.close().await
}

async fn work(bench: Bench, own: Vec<Identity>, shared: Arc<Shared>) {
    for identity in own.iter().cycle() {
        let began = Instant::now();
        match Client::connect(&bench.target, identity).await {
            Ok(client) => {
                let elapsed = began.elapsed().as_micros() as u64;
                let resumed = client.resumed();
                shared.found.lock().expect("no worker panicked").connected(elapsed, &client);
                let _ = client.close().await;
                shared.resumed.fetch_add(resumed.into(), Relaxed);
                shared.done.fetch_add(1, Relaxed);
            }
            Err(failed) => {
                shared.found.lock().expect("no worker panicked").failures.add(&failed);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}
