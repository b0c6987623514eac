//! A simulated network: clients of smoltcp, a wire that loses, doubles, delays, reorders and corrupts, one clock. Every
//! run is determined by its seed.

use crate::rig::{MAC, Rig};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Checksum, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr};
use std::collections::{BTreeMap, VecDeque};

/// What happens to a frame, in thousandths; delays in microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub loss: u64,
    pub double: u64,
    pub corrupt: u64,
    pub delay: u64,
    /// Added by chance, so that frames overtake each other.
    pub jitter: u64,
}

/// Splitmix64.
#[derive(Clone)]
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % below.max(1)
    }
}

/// One direction: frames by their time of arrival.
#[derive(Default)]
pub struct Direction {
    under_way: BTreeMap<(u64, u64), Vec<u8>>,
    count: u64,
}

impl Direction {
    fn put(&mut self, now: u64, mut frame: Vec<u8>, faults: &Faults, dice: &mut Dice) {
        if dice.roll(1000) < faults.loss {
            return;
        }
        if dice.roll(1000) < faults.corrupt {
            let at = dice.roll(frame.len() as u64) as usize;
            frame[at] ^= 1 << dice.roll(8);
        }
        for _ in 0..1 + (dice.roll(1000) < faults.double) as u64 {
            let at = now + 1000 * (faults.delay + dice.roll(faults.jitter + 1));
            self.count += 1;
            self.under_way.insert((at, self.count), frame.clone());
        }
    }

    fn next(&self) -> u64 {
        self.under_way.keys().next().map_or(u64::MAX, |k| k.0)
    }

    fn take(&mut self, now: u64) -> Vec<Vec<u8>> {
        let later = self.under_way.split_off(&(now + 1, 0));
        core::mem::replace(&mut self.under_way, later).into_values().collect()
    }
}

/// smoltcp's network device: two queues.
#[derive(Default)]
pub struct Queues {
    rx: VecDeque<Vec<u8>>,
    tx: Vec<Vec<u8>>,
}

pub struct Rx(Vec<u8>);
pub struct Tx<'a>(&'a mut Vec<Vec<u8>>);

impl RxToken for Rx {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl TxToken for Tx<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut frame = vec![0; len];
        let result = f(&mut frame);
        self.0.push(frame);
        result
    }
}

impl Device for Queues {
    type RxToken<'a> = Rx;
    type TxToken<'a> = Tx<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Rx, Tx<'_>)> {
        Some((Rx(self.rx.pop_front()?), Tx(&mut self.tx)))
    }
    fn transmit(&mut self, _: Instant) -> Option<Tx<'_>> {
        Some(Tx(&mut self.tx))
    }
    fn capabilities(&self) -> DeviceCapabilities {
        let mut c = DeviceCapabilities::default();
        c.medium = Medium::Ethernet;
        c.max_transmission_unit = 1514;
        c.checksum.tcp = Checksum::Both;
        c
    }
}

/// Service, wire and clients.
pub struct Net {
    pub rig: Rig,
    pub faults: Faults,
    pub dice: Dice,
    up: Direction,
    down: Direction,
    device: Queues,
    interface: Interface,
    pub sockets: SocketSet<'static>,
    next_port: u16,
    /// Off: the service doesn't run (nor does its nic).
    pub frozen: bool,
}

impl Net {
    pub fn new(rig: Rig, faults: Faults, seed: u64) -> Self {
        let mut device = Queues::default();
        let address = EthernetAddress([2, 0, 0, 0, 0, 2]);
        let mut interface = Interface::new(Config::new(address.into()), &mut device, Instant::ZERO);
        interface.update_ip_addrs(|a| a.push(IpCidr::new(IpAddress::v4(10, 0, 0, 2), 24)).unwrap());
        Net {
            rig,
            faults,
            dice: Dice(seed),
            up: Direction::default(),
            down: Direction::default(),
            device,
            interface,
            sockets: SocketSet::new(Vec::new()),
            next_port: 20_000,
            frozen: false,
        }
    }

    /// A client that connects, with buffers of this size.
    pub fn connect(&mut self, buffer: usize) -> SocketHandle {
        let buffers = (vec![0; buffer], vec![0; buffer]);
        let mut socket =
            tcp::Socket::new(tcp::SocketBuffer::new(buffers.0), tcp::SocketBuffer::new(buffers.1));
        socket.set_nagle_enabled(false);
        self.next_port += 1;
        let server = (IpAddress::v4(10, 0, 0, 1), 8883);
        socket.connect(self.interface.context(), server, self.next_port).unwrap();
        self.sockets.add(socket)
    }

    pub fn socket(&mut self, handle: SocketHandle) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(handle)
    }

    pub fn now_ms(&self) -> u64 {
        self.rig.now / 1_000_000
    }

    /// On to the next thing that happens, a quarter of a millisecond at least.
    pub fn step(&mut self) {
        let poll = self.interface.poll_at(Instant::from_micros(self.rig.now as i64 / 1000), &self.sockets);
        let poll = poll.map_or(u64::MAX, |at| at.total_micros() as u64 * 1000);
        let next = poll.min(self.up.next()).min(self.down.next()).min(self.rig.deadline);
        self.rig.now = next.clamp(self.rig.now + 250_000, self.rig.now + 100_000_000);
        let now = self.rig.now;
        self.device.rx.extend(self.down.take(now));
        self.interface.poll(Instant::from_micros(now as i64 / 1000), &mut self.device, &mut self.sockets);
        for frame in self.device.tx.drain(..) {
            self.up.put(now, frame, &self.faults, &mut self.dice);
        }
        let arrived = self.up.take(now);
        if self.frozen {
            return;
        }
        for frame in self.rig.exchange(&arrived) {
            assert_eq!(frame[6..12], MAC);
            self.down.put(now, frame, &self.faults, &mut self.dice);
        }
    }

    /// Runs until `done`, at most so many simulated seconds.
    pub fn run(&mut self, seconds: u64, mut done: impl FnMut(&mut Net) -> bool) {
        let end = self.rig.now + seconds * 1_000_000_000;
        while !done(self) {
            if self.rig.now >= end {
                let streams: Vec<_> = self
                    .rig
                    .tls
                    .streams
                    .values()
                    .map(|s| (s.received.len(), s.to_send.len(), s.finished, s.finish_said, s.closed))
                    .collect();
                let sockets: Vec<_> = self
                    .sockets
                    .iter()
                    .map(|(_, s)| {
                        let smoltcp::socket::Socket::Tcp(t) = s else { unreachable!() };
                        (t.state(), t.send_queue(), t.recv_queue())
                    })
                    .collect();
                panic!(
                    "not done after {seconds} s; counters {:?}, tls {streams:?}, clients {sockets:?} frame up {} held {} unread {} tlsheld {}",
                    self.rig.service.counters,
                    self.rig.frame.is_up(),
                    self.rig.frame.loans.held(),
                    self.rig.tls.unread.len(),
                    self.rig.tls.end.loans.held()
                );
            }
            self.step();
        }
    }

    /// Lets everything that is under way come to rest.
    pub fn rest(&mut self, seconds: u64) {
        let end = self.rig.now + seconds * 1_000_000_000;
        self.run(seconds + 1, |n| n.rig.now >= end);
    }
}

/// A pattern in which a byte at a wrong place is found.
pub fn pattern(len: usize, salt: u64) -> Vec<u8> {
    let mut dice = Dice(salt);
    (0..len).map(|_| dice.roll(256) as u8).collect()
}
