//! Paths, ports and programs that the tests need.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The project's folder.
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The host command: `URMQTT`, else the release build.
pub fn urmqtt() -> PathBuf {
    std::env::var_os("URMQTT").map_or_else(|| root().join("target/release/urmqtt"), PathBuf::from)
}

/// Folder of certificates: `CERTS`, else `certs`; relative to the project's folder.
pub fn certs() -> PathBuf {
    root().join(std::env::var_os("CERTS").unwrap_or_else(|| "certs".into()))
}

/// A port of 127.0.0.1 that nothing listens on.
pub fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// A folder for one test's files, empty, below `target/smoke`.
pub fn scratch(name: &str) -> Result<PathBuf> {
    let path = root().join("target/smoke").join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
    Ok(path)
}

/// Ctrl-C for a process that we started.
pub fn interrupt(pid: u32) {
    // SAFETY: kill(2) touches no memory; the pid is that of our own child, not yet reaped.
    unsafe { libc::kill(pid as i32, libc::SIGINT) };
}

/// Runs a program to its end, at most `limit`.
pub fn run(command: &mut Command, limit: Duration) -> Result<Output> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {command:?}"))?;
    let deadline = Instant::now() + limit;
    while child.try_wait()?.is_none() {
        if Instant::now() > deadline {
            child.kill()?;
            let output = child.wait_with_output()?;
            bail!("{command:?} still ran after {limit:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(child.wait_with_output()?)
}

/// Runs `urmqtt` with these words; fails with its message.
pub fn urmqtt_command(words: &[&str]) -> Result<String> {
    let output = run(Command::new(urmqtt()).current_dir(root()).args(words), Duration::from_secs(120))?;
    if !output.status.success() {
        bail!("urmqtt {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The Python that has paho: `PYTHON`, else the system's.
pub fn python() -> PathBuf {
    std::env::var_os("PYTHON").map_or_else(|| "/usr/bin/python3".into(), PathBuf::from)
}
