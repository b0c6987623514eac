//! Clients that must not get in, and what must not hurt those that are.

use anyhow::{Result, ensure};
use smoke::mosquitto;
use smoke::{Client, Credentials, Machine, Options, client, on_all, tools};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

on_all!(
    certificates_that_are_refused,
    tls_1_2_is_refused,
    identity_and_topics,
    malformed_packets_close,
    half_open_and_stuck_handshakes,
);

/// The handshake (or the first read after it: in TLS 1.3 the client is done before the server has judged) must fail.
fn refused(port: u16, who: &Credentials) -> Result<()> {
    let outcome = Client::connect(port, who);
    ensure!(outcome.is_err(), "{} got in", who.certificate.display());
    Ok(())
}

fn certificates_that_are_refused(arch: &'static str) -> Result<()> {
    let machine = Machine::ready(&Options::new(arch))?;
    let foreign = tools::scratch(&format!("foreign-certs-{arch}"))?;
    tools::urmqtt_command(&["certs", "--dir", &foreign.display().to_string(), "--devices", "1"])?;
    // A foreign CA's device that trusts our server.
    let mut stranger = Credentials::device_in(&foreign, 1);
    stranger.ca = tools::certs().join("ca.crt");
    refused(machine.port, &stranger)?;
    let expired = tools::root().join("target/smoke").join(format!("expired-{arch}"));
    copy_ca(&expired)?;
    tools::urmqtt_command(&[
        "certs",
        "--dir",
        &expired.display().to_string(),
        "--devices",
        "0",
        "--expired",
        "dev-00009",
    ])?;
    refused(machine.port, &Credentials::device_in(&expired, 9))?;
    // No certificate at all.
    let port = machine.port.to_string();
    let mut bare = Command::new("openssl");
    bare.args(["s_client", "-connect", &format!("127.0.0.1:{port}"), "-tls1_3", "-ign_eof", "-CAfile"])
        .arg(&stranger.ca);
    let output = tools::run(&mut bare, Duration::from_secs(30))?;
    let text =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    ensure!(text.contains("certificate required") || text.contains("alert"), "no alert: {text}");
    // And the good one still gets in.
    Client::connect(machine.port, &Credentials::device(1))?;
    Ok(())
}

fn copy_ca(folder: &Path) -> Result<()> {
    let _ = std::fs::remove_dir_all(folder);
    std::fs::create_dir_all(folder)?;
    for name in ["ca.crt", "ca.key", "server.crt", "server.key"] {
        std::fs::copy(tools::certs().join(name), folder.join(name))?;
    }
    Ok(())
}

fn tls_1_2_is_refused(arch: &'static str) -> Result<()> {
    let machine = Machine::ready(&Options::new(arch))?;
    let who = Credentials::device(1);
    let mut command = Command::new("openssl");
    command.args(["s_client", "-tls1_2", "-connect", &format!("127.0.0.1:{}", machine.port), "-cert"]);
    command.arg(&who.certificate).arg("-key").arg(&who.key);
    let output = tools::run(&mut command, Duration::from_secs(30))?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(!output.status.success() && text.contains("alert"), "{text}");
    // A client in clear gets nothing, least of all a CONNACK.
    let mut plain = TcpStream::connect(("127.0.0.1", machine.port))?;
    plain.set_read_timeout(Some(Duration::from_secs(20)))?;
    plain.write_all(&client::connect_packet("dev-00001", 60, true))?;
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    ensure!(answer.first() != Some(&client::CONNACK), "a clear CONNECT was answered: {answer:?}");
    Ok(())
}

fn identity_and_topics(arch: &'static str) -> Result<()> {
    let machine = Machine::ready(&Options::new(arch))?;
    let mut liar = Credentials::device(1);
    liar.id = "dev-00002".into();
    refused(machine.port, &liar)?;
    // Another device's topic: not delivered, and not readable.
    let mut witness = Client::connect(machine.port, &Credentials::operator("witness"))?;
    witness.subscribe("devices/#", 1)?;
    let _ = mosquitto::publish_output(
        machine.port,
        &Credentials::device(1),
        &["-t", "devices/dev-00002/x", "-m", "stolen", "-q", "1"],
    )?;
    mosquitto::publish(
        machine.port,
        &Credentials::device(1),
        &["-t", "devices/dev-00001/x", "-m", "mine", "-q", "1"],
    )?;
    ensure!(witness.message()?.1 == b"mine", "a forbidden message came through");
    let mut device = Client::connect(machine.port, &Credentials::device(1))?;
    ensure!(device.subscribe("devices/dev-00002/#", 1).is_err(), "a foreign topic was granted");
    Ok(())
}

fn malformed_packets_close(arch: &'static str) -> Result<()> {
    let machine = Machine::ready(&Options::new(arch))?;
    let config = Credentials::device(1).config()?;
    let bad: [&[u8]; 9] = [
        &[0xc0, 0x00],                         // not CONNECT first
        &[0x10, 0xff, 0xff, 0xff, 0xff, 0x7f], // remaining length of five bytes
        &[0x10, 0x02, 0x00, 0x09],             // CONNECT cut short
        &[0x00, 0x00],                         // reserved type
        &[0xf0, 0x00],
        &[0x30, 0x01, 0x00],
        &[0x10, 0x0c, 0, 4, b'M', b'Q', b'T', b'X', 4, 2, 0, 60, 0, 0],
        &[0x10, 0x0c, 0, 4, b'M', b'Q', b'T', b'T', 4, 3, 0, 60, 0, 0],
        &[0x16, 0x03, 0x01, 0x00, 0x05, 0, 0, 0, 0, 0],
    ];
    for packet in bad {
        let mut c = Client::dial(machine.port, &config)?;
        c.send(packet)?;
        c.closed(Duration::from_secs(20)).map_err(|e| e.context(format!("{packet:02x?}")))?;
    }
    // Garbage instead of TLS records.
    for seed in 0..20u8 {
        let mut raw = TcpStream::connect(("127.0.0.1", machine.port))?;
        raw.set_read_timeout(Some(Duration::from_secs(20)))?;
        let garbage: Vec<u8> =
            (0..512u32).map(|i| (i.wrapping_mul(2654435761 + seed as u32) >> 13) as u8).collect();
        raw.write_all(&garbage)?;
        let _ = raw.read_to_end(&mut Vec::new());
    }
    Client::connect(machine.port, &Credentials::device(1))?;
    ensure!(machine.lines().iter().all(|l| !l.contains("panic")), "a task panicked");
    Ok(())
}

/// Silent connections and half handshakes don't keep others out, and are ended.
fn half_open_and_stuck_handshakes(arch: &'static str) -> Result<()> {
    let machine = Machine::ready(&Options::new(arch))?;
    let mut silent = Vec::new();
    for i in 0..40 {
        let mut raw = TcpStream::connect(("127.0.0.1", machine.port))?;
        if i % 2 == 1 {
            // The head of a ClientHello record that never ends.
            raw.write_all(&[0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03])?;
        }
        silent.push(raw);
    }
    let started = Instant::now();
    Client::connect(machine.port, &Credentials::device(1))?;
    ensure!(started.elapsed() < Duration::from_secs(5), "stuck handshakes held a good client up");
    for raw in &mut silent {
        raw.set_read_timeout(Some(Duration::from_secs(60)))?;
        let mut rest = Vec::new();
        let outcome = raw.read_to_end(&mut rest);
        ensure!(
            !matches!(&outcome, Err(e) if e.kind() == std::io::ErrorKind::WouldBlock),
            "a stuck handshake lives on"
        );
    }
    Ok(())
}
