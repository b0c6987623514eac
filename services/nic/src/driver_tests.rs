use crate::testing::{BUFFERS, Bench, NIC, TCP, bench};
use ipc::link::frame::{Down, TX_OFFSET, Up};
use ipc::ring::LinkFault;
use ipc::testing::end;
use proptest::prelude::*;
use std::vec::Vec;
use virtio::DeviceFault;

#[test]
fn says_hello_and_offers_buffers() {
    let mut b = bench();
    assert_eq!(b.hello, [Up::Hello { mac: [2, 3, 4, 5, 6, 7], max_frame: 1514 }]);
    assert!(b.model.0.borrow().started);
    assert_eq!(b.model.0.borrow().queues, [0, 1]);
    assert_eq!(b.model.0.borrow().notified, [0]);
    assert_eq!(core::iter::from_fn(|| b.rx.next()).count(), 8);
}

#[test]
fn frames_go_up_and_buffers_come_back() {
    let mut b = bench();
    // More than there are buffers, so each is used again.
    for i in 0..100 {
        let buf = b.receive(12 + 60, (i % 3) as u8);
        assert_eq!(b.round(), [Up::Received { buf, off: 12, len: 60, checked: i % 3 != 0 }]);
        assert!(b.tcp.send(&Down::Free { buf }));
        b.round();
    }
}

#[test]
fn odd_lengths_are_dropped_and_the_buffer_offered_again() {
    let mut b = bench();
    for len in [0, 11, 12, 25, 12 + 1515, 2048] {
        b.receive(len, 0);
        assert_eq!(b.round(), []);
    }
    b.receive(26, 0);
    assert_eq!(b.round().len(), 1);
}

#[test]
fn frames_go_down_and_come_back_without_interrupts() {
    let mut b = bench();
    for _ in 0..50 {
        let buf = b.send(60);
        b.round();
        let (id, phys, len) = b.tx.next().expect("to be sent");
        assert_eq!((phys, len), (0x20_0000 + buf as u64 * 2048 + TX_OFFSET as u64 - 12, 72));
        assert_eq!(b.driver.sleep(), Ok(true));
        assert_eq!(b.tx.interrupt_wish(), b.tx.used.wrapping_sub(1), "none is wanted");
        b.tx.use_one(id as u32, 0);
        assert_eq!(b.round(), [Up::Sent { buf }]);
        b.tcp.own.give_back(buf).expect("lent");
    }
}

#[test]
fn a_full_queue_makes_frames_wait_in_order() {
    let mut b = bench();
    let sent: Vec<u32> = (0..BUFFERS).map(|_| b.send(100)).collect();
    b.round();
    b.tx.ask_notification(0);
    assert_eq!(b.driver.sleep(), Ok(true));
    assert!(b.tx.interrupt_wish() < 8, "now an interrupt is wanted");
    let mut order = Vec::new();
    while let Some((id, phys, _)) = b.tx.next() {
        order.push(((phys - 0x20_0000) / 2048) as u32);
        b.tx.use_one(id as u32, 0);
        b.round();
    }
    assert_eq!(order, sent);
}

#[test]
fn a_tcp_that_lies_takes_the_link_down_and_the_device_with_it() {
    let lies: [fn(&mut Bench) -> Down; 6] = [
        |_| Down::Free { buf: 0 },
        |_| Down::Free { buf: u32::MAX },
        |_| Down::Transmit { buf: BUFFERS, len: 60 },
        |_| Down::Transmit { buf: 0, len: 13 },
        |_| Down::Transmit { buf: 0, len: 2033 },
        |b| {
            assert!(b.tcp.send(&Down::Transmit { buf: 3, len: 60 }));
            Down::Transmit { buf: 3, len: 60 }
        },
    ];
    for lie in lies {
        let mut b = bench();
        b.round();
        let message = lie(&mut b);
        assert!(b.tcp.send(&message));
        b.round();
        assert_eq!(b.nic.port.fault(), Some(LinkFault::Buffer), "{message:?}");
        assert!(!b.model.0.borrow().started);
    }
}

#[test]
fn when_tcp_restarts_the_device_is_reset_before_the_link_is_up_again() {
    let mut b = bench();
    b.send(60);
    b.round();
    let resets = b.model.0.borrow().resets;
    b.halves[1].reset();
    b.kernel.restart(TCP);
    b.driver.drive(&mut b.nic).expect("honest");
    assert!(!b.model.0.borrow().started && b.model.0.borrow().resets == resets + 1);
    let (pool_a, pool_b) = (b.pools[0], b.pools[1]);
    b.tcp = end(&b.kernel, b.halves[1], b.halves[0], (TCP, NIC), pool_b, pool_a);
    // The device's memory of the old life is gone with the reset.
    (b.rx.seen, b.rx.used, b.tx.seen, b.tx.used) = (0, 0, 0, 0);
    let up = b.round();
    assert!(matches!(up[..], [Up::Hello { .. }]), "{up:?}");
    let buf = b.receive(72, 0);
    assert_eq!(b.round(), [Up::Received { buf, off: 12, len: 60, checked: false }]);
}

/// The restart and the new tcp's naming may come as one signal: a single round takes both in.
#[test]
fn after_a_fault_one_round_brings_the_link_up_again() {
    let mut b = bench();
    b.round();
    assert!(b.tcp.send(&Down::Free { buf: u32::MAX }));
    b.round();
    assert!(b.nic.port.fault().is_some() && !b.model.0.borrow().started);
    b.halves[1].reset();
    b.kernel.restart(TCP);
    b.tcp = end(&b.kernel, b.halves[1], b.halves[0], (TCP, NIC), b.pools[1], b.pools[0]);
    b.tcp.poll(true);
    (b.rx.seen, b.rx.used, b.tx.seen, b.tx.used) = (0, 0, 0, 0);
    b.driver.drive(&mut b.nic).expect("an honest device");
    assert!(b.nic.is_up() && b.model.0.borrow().started);
}

#[test]
fn a_device_without_what_we_need_is_refused() {
    let mut b = bench();
    b.model.0.borrow_mut().features = 1 << 5;
    b.halves[1].reset();
    b.kernel.restart(TCP);
    b.tcp = end(&b.kernel, b.halves[1], b.halves[0], (TCP, NIC), b.pools[1], b.pools[0]);
    let mut result = Ok(());
    for _ in 0..3 {
        b.tcp.poll(true);
        result = result.and(b.driver.drive(&mut b.nic));
    }
    assert_eq!(result, Err(DeviceFault::Features));
}

proptest! {
    /// A device that scribbles: a fault or frames within bounds, never a panic.
    #[test]
    fn hostile_device(uses in proptest::collection::vec((0u32..12, 0u32..2200, any::<bool>()), 1..80)) {
        let mut b = bench();
        b.round();
        for (id, written, transmit) in uses {
            if transmit { b.tx.use_one(id, written) } else { b.rx.use_one(id, written) }
            if b.driver.drive(&mut b.nic).is_err() {
                return Ok(());
            }
            let _ = b.nic.flush();
            while let Some(up) = b.tcp.recv() {
                if let Up::Received { buf, off, len, .. } = up {
                    prop_assert!(buf < BUFFERS && off as usize + len as usize <= 2048);
                }
            }
        }
    }

    #[test]
    fn scripts_break_nothing(script in proptest::collection::vec(any::<u8>(), 0..400)) {
        crate::fuzz::run(&script);
    }
}
