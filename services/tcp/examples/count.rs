//! Instructions of the hot path, to be run under a counter:
//! `valgrind --tool=callgrind --toggle-collect='*Service*drive*' target/release/examples/count [rounds] [what]`.
//!
//! `what`: `echo` (default): a segment of 130 bytes comes in and is answered with one of 130 bytes, which is then acknowledged
//! by the next; `sink`: segments come in and nothing is answered but ACKs; `bulk`: 16 KiB go out a round.

use tcp::packet::ACK;
use tcp::peer::Peer;
use tcp::rig::{Rig, Sizes, config};

fn main() {
    let mut args = std::env::args().skip(1);
    let rounds: u32 = args.next().and_then(|n| n.parse().ok()).unwrap_or(1000);
    let what = args.next().unwrap_or_else(|| "echo".into());
    let mut rig = Rig::new(config(), Sizes::default());
    rig.nic.checked = args.next().is_some();
    rig.tls.echo = what == "echo";
    let mut peer = Peer { options: &[2, 4, 5, 180], ..Peer::new(1) };
    peer.connect(&mut rig);
    let payload = vec![1; if what == "bulk" { 0 } else { 130 }];
    let before = rig.service.counters;
    for _ in 0..rounds {
        if what == "bulk" {
            rig.tls.streams.values_mut().for_each(|s| s.to_send.extend([7; 16 << 10]));
        }
        rig.now += 1_000_000;
        let got = peer.send(&mut rig, ACK, &payload);
        peer.ack = peer.ack.wrapping_add(got.iter().map(|g| g.len as u32).sum());
    }
    let after = rig.service.counters;
    println!(
        "{rounds} rounds, {} segments in, {} out",
        after.segments_in - before.segments_in,
        after.segments_out - before.segments_out
    );
}
