//! Benchmark of the image under emulation: guest instructions (they repeat within one or two per cent) and, as ratios only,
//! times. Usage: `bench [x86_64|aarch64 ...] [--json FILE]`; `make bench` runs it.

use anyhow::{Context, Result, bail, ensure};
use smoke::client::{self, Packet};
use smoke::counter::Counter;
use smoke::{Client, Credentials, Machine, Options, machine, tools};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// A Debian cloud kernel 6.1 with busybox and Mosquitto 2.0.11 in the same QEMU (q35, -cpu max, 1 CPU, x86_64), measured once;
/// docs/performance.md says how. Instructions.
const LINUX: [(&str, f64); 4] = [
    ("boot to first CONNACK", 2.00e9),
    ("full mTLS handshake", 9.93e6),
    ("QoS 0 message", 52.5e3),
    ("QoS 1 message", 100.4e3),
];

struct Row {
    arch: &'static str,
    name: &'static str,
    value: f64,
    unit: &'static str,
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let json = words.iter().position(|w| w == "--json").and_then(|i| words.get(i + 1));
    let mut rows = Vec::new();
    for arch in machine::ARCHES {
        let named = words.iter().any(|w| machine::ARCHES.contains(&w.as_str()));
        if !named || words.iter().any(|w| w == arch) {
            instructions(arch, &mut rows).with_context(|| format!("instructions on {arch}"))?;
            ipc(arch, &mut rows).with_context(|| format!("IPC on {arch}"))?;
            times(arch, &mut rows).with_context(|| format!("times on {arch}"))?;
        }
    }
    print!("{}", table(&rows));
    if let Some(path) = json {
        std::fs::write(path, as_json(&rows))?;
    }
    Ok(())
}

fn table(rows: &[Row]) -> String {
    let mut out =
        format!("{:<8} {:<38} {:>14} {:<12} {:>16}\n", "arch", "what", "value", "unit", "Linux+Mosquitto");
    for r in rows {
        let peer = LINUX.iter().find(|(n, _)| *n == r.name).map(|(_, v)| v / r.value);
        let peer = peer.map_or(String::new(), |ratio| format!("{ratio:.1} x as many"));
        let value = if r.value >= 1000.0 { format!("{:.0}", r.value) } else { format!("{:.2}", r.value) };
        let _ = writeln!(out, "{:<8} {:<38} {value:>14} {:<12} {peer:>16}", r.arch, r.name, r.unit);
    }
    out
}

