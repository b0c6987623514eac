//! Brokers beside each other: started in turn on this machine, under the same load, with the same certificates.

pub mod broker;
pub mod machine;
pub mod peers;
pub mod plan;
pub mod report;

use crate::command::save;
use crate::outcome::Outcome;
use crate::workload::Bench;
use anyhow::{Context, Result, bail, ensure};
use broker::Broker;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use machine::Machine;
use peers::Peer;
use plan::{Size, Step};
use report::{Raw, Report, Version};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Compare brokers: each is started on a free port of 127.0.0.1, in turn, and meets the same load
///
/// Prints medians, their spread and their ratios to Mosquitto's. A peer that isn't installed is left out. A full run of three
/// takes about half an hour, --quick two minutes.
///
/// Example: urmqtt bench suite --peers mosquitto,rumqttd,urmqtt --quick --json results.json
#[derive(clap::Args, Clone, Debug)]
#[group(skip)]
#[command(verbatim_doc_comment)]
pub struct Options {
    /// mosquitto, mosquitto-acl, rumqttd, urmqtt; for handshakes rustls-aws-lc; in QEMU: urmqtt-image, linux-guest; or files as in image/bench/peers
    #[arg(long, default_value = "mosquitto,rumqttd,urmqtt", value_delimiter = ',', value_name = "NAME,...")]
    peers: Vec<String>,
    /// Less of everything: 1 s each, 2 rounds, 1,000 idle connections
    #[arg(long)]
    quick: bool,
    /// Up to 50,000 idle connections too
    #[arg(long, conflicts_with = "quick")]
    large: bool,
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Only steps whose name contains this ("idle", "handshake", "QoS 1", "fan-out", "latency", "storm"); may be repeated
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// How urMQTT is started; {port} and {certs} are replaced
    #[arg(long, value_name = "COMMAND")]
    urmqtt: Option<String>,
    /// Folder of certificates [default: made for this run]
    #[arg(long, value_name = "DIR")]
    certs: Option<PathBuf>,
    /// Raw figures, table and a description of the machine
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// No progress bars
    #[arg(long)]
    quiet: bool,
    /// Threads of the generator
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub threads: usize,
}

/// A peer that is there.
struct Entrant {
    peer: Peer,
    program: PathBuf,
    version: String,
}

pub async fn run(options: &Options) -> Result<()> {
    let size = options.size();
    let mut steps = plan::steps(&size);
    if !options.only.is_empty() {
        steps.retain(|step| options.only.iter().any(|text| step.name.contains(text)));
        ensure!(!steps.is_empty(), "no step has a name with {:?}", options.only);
    }
    let entrants = entrants(options)?;
    let machine = Machine::here();
    let (_folder, certs) = certificates(options, size.devices()).await?;
    let suite = Suite { steps: &steps, certs: &certs, bar: bar(options, &size, &entrants, &steps) };
    let mut raw = Vec::new();
    for round in 1..=size.rounds {
        // Who is first changes: what a round does to the machine meets each of them.
        for n in 0..entrants.len() {
            let entrant = &entrants[(n + round as usize - 1) % entrants.len()];
            suite.meet(entrant, round, &mut raw).await?;
        }
    }
    suite.bar.finish_and_clear();
    let reference =
        entrants.iter().find(|e| e.peer.name == "mosquitto").unwrap_or(&entrants[0]).peer.name.clone();
    let report = Report {
        date: time::OffsetDateTime::now_utc().date().to_string(),
        generator: format!("urmqtt {}", env!("CARGO_PKG_VERSION")),
        machine,
        peers: entrants
            .iter()
            .map(|e| Version { name: e.peer.name.clone(), version: e.version.clone() })
            .collect(),
        table: report::rows(&steps, &raw, &reference),
        reference,
        rounds: size.rounds,
        seconds: size.seconds,
        raw,
    };
    print!("{}", report.text());
    report.errors().iter().for_each(|line| println!("failed: {line}"));
    if let Some(path) = &options.json {
        save(path, &report)?;
    }
    Ok(())
}

