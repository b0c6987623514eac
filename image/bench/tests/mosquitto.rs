//! Workloads and suite against a real Mosquitto, where one is installed.

use anyhow::{Context, Result, ensure};
use bench::outcome::Outcome;
use bench::suite::peers::{Peer, Place};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const BENCH: &str = env!("CARGO_BIN_EXE_urmqtt-bench");

/// Ends its process, by its own handle, however the test ends.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = (self.0.kill(), self.0.wait());
    }
}

/// The command's exit within a time, or an error.
fn bounded(command: &mut Command, limit: Duration) -> Result<()> {
    let mut child =
        Ended(command.stdin(Stdio::null()).spawn().context("cannot start it; `make cli` builds urmqtt")?);
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.0.try_wait()? {
            ensure!(status.success(), "{command:?}: {status}");
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{command:?} still runs after {limit:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn certificates(folder: &Path, devices: u32) -> Result<()> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/urmqtt");
    let urmqtt = std::env::var_os("URMQTT").map_or(built, Into::into);
    let make = ["certs", "--devices", &devices.to_string(), "--dir"];
    bounded(Command::new(urmqtt).args(make).arg(folder), Duration::from_secs(60))
}

struct Mosquitto {
    process: Ended,
    folder: TempDir,
    port: u16,
}

impl Mosquitto {
    /// None where there is no Mosquitto.
    fn start() -> Result<Option<Self>> {
        let peer = Peer::find("mosquitto")?;
        let Some(program) = peer.program() else {
            println!("Skipped: mosquitto is not installed");
            return Ok(None);
        };
        let folder = tempfile::tempdir()?;
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        certificates(folder.path(), 400)?;
        let place = Place { program: &program, folder: folder.path(), certs: folder.path(), port };
        let process = Ended(peer.prepare(&place)?.stderr(Stdio::null()).spawn()?);
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            ensure!(began.elapsed() < Duration::from_secs(20), "mosquitto doesn't listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Some(Mosquitto { process, folder, port }))
    }

    /// Runs a workload as a user would, and reads its JSON.
    fn bench(&self, words: &[&str]) -> Result<Outcome> {
        let json = self.folder.path().join("outcome.json");
        let mut command = Command::new(BENCH);
        command
            .args(words)
            .args(["--quiet", "--port", &self.port.to_string(), "--pid", &self.process.0.id().to_string()])
            .arg("--certs")
            .arg(self.folder.path())
            .arg("--json")
            .arg(&json);
        bounded(&mut command, Duration::from_secs(60))?;
        outcome(&json)
    }
}

fn outcome(json: &Path) -> Result<Outcome> {
    Ok(serde_json::from_slice(&std::fs::read(json)?)?)
}

/// These figures are above 0.
fn positive(outcome: &Outcome, figures: &[&str]) -> Result<()> {
    for figure in figures {
        let value = outcome.get(figure).with_context(|| format!("no {figure}: {outcome:?}"))?;
        ensure!(value > 0.0, "{figure} is {value}: {outcome:?}");
    }
    ensure!(outcome.failures.is_empty(), "{outcome:?}");
    Ok(())
}

#[test]
fn every_workload_runs_against_mosquitto() -> Result<()> {
    let Some(mosquitto) = Mosquitto::start()? else { return Ok(()) };
    let run = |words: &[&str], figures: &[&str]| positive(&mosquitto.bench(words)?, figures);
    run(&["idle", "--count", "10,400", "--hold", "0.4"], &["memory per connection at 400", "memory before"])?;
    run(&["handshakes", "--seconds", "1"], &["handshakes", "CPU per handshake", "connect p50"])?;
    run(&["handshakes", "--resume", "--seconds", "1"], &["handshakes", "really resumed"])?;
    for qos in ["0", "1", "2"] {
        let words = ["throughput", "--pairs", "3", "--qos", qos, "--seconds", "1"];
        run(&words, &["messages", "CPU per message"])?;
    }
    run(&["fanout", "--subscribers", "30", "--seconds", "1"], &["deliveries", "delivery p99"])?;
    run(&["flood", "--seconds", "1"], &["sent", "messages", "delivered"])?;
    run(&["latency", "--pairs", "2", "--rate", "100", "--seconds", "1"], &["latency p50", "latency max"])?;
    run(&["reconnect", "--devices", "40"], &["time until all are connected", "connected"])
}

#[test]
fn the_suite_compares_and_its_result_can_be_drawn() -> Result<()> {
    if Peer::find("mosquitto")?.program().is_none() {
        println!("Skipped: mosquitto is not installed");
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let (json, svg) = (folder.path().join("results.json"), folder.path().join("results.svg"));
    certificates(folder.path(), 20)?;
    let words = ["suite", "--peers", "mosquitto,mosquitto-acl", "--quick", "--rounds", "1", "--quiet"];
    let mut suite = Command::new(BENCH);
    suite.args(words).args(["--only", "QoS 1, 64 B", "--only", "start", "--json"]).arg(&json);
    suite.arg("--certs").arg(folder.path());
    bounded(&mut suite, Duration::from_secs(120))?;
    let report: bench::suite::report::Report = serde_json::from_slice(&std::fs::read(&json)?)?;
    ensure!(report.errors().is_empty(), "{:?}", report.errors());
    let row =
        report.table.iter().find(|r| r.metric == "QoS 1, 64 B: messages").context("the row is missing")?;
    ensure!(row.peers.len() == 2 && row.ratios["mosquitto-acl"] > 0.0, "{row:?}");
    bounded(Command::new(BENCH).arg("plot").arg(&json).arg("--out").arg(&svg), Duration::from_secs(20))?;
    ensure!(std::fs::read_to_string(&svg)?.starts_with("<svg"));
    Ok(())
}

#[test]
fn a_missing_broker_is_an_error_that_says_so() -> Result<()> {
    let folder = tempfile::tempdir()?;
    certificates(folder.path(), 1)?;
    // Given back at once: nothing listens there.
    let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
    let mut command = Command::new(BENCH);
    command.args(["flood", "--port", &port.to_string(), "--certs"]).arg(folder.path());
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(!output.status.success() && text.contains("TCP connect failed"), "{text}");
    Ok(())
}
