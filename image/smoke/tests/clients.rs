//! Real clients over mutual TLS: Mosquitto's, paho, mqtt.js, and many at once.

use anyhow::{Context, Result, ensure};
use smoke::mosquitto::{self, Subscriber};
use smoke::{Client, Credentials, Machine, Options, client, on_all, tools};
use std::process::Command;
use std::time::Duration;

on_all!(
    qos_0_and_1,
    retained_and_wildcards,
    a_will_is_published,
    one_mebibyte,
    two_hundred_clients,
    takeover_and_sessions,
    paho,
    mqtt_js,
);

fn qos_0_and_1(arch: &'static str) -> Result<()> {
    let machine = Machine::ready(&Options::new(arch))?;
    let (device, operator) = (Credentials::device(1), Credentials::operator("watcher"));
    for qos in ["0", "1"] {
        let subscriber = Subscriber::start(
            machine.port,
            &operator,
            2,
            &["-t", "devices/dev-00001/temp", "-q", qos, "-v"],
        )?;
        for payload in ["21.5", "22.0"] {
            let words = ["-t", "devices/dev-00001/temp", "-m", payload, "-q", qos];
            mosquitto::publish(machine.port, &device, &words)?;
        }
        let output = subscriber.output(machine.port, &operator)?;
        ensure!(
            output == "devices/dev-00001/temp 21.5\ndevices/dev-00001/temp 22.0\n",
            "QoS {qos}: {output}"
        );
    }
    Ok(())
}

fn retained_and_wildcards(arch: &'static str) -> Result<()> {
    let machine = Machine::ready(&Options::new(arch))?;
    let (device, operator) = (Credentials::device(2), Credentials::operator("wild"));
    for (topic, payload) in
        [("devices/dev-00002/a/x", "1"), ("devices/dev-00002/b/x", "2"), ("devices/dev-00002/b", "3")]
    {
        mosquitto::publish(machine.port, &device, &["-t", topic, "-m", payload, "-q", "1", "-r"])?;
    }
    let both = Subscriber::start(machine.port, &operator, 2, &["-t", "devices/+/+/x", "-v"])?;
    let mut lines: Vec<_> = both.output(machine.port, &operator)?.lines().map(str::to_owned).collect();
    lines.sort();
    ensure!(lines == ["devices/dev-00002/a/x 1", "devices/dev-00002/b/x 2"], "{lines:?}");
    let all = Subscriber::start(machine.port, &operator, 3, &["-t", "devices/dev-00002/#", "-v"])?;
    ensure!(all.output(machine.port, &operator)?.lines().count() == 3);
    // An empty retained message clears.
    mosquitto::publish(machine.port, &device, &["-t", "devices/dev-00002/b", "-n", "-q", "1", "-r"])?;
    let left = Subscriber::start(machine.port, &operator, 2, &["-t", "devices/dev-00002/#", "-v"])?;
    ensure!(!left.output(machine.port, &operator)?.contains("dev-00002/b 3"));
    Ok(())
}

fn a_will_is_published(arch: &'static str) -> Result<()> {
    let machine = Machine::ready(&Options::new(arch))?;
    let (device, operator) = (Credentials::device(3), Credentials::operator("heir"));
    let watcher =
        Subscriber::start(machine.port, &operator, 1, &["-t", "devices/dev-00003/#", "-v", "-q", "1"])?;
    let words = [
        "-t",
        "devices/dev-00003/none",
        "--will-topic",
        "devices/dev-00003/gone",
        "--will-payload",
        "lost",
        "--will-qos",
        "1",
    ];
    let dying = Subscriber::start(machine.port, &device, 1, &words)?;
    drop(dying); // killed: no DISCONNECT
    let output = watcher.output(machine.port, &operator)?;
    ensure!(output == "devices/dev-00003/gone lost\n", "{output}");
    Ok(())
}

fn one_mebibyte(arch: &'static str) -> Result<()> {
    let machine = Machine::ready(&Options::new(arch))?;
    let device = Credentials::device(4);
    let payload: Vec<u8> = (0..1u32 << 20).map(|i| (i.wrapping_mul(2654435761) >> 24) as u8).collect();
    let mut receiver = Client::connect(machine.port, &Credentials::operator("big"))?;
    receiver.subscribe("devices/dev-00004/blob", 1)?;
    let file = tools::scratch(&format!("blob-{arch}"))?.join("payload");
    std::fs::write(&file, &payload)?;
    let words = ["-t", "devices/dev-00004/blob", "-q", "1", "-f", &file.display().to_string()];
    mosquitto::publish(machine.port, &device, &words)?;
    let (topic, got) = receiver.message()?;
    ensure!(topic == "devices/dev-00004/blob" && got == payload, "{} bytes came", got.len());
    Ok(())
}