impl Options {
    fn size(&self) -> Size {
        let size = match (self.quick, self.large) {
            (true, _) => plan::QUICK,
            (_, true) => plan::LARGE,
            _ => plan::NORMAL,
        };
        Size { rounds: self.rounds.unwrap_or(size.rounds), ..size }
    }
}

fn entrants(options: &Options) -> Result<Vec<Entrant>> {
    let mut entrants = Vec::new();
    for name in &options.peers {
        let mut peer = Peer::find(name)?;
        if let (Some(command), "urmqtt") = (&options.urmqtt, peer.name.as_str()) {
            peer.command = command.split_whitespace().map(str::to_owned).collect();
        }
        let Some(program) = peer.program() else {
            eprintln!("left out: {} is not installed: {}", peer.name, peer.install);
            continue;
        };
        let version = peer.version(&program).unwrap_or_else(|| "unknown version".into());
        entrants.push(Entrant { peer, program, version });
    }
    if entrants.is_empty() {
        bail!("none of the peers is installed");
    }
    Ok(entrants)
}

/// The folder that was named, or a new one with what the steps need; it is deleted with the first value.
async fn certificates(options: &Options, devices: u32) -> Result<(Option<tempfile::TempDir>, PathBuf)> {
    if let Some(certs) = &options.certs {
        let absolute = std::path::absolute(certs)?;
        return Ok((None, absolute));
    }
    let folder = tempfile::Builder::new().prefix("urmqtt-bench-certs-").tempdir()?;
    let mut command = tokio::process::Command::new(crate::urmqtt());
    command.args(["certs", "--devices", &devices.to_string(), "--dir"]).arg(folder.path()).kill_on_drop(true);
    let made =
        command.stdout(std::process::Stdio::null()).status().await.context("cannot start urmqtt certs")?;
    ensure!(made.success(), "cannot make certificates");
    let path = folder.path().to_owned();
    Ok((Some(folder), path))
}

fn bar(options: &Options, size: &Size, entrants: &[Entrant], steps: &[Step]) -> ProgressBar {
    let style = ProgressStyle::with_template("suite        {bar:30} {pos:>6}/{len} {elapsed} {msg}");
    let length = size.rounds as usize * entrants.len() * steps.len();
    let bar = ProgressBar::new(length as u64).with_style(style.expect("the template is right"));
    if options.quiet {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    bar
}

struct Suite<'a> {
    steps: &'a [Step],
    certs: &'a Path,
    bar: ProgressBar,
}

impl Suite<'_> {
    /// All steps against a fresh broker.
    async fn meet(&self, entrant: &Entrant, round: u32, raw: &mut Vec<Raw>) -> Result<()> {
        let mut broker = None;
        for step in self.steps {
            let name = &entrant.peer.name;
            self.bar.set_message(format!("round {round}, {name}: {}", step.name));
            self.bar.tick();
            let result = self.step(entrant, step, &mut broker).await;
            let (outcome, error) = match result {
                Ok(outcome) => (Some(outcome), None),
                Err(error) => {
                    // What a failure leaves behind is not the next step's problem.
                    let log = broker.take().map_or(String::new(), |b: Broker| b.log());
                    (None, Some(format!("{error:#}; {name} said: {log}")))
                }
            };
            raw.push(Raw { round, peer: name.clone(), step: step.name.clone(), outcome, error });
            self.bar.inc(1);
        }
        Ok(())
    }

    async fn step(&self, entrant: &Entrant, step: &Step, broker: &mut Option<Broker>) -> Result<Outcome> {
        const LIMIT: Duration = Duration::from_secs(180);
        if !broker.as_mut().is_some_and(Broker::alive) {
            *broker = Some(Broker::start(&entrant.peer, &entrant.program, self.certs).await?);
        }
        let broker = broker.as_ref().context("just started")?;
        let Some(workload) = &step.workload else { return Ok(broker.start.clone()) };
        broker.calm().await?;
        // Quiet: the suite's own bar is on the line.
        let bench = Bench { target: broker.target.clone(), server: broker.processes(), quiet: true };
        tokio::time::timeout(LIMIT, workload.run(&bench)).await.context("took too long")?
    }
}
