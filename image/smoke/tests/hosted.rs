//! What is the hosted platform's own: confinement, an end that leaves nothing, and the TAP device.

use anyhow::{Context, Result, ensure};
use smoke::machine::HOSTED;
use smoke::{Client, Credentials, Machine, Options, tools};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Eight things that a task may not do, each of which ends it, and it alone.
#[test]
fn a_task_that_strays_ends() -> Result<()> {
    let programs = tools::scratch("stray")?;
    for name in ["sockets", "tls", "console"] {
        std::os::unix::fs::symlink(
            tools::root().canonicalize()?.join("out/host").join(name),
            programs.join(name),
        )?;
    }
    std::os::unix::fs::symlink(
        tools::root().canonicalize()?.join("out/host/stray"),
        programs.join("broker"),
    )?;
    let extra = vec!["--programs".into(), programs.to_string_lossy().into_owned()];
    let machine = Machine::start(&Options { extra, ..Options::new(HOSTED) })?;
    for (life, end) in [
        (1, "system call beyond its manifest"),
        (2, "system call beyond its manifest"),
        (3, "system call beyond its manifest"),
        (4, "memory beyond its manifest"),
        (5, "memory beyond its manifest"),
        (6, "memory beyond its manifest"),
        (7, "system call beyond its manifest"),
        (8, "panic: on purpose"),
    ] {
        machine.wait_for(&format!("broker life {life}: {end}"), Duration::from_secs(30))?;
    }
    machine.wait_for("stray: nothing is left to try", Duration::from_secs(30))?;
    for line in machine.lines() {
        ensure!(!line.contains("SURVIVED"), "{line}");
        ensure!(!line.contains(" life ") || line.contains("broker life "), "another task ended too: {line}");
    }
    Ok(())
}

/// Ctrl-C, and SIGKILL of the supervisor: no process stays.
#[test]
fn an_end_leaves_nothing() -> Result<()> {
    for signal in ["INT", "KILL"] {
        let machine = Machine::ready(&Options::new(HOSTED))?;
        Client::connect(machine.port, &Credentials::device(1))?;
        let supervisor = machine.pid().to_string();
        let children = Command::new("pgrep").args(["-P", &supervisor]).output().context("pgrep (procps)")?;
        let children = String::from_utf8(children.stdout)?;
        ensure!(children.lines().count() == 4, "{children:?}");
        ensure!(Command::new("kill").args([&format!("-{signal}"), &supervisor]).status()?.success());
        let gone =
            || children.lines().all(|pid| !std::path::Path::new("/proc").join(pid).join("exe").exists());
        for _ in 0..200 {
            if gone() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        ensure!(gone(), "processes stay after {signal}");
    }
    Ok(())
}

/// `urmqtt service NAME --replay FILE --json`: its success and its outcome.
fn replay(service: &str, recording: &Path, more: &[&str]) -> Result<(bool, serde_json::Value)> {
    let mut command = Command::new(tools::urmqtt());
    command
        .current_dir(tools::root())
        .args(["service", service, "--json", "--replay"])
        .arg(recording)
        .args(more);
    let output = tools::run(&mut command, Duration::from_secs(60))?;
    let outcome = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    Ok((output.status.success(), outcome))
}

/// What went over the links comes again, with the same answers; a changed byte is found, a crash is told.
#[test]
fn a_recording_is_played_back() -> Result<()> {
    let folder = tools::scratch("recording")?.canonicalize()?;
    let file = folder.join("links.jsonl");
    let words = ["--record", "session", "--record", "stream", "--to"].map(String::from);
    let extra = words.into_iter().chain([file.to_string_lossy().into_owned()]).collect();
    let mut machine = Machine::ready(&Options { extra, ..Options::new(HOSTED) })?;
    let talk = |machine: &Machine, payload: &[u8]| -> Result<()> {
        let mut operator = Client::connect(machine.port, &Credentials::operator("watcher"))?;
        let mut device = Client::connect(machine.port, &Credentials::device(1))?;
        operator.subscribe("devices/#", 1)?;
        for id in 1..=20 {
            device.publish("devices/dev-00001/x", payload, id)?;
            ensure!(operator.message()?.1 == payload);
        }
        Ok(())
    };
    talk(&machine, b"before")?;
    machine.kill("tls")?;
    talk(&machine, &[b'x'; 5000])?;
    tools::interrupt(machine.pid());
    machine.ended(Duration::from_secs(5))?;

    let text = std::fs::read_to_string(&file)?;
    ensure!(text.contains("\"restart\":\"tls\""), "the restart is not in the recording");
    let key = std::fs::read_to_string(tools::certs().join("server.key"))?;
    let secret: String = key.lines().filter(|line| !line.starts_with('-')).collect();
    ensure!(!text.contains(&secret), "the server's key is in the recording");
    let (good, outcome) = replay("broker", &file, &[])?;
    ensure!(good && outcome["compared"] == true && outcome["messages_in"].as_u64() > Some(80), "{outcome}");
    let (good, outcome) = replay("tls", &file, &[])?;
    ensure!(good && outcome["compared"] == false && outcome["messages_out"].as_u64() > Some(4), "{outcome}");

    // "before" in hexadecimal, as the device sent it.
    let changed = folder.join("changed.jsonl");
    std::fs::write(&changed, text.replacen("6265666f7265", "6265666f7266", 1))?;
    let (good, outcome) = replay("broker", &changed, &[])?;
    ensure!(!good && outcome["difference"].as_str().is_some_and(|d| d.contains("byte")), "{outcome}");

    let programs = folder.join("programs");
    std::fs::create_dir(&programs)?;
    for (name, program) in
        [("sockets", "sockets"), ("tls", "tls"), ("console", "console"), ("broker", "stray")]
    {
        let built = tools::root().canonicalize()?.join("out/host").join(program);
        std::os::unix::fs::symlink(built, programs.join(name))?;
    }
    let (good, outcome) = replay("broker", &file, &["--programs", &programs.to_string_lossy()])?;
    ensure!(!good && outcome["ended"] == "system call beyond its manifest", "{outcome}");
    Ok(())
}

/// The whole path of the image, our TCP included.
#[test]
fn tap_serves() -> Result<()> {
    if !std::fs::exists("/dev/net/tun")? {
        println!("skipped: there is no /dev/net/tun");
        return Ok(());
    }
    let certs = tools::certs();
    let certs = certs.display();
    // Certificates that were made elsewhere don't name this address.
    let at = format!("-h 10.83.83.2 -p 8883 --cafile {certs}/ca.crt --insecure");
    let device =
        format!("--cert {certs}/devices/dev-00001.crt --key {certs}/devices/dev-00001.key -i dev-00001");
    let operator = format!("--cert {certs}/operator.crt --key {certs}/operator.key -i op1");
    let script = format!(
        "timeout 40 mosquitto_sub {at} {operator} -t 'devices/#' -q 1 -C 500 | tail -1 & s=$!
         sleep 1
         seq 500 | timeout 40 mosquitto_pub {at} {device} -t devices/dev-00001/x -q 1 -l && wait $s && echo all came"
    );
    let output = tools::run(
        Command::new(tools::urmqtt())
            .current_dir(tools::root())
            .args(["host", "--mode", "tap", "--", "bash", "-c", &script]),
        Duration::from_secs(60),
    )?;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(out.contains("all came") && out.lines().any(|l| l == "500"), "{out}{err}");
    Ok(())
}
