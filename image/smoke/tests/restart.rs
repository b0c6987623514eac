//! Crashes of tasks under traffic.

use anyhow::{Context, Result, ensure};
use smoke::{Client, Credentials, Machine, Options, client, on_all, on_both};
use std::time::{Duration, Instant};

on_all!(
    tls_closes_and_comes_back,
    broker_closes_and_comes_back,
    tcp_closes_and_comes_back,
    console_is_missed_by_nobody,
);
mod image {
    use super::*;
    on_both!(nic_keeps_every_connection, supervisor_reboots_the_machine);
}

/// QoS 1 traffic of its own messages; every identifier must come back, in order, each once.
fn nic_keeps_every_connection(arch: &'static str) -> Result<()> {
    let mut machine = Machine::ready(&Options::new(arch))?;
    let mut idle = Client::connect(machine.port, &Credentials::device(2))?;
    let mut c = Client::connect(machine.port, &Credentials::device(1))?;
    c.subscribe("devices/dev-00001/t", 1)?;
    let (mut sent, mut acknowledged, mut received) = (0u16, 0, 0);
    const LAST: u16 = 600;
    let mut kills = 0;
    while acknowledged < LAST || received < LAST {
        while sent < LAST && sent - received < 20 && sent - acknowledged < 20 {
            sent += 1;
            c.send(&client::publish_packet("devices/dev-00001/t", &sent.to_be_bytes(), Some(sent)))?;
        }
        if received >= 150 * (kills + 1) && kills < 3 {
            kills += 1;
            machine.kill("nic").with_context(|| format!("kill {kills}"))?;
        }
        let p = c.receive().with_context(|| format!("after {kills} kills, {received} messages"))?;
        match p.first >> 4 {
            4 => {
                acknowledged += 1;
                ensure!(p.body == acknowledged.to_be_bytes(), "PUBACK out of order: {p:?}");
            }
            3 => {
                received += 1;
                let at = p.body.len() - 4;
                ensure!(p.body[at + 2..] == received.to_be_bytes(), "message {received}: {p:?}");
                c.send(&client::packet(client::PUBACK, &p.body[at..at + 2]))?;
            }
            _ => anyhow::bail!("{p:?}"),
        }
    }
    ensure!(kills == 3);
    idle.send(&[0xc0, 0])?;
    ensure!(idle.receive()?.first == 0xd0, "the idle connection was lost");
    Ok(())
}

/// Kills `task`: the old connection ends, and a new one works soon.
fn comes_back(arch: &'static str, task: &str) -> Result<()> {
    let mut machine = Machine::ready(&Options::new(arch))?;
    for round in 0..2 {
        let mut c = Client::connect(machine.port, &Credentials::device(1))
            .with_context(|| format!("round {round}"))?;
        machine.kill(task)?;
        // tcp's own death is seen at the next segment that the client sends.
        let _ = c.send(&[0xc0, 0]);
        c.closed(Duration::from_secs(20)).context("the old connection")?;
        let started = Instant::now();
        loop {
            match Client::connect(machine.port, &Credentials::device(1)) {
                Ok(_) => break,
                Err(e) if started.elapsed() > Duration::from_secs(20) => {
                    return Err(e.context("the next connect"));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }
    let lines = machine.lines();
    let restarted: Vec<_> = lines.iter().filter(|l| l.contains(": restarted")).collect();
    ensure!(
        restarted.iter().all(|l| l.contains(&format!("{task}: restarted"))),
        "others restarted too: {restarted:?}"
    );
    Ok(())
}

fn tls_closes_and_comes_back(arch: &'static str) -> Result<()> {
    comes_back(arch, "tls")
}

fn broker_closes_and_comes_back(arch: &'static str) -> Result<()> {
    comes_back(arch, "broker")
}

fn tcp_closes_and_comes_back(arch: &'static str) -> Result<()> {
    comes_back(arch, "tcp")
}

fn console_is_missed_by_nobody(arch: &'static str) -> Result<()> {
    let mut machine = Machine::ready(&Options::new(arch))?;
    let mut c = Client::connect(machine.port, &Credentials::device(1))?;
    machine.kill("console")?;
    c.send(&[0xc0, 0])?;
    ensure!(c.receive()?.first == 0xd0);
    Ok(())
}

fn supervisor_reboots_the_machine(arch: &'static str) -> Result<()> {
    let mut machine = Machine::ready(&Options::new(arch))?;
    let from = machine.line_count();
    machine.type_line("kill supervisor")?;
    machine
        .wait_from(from, "urmqtt: ready", Duration::from_secs(60))
        .context("the machine did not come back")?;
    Client::connect(machine.port, &Credentials::device(1))?;
    Ok(())
}
