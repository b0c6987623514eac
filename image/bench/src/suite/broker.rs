//! One running broker. It ends, with all its descendants, when it is dropped.

use super::peers::{Peer, Place};
use crate::process;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a broker may take to listen.
const START: Duration = Duration::from_secs(15);
/// How long it may take to end before it is killed.
const END: Duration = Duration::from_secs(5);

pub struct Broker {
    child: Child,
    folder: TempDir,
    pub port: u16,
}

impl Broker {
    /// Starts it on a free port and waits until it listens.
    pub async fn start(peer: &Peer, program: &Path, certs: &Path) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("urmqtt-bench-").tempdir()?;
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let mut command = peer.prepare(program, &Place { folder: folder.path(), port, certs })?;
        let log = File::create(folder.path().join("log"))?;
        // A group of its own: Ctrl-C is for this program, which then ends the broker.
        command.process_group(0).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        let mut broker = Broker { child, folder, port };
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if let Some(status) = broker.child.try_wait()? {
                bail!("{} ended with {status}: {}", peer.name, broker.log());
            }
            if began.elapsed() > START {
                bail!("{} doesn't listen after {START:?}: {}", peer.name, broker.log());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(broker)
    }

    pub fn processes(&self) -> process::Options {
        process::Options::of(self.child.id())
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
