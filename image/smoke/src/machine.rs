//! One image running in QEMU, or its tasks as Linux processes, with its serial line.

use crate::tools;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// In place of an architecture: the hosted platform.
pub const HOSTED: &str = "hosted";
/// Architectures that an image is built for.
pub const ARCHES: [&str; 2] = ["x86_64", "aarch64"];

/// How to start a machine. The image must have been built (`make images`), or the tasks as Linux programs (`make host`).
#[derive(Clone, Debug)]
pub struct Options {
    pub arch: &'static str,
    /// Folder below `out/` with the image: `ARCH`, `ARCH-dev`, `ARCH-probe`.
    pub image: String,
    pub smp: u32,
    pub memory: &'static str,
    pub boot: &'static str,
    /// More words for `urmqtt run`.
    pub extra: Vec<String>,
}

impl Options {
    /// The development image of `arch`, direct boot, one core, 256 MiB.
    pub fn new(arch: &'static str) -> Self {
        Options {
            arch,
            image: format!("{arch}-dev"),
            smp: 1,
            memory: "256M",
            boot: "direct",
            extra: Vec::new(),
        }
    }

    pub fn image(mut self, kind: &str) -> Self {
        self.image = format!("{}-{kind}", self.arch);
        self
    }
}

type Log = Arc<(Mutex<Vec<String>>, Condvar)>;

/// A running image. Dropping it ends QEMU.
pub struct Machine {
    child: Child,
    stdin: Option<ChildStdin>,
    log: Log,
    pub port: u16,
    pub started: Instant,
}

impl Machine {
    /// Starts QEMU, or the hosted tasks; doesn't wait.
    pub fn start(options: &Options) -> Result<Self> {
        let port = tools::free_port()?;
        let mut command = Command::new(tools::urmqtt());
        command.current_dir(tools::root());
        match options.arch {
            HOSTED => command.args(["host", "--dev"]),
            arch => command
                .args(["run", "--arch", arch, "--out", &format!("out/{}", options.image)])
                .args(["--smp", &options.smp.to_string(), "--memory", options.memory, "--boot", options.boot])
                .args(if options.extra.iter().any(|w| w == "--package") { &[][..] } else { &["--no-build"] }),
        };
        command
            .args(["--port", &port.to_string()])
            .args(&options.extra)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let started = Instant::now();
        let mut child = command.spawn().context("cannot start urmqtt run; `make cli` builds it")?;
        let log = Log::default();
        collect(child.stdout.take().expect("piped"), log.clone());
        collect(child.stderr.take().expect("piped"), log.clone());
        let stdin = child.stdin.take();
        Ok(Machine { child, stdin, log, port, started })
    }

    /// Starts and waits until the port serves.
    pub fn ready(options: &Options) -> Result<Self> {
        let machine = Self::start(options)?;
        machine.wait_for("urmqtt: ready", Duration::from_secs(90))?;
        Ok(machine)
    }

    /// The first line, from line `from` on, that contains `text`, and its number.
    pub fn wait_from(&self, from: usize, text: &str, limit: Duration) -> Result<(usize, String)> {
        let deadline = Instant::now() + limit;
        let (lines, news) = &*self.log;
        let mut lines = lines.lock().expect("log");
        let mut seen = from;
        loop {
            while seen < lines.len() {
                if lines[seen].contains(text) {
                    return Ok((seen, lines[seen].clone()));
                }
                seen += 1;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                bail!("no line with {text:?} in {limit:?}; the serial line said:\n{}", lines.join("\n"));
            }
            lines = news.wait_timeout(lines, left).expect("log").0;
        }
    }

    pub fn wait_for(&self, text: &str, limit: Duration) -> Result<String> {
        Ok(self.wait_from(0, text, limit)?.1)
    }

    pub fn lines(&self) -> Vec<String> {
        self.log.0.lock().expect("log").clone()
    }

    pub fn line_count(&self) -> usize {
        self.log.0.lock().expect("log").len()
    }

    /// Types a command on the serial line of a development image.
    pub fn type_line(&mut self, text: &str) -> Result<()> {
        let stdin = self.stdin.as_mut().expect("stdin is open");
        writeln!(stdin, "{text}")?;
        stdin.flush()?;
        Ok(())
    }

    /// Injects a fault into `task` and waits until the supervisor has started it again.
    pub fn kill(&mut self, task: &str) -> Result<()> {
        let from = self.line_count();
        self.type_line(&format!("kill {task}"))?;
        self.wait_from(from, &format!("{task}: restarted"), Duration::from_secs(20))?;
        Ok(())
    }

    /// Waits until QEMU has ended by itself.
    pub fn ended(&mut self, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        while self.child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                bail!("QEMU still runs; the serial line said:\n{}", self.lines().join("\n"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Process number of `urmqtt run`.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- serial line ---\n{}\n---", self.lines().join("\n"));
        }
        tools::interrupt(self.child.id());
        for _ in 0..100 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = (self.child.kill(), self.child.wait());
    }
}

fn collect(stream: impl std::io::Read + Send + 'static, log: Log) {
    std::thread::spawn(move || {
        for line in BufReader::new(stream).split(b'\n') {
            let Ok(line) = line else { return };
            let text = String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned();
            log.0.lock().expect("log").push(text);
            log.1.notify_all();
        }
    });
}
