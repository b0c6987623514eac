//! Devices that are connected and silent: what they cost the server.

use super::Bench;
use crate::client::Client;
use crate::outcome::Outcome;
use anyhow::{Context, Result, ensure};
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// One process has 20,000 files on many systems, and a loopback address 28,000 ports.
const PER_PROCESS: u32 = 15_000;

/// Open connections and hold them; the server's memory at each level
///
/// More than 15,000 are opened by several processes, on Linux's loopback from an address each.
///
/// Example: urmqtt bench idle --count 1000,10000 --pids-of mosquitto
#[derive(clap::Args, Clone, Debug)]
#[group(skip)]
#[command(verbatim_doc_comment)]
pub struct Options {
    /// Levels, ascending
    #[arg(long, default_value = "1000", value_delimiter = ',', value_name = "N,...")]
    pub count: Vec<u32>,
    /// Handshakes at a time
    #[arg(long, default_value_t = 32, value_name = "N")]
    pub parallel: usize,
    /// Each device subscribes to a topic of its own
    #[arg(long)]
    pub subscribe: bool,
    /// How long a level is held
    #[arg(long, default_value_t = 2.0, value_name = "SECONDS")]
    pub hold: f64,
    /// Number of the first device
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub first: u32,
    /// Say "connected" and hold until standard input ends (how a process of many uses its own kind)
    #[arg(long, hide = true)]
    pub serve: bool,
}

pub async fn run(options: &Options, bench: &Bench) -> Result<Outcome> {
    ensure!(options.count.is_sorted(), "--count: levels ascend");
    let mut outcome = Outcome::new("idle").setting("subscribed", options.subscribe);
    let start = bench.sample()?;
    if let Some(start) = start {
        outcome.figure("memory before", start.proportional as f64, "B");
        outcome.figure("resident before", start.resident as f64, "B");
    }
    let mut held = Held::default();
    for &level in &options.count {
        let (began, had) = (Instant::now(), held.count);
        held.grow_to(level, options, bench).await?;
        let rate = f64::from(level - had) / began.elapsed().as_secs_f64();
        outcome.figure(&format!("connections opened to {level}"), rate, "/s");
        if options.serve {
            serve().await?;
            return Ok(outcome);
        }
        tokio::time::sleep(Duration::from_secs_f64(options.hold / 2.0)).await;
        let settled = bench.sample()?;
        tokio::time::sleep(Duration::from_secs_f64(options.hold / 2.0)).await;
        let (Some(start), Some(settled), Some(now)) = (start, settled, bench.sample()?) else { continue };
        let each = |now: u64, start: u64| (now as f64 - start as f64) / f64::from(level);
        outcome.figure(
            &format!("memory per connection at {level}"),
            each(now.proportional, start.proportional),
            "B",
        );
        outcome.figure(
            &format!("resident per connection at {level}"),
            each(now.resident, start.resident),
            "B",
        );
        outcome.figure(&format!("memory at {level}"), now.proportional as f64, "B");
        let idle = (now.cpu - settled.cpu).as_secs_f64() / (options.hold / 2.0);
        outcome.figure(&format!("CPU per second at {level}"), idle * 1e6, "us");
    }
    Ok(outcome)
}

/// Connections of this process, and processes with more.
#[derive(Default)]
struct Held {
    count: u32,
    clients: Vec<Client>,
    children: Vec<Child>,
}

impl Held {
    async fn grow_to(&mut self, level: u32, options: &Options, bench: &Bench) -> Result<()> {
        let own = level.min(PER_PROCESS);
        let have = self.clients.len() as u32;
        let identities =
            (have..own).map(|n| bench.target.device(options.first + n, false)).collect::<Result<Vec<_>>>()?;
        let mut new = bench.open(identities, options.parallel).await?;
        if options.subscribe {
            for (n, client) in new.iter_mut().enumerate() {
                let device = options.first + have + n as u32;
                client.subscribe(&format!("devices/dev-{device:05}/command"), 1).await?;
            }
        }
        self.clients.append(&mut new);
        self.count = self.count.max(own);
        while self.count < level {
            let part = (level - self.count).min(PER_PROCESS);
            let child =
                spawn(options, bench, options.first + self.count, part, self.children.len() as u8).await?;
            self.children.push(child);
            self.count += part;
        }
        Ok(())
    }
}

/// Another process of this program, with `count` connections when this returns. It ends with its standard input.
async fn spawn(options: &Options, bench: &Bench, first: u32, count: u32, nth: u8) -> Result<Child> {
    let own = std::env::current_exe().context("cannot find this program")?;
    let target = &bench.target;
    let mut command = Command::new(own);
    command
        .args(["idle", "--serve", "--quiet", "--host", &target.name.to_str()])
        .args(["--port", &target.address.port().to_string(), "--certs"])
        .arg(target.certs())
        .args(["--first", &first.to_string(), "--count", &count.to_string()])
        .args(["--parallel", &options.parallel.to_string()]);
    if target.address.ip().is_loopback() && target.address.is_ipv4() {
        command.arg(format!("--source=127.0.1.{}", nth + 1));
    }
    if options.subscribe {
        command.arg("--subscribe");
    }
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
    let mut line = String::new();
    let output = child.stdout.as_mut().context("standard output is piped")?;
    BufReader::new(output).read_line(&mut line).await?;
    ensure!(line.trim() == "connected", "a process with {count} connections failed");
    Ok(child)
}

async fn serve() -> Result<()> {
    println!("connected");
    let until_end = || std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    tokio::task::spawn_blocking(until_end).await??;
    Ok(())
}
