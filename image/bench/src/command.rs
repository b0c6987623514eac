//! The command line, and what runs the asynchronous rest.

use crate::workload::{Bench, Workload, fanout, flood, handshakes, idle, latency, reconnect, throughput};
use crate::{plot, process, suite, target::Target};
use anyhow::{Context, Result, bail};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};

#[derive(clap::Subcommand, Debug)]
pub enum Command {
    Handshakes(On<handshakes::Options>),
    Idle(On<idle::Options>),
    Latency(On<latency::Options>),
    Throughput(On<throughput::Options>),
    Fanout(On<fanout::Options>),
    Flood(On<flood::Options>),
    Reconnect(On<reconnect::Options>),
    Suite(suite::Options),
    Plot(plot::Options),
}

// A workload on a target. No documentation comment, and the workload last: the help begins with the workload's.
#[derive(clap::Args, Debug)]
pub struct On<W: clap::Args> {
    #[command(flatten)]
    target: crate::target::Options,
    #[command(flatten)]
    server: process::Options,
    /// Write the result as JSON too
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    json: Option<PathBuf>,
    /// No progress bars
    #[arg(long, help_heading = "Output")]
    quiet: bool,
    /// Threads of the generator; one leaves the other processors to the server
    #[arg(long, default_value_t = 1, value_name = "N", help_heading = "Output")]
    threads: usize,
    #[command(flatten)]
    workload: W,
}

impl Command {
    pub fn run(&self) -> Result<()> {
        match self {
            Command::Handshakes(on) => on.run(),
            Command::Idle(on) => on.run(),
            Command::Latency(on) => on.run(),
            Command::Throughput(on) => on.run(),
            Command::Fanout(on) => on.run(),
            Command::Flood(on) => on.run(),
            Command::Reconnect(on) => on.run(),
            Command::Suite(options) => block_on(options.threads, suite::run(options)),
            Command::Plot(options) => plot::run(options),
        }
    }
}

impl<W: Workload + clap::Args> On<W> {
    fn run(&self) -> Result<()> {
        let target = Arc::new(Target::new(&self.target)?);
        let bench = Bench { target, server: self.server.clone(), quiet: self.quiet };
        let outcome = block_on(self.threads, self.workload.run(&bench))?;
        print!("{}", outcome.text());
        if let Some(path) = &self.json {
            save(path, &outcome)?;
        }
        Ok(())
    }
}

/// Runs it to its end or to Ctrl-C; then what it holds (connections, brokers, folders) is given up in an orderly way.
fn block_on<T>(threads: usize, work: impl Future<Output = Result<T>>) -> Result<T> {
    raise_limit();
    let runtime = match threads {
        0 | 1 => tokio::runtime::Builder::new_current_thread().enable_all().build(),
        n => tokio::runtime::Builder::new_multi_thread().worker_threads(n).enable_all().build(),
    };
    runtime.context("cannot start the runtime")?.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            result = work => result,
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
            _ = terminate.recv() => bail!("terminated"),
        }
    })
}

/// As many open files as this process may have at all.
fn raise_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

pub fn save(path: &Path, value: &impl serde::Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value)? + "\n";
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
