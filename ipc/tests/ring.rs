//! Rings and pools over heap memory: order, bounds, epochs, and a peer that scribbles.
#![cfg(not(loom))]

use ipc::link::End;
use ipc::link::frame::{Down, Up};
use ipc::pool::Loans;
use ipc::ring::{Change, Desc, LinkFault, Port};
use ipc::testing::{self, HalfMemory, Kernel, PoolMemory};
use proptest::prelude::*;
use std::collections::VecDeque;

type Raw = Port<'static, Desc, Desc>;

fn raw_pair(capacity: u32) -> (Raw, Raw, HalfMemory, HalfMemory, Kernel) {
    let kernel = Kernel::default();
    let (half_a, half_b) = (HalfMemory::new(capacity), HalfMemory::new(capacity));
    let mut a = Port::new(half_a.half(), half_b.half(), kernel.epochs(), 3, 4);
    let mut b = Port::new(half_b.half(), half_a.half(), kernel.epochs(), 4, 3);
    a.poll(true);
    assert_eq!(b.poll(true).0, Change::Up);
    assert_eq!(a.poll(true).0, Change::Up);
    (a, b, half_a, half_b, kernel)
}

fn desc(n: u64) -> Desc {
    Desc {
        kind: n as u8,
        flags: (n >> 8) as u8,
        off: (n >> 16) as u16,
        conn: n as u32,
        buf: (n >> 7) as u32,
        len: !n as u32,
    }
}

