use super::*;
use crate::testing::queue;
use proptest::prelude::*;

#[test]
fn buffers_go_round() {
    let (mut q, mut d) = queue(4, true);
    for round in 0..40_000u32 {
        assert!(q.add(round, 0x8000 + round as u64, 100, true));
        assert!(q.publish(), "the device's event index stays at 0 only by its own doing: it asks for each");
        let (id, address, len) = d.next().expect("published");
        assert_eq!((address, len), (0x8000 + round as u64, 100));
        d.ask_notification(d.seen);
        d.use_one(id as u32, 60);
        assert_eq!(q.take(), Ok(Some((round, 60))));
        assert_eq!(q.take(), Ok(None));
    }
}

#[test]
fn the_bound_is_the_size() {
    let (mut q, _) = queue(4, true);
    assert!((0..4).all(|i| q.add(i, 0, 1, false)));
    assert!(!q.add(4, 0, 1, false));
    assert_eq!((q.room(), q.in_flight()), (0, 4));
}

#[test]
fn notifies_once_a_batch_and_only_when_asked() {
    let (mut q, d) = queue(8, true);
    assert!(q.add(0, 0, 1, false) && q.add(1, 0, 1, false));
    assert!(q.publish());
    assert!(q.add(2, 0, 1, false));
    assert!(!q.publish(), "the device hasn't moved its event index");
    d.at16(used_offset(8)).store(NO_NOTIFY, Relaxed);
    assert!(!q.publish(), "nothing new");
    let (mut q, d) = queue(8, false);
    assert!(q.add(0, 0, 1, false) && q.publish());
    d.at16(used_offset(8)).store(NO_NOTIFY, Relaxed);
    assert!(q.add(1, 0, 1, false) && !q.publish());
}

#[test]
fn interrupt_wish_lies_ahead() {
    let (mut q, mut d) = queue(8, true);
    assert!((0..6).all(|i| q.add(i, 0, 1, false)));
    let _ = q.publish();
    assert_eq!(q.ask_interrupt(2), Ok(false));
    assert_eq!(d.interrupt_wish(), 2);
    for _ in 0..3 {
        let (id, ..) = d.next().expect("six are there");
        d.use_one(id as u32, 0);
    }
    assert_eq!(q.ask_interrupt(2), Ok(true), "three were used meanwhile");
    assert_eq!(q.ask_interrupt(3), Ok(false));
    q.forgo_interrupts();
    assert_eq!(d.interrupt_wish(), u16::MAX);
}

#[test]
fn lies_are_faults() {
    let added = || {
        let (mut q, d) = queue(4, true);
        assert!(q.add(7, 0, 100, true) && q.publish());
        (q, d)
    };
    let lie = |id, written| {
        let (mut q, mut d) = added();
        d.use_one(id, written);
        q.take()
    };
    assert_eq!(lie(0, 100), Ok(Some((7, 100))));
    assert_eq!(lie(0, 101), Err(DeviceFault::Used));
    assert_eq!(lie(1, 0), Err(DeviceFault::Used), "never lent");
    assert_eq!(lie(4, 0), Err(DeviceFault::Used), "no such descriptor");
    assert_eq!(lie(u32::MAX, 0), Err(DeviceFault::Used));
    let (mut q, mut d) = added();
    d.use_one(0, 1);
    d.use_one(0, 1);
    assert_eq!(q.take(), Err(DeviceFault::Used), "more than are in flight");
}

proptest! {
    /// Whatever the device scribbles in its part: a fault or a buffer that it had, each at most once.
    #[test]
    fn hostile_device(indices in proptest::collection::vec((any::<u16>(), 0u32..10, any::<u32>()), 1..60)) {
        let (mut q, d) = queue(8, true);
        let mut lent = std::collections::HashSet::new();
        for (token, (index, id, written)) in indices.into_iter().enumerate() {
            if q.add(token as u32, 0, 64, true) {
                lent.insert(token as u32);
            }
            let _ = q.publish();
            for entry in 0..8 {
                d.at32(used_offset(8) + 4 + 8 * entry).store(id, Relaxed);
                d.at32(used_offset(8) + 8 + 8 * entry).store(written % 80, Relaxed);
            }
            d.at16(used_offset(8) + 2).store(if index % 3 == 0 { q.taken + 1 } else { index }, Relaxed);
            match q.take() {
                Ok(Some((token, written))) => {
                    prop_assert!(lent.remove(&token));
                    prop_assert!(written <= 64);
                }
                Ok(None) => {}
                Err(_) => break,
            }
        }
    }
}
