//! Mosquitto's command line clients.

use crate::client::Credentials;
use crate::tools;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

fn command(program: &str, port: u16, who: &Credentials) -> Command {
    let mut command = Command::new(program);
    command
        .args(["-h", "127.0.0.1", "-p", &port.to_string(), "--tls-version", "tlsv1.3", "-i", &who.id])
        .arg("--cafile")
        .arg(&who.ca)
        .arg("--cert")
        .arg(&who.certificate)
        .arg("--key")
        .arg(&who.key);
    command
}

/// `mosquitto_pub` with more words; its output.
pub fn publish_output(port: u16, who: &Credentials, words: &[&str]) -> Result<Output> {
    tools::run(command("mosquitto_pub", port, who).args(words), Duration::from_secs(60))
}

/// `mosquitto_pub` that must succeed.
pub fn publish(port: u16, who: &Credentials, words: &[&str]) -> Result<()> {
    let output = publish_output(port, who, words)?;
    if !output.status.success() {
        bail!("mosquitto_pub {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// `mosquitto_sub` in the background, already subscribed.
pub struct Subscriber {
    child: Option<Child>,
}

impl Subscriber {
    /// `count`: ends after so many messages. `words`: topics and formats.
    pub fn start(port: u16, who: &Credentials, count: u32, words: &[&str]) -> Result<Self> {
        let ready = tools::scratch(&format!("sub-{port}-{}", who.id))?.join("log");
        let log = std::fs::File::create(&ready)?;
        // stdbuf: what it prints must be there when it is printed, not when a block is full.
        let mut line_wise = Command::new("stdbuf");
        let plain = command("mosquitto_sub", port, who);
        line_wise.arg("-oL").arg(plain.get_program()).args(plain.get_args());
        let child = line_wise
            .args(["-d", "-C", &count.to_string(), "-W", "60"])
            .args(words)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("mosquitto_sub")?;
        let subscriber = Subscriber { child: Some(child) };
        // -d prints "Subscribed (mid: 1): ..." when the SUBACK has come.
        for _ in 0..600 {
            if std::fs::read_to_string(&ready)?.contains("Subscribed") {
                return Ok(subscriber);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        bail!("mosquitto_sub did not subscribe: {}", std::fs::read_to_string(&ready)?)
    }

    /// Waits for its end; what it printed besides its debug lines.
    pub fn output(mut self, port: u16, who: &Credentials) -> Result<String> {
        let status = self.child.take().expect("running").wait()?;
        let path = tools::root().join(format!("target/smoke/sub-{port}-{}/log", who.id));
        let text = read(&path)?;
        if !status.success() {
            bail!("mosquitto_sub ended with {status}: {text}");
        }
        let quiet = |l: &&str| !l.starts_with("Client ") && !l.starts_with("Subscribed ");
        Ok(text.lines().filter(quiet).map(|l| format!("{l}\n")).collect())
    }
}

fn read(path: &Path) -> Result<String> {
    Ok(String::from_utf8_lossy(&std::fs::read(path)?).into_owned())
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = (child.kill(), child.wait());
        }
    }
}
