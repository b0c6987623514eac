//! The driver between a model of a device and a stand-in for tcp, over real rings and queues.

use crate::driver::{Driver, Memory};
use ipc::link::End;
use ipc::link::frame::{Down, Up};
use ipc::testing::{HalfMemory, Kernel, PoolMemory, end};
use std::cell::RefCell;
use std::rc::Rc;
use std::vec::Vec;
use virtio::testing::{Device, queue};
use virtio::{DeviceFault, Transport, VERSION_1, queue::Addresses};

#[derive(Default)]
pub(crate) struct Registers {
    pub resets: u32,
    pub started: bool,
    pub queues: Vec<u16>,
    pub notified: Vec<u16>,
    pub features: u64,
}

/// Registers that remember what was done to them.
#[derive(Clone, Default)]
pub(crate) struct Model(pub Rc<RefCell<Registers>>);

impl Transport for Model {
    fn reset(&mut self) -> Result<(), DeviceFault> {
        let mut r = self.0.borrow_mut();
        r.resets += 1;
        r.started = false;
        r.queues.clear();
        Ok(())
    }
    fn offered_features(&mut self) -> u64 {
        self.0.borrow().features
    }
    fn accept_features(&mut self, _: u64) -> Result<(), DeviceFault> {
        Ok(())
    }
    fn queue_limit(&mut self, _: u16) -> u16 {
        256
    }
    fn enable_queue(&mut self, index: u16, _: Addresses, _: u16) -> Result<(), DeviceFault> {
        self.0.borrow_mut().queues.push(index);
        Ok(())
    }
    fn start(&mut self) {
        self.0.borrow_mut().started = true;
    }
    fn notify(&mut self, index: u16) {
        self.0.borrow_mut().notified.push(index);
    }
    fn config_byte(&mut self, offset: usize) -> u8 {
        offset as u8 + 2
    }
}

pub(crate) const NIC: u16 = 1;
pub(crate) const TCP: u16 = 2;
pub(crate) const BUFFERS: u32 = 16;

pub(crate) struct Bench {
    pub kernel: Kernel,
    pub model: Model,
    pub driver: Driver<'static, Model>,
    pub nic: End<'static, Up, Down>,
    pub tcp: End<'static, Down, Up>,
    pub halves: [HalfMemory; 2],
    pub pools: [PoolMemory; 2],
    pub rx: Device,
    pub tx: Device,
    /// What tcp got first.
    pub hello: Vec<Up>,
}

/// What the two sides share. It is never freed.
#[derive(Clone, Copy)]
pub(crate) struct Shared(Kernel, [HalfMemory; 2], [PoolMemory; 2]);

impl Default for Shared {
    fn default() -> Self {
        let pool = || PoolMemory::new(BUFFERS, 2048);
        Shared(Kernel::default(), [HalfMemory::new(64), HalfMemory::new(64)], [pool(), pool()])
    }
}

#[cfg(test)]
pub(crate) fn bench() -> Bench {
    bench_over(Shared::default())
}

pub(crate) fn bench_over(Shared(kernel, halves, pools): Shared) -> Bench {
    halves.iter().for_each(HalfMemory::reset);
    let nic = end(&kernel, halves[0], halves[1], (NIC, TCP), pools[0], pools[1]);
    let tcp = end(&kernel, halves[1], halves[0], (TCP, NIC), pools[1], pools[0]);
    let model = Model::default();
    model.0.borrow_mut().features = VERSION_1 | virtio::EVENT_IDX | 1 << 5 | 1 << 1;
    let ((rx_queue, rx), (tx_queue, tx)) = (queue(8, true), queue(8, true));
    let memory = Memory { received: 0x10_0000, transmit: 0x20_0000, vector: 0 };
    let driver = Driver::new(model.clone(), rx_queue, tx_queue, memory).expect("reset");
    let mut bench = Bench { hello: Vec::new(), kernel, model, driver, nic, tcp, halves, pools, rx, tx };
    bench.hello = bench.round();
    bench
}

impl Bench {
    /// Both sides follow epochs; the driver drives. What tcp got.
    pub fn round(&mut self) -> Vec<Up> {
        for _ in 0..3 {
            self.tcp.poll(true);
            let _ = self.tcp.flush();
            self.driver.drive(&mut self.nic).expect("an honest device");
            let _ = self.nic.flush();
        }
        core::iter::from_fn(|| self.tcp.recv()).collect()
    }

    #[cfg(test)]
    pub fn receive(&mut self, len: u32, flags: u8) -> u32 {
        let (id, phys, size) = self.rx.next().expect("a receive buffer");
        assert_eq!(size, 2048);
        let buf = (phys - 0x10_0000) / 2048;
        self.nic.own.bytes(buf as u32)[0] = flags;
        self.rx.use_one(id as u32, len);
        buf as u32
    }

    #[cfg(test)]
    pub fn send(&mut self, len: u16) -> u32 {
        let buf = self.tcp.own.take().expect("a free buffer");
        self.tcp.own.lend(buf);
        assert!(self.tcp.send(&Down::Transmit { buf, len }));
        buf
    }
}
