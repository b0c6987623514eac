//! The workloads. Each gives an [`Outcome`].

pub mod fanout;
pub mod flood;
pub mod handshakes;
pub mod idle;
pub mod latency;
pub mod reconnect;
pub mod throughput;
pub mod traffic;

use crate::client::{Client, Failed};
use crate::outcome::Outcome;
use crate::process;
use crate::target::{Identity, Target};
use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// What each workload works with.
#[derive(Clone, Debug)]
pub struct Bench {
    pub target: Arc<Target>,
    pub server: process::Options,
    /// No progress bars.
    pub quiet: bool,
}

/// The rates of the first moments say little: caches are cold, windows fill.
const WARM_UP: Duration = Duration::from_millis(300);

/// A workload with its options: what the command line and the suite run.
pub trait Workload: Send + Sync {
    fn run<'a>(&'a self, bench: &'a Bench) -> Pin<Box<dyn Future<Output = Result<Outcome>> + Send + 'a>>;
}

macro_rules! workloads {
    ($($options:path => $run:path),* $(,)?) => {
        $(impl Workload for $options {
            fn run<'a>(&'a self, bench: &'a Bench) -> Pin<Box<dyn Future<Output = Result<Outcome>> + Send + 'a>> {
                Box::pin($run(self, bench))
            }
        })*
    };
}

workloads! {
    handshakes::Options => handshakes::run,
    idle::Options => idle::run,
    latency::Options => latency::run,
    throughput::Options => throughput::run,
    fanout::Options => fanout::run,
    flood::Options => flood::run,
    reconnect::Options => reconnect::run,
}

impl Bench {
    pub fn sample(&self) -> Result<Option<process::Sample>> {
        self.server.sample()
    }

    pub fn bar(&self, what: &str, length: u64) -> ProgressBar {
        let style = ProgressStyle::with_template("{prefix:<12} {bar:30} {pos:>6}/{len} {per_sec} {msg}");
        let bar = ProgressBar::new(length)
            .with_style(style.expect("the template is right"))
            .with_prefix(what.to_owned());
        if self.quiet {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        bar
    }

    /// Opens a connection for each identity, in their order, `parallel` at a time. The first failure ends it.
    pub async fn open(&self, who: Vec<Identity>, parallel: usize) -> Result<Vec<Client>> {
        let bar = self.bar("connecting", who.len() as u64);
        let permits = Arc::new(Semaphore::new(parallel.max(1)));
        let (mut tasks, count) = (JoinSet::new(), who.len());
        for (n, identity) in who.into_iter().enumerate() {
            let (permits, target) = (permits.clone(), self.target.clone());
            tasks.spawn(async move {
                let _permit = permits.acquire().await.expect("never closed");
                (n, Client::connect(&target, &identity).await)
            });
        }
        let mut clients: Vec<_> = (0..count).map(|_| None).collect();
        while let Some(done) = tasks.join_next().await {
            let (n, client) = done?;
            clients[n] = Some(client.with_context(|| format!("connection {} of {count}", n + 1))?);
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(clients.into_iter().flatten().collect())
    }

    /// Lets the load run: warm-up, then the measured time. `count` gives how many units are done. Adds rate and the server's
    /// processor time to the outcome; gives the number of units. `units`: the word for one, and for many.
    pub async fn measure(
        &self,
        outcome: &mut Outcome,
        units: (&str, &str),
        time: Duration,
        count: impl Fn() -> u64,
    ) -> Result<u64> {
        tokio::time::sleep(WARM_UP.min(time)).await;
        let bar = self.bar(&outcome.workload, time.as_millis() as u64 / 100);
        let (before, began, first) = (self.sample()?, Instant::now(), count());
        while began.elapsed() < time {
            let left = time.saturating_sub(began.elapsed());
            tokio::time::sleep(left.min(Duration::from_millis(500))).await;
            let rate = (count() - first) as f64 / began.elapsed().as_secs_f64();
            bar.set_position(began.elapsed().as_millis() as u64 / 100);
            bar.set_message(format!("{rate:.0} {}/s", units.1));
        }
        let (done, elapsed, after) = (count() - first, began.elapsed(), self.sample()?);
        bar.finish_and_clear();
        outcome.figure(units.1, done as f64 / elapsed.as_secs_f64(), "/s");
        outcome.server(before, after, done, units.0, elapsed);
        Ok(done)
    }
}

/// Counts failures by what failed; keeps the first one's words.
#[derive(Debug, Default)]
pub struct Failures {
    counts: BTreeMap<String, u64>,
    first: Option<String>,
}

impl Failures {
    pub fn add(&mut self, failed: &Failed) {
        *self.counts.entry(failed.stage.name().into()).or_default() += 1;
        self.first.get_or_insert_with(|| failed.to_string());
    }

    pub fn sum(&self) -> u64 {
        self.counts.values().sum()
    }

    pub fn report(self, outcome: &mut Outcome) {
        for (what, times) in self.counts {
            *outcome.failures.entry(what).or_default() += times;
        }
        if let Some(first) = self.first {
            outcome.settings.insert("first failure".into(), first);
        }
    }
}