proptest! {
    /// Against a queue as the model: what goes in comes out, in order, never more than the capacity, and a sleeping
    /// consumer is always woken by the next publish.
    #[test]
    fn a_ring_is_a_bounded_queue(log2 in 1u32..6, steps in prop::collection::vec((0u8..5, 1u64..9), 1..300)) {
        let capacity = 1 << log2;
        let (mut a, mut b, ..) = raw_pair(capacity);
        let (mut published, mut unpublished, mut sent) = (VecDeque::new(), VecDeque::new(), 0);
        let mut consumed_unreleased = 0;
        let mut asleep = false;
        for (op, n) in steps {
            match op {
                0 => for _ in 0..n {
                    sent += 1;
                    let full = published.len() + unpublished.len() + consumed_unreleased == capacity as usize;
                    prop_assert_eq!(a.send(&desc(sent)), !full);
                    if !full {
                        unpublished.push_back(desc(sent));
                    }
                },
                1 => {
                    let wake = a.publish();
                    if asleep && !unpublished.is_empty() {
                        prop_assert!(wake, "a sleeping consumer was not woken");
                        asleep = false;
                    }
                    published.append(&mut unpublished);
                }
                2 => for _ in 0..n {
                    let got = b.recv();
                    prop_assert_eq!(got, published.pop_front());
                    consumed_unreleased += got.is_some() as usize;
                },
                3 => { b.release(); consumed_unreleased = 0; }
                _ => {
                    let may_sleep = b.sleep();
                    consumed_unreleased = 0;
                    prop_assert_eq!(may_sleep, published.is_empty());
                    asleep = may_sleep;
                }
            }
            prop_assert_eq!((a.fault(), b.fault()), (None, None));
        }
    }

    /// Every shared word of the peer's half takes boundary and random values under a running link: a fault or nothing.
    #[test]
    fn a_scribbling_peer_is_found_or_harmless(
        writes in prop::collection::vec((0usize..80, prop_oneof![
            Just(0u32), Just(1), Just(7), Just(8), Just(9), Just(u32::MAX), Just(u32::MAX - 8), Just(1 << 31), any::<u32>()]), 1..60),
        steps in prop::collection::vec(0u8..5, 1..60),
    ) {
        let (mut a, _b, _, half_b, kernel) = raw_pair(8);
        for (i, step) in steps.iter().enumerate() {
            let (word, value) = writes[i % writes.len()];
            // The header's used words (every 64 bytes), then the slots.
            let at = if word < 16 { word / 2 * 64 + word % 2 * 4 } else { 4096 + (word - 16) * 4 };
            half_b.scribble(|w, offset| if offset == at { *w = value });
            let mut taken = 0;
            match step {
                0 => { let _ = a.send(&desc(i as u64)); }
                1 => { let _ = a.publish(); }
                2 => while a.recv().is_some() { taken += 1; },
                3 => { let _ = a.sleep(); }
                _ => { a.poll(true); }
            }
            prop_assert!(taken <= 8, "more messages than the ring has room for");
            prop_assert!(a.room() <= 8);
        }
        // A restarted peer gets a good link, whatever it did before.
        half_b.reset();
        kernel.restart(4);
        while a.poll(true).0 != Change::None {}
        let mut b = Raw::new(half_b.half(), half_b.half(), kernel.epochs(), 4, 3);
        b.poll(true);
        prop_assert_eq!(a.poll(true).0, Change::Up);
        prop_assert_eq!(a.fault(), None);
    }

    /// Hostile returns and loans against a model.
    #[test]
    fn buffers_have_one_owner(ops in prop::collection::vec((0u8..4, 0u32..12), 1..200)) {
        let memory = PoolMemory::new(8, 64);
        let mut pool = memory.own();
        let (mut mine, mut lent) = (Vec::new(), Vec::new());
        for (op, id) in ops {
            match op {
                0 => {
                    let got = pool.take();
                    prop_assert_eq!(got.is_some(), mine.len() + lent.len() < 8);
                    if let Some(id) = got {
                        prop_assert!(!mine.contains(&id) && !lent.contains(&id));
                        mine.push(id);
                    }
                }
                1 => if let Some(id) = mine.pop() { pool.lend(id); lent.push(id); },
                2 => if let Some(id) = mine.pop() { pool.put(id); },
                _ => {
                    let held = lent.iter().position(|&l| l == id);
                    prop_assert_eq!(pool.give_back(id).is_ok(), held.is_some());
                    held.map(|at| lent.swap_remove(at));
                }
            }
            prop_assert_eq!(pool.available(), 8 - mine.len() - lent.len());
            prop_assert_eq!(pool.lent(), lent.len());
        }
        pool.reclaim_all();
        prop_assert_eq!(pool.available(), 8);
    }

    #[test]
    fn copies_stay_in_their_buffer(id in 0u32..6, off in 0usize..80, len in 0usize..80) {
        let memory = PoolMemory::new(4, 64);
        let mut own = memory.own();
        for id in 0..4 {
            for (i, byte) in own.bytes(id).iter_mut().enumerate() {
                *byte = id as u8 * 64 + i as u8;
            }
        }
        let mut into = vec![0; len];
        let result = memory.view().copy(id, off, &mut into);
        if id < 4 && off + len <= 64 {
            prop_assert_eq!(result, Ok(()));
            prop_assert!(into.iter().enumerate().all(|(i, &b)| b == id as u8 * 64 + (off + i) as u8));
        } else {
            prop_assert_eq!(result, Err(LinkFault::Buffer));
        }
    }
}

proptest! {
    /// A batch ends: whatever a peer claims to have produced, and whenever, no more arrives than the ring holds until the
    /// receiver has told what it consumed.
    #[test]
    fn a_batch_is_at_most_the_ring(steps in prop::collection::vec((0u8..6, 0u32..20), 1..100)) {
        let (mut a, mut b, _, half_b, _) = raw_pair(8);
        let (mut batch, mut told) = (0, 0u32);
        for (what, n) in steps {
            match what {
                0 => half_b.scribble(|w, offset| if offset == TAIL { *w = told.wrapping_add(n) }),
                1 => { let _ = (b.send(&desc(n as u64)), b.publish()); }
                2 | 3 => batch += (0..=n).take_while(|_| a.recv().is_some()).count() as u32,
                _ => {
                    told += batch;
                    batch = 0;
                    if what == 4 { a.release() } else { let _ = a.sleep(); }
                }
            }
            prop_assert!(batch <= 8, "{} messages in one batch", batch);
        }
    }
}

/// Offset of `tail` in a half.
const TAIL: usize = 64;