/// All connect, each subscribes to its own topics, publishes, and gets its message.
fn two_hundred_clients(arch: &'static str) -> Result<()> {
    let folder = tools::root().join("target/smoke/certs-200");
    let path = folder.display().to_string();
    std::fs::create_dir_all(&folder)?;
    for name in ["ca.crt", "ca.key", "server.crt", "server.key"] {
        std::fs::copy(tools::certs().join(name), folder.join(name))
            .with_context(|| format!("{name} of the certificates"))?;
    }
    tools::urmqtt_command(&["certs", "--dir", &path, "--devices", "200"])?;
    let machine = Machine::ready(&Options::new(arch))?;
    let mut clients = Vec::new();
    // Four dial at a time: QEMU's user network loses connections of larger bursts.
    for n in 1..=200 {
        let who = Credentials::device_in(&folder, n);
        let mut c = Client::connect(machine.port, &who).with_context(|| format!("client {n}"))?;
        c.subscribe(&format!("devices/{}/#", who.id), 1).with_context(|| format!("client {n}"))?;
        clients.push((who, c));
    }
    for round in 1..=3u16 {
        for (who, c) in &mut clients {
            let topic = format!("devices/{}/t", who.id);
            c.send(&client::publish_packet(&topic, &round.to_be_bytes(), Some(round)))?;
        }
        for (who, c) in &mut clients {
            // PUBACK and PUBLISH come in either order.
            let mut seen = (false, false);
            while seen != (true, true) {
                let p = c.receive().with_context(|| format!("{} in round {round}", who.id))?;
                match p.first >> 4 {
                    4 => seen.0 = true,
                    3 => {
                        seen.1 = true;
                        let at = p.body.len() - 4;
                        ensure!(p.body[at + 2..] == round.to_be_bytes(), "{p:?}");
                        c.send(&client::packet(client::PUBACK, &p.body[at..at + 2]))?;
                    }
                    _ => anyhow::bail!("{p:?}"),
                }
            }
        }
    }
    Ok(())
}

fn takeover_and_sessions(arch: &'static str) -> Result<()> {
    let machine = Machine::ready(&Options::new(arch))?;
    let who = Credentials::device(5);
    let config = who.config()?;
    let mut first = Client::connect_with(machine.port, &config, &who.id, 60, false)?;
    first.subscribe("devices/dev-00005/#", 1)?;
    let second = Client::connect_with(machine.port, &config, &who.id, 60, false)?;
    first.closed(Duration::from_secs(10))?;
    drop(second);
    // Offline: queued for the session.
    let words = ["-t", "devices/dev-00005/later", "-m", "kept", "-q", "1"];
    mosquitto::publish(machine.port, &Credentials::operator("sender"), &words)?;
    let mut third = Client::connect_with(machine.port, &config, &who.id, 60, false)?;
    ensure!(third.message()? == ("devices/dev-00005/later".into(), b"kept".to_vec()));
    Ok(())
}

const PAHO: &str = r#"
import ssl, sys, threading
import paho.mqtt.client as mqtt
port, ca, cert, key, ident = int(sys.argv[1]), *sys.argv[2:6]
done, got = threading.Event(), []
try:
    c = mqtt.Client(mqtt.CallbackAPIVersion.VERSION1, client_id=ident)
except AttributeError:
    c = mqtt.Client(client_id=ident)
c.tls_set(ca, cert, key, tls_version=ssl.PROTOCOL_TLS_CLIENT)
topic = f"devices/{ident}/paho"
c.on_connect = lambda c, *a: c.subscribe(topic, 1)
c.on_subscribe = lambda c, *a: [c.publish(topic, f"m{i}", qos=1) for i in range(20)]
def message(c, u, m):
    got.append(m.payload.decode())
    if len(got) == 20: done.set()
c.on_message = message
c.connect("localhost", port)
c.loop_start()
ok = done.wait(60)
c.disconnect()
assert ok and got == [f"m{i}" for i in range(20)], got
print("paho: 20 messages in order")
"#;

fn paho(arch: &'static str) -> Result<()> {
    let machine = Machine::ready(&Options::new(arch))?;
    let who = Credentials::device(6);
    let python = tools::python();
    let mut command = Command::new(python);
    command
        .args(["-c", PAHO, &machine.port.to_string()])
        .arg(&who.ca)
        .arg(&who.certificate)
        .arg(&who.key)
        .arg(&who.id);
    expect(&mut command, "paho: 20 messages in order")
}

const MQTT_JS: &str = r#"
const fs = require('fs'), mqtt = require('mqtt');
const [port, ca, cert, key, id] = process.argv.slice(1);
const read = fs.readFileSync, topic = `devices/${id}/js`, got = [];
const c = mqtt.connect(`mqtts://localhost:${port}`, { clientId: id, protocolVersion: 4, ca: read(ca), cert: read(cert),
  key: read(key), reconnectPeriod: 0 });
const fail = e => { console.error(String(e)); process.exit(1); };
setTimeout(() => fail('time out'), 60000).unref();
c.on('error', fail);
c.on('connect', () => c.subscribe(topic, { qos: 1 }, e => {
  if (e) fail(e);
  for (let i = 0; i < 20; i++) c.publish(topic, `m${i}`, { qos: 1 }, e => e && fail(e));
}));
c.on('message', (t, m) => { if (got.push(m.toString()) === 20) {
  if (got.join() !== [...Array(20).keys()].map(i => `m${i}`).join()) fail(got);
  console.log('mqtt.js: 20 messages in order'); c.end(false, () => process.exit(0)); } });
"#;

fn mqtt_js(arch: &'static str) -> Result<()> {
    let modules = tools::root().join("target/tools/js/node_modules");
    // Set by image/test.sh, which says so at its end, where there is no way to the packages.
    if std::env::var_os("WITHOUT_MQTT_JS").is_some() {
        println!("skipped: no mqtt.js here");
        return Ok(());
    }
    ensure!(modules.join("mqtt").exists(), "{} has no mqtt.js: image/test.sh installs it", modules.display());
    let machine = Machine::ready(&Options::new(arch))?;
    let who = Credentials::device(7);
    let mut command = Command::new("node");
    command.env("NODE_PATH", modules);
    command
        .args(["-e", MQTT_JS, &machine.port.to_string()])
        .arg(&who.ca)
        .arg(&who.certificate)
        .arg(&who.key)
        .arg(&who.id);
    expect(&mut command, "mqtt.js: 20 messages in order")
}

fn expect(command: &mut Command, text: &str) -> Result<()> {
    let output = tools::run(command, Duration::from_secs(90))?;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success() && out.contains(text), "{out}{err}");
    Ok(())
}
