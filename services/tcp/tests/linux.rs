//! Against Linux's own TCP: the service behind a TAP device in a network namespace of its own, clients through sockets.
//!
//! Needs root, /dev/net/tun, unshare and ip; says so and passes where they aren't there.

use smoltcp::phy::{Device, Medium, RxToken, TunTapInterface, TxToken, wait};
use smoltcp::time::Instant;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::thread;
use std::time::Duration;
use tcp::Config;
use tcp::rig::{Rig, Sizes, config};

const SERVER: &str = "10.0.0.1:8883";

/// Runs the test `inner` in a namespace of its own.
#[test]
fn linux_clients() {
    let exe = std::env::current_exe().expect("the test's own path");
    let possible = std::path::Path::new("/dev/net/tun").exists()
        && Command::new("unshare").args(["-n", "ip", "link"]).output().is_ok_and(|o| o.status.success());
    if !possible {
        eprintln!("skipped: needs root, /dev/net/tun, unshare and ip");
        return;
    }
    let inner = ["--exact", "inner", "--ignored", "--nocapture"];
    let status = Command::new("unshare").arg("-n").arg(exe).args(inner).status().expect("unshare");
    assert!(status.success());
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().expect("ip");
    assert!(status.success(), "ip {arguments}");
}

#[test]
#[ignore = "started by linux_clients"]
fn inner() {
    let tap = TunTapInterface::new("tap0", Medium::Ethernet).expect("a TAP device");
    ip("addr add 10.0.0.2/24 dev tap0");
    ip("link set tap0 up");
    let clients = thread::spawn(|| {
        echo(1 << 20);
        many(150);
        again_after_a_reset();
        half_closed();
    });
    let mut rig = serve(tap, || clients.is_finished());
    clients.join().expect("a client failed");
    assert_eq!((rig.tls.live(), rig.service.connections()), (0, 0));
    rig.assert_quiet();
    println!("{:?}", rig.service.counters);
}

/// The service on the TAP device until the clients are done, with a dropped frame now and then in either direction.
fn serve(mut tap: TunTapInterface, done: impl Fn() -> bool) -> Rig {
    let mut rig = Rig::new(Config { finish_timeout_s: 2, ..config() }, Sizes::default());
    rig.tls.echo = true;
    let start = std::time::Instant::now();
    let mut count = 0u64;
    let mut lost = move || {
        count += 1;
        count.is_multiple_of(61)
    };
    let mut quiet_since = start;
    while !done() || quiet_since.elapsed() < Duration::from_millis(300) {
        let mut frames = Vec::new();
        while frames.len() < 64
            && let Some((rx, _)) = tap.receive(Instant::ZERO)
        {
            let frame = rx.consume(|bytes| bytes.to_vec());
            if !lost() {
                frames.push(frame);
            }
        }
        rig.now = start.elapsed().as_nanos() as u64 + 1;
        let out = rig.exchange(&frames);
        if !out.is_empty() || rig.tls.live() > 0 {
            quiet_since = std::time::Instant::now();
        }
        for frame in out.iter().filter(|_| !lost()) {
            let tx = tap.transmit(Instant::ZERO).expect("a token");
            tx.consume(frame.len(), |bytes| bytes.copy_from_slice(frame));
        }
        if frames.is_empty() && out.is_empty() {
            let _ = wait(tap.as_raw_fd(), Some(smoltcp::time::Duration::from_millis(2)));
        }
    }
    rig
}

fn data(len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect()
}

fn connect() -> TcpStream {
    let stream = TcpStream::connect(SERVER).expect("connect");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("timeout");
    stream
}

/// So many bytes there and back.
fn echo(len: usize) {
    let mut stream = connect();
    let mut writer = stream.try_clone().expect("clone");
    let sender = thread::spawn(move || {
        writer.write_all(&data(len)).expect("write");
        writer.shutdown(Shutdown::Write).expect("shutdown");
    });
    let mut back = Vec::new();
    stream.read_to_end(&mut back).expect("read");
    sender.join().expect("sender");
    assert!(back == data(len), "{} of {len} bytes came back", back.len());
}

fn many(clients: usize) {
    let all: Vec<_> = (0..clients).map(|_| thread::spawn(|| echo(5000))).collect();
    for client in all {
        client.join().expect("client");
    }
}

/// A client that resets, by closing with data unread; then a new one.
fn again_after_a_reset() {
    let mut stream = connect();
    stream.write_all(&data(3000)).expect("write");
    thread::sleep(Duration::from_millis(100));
    drop(stream);
    echo(1000);
}

/// Both directions end on their own.
fn half_closed() {
    let mut stream = connect();
    stream.write_all(b"first").expect("write");
    let mut five = [0; 5];
    stream.read_exact(&mut five).expect("read");
    stream.shutdown(Shutdown::Write).expect("shutdown");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("read");
    assert_eq!((&five, rest.len()), (b"first", 0));
}
