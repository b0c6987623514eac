//! Nanoseconds an element through a ring between two threads, by batch size: `cargo run --release -p ipc --example
//! ring_bench --features testing`. A number after `--` is that of the elements of a run.

use ipc::ring::{Desc, Port};
use ipc::testing::{HalfMemory, Kernel};
use std::time::Instant;

fn main() {
    let elements = std::env::args().nth(1).map_or(4_000_000, |n| n.parse().expect("a number of elements"));
    println!("{:>6} {:>12} {:>12}", "batch", "ns/element", "signals");
    for batch in [1, 8, 64, 256] {
        let mut runs: Vec<(f64, u32)> = (0..5).map(|_| run(batch, elements)).collect();
        runs.sort_by(|a, b| a.0.total_cmp(&b.0));
        println!("{batch:>6} {:>12.2} {:>12}", runs[2].0, runs[2].1);
    }
}

/// One run: time an element, and how often the consumer would have been signalled.
fn run(batch: u32, elements: u32) -> (f64, u32) {
    let kernel = Kernel::default();
    let (half_a, half_b) = (HalfMemory::new(1024), HalfMemory::new(1024));
    let mut a = Port::<Desc, Desc>::new(half_a.half(), half_b.half(), kernel.epochs(), 1, 2);
    let mut b = Port::<Desc, Desc>::new(half_b.half(), half_a.half(), kernel.epochs(), 2, 1);
    a.poll(true);
    b.poll(true);
    a.poll(true);
    let start = Instant::now();
    let consumer = std::thread::spawn(move || {
        let mut next = 0;
        while next < elements {
            match b.recv() {
                Some(d) => {
                    assert_eq!(d.conn, next);
                    next += 1;
                    if next.is_multiple_of(64) {
                        b.release();
                    }
                }
                None => {
                    if b.sleep() {
                        std::hint::spin_loop();
                    }
                }
            }
        }
    });
    let (mut next, mut signals) = (0, 0);
    while next < elements {
        let until = (next + batch).min(elements);
        while next < until && a.send(&Desc { kind: 1, conn: next, ..Desc::default() }) {
            next += 1;
        }
        signals += a.publish() as u32;
    }
    consumer.join().expect("consumer");
    (start.elapsed().as_nanos() as f64 / elements as f64, signals)
}