fn as_json(rows: &[Row]) -> String {
    let rows: Vec<String> = rows
        .iter()
        .map(|r| {
            format!(r#"{{"arch":"{}","name":"{}","value":{},"unit":"{}"}}"#, r.arch, r.name, r.value, r.unit)
        })
        .collect();
    format!("[\n{}\n]\n", rows.join(",\n"))
}

/// Everything that is counted through real clients.
fn instructions(arch: &'static str, rows: &mut Vec<Row>) -> Result<()> {
    let (counter, extra) = Counter::new(arch)?;
    let machine = Machine::ready(&Options { extra, image: arch.into(), ..Options::new(arch) })?;
    let (publisher, subscriber) = (Credentials::device(1), Credentials::operator("bench"));
    let first = Client::connect(machine.port, &publisher)?;
    let mut push = |name, value: f64| rows.push(Row { arch, name, value, unit: "instructions" });
    push("boot to first CONNACK", counter.read()? as f64);
    drop(first);

    let config = publisher.config()?;
    let per_handshake = per_unit(&counter, 40, || {
        let mut c = Client::connect_with(machine.port, &config, &publisher.id, 60, true)?;
        c.send(&[0xe0, 0])?;
        c.closed(Duration::from_secs(20))
    })?;
    push("full mTLS handshake", per_handshake);

    let mut from = Client::connect(machine.port, &publisher)?;
    let mut to = Client::connect(machine.port, &subscriber)?;
    for (qos, name, flood) in [(0, "QoS 0 message", 4000), (1, "QoS 1 message", 4000)] {
        to.subscribe("devices/dev-00001/bench", qos)?;
        pass(&mut from, &mut to, qos, 200)?;
        let before = counter.read()?;
        pass(&mut from, &mut to, qos, flood)?;
        push(name, (counter.read()? - before) as f64 / flood as f64);
        let before = counter.read()?;
        for _ in 0..200 {
            pass(&mut from, &mut to, qos, 1)?;
        }
        let alone = if qos == 0 { "QoS 0 message, one at a time" } else { "QoS 1 message, one at a time" };
        push(alone, (counter.read()? - before) as f64 / 200.0);
    }
    let before = counter.read()?;
    std::thread::sleep(Duration::from_secs(3));
    push("idle second", (counter.read()? - before) as f64 / 3.0);
    Ok(())
}

fn per_unit(counter: &Counter, n: u32, mut unit: impl FnMut() -> Result<()>) -> Result<f64> {
    unit()?;
    let before = counter.read()?;
    for _ in 0..n {
        unit()?;
    }
    Ok((counter.read()? - before) as f64 / n as f64)
}

/// Sends `count` messages of 64 bytes with a window of 50 and waits until all have come (and were acknowledged).
fn pass(from: &mut Client, to: &mut Client, qos: u8, count: u32) -> Result<()> {
    const WINDOW: u32 = 50;
    let (mut sent, mut came, mut acknowledged) = (0, 0, 0);
    while came < count || (qos == 1 && acknowledged < count) {
        let mut batch = Vec::new();
        while sent < count && sent - came < WINDOW && (qos == 0 || sent - acknowledged < WINDOW) {
            let identifier = (qos == 1).then_some(sent as u16 % 60000 + 1);
            batch.extend(client::publish_packet("devices/dev-00001/bench", &[b'x'; 64], identifier));
            sent += 1;
        }
        if !batch.is_empty() {
            from.send(&batch)?;
        }
        if came < sent {
            let (_, payload) = to.message()?;
            ensure!(payload.len() == 64);
            came += 1;
        }
        if qos == 1 && acknowledged < sent {
            match from.receive()? {
                Packet { first: client::PUBACK, .. } => acknowledged += 1,
                other => bail!("{other:?}"),
            }
        }
    }
    Ok(())
}

/// Signal and ring round trips between two tasks of the probe image, which prints a line before and after.
fn ipc(arch: &'static str, rows: &mut Vec<Row>) -> Result<()> {
    let (counter, extra) = Counter::new(&format!("{arch}-ipc"))?;
    let machine = Machine::start(&Options { extra, ..Options::new(arch).image("pingpong") })?;
    for (name, marker) in
        [("signal to a waiting task and switch", "signals"), ("ring round trip of two tasks", "ring")]
    {
        machine.wait_for(&format!("bench {marker}: begin"), Duration::from_secs(60))?;
        let before = counter.read()?;
        let line = machine.wait_for(&format!("bench {marker}: end"), Duration::from_secs(60))?;
        let spent = counter.read()? - before;
        let count: f64 = line.rsplit(' ').next().unwrap_or("").parse().with_context(|| line.clone())?;
        rows.push(Row { arch, name, value: spent as f64 / count, unit: "instructions" });
    }
    Ok(())
}

/// Seconds under emulation: worth something beside another guest in the same QEMU only.
fn times(arch: &'static str, rows: &mut Vec<Row>) -> Result<()> {
    let mut push = |name, value, unit| rows.push(Row { arch, name, value, unit });
    let mut boots = Vec::new();
    for _ in 0..5 {
        let machine = Machine::start(&Options { image: arch.into(), ..Options::new(arch) })?;
        let config = Credentials::device(1).config()?;
        // As a client that retries: the port is open from the start (QEMU listens), so the handshake decides.
        while Client::dial(machine.port, &config).is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
        boots.push(machine.started.elapsed().as_secs_f64());
    }
    push("start to first handshake", median(boots), "s (emulated)");

    let machine = Machine::ready(&Options { image: arch.into(), ..Options::new(arch) })?;
    let port = machine.port;
    let per_second = threads(2, |n| {
        let who = Credentials::device(n + 1);
        let config = who.config()?;
        for _ in 0..100 {
            Client::connect_with(port, &config, &who.id, 60, true)?.send(&[0xe0, 0])?;
        }
        Ok(100)
    })?;
    push("full mTLS handshakes", per_second, "/s (emulated)");
    let per_second = threads(4, |n| {
        let who = Credentials::device(n + 1);
        let (mut from, mut to) =
            (Client::connect(port, &who)?, Client::connect(port, &Credentials::operator(&format!("b{n}")))?);
        let topic = format!("devices/{}/bench", who.id);
        to.subscribe(&topic, 1)?;
        window(&mut from, &mut to, &topic, 1500)?;
        Ok(1500)
    })?;
    push("QoS 1 messages, 4 pairs", per_second, "/s (emulated)");
    let package = tools::root().join(format!("out/{arch}/urmqtt.pkg"));
    push("package", std::fs::metadata(package)?.len() as f64 / 1024.0, "KiB");
    Ok(())
}

/// QoS 1 with 20 in flight.
fn window(from: &mut Client, to: &mut Client, topic: &str, count: u16) -> Result<()> {
    let (mut sent, mut came, mut acknowledged) = (0, 0, 0);
    while came < count || acknowledged < count {
        let mut batch = Vec::new();
        while sent < count && sent - came < 20 && sent - acknowledged < 20 {
            sent += 1;
            batch.extend(client::publish_packet(topic, &[b'x'; 64], Some(sent)));
        }
        if !batch.is_empty() {
            from.send(&batch)?;
        }
        if came < sent {
            to.message()?;
            came += 1;
        }
        if acknowledged < sent {
            from.receive()?;
            acknowledged += 1;
        }
    }
    Ok(())
}

/// Runs `work` in `n` threads; units a second over all.
fn threads(n: u32, work: impl Fn(u32) -> Result<u32> + Sync) -> Result<f64> {
    let started = Instant::now();
    let done: u32 = std::thread::scope(|s| {
        let handles: Vec<_> = (0..n)
            .map(|i| {
                s.spawn({
                    let work = &work;
                    move || work(i)
                })
            })
            .collect();
        handles.into_iter().map(|h| h.join().expect("thread")).sum::<Result<u32>>()
    })?;
    Ok(done as f64 / started.elapsed().as_secs_f64())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
