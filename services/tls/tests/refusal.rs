//! Who is refused, and how: certificates, versions, garbage, silence, bounds.

mod common;

use common::certs::{Certs, device, named};
use common::{Bench, Clients, Pools, config, fresh, small_limits, write};
use ipc::link::stream::{Down, ROLE_DEVICE, ROLE_OPERATOR, Reason};
use rcgen::{CertificateParams, date_time_ymd};
use rustls::{AlertDescription, CertificateError, Error};
use tls::identity::Unusable;
use tls::{Config, Failure, Limits};

/// One connection to a fresh service; the bench behind it, and what the client saw.
fn attempt(certs: &Certs, mut client: rustls::ClientConnection) -> (Bench, Result<(), Error>) {
    let mut bench = fresh(certs);
    bench.open(1);
    let result = bench.pump(1, &mut client);
    (bench, result)
}

fn refused(mut bench: Bench, why: &Failure) {
    assert_eq!(bench.service.refusal().map(|r| r.why).as_ref(), Some(why));
    assert_eq!(bench.service.counters.refused, 1);
    assert!(bench.clients.is_empty(), "the broker hears of none of them");
    let wire = &bench.wires[&1];
    assert!(wire.finished || wire.aborted || wire.closed);
    if !wire.closed {
        bench.close(1, Reason::Finished);
    }
    bench.assert_clean();
}

fn refused_with_alert(
    certs: &Certs,
    client: rustls::ClientConnection,
    alert: AlertDescription,
    why: Failure,
) {
    let (bench, result) = attempt(certs, client);
    assert_eq!(result, Err(Error::AlertReceived(alert)));
    refused(bench, &why);
}

#[test]
fn no_client_certificate() {
    let certs = Certs::new();
    refused_with_alert(
        &certs,
        certs.client(None, &[]),
        AlertDescription::CertificateRequired,
        Failure::Tls(Error::NoCertificatesPresented),
    );
}

#[test]
fn a_foreign_authority() {
    let (certs, foreign) = (Certs::new(), Certs::new());
    refused_with_alert(
        &certs,
        certs.client(Some(&foreign.issue(device("dev-1"))), &[]),
        // Both authorities have one name, so the signature tells.
        AlertDescription::DecryptError,
        Failure::Tls(Error::InvalidCertificate(CertificateError::BadSignature)),
    );
}

#[test]
fn expired_and_not_yet_valid() {
    let certs = Certs::new();
    let mut params = device("dev-1");
    params.not_after = date_time_ymd(2020, 1, 1);
    let (bench, result) = attempt(&certs, certs.client(Some(&certs.issue(params)), &[]));
    assert_eq!(result, Err(Error::AlertReceived(AlertDescription::CertificateExpired)));
    let why = bench_refusal(bench);
    assert!(matches!(why, Failure::Tls(Error::InvalidCertificate(CertificateError::ExpiredContext { .. }))));
    let mut params = device("dev-1");
    params.not_before = date_time_ymd(4000, 1, 1);
    let (bench, result) = attempt(&certs, certs.client(Some(&certs.issue(params)), &[]));
    assert!(result.is_err());
    let why = bench_refusal(bench);
    assert!(matches!(
        why,
        Failure::Tls(Error::InvalidCertificate(CertificateError::NotValidYetContext { .. }))
    ));
}

fn bench_refusal(mut bench: Bench) -> Failure {
    bench.service.refusal().expect("a refusal").why
}

#[test]
fn the_wall_clock_decides_and_without_one_nobody_gets_in() {
    let certs = Certs::new();
    let mut params = device("dev-1");
    params.not_after = date_time_ymd(2100, 1, 1);
    let party = certs.issue(params);
    for (wall, good) in [(4_102_444_799, true), (4_102_444_801, false), (0, false)] {
        let mut bench = fresh(&certs);
        bench.wall = wall;
        bench.open(1);
        // (Without a clock rustls has no alert to send.)
        let _ = bench.pump(1, &mut certs.client(Some(&party), &[]));
        assert_eq!((bench.wires[&1].finished, bench.clients.len()), (!good, good as usize), "{wall}");
    }
}

