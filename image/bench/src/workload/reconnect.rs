//! All devices come back at once, as after a power cut.

use super::{Bench, Failures};
use crate::client::Client;
use crate::outcome::Outcome;
use crate::stats::times;
use crate::target::{Identity, Target};
use anyhow::{Result, ensure};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Storm of devices that reconnect, faster than the server admits: time until all are connected, refused tries
///
/// First tries come at --factor times --admitted a second. Who is refused waits 0.1 s, 0.2 s, up to 3.2 s, and tries again.
///
/// Example: urmqtt bench reconnect --devices 3000 --admitted 500 --factor 4
#[derive(clap::Args, Clone, Debug)]
#[group(skip)]
#[command(verbatim_doc_comment)]
pub struct Options {
    #[arg(long, default_value_t = 3000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=15_000))]
    pub devices: u32,
    /// Connections a second that the server admits
    #[arg(long, default_value_t = 500.0, value_name = "N")]
    pub admitted: f64,
    #[arg(long, default_value_t = 4.0, value_name = "N")]
    pub factor: f64,
    /// Given up after this time
    #[arg(long, default_value_t = 60.0, value_name = "SECONDS")]
    pub limit: f64,
}

pub async fn run(options: &Options, bench: &Bench) -> Result<Outcome> {
    let offered = options.admitted * options.factor;
    ensure!(offered > 0.0, "--admitted and --factor are above 0");
    let mut outcome = Outcome::new("reconnect")
        .setting("devices", options.devices)
        .setting("offered", format!("{offered}/s"));
    let devices: Vec<_> =
        (1..=options.devices).map(|n| bench.target.device(n, false)).collect::<Result<_>>()?;
    let (before, began) = (bench.sample()?, tokio::time::Instant::now());
    let mut tasks = JoinSet::new();
    for (n, identity) in devices.into_iter().enumerate() {
        let first = began + Duration::from_secs_f64(n as f64 / offered);
        tasks.spawn(device(bench.target.clone(), identity, first));
    }
    let bar = bench.bar("reconnect", options.devices.into());
    let (mut connected, mut waited, mut failures) = (Vec::new(), times(), Failures::default());
    let storm = async {
        while let Some(done) = tasks.join_next().await {
            let done = done?;
            connected.push(done.client);
            waited.saturating_record(done.waited.as_micros() as u64);
            done.failed.iter().for_each(|f| failures.add(f));
            bar.inc(1);
        }
        anyhow::Ok(())
    };
    let ended = tokio::time::timeout(Duration::from_secs_f64(options.limit), storm).await;
    let elapsed = began.elapsed();
    bar.finish_and_clear();
    ended.unwrap_or(Ok(()))?;
    outcome.figure("time until all are connected", elapsed.as_secs_f64(), "s");
    outcome.figure("connected", connected.len() as f64 * 100.0 / f64::from(options.devices), "%");
    outcome.figure("failed tries", failures.sum() as f64, "");
    outcome.times("wait", &waited);
    outcome.server(before, bench.sample()?, connected.len() as u64, "connection", elapsed);
    failures.report(&mut outcome);
    Ok(outcome)
}

struct Done {
    client: Client,
    waited: Duration,
    failed: Vec<crate::client::Failed>,
}

async fn device(target: Arc<Target>, identity: Identity, first: tokio::time::Instant) -> Done {
    tokio::time::sleep_until(first).await;
    let (began, mut failed) = (Instant::now(), Vec::new());
    let mut pause = Duration::from_millis(100);
    loop {
        match Client::connect(&target, &identity).await {
            Ok(client) => return Done { client, waited: began.elapsed(), failed },
            Err(e) => failed.push(e),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(3200));
    }
}