#[test]
fn a_tail_beyond_what_was_told_is_found() {
    let (mut a, mut b, _, half_b, _) = raw_pair(8);
    assert!(b.send(&desc(0)) && b.publish());
    assert!(!a.sleep(), "it has looked and knows of one message");
    half_b.scribble(|w, offset| {
        if offset == TAIL {
            *w = 9
        }
    });
    assert!(a.recv().is_some());
    assert_eq!(a.recv(), None);
    assert_eq!(a.fault(), Some(LinkFault::Index));
}

#[test]
fn every_boundary_value_in_every_header_word() {
    for at in (0..512).step_by(4) {
        for value in
            [0, 1, 2, 7, 8, 9, 15, 16, 255, 256, u32::MAX / 2, u32::MAX / 2 + 1, u32::MAX - 1, u32::MAX]
        {
            let (mut a, mut b, half_a, half_b, _) = raw_pair(8);
            let _ = (b.send(&desc(1)), b.publish(), a.send(&desc(2)), a.publish());
            half_b.scribble(|w, offset| {
                if offset == at {
                    *w = value
                }
            });
            half_a.scribble(|w, offset| {
                if offset == at {
                    *w = value
                }
            });
            for port in [&mut a, &mut b] {
                for n in 0..20 {
                    let _ = (port.recv(), port.send(&desc(n)), port.publish(), port.sleep(), port.poll(true));
                }
            }
        }
    }
}

#[test]
fn a_restart_empties_the_link_and_old_messages_never_arrive() {
    let kernel = Kernel::default();
    let (half_a, half_b) = (HalfMemory::new(8), HalfMemory::new(8));
    let (pool_a, pool_b) = (PoolMemory::new(4, 64), PoolMemory::new(4, 64));
    let fresh_b =
        || -> End<'static, Down, Up> { testing::end(&kernel, half_b, half_a, (2, 1), pool_b, pool_a) };
    let mut a: End<'static, Up, Down> = testing::end(&kernel, half_a, half_b, (1, 2), pool_a, pool_b);
    let mut b = fresh_b();
    a.poll(true);
    assert_eq!((b.poll(true), a.poll(true)), (Change::Up, Change::Up));

    let buf = a.own.take().unwrap();
    a.own.lend(buf);
    assert!(a.send(&Up::Received { buf, off: 0, len: 9, checked: false }));
    assert!(!a.flush() || a.own.lent() == 1);

    half_b.reset();
    kernel.restart(2);
    let mut b2 = fresh_b();
    assert_eq!(a.recv(), None);
    assert_eq!(a.port.fault(), None, "a reset half is no lie");
    assert_eq!(a.poll(false), Change::Down);
    assert_eq!(a.own.available(), 4, "the lent buffer came back");
    assert_eq!(a.poll(false), Change::None, "the owner is not ready");
    b2.poll(true);
    assert!(!b2.is_up());
    a.poll(true);
    assert!(a.is_up());
    assert_eq!(b2.poll(true), Change::Up);
    assert_eq!(b2.recv(), None, "a message of the earlier epoch arrived");

    b.poll(true);
    assert!(a.send(&Up::Sent { buf: 1 }));
    let _ = a.flush();
    assert_eq!(b2.recv(), Some(Up::Sent { buf: 1 }));
}

#[test]
fn a_full_ring_is_the_peers_fault_at_a_link_end() {
    let kernel = Kernel::default();
    let none = PoolMemory::new(0, 64);
    let (mut a, _b) = testing::link::<Up, Down>(&kernel, 4, (1, 2), none, none);
    for _ in 0..4 {
        assert!(a.send(&Up::Sent { buf: 0 }));
    }
    assert!(!a.send(&Up::Sent { buf: 0 }));
    assert_eq!(a.port.fault(), Some(LinkFault::Overrun));
}

#[test]
fn a_buffer_named_twice_is_found() {
    let mut bits = [0; 1];
    let mut loans = Loans::new(&mut bits, 10);
    assert_eq!(loans.accept(9), Ok(()));
    assert_eq!(loans.accept(9), Err(LinkFault::Buffer));
    assert_eq!(loans.accept(10), Err(LinkFault::Buffer));
    assert!(loans.release(9) && !loans.release(9) && loans.held() == 0);
}
