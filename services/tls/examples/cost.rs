//! Instructions of the service alone, without client and neighbours: what `callgrind` counts inside `Service::drive`.
//!
//! ```sh
//! cargo build --release -p tls --example cost
//! for what in idle handshake receive send; do
//!   valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='*Service*drive*' \
//!     target/release/examples/cost $what 100
//! done
//! ```
//! The difference between two counts is that many handshakes, or records of 64 bytes.

#[path = "../tests/common/mod.rs"]
mod common;

use common::certs::{Certs, device};
use common::{Clients, fresh, write};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().expect("idle, handshake, receive or send");
    let count: u32 = arguments.next().and_then(|n| n.parse().ok()).expect("how often");
    let certs = Certs::new();
    let party = certs.issue(device("dev-00001"));
    let mut bench = fresh(&certs);
    match what.as_str() {
        "idle" => println!("{} bytes an idle connection", tls::IDLE_BYTES),
        "handshake" => {
            for n in 0..count {
                let conn = (n << 20) | (n % 32);
                bench.connect(conn, certs.client(Some(&party), &[]));
                bench.close(conn, ipc::link::stream::Reason::Reset);
                bench.settle();
            }
        }
        "receive" => {
            let mut client = bench.connect(1, certs.client(Some(&party), &[]));
            for _ in 0..count {
                let record = write(&mut client, &[7; 64]);
                bench.receive(1, &record);
                bench.settle();
            }
            assert_eq!(bench.clients[&1].received.len(), 64 * count as usize);
        }
        "send" => {
            bench.connect(1, certs.client(Some(&party), &[]));
            for _ in 0..count {
                bench.send(1, &[7; 64]);
                bench.settle();
            }
            assert!(bench.wires[&1].to_client.len() >= 86 * count as usize);
        }
        other => panic!("{other}?"),
    }
}
