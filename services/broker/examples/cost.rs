//! Work for an instruction counter: messages of 64 B from one client to another through real rings.
//!
//! `cost QOS MESSAGES BATCH [KEEP]`: BATCH messages, each in a buffer of its own, a call of `drive`; KEEP: the receiver has a
//! persistent session. Count what `broker::service::Service::drive` executes and divide by MESSAGES:
//! `valgrind --tool=callgrind --toggle-collect='*Service*drive*' cost 0 20000 16`

use broker::Config;
use broker::codec::{Qos, client, kind};
use broker::testing::Bench;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize| args.get(i).map(|n: &String| n.parse::<u32>().expect("a number"));
    let qos = Qos::from_number(number(0).expect("QOS") as u8).expect("QoS 0 to 2");
    let (messages, batch) = (number(1).expect("MESSAGES"), number(2).expect("BATCH"));
    let mut bench = Bench::new(Config::default());
    let publisher =
        bench.connect(0, "dev-00001", false, client::Connect { id: "dev-00001", ..Default::default() });
    let clean = args.len() < 4;
    let receiver = bench.connect(1, "op", true, client::Connect { id: "op", clean, ..Default::default() });
    bench.send(receiver, &client::subscribe(1, &[("devices/+/telemetry", qos as u8)]));
    bench.run();
    let mut got = 0;
    for i in 0..messages / batch {
        for j in 0..batch {
            let id = ((i * batch + j) % 60000 + 1) as u16;
            bench.send(
                publisher,
                &client::publish("devices/dev-00001/telemetry", &[7; 64], qos, id, false, false),
            );
        }
        bench.run();
        for (first, body) in bench.packets(receiver) {
            if first >> 4 == kind::PUBLISH {
                got += 1;
                let id = 2 + u16::from_be_bytes([body[0], body[1]]) as usize;
                if qos == Qos::AtLeastOnce {
                    bench.send(receiver, &[kind::PUBACK << 4, 2, body[id], body[id + 1]]);
                }
            }
        }
        bench.packets(publisher);
    }
    println!("{got} delivered");
}
