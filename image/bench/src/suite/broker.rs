//! One running broker. It ends, with all its descendants, when it is dropped.

use super::peers::{Peer, Place};
use crate::client::Client;
use crate::outcome::Outcome;
use crate::process;
use crate::target::{self, Target};
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long it may take to end before it is killed.
const END: Duration = Duration::from_secs(5);
/// A guest that isn't up yet takes a connection and doesn't answer.
const TRY: Duration = Duration::from_secs(5);

pub struct Broker {
    child: Child,
    folder: TempDir,
    instructions: Option<PathBuf>,
    pub target: Arc<Target>,
    /// What starting it found out.
    pub start: Outcome,
}

impl Broker {
    /// Starts it on a free port and waits for the first CONNACK.
    pub async fn start(peer: &Peer, program: &Path, certs: &Path) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("urmqtt-bench-").tempdir()?;
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let place = Place { program, folder: folder.path(), port, certs };
        let mut command = peer.prepare(&place)?;
        let options =
            target::Options { host: "127.0.0.1".into(), port, certs: certs.to_owned(), source: None };
        let target = Arc::new(Target::new(&options)?);
        let size = peer.size(&place)?;
        let instructions = peer.instructions.as_ref().map(|file| place.fill(file).into());
        let log = File::create(folder.path().join("log"))?;
        // A group of its own: Ctrl-C is for this program, which then ends the broker.
        command.process_group(0).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let began = Instant::now();
        let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        let mut broker = Broker { child, folder, instructions, target, start: Outcome::new("start") };
        broker.ready(peer, began + Duration::from_secs(peer.start_seconds)).await?;
        broker.start.figure("time to the first CONNACK", began.elapsed().as_secs_f64(), "s");
        if let Some(size) = size {
            broker.start.figure("size", size as f64, "B");
        }
        if let Some(counted) = broker.processes().sample()?.and_then(|s| s.instructions) {
            broker.start.figure("instructions to the first CONNACK", counted as f64, "");
        }
        Ok(broker)
    }

    async fn ready(&mut self, peer: &Peer, deadline: Instant) -> Result<()> {
        let operator = self.target.operator("ready".into())?;
        loop {
            let connecting = Client::connect(&self.target, &operator);
            let failed = match tokio::time::timeout(TRY, connecting).await {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(failed)) => failed.to_string(),
                Err(_) => "no answer".into(),
            };
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended with {status}: {}", peer.name, self.log());
            }
            if Instant::now() > deadline {
                bail!("{} doesn't serve: {failed}; it said: {}", peer.name, self.log());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub fn processes(&self) -> process::Options {
        process::Options { instructions: self.instructions.clone(), ..process::Options::of(self.child.id()) }
    }

    pub fn alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The last lines of what it said.
    pub fn log(&self) -> String {
        let text = std::fs::read(self.folder.path().join("log")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(8)..].join("\n")
    }

    /// Waits until it uses next to no processor time: what the last load left is done.
    pub async fn calm(&self) -> Result<()> {
        const LOOK: Duration = Duration::from_millis(200);
        for _ in 0..25 {
            let before = self.processes().sample()?.context("the broker is a process")?;
            tokio::time::sleep(LOOK).await;
            let after = self.processes().sample()?.context("the broker is a process")?;
            if after.cpu.saturating_sub(before.cpu) <= Duration::from_millis(10) {
                break;
            }
        }
        Ok(())
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let own = self.child.id() as i32;
        // Looked up before the parent is gone, which would hide whose they are.
        let all = self.processes().processes().unwrap_or_default();
        send(own, Signal::TERM);
        let began = Instant::now();
        while began.elapsed() < END && self.alive() {
            std::thread::sleep(Duration::from_millis(20));
        }
        // Each is held open by its handle, so that a number that was given to another process meanwhile is seen.
        for process in all.iter().filter(|p| p.pid != own && p.is_alive()) {
            send(process.pid, Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn send(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, signal);
    }
}
