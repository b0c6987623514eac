//! What the page tables of a running image say: a development image that prints them is booted in QEMU, and what it prints is
//! compared with the manifest in its package. See docs/decisions/0080-measured-maps.md.

use super::memory::{self, Difference, Mapping, Stretch};
use super::packaged::{Facts, Package};
use crate::{build, run};
use anyhow::{Context, Result, bail};
use serde::Serialize;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Emulated processors that share a busy machine are slow.
const PATIENCE: Duration = Duration::from_secs(240);
const READY: &str = "urmqtt: ready";

#[derive(Clone, Debug, Serialize)]
pub struct Measurement {
    /// The package that was booted.
    pub package: Facts,
    /// Stretches that the kernel printed, and their pages.
    pub stretches: usize,
    pub pages: u64,
    /// The kernel's own audit, as the supervisor logs it.
    pub audit: String,
    pub differences: Vec<Difference>,
}

/// Builds an image that prints its mappings, boots it, and compares. The tasks' address spaces come back with what was measured.
pub fn measure(mut args: build::Args) -> Result<(Measurement, Vec<Vec<Mapping>>)> {
    args.dev = true;
    args.maps = true;
    args.out = Some(Path::new("out").join(format!("{}-maps", args.arch.name())));
    build::build(&args)?;
    let package = Package::read(&args.package())?;
    let lines = boot(run::headless(args)?)?;
    let stretches: Vec<Stretch> = lines.iter().filter_map(|line| Stretch::parse(line)).collect();
    let audit = lines.iter().find_map(|line| Some(&line[line.find("audit: ")?..]));
    let audit = audit.context("the image came up without an audit line")?.to_string();
    if stretches.is_empty() {
        bail!(
            "the image printed no mappings: its kernel is older than this command; `make artifacts` builds it"
        );
    }
    let (tasks, mut spaces) = package.spaces()?;
    let differences = memory::compare(&tasks, &mut spaces, &stretches);
    let pages = stretches.iter().map(|s| (s.end - s.start) / ipc::abi::PAGE as u64).sum();
    let measurement =
        Measurement { package: package.facts, stretches: stretches.len(), pages, audit, differences };
    Ok((measurement, spaces))
}

/// QEMU, which ends with this value.
struct Machine(Child);

impl Drop for Machine {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The lines of the serial line until the broker serves.
fn boot(mut command: Command) -> Result<Vec<String>> {
    let program = command.get_program().display().to_string();
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn();
    let mut machine =
        Machine(child.with_context(|| format!("cannot start {program}; image/setup.sh installs it"))?);
    let serial = machine.0.stdout.take().context("the serial line is piped")?;
    let (sender, lines) = channel();
    // Ends with the machine, or when nobody listens any more.
    std::thread::spawn(move || {
        for line in BufReader::new(serial).split(b'\n').map_while(Result::ok) {
            if sender.send(String::from_utf8_lossy(&line).trim_end().to_string()).is_err() {
                break;
            }
        }
    });
    until_ready(&lines, Instant::now() + PATIENCE)
}

fn until_ready(lines: &Receiver<String>, deadline: Instant) -> Result<Vec<String>> {
    let mut seen = Vec::new();
    loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                let ready = line.contains(READY);
                seen.push(line);
                if ready {
                    return Ok(seen);
                }
            }
            Err(why) => {
                let why = match why {
                    RecvTimeoutError::Timeout => "is not ready in time",
                    RecvTimeoutError::Disconnected => "ended before it was ready",
                };
                let last = seen[seen.len().saturating_sub(10)..].join("\n  ");
                bail!("the image {why}; its last lines:\n  {last}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_with_ready_or_with_a_reason() {
        let (sender, lines) = channel();
        let soon = || Instant::now() + Duration::from_millis(10);
        ["map 0 1000 2000 r-- normal 0", "[0.1] tcp: urmqtt: ready, 10.0.2.15:8883", "more"]
            .iter()
            .for_each(|l| sender.send(l.to_string()).unwrap());
        assert_eq!(until_ready(&lines, soon()).unwrap().len(), 2);
        assert!(
            until_ready(&lines, soon()).unwrap_err().to_string().contains("in time; its last lines:\n  more")
        );
        drop(sender);
        assert!(until_ready(&lines, soon()).unwrap_err().to_string().contains("ended before"));
    }
}
