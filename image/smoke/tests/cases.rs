//! The raw-packet cases of the MQTT community, where their script is at hand.

use anyhow::{Context, Result, ensure};
use smoke::machine::HOSTED;
use smoke::{Credentials, Machine, Options, on_all, tools};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

on_all!(raw_packet_cases);

/// `MQTT_CASES` names the script; without it, and without the one beside the project, there is nothing to run.
fn script() -> Option<PathBuf> {
    let beside = tools::root().join("../shared/cases/mqtt_cases.py");
    std::env::var_os("MQTT_CASES").map(PathBuf::from).or_else(|| beside.exists().then_some(beside))
}

fn raw_packet_cases(arch: &'static str) -> Result<()> {
    let Some(script) = script() else {
        println!("no mqtt_cases.py: set MQTT_CASES to run it");
        return Ok(());
    };
    let machine = Machine::ready(&Options::new(arch))?;
    let (one, two, operator) = (Credentials::device(1), Credentials::device(2), Credentials::operator("op1"));
    // Its time limits are for brokers at the processor's own speed.
    let scale = if arch == HOSTED { "1" } else { "4" };
    let mut command = Command::new(tools::python());
    command.arg(script).args([
        "--host",
        "127.0.0.1",
        "--port",
        &machine.port.to_string(),
        "--scale",
        scale,
        "--appliance",
    ]);
    command
        .arg("--ca")
        .arg(&one.ca)
        .arg("--cert")
        .arg(&one.certificate)
        .arg("--key")
        .arg(&one.key)
        .args(["--id", &one.id]);
    command.arg("--cert2").arg(&two.certificate).arg("--key2").arg(&two.key).args(["--id2", &two.id]);
    command
        .arg("--opcert")
        .arg(&operator.certificate)
        .arg("--opkey")
        .arg(&operator.key)
        .args(["--opid", &operator.id]);
    let output = tools::run(&mut command, Duration::from_secs(900)).context("mqtt_cases.py")?;
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    ensure!(output.status.success(), "{text}");
    Ok(())
}
