//! What the fuzzers run: a device that completes what it likes, and a tcp that orders what it likes and restarts.

use crate::testing::{BUFFERS, NIC, Shared, TCP, bench_over};
use ipc::link::frame::{Down, Up};
use ipc::testing::end;
use std::thread_local;

/// Reads a script from `data` and plays it. Panics mean a bug; so does a frame beyond its buffer. A device's fault is the end of
/// the task, a fault of tcp that of the link until tcp restarts.
pub fn run(mut data: &[u8]) {
    thread_local!(static SHARED: Shared = Shared::default());
    let mut b = bench_over(SHARED.with(|s| *s));
    let mut byte = || data.split_off_first().copied();
    // tcp has named a buffer that it didn't take: what comes back is its own affair.
    let mut lied = false;
    while let Some(what) = byte() {
        let (n, m) = (byte().unwrap_or(0) as u32, byte().unwrap_or(0) as u32);
        match what % 12 {
            0 | 1 => drop(b.rx.next().map(|(id, ..)| b.rx.use_one(id as u32, n * 9))),
            2 => drop(b.tx.next().map(|(id, ..)| b.tx.use_one(id as u32, 0))),
            3 => b.rx.use_one(n % 12, m * 9),
            4 => b.tx.use_one(n % 12, m),
            5 => b.tx.ask_notification(n as u16),
            6 | 7 => {
                if let Some(buf) = b.tcp.own.take() {
                    b.tcp.own.lend(buf);
                    b.tcp.send(&Down::Transmit { buf, len: 14 + (n * 7) as u16 });
                }
            }
            8 => drop(b.tcp.send(&Down::Free { buf: n % BUFFERS })),
            9 if n < 32 => {
                lied = true;
                b.tcp.send(&Down::Transmit { buf: m % (BUFFERS + 2), len: (n * 80) as u16 });
            }
            10 if n < 64 => {
                b.halves[1].reset();
                b.kernel.restart(TCP);
                b.tcp = end(&b.kernel, b.halves[1], b.halves[0], (TCP, NIC), b.pools[1], b.pools[0]);
            }
            _ => {}
        }
        b.tcp.poll(true);
        let _ = b.tcp.flush();
        let resets = b.model.0.borrow().resets;
        if b.driver.drive(&mut b.nic).and_then(|()| b.driver.sleep()).is_err() {
            return;
        }
        let _ = b.nic.flush();
        if b.model.0.borrow().resets != resets {
            (b.rx.seen, b.rx.used, b.tx.seen, b.tx.used) = (0, 0, 0, 0);
        }
        assert_eq!(
            b.nic.is_up(),
            b.model.0.borrow().started,
            "the device is live exactly while the link is up"
        );
        while let Some(up) = b.tcp.recv() {
            match up {
                Up::Received { buf, off, len, .. } => {
                    assert!(buf < BUFFERS && off as usize + len as usize <= 2048);
                    if what & 0x80 == 0 {
                        b.tcp.send(&Down::Free { buf });
                    }
                }
                Up::Sent { buf } => assert!(b.tcp.own.give_back(buf).is_ok() || lied, "sent though not lent"),
                Up::Hello { max_frame, .. } => assert_eq!(max_frame, 1514),
            }
        }
    }
}
