//! The port of a running image, opened when the image serves it.
//!
//! QEMU's user network takes connections from its first moment and loses those that come before the guest answers ARP, for
//! seconds. So the port is forwarded only when the serial line says that the image is ready; before, a client is refused at once
//! and tries again. `urmqtt run` becomes QEMU; this is the process beside it, through which the serial line passes.

use anyhow::{Context, Result, bail};
use command_fds::{CommandFdExt, FdMapping};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, PipeWriter, Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// What the image says when it serves.
const READY: &[u8] = b"urmqtt: ready";
/// The monitor's descriptor in the process beside QEMU.
const MONITOR: i32 = 3;

/// Serial line of QEMU to standard output; opens the port when the image is ready
#[derive(clap::Args)]
pub struct Args {
    /// Port on 127.0.0.1
    port: u16,
    /// Port of the guest
    guest: u64,
}

/// Starts the process beside QEMU. Returns what QEMU gets: its monitor's socket and its standard output.
pub fn start(port: u16, guest: u64) -> Result<(UnixStream, PipeWriter)> {
    drop(std::net::TcpListener::bind(("127.0.0.1", port)).with_context(|| {
        format!("cannot listen on 127.0.0.1:{port}; another port goes with --port (make run PORT=...)")
    })?);
    let (ours, theirs) = UnixStream::pair()?;
    let (serial, writer) = std::io::pipe()?;
    Command::new(std::env::current_exe()?)
        .args(["forward", &port.to_string(), &guest.to_string()])
        .stdin(serial)
        // Ctrl-C is for QEMU, whose end is the end of this one.
        .process_group(0)
        .fd_mappings(vec![FdMapping { parent_fd: ours.into(), child_fd: MONITOR }])
        .expect("one descriptor")
        .spawn()
        .context("cannot start the process that forwards the port")?;
    Ok((theirs, writer))
}

pub fn run(args: &Args) -> Result<()> {
    // SAFETY: `start` made this descriptor for us, and nothing else here uses it.
    let monitor = UnixStream::from(unsafe { OwnedFd::from_raw_fd(MONITOR) });
    let (mut serial, mut out) = (std::io::stdin().lock(), std::io::stdout().lock());
    let mut seen = Vec::new();
    let mut monitor = Some(monitor);
    let mut chunk = [0; 4096];
    loop {
        let n = serial.read(&mut chunk)?;
        if n == 0 {
            return Ok(());
        }
        if let Some(stream) = &monitor {
            // The words may be split over two reads.
            seen.extend_from_slice(&chunk[..n]);
            if seen.windows(READY.len()).any(|w| w == READY) {
                if let Err(error) = open(stream, args) {
                    eprintln!("error: {error:#}");
                    let _ = execute(stream, &mut BufReader::new(stream), json!({ "execute": "quit" }));
                }
                monitor = None;
            }
            seen.drain(..seen.len().saturating_sub(READY.len()));
        }
        // Whoever reads the line finds the port open.
        out.write_all(&chunk[..n])?;
        out.flush()?;
    }
}

/// Adds the forwarding.
fn open(stream: &UnixStream, args: &Args) -> Result<()> {
    let mut answers = BufReader::new(stream);
    execute(stream, &mut answers, json!({ "execute": "qmp_capabilities" }))?;
    let line = format!("hostfwd_add net tcp:127.0.0.1:{}-:{}", args.port, args.guest);
    let command = json!({ "execute": "human-monitor-command", "arguments": { "command-line": line } });
    match execute(stream, &mut answers, command)?.as_str().map(str::trim) {
        Some("") => Ok(()),
        said => bail!("QEMU cannot forward port {}: {}", args.port, said.unwrap_or("no answer")),
    }
}

/// One command of QEMU's monitor protocol (qemu.org, "QMP"), and its result.
fn execute(mut stream: &UnixStream, answers: &mut impl BufRead, command: Value) -> Result<Value> {
    writeln!(stream, "{command}")?;
    let mut line = String::new();
    loop {
        line.clear();
        if answers.read_line(&mut line)? == 0 {
            bail!("QEMU closed its monitor");
        }
        let answer: Value = serde_json::from_str(&line).context("QEMU's monitor")?;
        if let Some(result) = answer.get("return") {
            return Ok(result.clone());
        }
        if let Some(error) = answer.get("error") {
            bail!("QEMU: {error}");
        }
    }
}
