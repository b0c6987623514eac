//! `urmqtt service`: one service alone, against a recording of its links.

use crate::host::{Mode, Wanted, check_program, graph};
use anyhow::{Result, bail, ensure};
use builder::diagnostic::Source;
use host::System;
use host::record::Recording;
use host::record::replay::{Outcome, Replay};
use indicatif::{ProgressBar, ProgressStyle};
use std::path::PathBuf;

/// Run one service alone against a recording
///
/// The service runs as under `urmqtt host`, with its manifest's memory and no other right; its neighbours are played from the
/// recording. What it answers on each connection must be what it answered then; this isn't compared for a service whose
/// bytes depend on fresh random numbers (tls, tcp): there the replay shows that it lives and keeps its links' rules. A crash is
/// reported with its reason. A service that drives a device can't be replayed.
///
/// Example: urmqtt host --record session --to session.jsonl
/// Example: urmqtt service broker --replay session.jsonl
/// Example: urmqtt service broker --replay session.jsonl --wait     then: gdb -p PID
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Its name in the task graph
    #[arg(value_name = "SERVICE")]
    name: String,
    /// What `urmqtt host --record` has written
    #[arg(long, value_name = "FILE")]
    replay: PathBuf,
    /// Folder of the tasks' programs, which `make host` builds
    #[arg(long, default_value = "out/host", value_name = "DIR")]
    programs: PathBuf,
    /// Folder of ca.crt, server.crt and server.key
    #[arg(long, default_value = "certs", env = "CERTS", value_name = "DIR")]
    certs: PathBuf,
    /// Say the process's number and wait for Enter before the first message, for a debugger
    #[arg(long)]
    wait: bool,
    /// The outcome as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let recording = Recording::read(&args.replay)?;
    let header = &recording.header;
    let config = Source::new("the recording's configuration", &header.config);
    let wanted = Wanted {
        graph: &header.graph,
        config: &config,
        development: header.development,
        programs: &args.programs,
        certs: &args.certs,
    };
    let (plan, infos) = wanted.system(|_| {})?;
    if let Some(i) = plan.task(&args.name) {
        check_program(&plan.tasks[i as usize], &args.programs)?;
    }
    let modes = [Mode::Sockets, Mode::Tap].map(graph);
    let driver = modes.iter().find(|(graph, _)| *graph == header.graph).map_or("", |(_, driver)| driver);
    let system = System { plan, infos, programs: args.programs.clone(), driver: driver.into(), device: None };
    let replay = Replay::start(&system, &args.name, &recording)?;
    if let (true, Some(pid)) = (args.wait, replay.pid()) {
        eprintln!("{} is process {pid}: gdb -p {pid}; Enter starts the replay", args.name);
        std::io::stdin().read_line(&mut String::new())?;
    }
    let bar = ProgressBar::new(recording.events.len() as u64);
    bar.set_style(
        ProgressStyle::with_template("replay {bar:30} {pos}/{len} {elapsed}").expect("the template is right"),
    );
    let outcome = replay.run(|played| bar.set_position(played as u64))?;
    bar.finish_and_clear();
    if args.json {
        println!("{}", serde_json::to_string_pretty(&outcome)?);
    } else {
        println!("{}", text(&args.name, &outcome));
    }
    ensure!(outcome.ended.is_none(), "{} ended: {}", args.name, outcome.ended.unwrap_or_default());
    if let Some(difference) = outcome.difference {
        bail!("{difference}");
    }
    Ok(())
}

fn text(name: &str, outcome: &Outcome) -> String {
    let same = match (outcome.compared, &outcome.difference, &outcome.ended) {
        (_, _, Some(_)) => "it ended",
        (true, None, None) => "its answers are the same",
        (_, Some(_), None) => "its answers differ",
        (false, None, None) => "it lives (its answers depend on fresh random numbers and are not compared)",
    };
    format!(
        "{name}: {} messages in, {} out, {} connections: {same}",
        outcome.messages_in, outcome.messages_out, outcome.connections
    )
}
