//! OpenSSL's client against the service, over a socket: another implementation's idea of TLS 1.3.

mod common;

use common::certs::{Certs, Party, device};
use common::{Bench, fresh};
use ipc::link::stream::{Down, Reason};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);

/// Serves one connection: the broker echoes. What is left of the bench when both sides have closed.
fn serve(mut bench: Bench, mut socket: TcpStream) -> Bench {
    socket.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    let end = Instant::now() + LIMIT;
    bench.open(1);
    let mut open = true;
    while open && Instant::now() < end {
        let mut bytes = [0; 4096];
        match socket.read(&mut bytes) {
            Ok(0) => {
                bench.fin(1);
                open = false;
            }
            Ok(len) => bench.receive(1, &bytes[..len]),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => open = false,
        }
        bench.settle();
        if let Some(client) = bench.clients.get_mut(&1) {
            let echo = client.received.split_off(0);
            if client.finished {
                bench.tell(Down::Finish { conn: 1 });
            } else {
                bench.send(1, &echo);
            }
            bench.settle();
        }
        let wire = bench.wires.get_mut(&1).unwrap();
        let _ = socket.write_all(&wire.to_client.split_off(0));
        open &= !wire.aborted && !wire.finished;
    }
    if !bench.wires[&1].closed {
        bench.close(1, Reason::Finished);
    }
    bench
}

struct Files {
    folder: PathBuf,
}

impl Files {
    fn new(name: &str, certs: &Certs, party: &Party) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let files = Files { folder };
        std::fs::write(files.path("ca.der"), &certs.ca_der).unwrap();
        std::fs::write(files.path("client.der"), &party.der).unwrap();
        std::fs::write(files.path("client.key"), &party.key).unwrap();
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// Runs `openssl s_client` with `options` and `input` against a fresh service. `None`: there is no openssl.
fn s_client(name: &str, with_certificate: bool, options: &[&str], input: &str) -> Option<(Bench, String)> {
    let certs = Certs::new();
    let files = Files::new(name, &certs, &certs.issue(device("dev-1")));
    let pem = Command::new("openssl")
        .args(["x509", "-inform", "DER", "-in"])
        .arg(files.path("ca.der"))
        .arg("-out")
        .arg(files.path("ca.crt"))
        .status();
    if !pem.is_ok_and(|s| s.success()) {
        eprintln!("skipped: no openssl");
        return None;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = Command::new("openssl");
    command.args(["s_client", "-servername", "broker.test", "-verify_return_error"]);
    command
        .args(["-connect", &listener.local_addr().unwrap().to_string(), "-CAfile"])
        .arg(files.path("ca.crt"));
    if with_certificate {
        command.args(["-certform", "DER", "-keyform", "DER", "-cert"]).arg(files.path("client.der"));
        command.arg("-key").arg(files.path("client.key"));
    }
    command.args(options).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut client = command.spawn().unwrap();
    let mut stdin = client.stdin.take().unwrap();
    let socket = listener.accept().unwrap().0;
    // Line by line, since s_client takes a command only at the start of what it reads.
    let lines: Vec<String> = input.split_inclusive('\n').map(String::from).collect();
    let typist = std::thread::spawn(move || {
        for line in lines {
            std::thread::sleep(Duration::from_millis(300));
            let _ = stdin.write_all(line.as_bytes());
        }
        std::thread::sleep(Duration::from_millis(300));
    });
    let bench = serve(fresh(&certs), socket);
    typist.join().unwrap();
    let output = client.wait_with_output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    Some((bench, String::from_utf8_lossy(&text).into_owned()))
}

#[test]
fn echoes_through_key_updates_in_every_suite() {
    for suite in ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"] {
        // K asks for a KeyUpdate in return, k doesn't, Q ends.
        let input = "hello\nK\nsecond\nk\nthird\nQ\n";
        let Some((mut bench, text)) = s_client(suite, true, &["-tls1_3", "-ciphersuites", suite], input)
        else {
            return;
        };
        for echo in ["hello\n", "second\n", "third\n"] {
            assert!(text.contains(echo), "{suite} {echo}: {text}");
        }
        assert!(text.contains("Verify return code: 0 (ok)"), "{text}");
        assert_eq!(bench.clients[&1].identity.name(), Some("dev-1"));
        assert!(bench.clients[&1].finished, "close_notify came");
        bench.assert_clean();
    }
}

#[test]
fn p256_groups_and_small_records() {
    let options = ["-tls1_3", "-groups", "P-256", "-max_send_frag", "512"];
    let line = "x".repeat(3000) + "\n";
    let Some((_, text)) = s_client("groups", true, &options, &(line.clone() + "Q\n")) else { return };
    assert!(text.matches('x').count() >= 3000, "{text}");
}

#[test]
fn an_offer_of_other_groups_is_asked_for_another() {
    // The key share is for P-521; X25519 is among what else the client can do: HelloRetryRequest.
    let options = ["-tls1_3", "-groups", "P-521:X25519"];
    let Some((bench, text)) = s_client("retry", true, &options, "again\nQ\n") else { return };
    assert!(bench.clients.contains_key(&1) && text.contains("again\n"), "{text}");
}

#[test]
fn tls_1_2_and_missing_certificates_are_refused() {
    let Some((bench, text)) = s_client("old", true, &["-tls1_2"], "") else { return };
    assert!(bench.clients.is_empty() && text.contains("alert protocol version"), "{text}");
    let Some((bench, text)) = s_client("bare", false, &["-tls1_3"], "x\n") else { return };
    assert!(bench.clients.is_empty() && text.contains("alert certificate required"), "{text}");
}