#[test]
fn tls_1_2() {
    let certs = Certs::new();
    let party = certs.issue(device("dev-1"));
    let client = certs.client_with(Some(&party), &[], None, &[&rustls::version::TLS12]);
    let (bench, result) = attempt(&certs, client);
    assert_eq!(result, Err(Error::AlertReceived(AlertDescription::ProtocolVersion)));
    assert!(matches!(bench_refusal(bench), Failure::Tls(Error::PeerIncompatible(_))));
}

#[test]
fn garbage() {
    let certs = Certs::new();
    for bytes in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"\x10\x0c\0\x04MQTT",
        b"\x16\x03\x01\xff\xff",
        b"\x16\x02\0\0\x01",
        &[0],
    ] {
        let mut bench = fresh(&certs);
        bench.open(1);
        bench.receive(1, bytes);
        bench.settle();
        assert!(bench.wires[&1].aborted, "{bytes:?}");
        refused(bench, &Failure::NotTls);
    }
    // A record of handshake type with nonsense in it gets as far as rustls.
    let mut bench = fresh(&certs);
    bench.open(1);
    bench.receive(1, b"\x16\x03\x01\0\x04\x0e\0\0\0");
    bench.settle();
    assert!(bench.wires[&1].finished && !bench.wires[&1].to_client.is_empty(), "an alert");
    assert!(matches!(bench_refusal(bench), Failure::Tls(_)));
}

#[test]
fn silence_and_stuck_handshakes_time_out() {
    let certs = Certs::new();
    let mut bench = fresh(&certs);
    bench.open(1);
    bench.settle();
    bench.now += 5_000_000_000;
    bench.open(2);
    let mut client = certs.client(Some(&certs.issue(device("d"))), &[]);
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    bench.receive(2, &hello);
    bench.settle();
    assert!(!bench.wires[&2].to_client.is_empty(), "the server has answered");
    let next = bench.service.drive(bench.now, bench.wall, &mut bench.stream, &mut bench.session);
    assert_eq!(next, 1 + 10_000_000_000, "wants to be called when the first is due");
    bench.now = next;
    bench.settle();
    assert!(bench.wires[&1].aborted && !bench.wires[&2].aborted);
    bench.now += 5_000_000_000;
    bench.settle();
    assert!(bench.wires[&2].aborted);
    assert_eq!(bench.service.refusal().unwrap().why, Failure::Timeout);
    assert_eq!(bench.service.refusal().unwrap().why, Failure::Timeout);
    bench.assert_clean();
}

#[test]
fn a_client_that_hangs_up() {
    let certs = Certs::new();
    let mut bench = fresh(&certs);
    bench.open(1);
    bench.receive(1, b"\x16\x03\x01");
    bench.fin(1);
    bench.settle();
    assert!(bench.wires[&1].aborted);
    refused(bench, &Failure::HungUp);
    let mut bench = fresh(&certs);
    bench.open(1);
    bench.settle();
    bench.close(1, Reason::Reset);
    bench.settle();
    refused(bench, &Failure::HungUp);
}

#[test]
fn a_handshake_may_be_so_long_and_no_longer() {
    let certs = Certs::new();
    let party = certs.issue(device("dev-1"));
    let mut client = certs.client(Some(&party), &[]);
    let mut bench = fresh(&certs);
    bench.connect(1, certs.client(Some(&party), &[]));
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    let limits = Limits { handshake_bytes: hello.len() as u32 + 10, ..small_limits() };
    let mut bench = Bench::with(config(&certs, limits), Pools::default());
    bench.open(1);
    let _ = client.read_tls(&mut &[][..]);
    bench.receive(1, &hello);
    bench.settle();
    assert!(!bench.wires[&1].to_client.is_empty(), "at the bound");
    bench.receive(1, &[0x16, 3, 3, 0, 100, 0, 0, 0, 0, 0]);
    bench.settle();
    assert!(!bench.wires[&1].aborted, "at the bound");
    bench.receive(1, &[0]);
    bench.settle();
    assert!(bench.wires[&1].aborted, "beyond");
    refused(bench, &Failure::TooLong);
}

