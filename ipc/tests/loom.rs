//! Exhaustive interleavings of publish, consume, sleep and wake at small capacities.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p ipc --test loom --release`. A lost wake-up shows as loom's deadlock.
#![cfg(loom)]

use ipc::abi::MAX_TASKS;
use ipc::ring::{Change, Desc, Epochs, Half, Header, Port};
use loom::sync::atomic::{AtomicU32, AtomicU64};
use loom::sync::{Arc, Notify};
use loom::thread;

type End = Port<'static, Desc, Desc>;

fn half(capacity: usize) -> Half<'static> {
    let slots: Vec<[AtomicU64; 2]> = (0..capacity).map(|_| [AtomicU64::new(0), AtomicU64::new(0)]).collect();
    Half::new(Box::leak(Box::new(Header::default())), slots.leak())
}

fn ends(capacity: usize) -> (End, End) {
    let page: [AtomicU32; MAX_TASKS] = std::array::from_fn(|_| AtomicU32::new(1));
    let epochs = Epochs::new(Box::leak(Box::new(page)));
    let (a, b) = (half(capacity), half(capacity));
    (Port::new(a, b, epochs, 0, 1), Port::new(b, a, epochs, 1, 0))
}

fn up_ends(capacity: usize) -> (End, End) {
    let (mut a, mut b) = ends(capacity);
    a.poll(true);
    b.poll(true);
    a.poll(true);
    assert!(a.is_up() && b.is_up());
    (a, b)
}

fn message(n: u32) -> Desc {
    Desc { kind: 1, conn: n, buf: !n, ..Desc::default() }
}

/// Consumes `count` messages in order, sleeping on `bell` whenever there is nothing.
fn consume(mut port: End, bell: &Notify, count: u32) {
    let mut next = 0;
    while next < count {
        match port.recv() {
            Some(m) => {
                assert_eq!(m, message(next));
                next += 1;
            }
            None => {
                assert_eq!(port.fault(), None);
                if port.sleep() {
                    bell.wait();
                }
            }
        }
    }
    port.release();
}

fn produce(mut port: End, bell: &Notify, count: u32, batch: u32) {
    let mut next = 0;
    while next < count {
        let until = (next + batch).min(count);
        while next < until {
            if port.send(&message(next)) {
                next += 1;
            } else {
                assert_eq!(port.fault(), None);
                break;
            }
        }
        if port.publish() {
            bell.notify();
        }
        if next < until {
            thread::yield_now();
        }
    }
}

fn stream(capacity: usize, count: u32, batch: u32) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let (a, b) = up_ends(capacity);
        let bell = Arc::new(Notify::new());
        let theirs = bell.clone();
        let consumer = thread::spawn(move || consume(b, &theirs, count));
        produce(a, &bell, count, batch);
        consumer.join().unwrap();
    });
}

#[test]
fn no_wake_up_is_lost_one_by_one() {
    stream(2, 2, 1);
}

#[test]
fn no_wake_up_is_lost_in_batches() {
    stream(4, 3, 2);
}

#[test]
fn a_full_ring_drains() {
    stream(2, 3, 2);
}

#[test]
fn both_sides_come_up_whoever_is_first() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let (a, b) = ends(2);
        let bells = [Arc::new(Notify::new()), Arc::new(Notify::new())];
        let run = |mut port: End, mine: Arc<Notify>, theirs: Arc<Notify>| {
            loop {
                let (change, signal) = port.poll(true);
                if signal {
                    theirs.notify();
                }
                if change == Change::Up {
                    break;
                }
                mine.wait();
            }
        };
        let (b_mine, b_theirs) = (bells[1].clone(), bells[0].clone());
        let other = thread::spawn(move || run(b, b_mine, b_theirs));
        run(a, bells[0].clone(), bells[1].clone());
        other.join().unwrap();
    });
}