#[test]
fn handshakes_are_bounded_in_all_and_by_source() {
    let certs = Certs::new();
    let limits = Limits { handshakes: 3, handshakes_per_source: 2, ..small_limits() };
    let mut bench = Bench::with(config(&certs, limits), Pools::default());
    let (a, b, c) = ([192, 0, 2, 1], [192, 0, 2, 2], [192, 0, 2, 3]);
    for (conn, ip, refused) in [(1, a, false), (2, a, false), (3, a, true), (4, b, false), (5, c, true)] {
        bench.open_from(conn, ip);
        bench.settle();
        assert_eq!(bench.wires[&conn].aborted, refused, "{conn}");
    }
    assert_eq!(
        bench.service.refusal().unwrap().to_string(),
        "192.0.2.1:40000 refused: too many handshakes under way"
    );
    // One that is through makes room.
    let mut client = certs.client(Some(&certs.issue(device("d"))), &[]);
    bench.pump(4, &mut client).unwrap();
    assert!(bench.clients.contains_key(&4));
    bench.open_from(6, c);
    bench.settle();
    assert!(!bench.wires[&6].aborted);
}

#[test]
fn a_certificate_must_name_one_party() {
    let certs = Certs::new();
    let role = "urn:urmqtt:role:operator";
    let long = "x".repeat(129);
    let cases: Vec<(CertificateParams, Unusable)> = vec![
        (named(None, &[]), Unusable::Nameless),
        (named(None, &["https://example.test/"]), Unusable::Nameless),
        (named(Some("d"), &["urn:urmqtt:device:a", "urn:urmqtt:device:b"]), Unusable::Ambiguous),
        (named(Some("d"), &[role, "urn:urmqtt:device:a"]), Unusable::Ambiguous),
        (named(Some("d"), &["urn:urmqtt:role:admin"]), Unusable::UnknownRole),
        (named(Some(""), &[]), Unusable::BadName),
        (named(Some(&long), &[]), Unusable::BadName),
        (named(Some("a\0b"), &[]), Unusable::BadName),
        (named(Some("a/b"), &[]), Unusable::BadName),
        (named(Some("#"), &[]), Unusable::BadName),
        (named(Some("+"), &[]), Unusable::BadName),
        (named(Some("d"), &["urn:urmqtt:device:"]), Unusable::BadName),
    ];
    for (params, why) in cases {
        let client = certs.client(Some(&certs.issue(params)), &[]);
        refused_with_alert(&certs, client, AlertDescription::CertificateUnknown, Failure::Identity(why));
    }
}

#[test]
fn names_and_roles() {
    let certs = Certs::new();
    let role = "urn:urmqtt:role:operator";
    let long = "ü".repeat(64);
    let cases: [(Option<&str>, &[&str], bool, u8, &str); 9] = [
        (Some("dev-00001"), &[], false, ROLE_DEVICE, "dev-00001"),
        (Some(&long), &[], false, ROLE_DEVICE, &long),
        (Some("serial 7"), &["urn:urmqtt:device:dev-7"], false, ROLE_DEVICE, "dev-7"),
        (None, &["urn:urmqtt:device:dev-7", "https://example.test/"], false, ROLE_DEVICE, "dev-7"),
        (Some("alice"), &[role], false, ROLE_OPERATOR, "alice"),
        (Some("ops/alice"), &[role], false, ROLE_OPERATOR, "ops/alice"),
        (None, &[role], false, ROLE_OPERATOR, role),
        (Some("operator"), &[], false, ROLE_DEVICE, "operator"),
        (Some("operator"), &[], true, ROLE_OPERATOR, "operator"),
    ];
    for (common_name, uris, operator_by_name, role, name) in cases {
        let config = Config { operator_by_name, ..config(&certs, small_limits()) };
        let mut bench = Bench::with(config, Pools::default());
        bench.connect(1, certs.client(Some(&certs.issue(named(common_name, uris))), &[]));
        let identity = bench.clients[&1].identity;
        assert_eq!((identity.role, identity.name()), (role, Some(name)));
    }
}

#[test]
fn nobody_gets_in_while_the_broker_is_away() {
    let certs = Certs::new();
    let mut bench = fresh(&certs);
    let mut client = bench.connect(1, certs.client(Some(&certs.issue(device("d"))), &[]));
    let out = write(&mut client, b"x");
    bench.receive(1, &out);
    bench.kernel.restart(common::BROKER);
    bench.settle();
    bench.open(2);
    bench.settle();
    assert!(bench.wires[&2].aborted);
    assert!(bench.wires[&1].finished, "told by close_notify");
    bench.tell(Down::Finish { conn: 1 });
}
