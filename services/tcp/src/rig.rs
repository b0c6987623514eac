//! A service between a nic and a tls that are ours: real rings over heap memory, for tests and fuzzers.

use crate::buffers::Holder;
use crate::config::{Address, Config};
use crate::service::{FrameEnd, Service, StreamEnd};
use ipc::link::End;
use ipc::link::frame::{self, TX_OFFSET};
use ipc::link::stream::{self, Conn, PeerAddress, Reason};
use ipc::testing::{HalfMemory, Kernel, PoolMemory, end};
use std::collections::{BTreeMap, VecDeque};
use std::vec;
use std::vec::Vec;

const NIC: u16 = 1;
const TCP: u16 = 2;
const TLS: u16 = 3;

pub const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub const IP: [u8; 4] = [10, 0, 0, 1];

/// The nic's side of the frame link.
pub struct Nic {
    pub end: End<'static, frame::Up, frame::Down>,
    /// Frames that the device could not take because tcp has all buffers.
    pub dropped: u64,
    /// Says that the device has verified checksums.
    pub checked: bool,
}

impl Nic {
    /// A frame from the wire.
    pub fn deliver(&mut self, bytes: &[u8]) {
        let Some(buf) = self.end.own.take().filter(|_| self.end.is_up()) else {
            self.dropped += 1;
            return;
        };
        let off = 12;
        self.end.own.bytes(buf)[off..off + bytes.len()].copy_from_slice(bytes);
        self.end.own.lend(buf);
        let (off, len, checked) = (off as u16, bytes.len() as u16, self.checked);
        assert!(self.end.send(&frame::Up::Received { buf, off, len, checked }));
    }

    /// What tcp wants on the wire; takes back what it has read.
    pub fn collect(&mut self) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        while let Some(message) = self.end.recv() {
            match message {
                frame::Down::Transmit { buf, len } => {
                    self.end.loans.accept(buf).expect("a buffer twice");
                    let mut bytes = vec![0; len as usize];
                    self.end.theirs.copy(buf, TX_OFFSET, &mut bytes).expect("out of bounds");
                    assert!(self.end.loans.release(buf));
                    self.end.send(&frame::Up::Sent { buf });
                    out.push(bytes);
                }
                frame::Down::Free { buf } => self.end.own.give_back(buf).expect("a buffer twice"),
            }
        }
        let _ = self.end.flush();
        out
    }
}

/// A connection as tls sees it.
#[derive(Default)]
pub struct Stream {
    pub received: Vec<u8>,
    pub to_send: VecDeque<u8>,
    pub finished: bool,
    pub congested: bool,
    pub closed: Option<Reason>,
    /// Finish when all is sent.
    pub finish: bool,
    pub finish_said: bool,
}

/// tls's side of the stream link.
pub struct Tls {
    pub end: End<'static, stream::Down, stream::Up<PeerAddress>>,
    pub streams: BTreeMap<Conn, Stream>,
    /// Frames that were not returned yet, oldest first.
    pub unread: VecDeque<u32>,
    /// Returns frames as soon as they are read.
    pub prompt: bool,
    /// Answers `Closed`.
    pub releases: bool,
    /// Sends back what comes.
    pub echo: bool,
    pub opened: u64,
    /// Most bytes in one buffer.
    pub record: usize,
}

impl Tls {
    fn new(end: End<'static, stream::Down, stream::Up<PeerAddress>>) -> Self {
        Tls {
            end,
            streams: BTreeMap::new(),
            unread: VecDeque::new(),
            prompt: true,
            releases: true,
            echo: false,
            opened: 0,
            record: 2048,
        }
    }

    /// Reads what came, and sends what is to be sent.
    pub fn work(&mut self) {
        self.end.poll(true);
        while let Some(message) = self.end.recv() {
            self.event(message);
        }
        let conns: Vec<_> = self.streams.keys().copied().collect();
        for conn in conns {
            self.push(conn);
        }
        let _ = self.end.flush();
    }

    fn event(&mut self, message: stream::Up<PeerAddress>) {
        use stream::Up::*;
        match message {
            Opened { conn, .. } => {
                self.opened += 1;
                let known = self.streams.insert(conn, Stream::default());
                assert!(known.is_none_or(|s| s.closed.is_some()), "a number in use");
            }
            Data { conn, buf, off, len } => {
                self.end.loans.accept(buf).expect("a frame twice");
                let mut bytes = vec![0; len as usize];
                self.end.theirs.copy(buf, off as usize, &mut bytes).expect("out of bounds");
                let stream = self.open(conn);
                assert!(!stream.finished && len > 0);
                stream.received.extend_from_slice(&bytes);
                if self.echo {
                    self.open(conn).to_send.extend(bytes);
                }
                self.unread.push_back(buf);
                if self.prompt {
                    self.read(1);
                }
            }
            Finished { conn } => {
                let echo = self.echo;
                let stream = self.open(conn);
                assert!(!core::mem::replace(&mut stream.finished, true));
                stream.finish |= echo;
            }
            Closed { conn, reason } => {
                self.open(conn).closed = Some(reason);
                if self.releases {
                    self.end.send(&stream::Down::Released { conn });
                }
            }
            Sent { buf } => self.end.own.give_back(buf).expect("a buffer twice"),
            Congested { conn } => assert!(!core::mem::replace(&mut self.open(conn).congested, true)),
            Drained { conn } => assert!(core::mem::replace(&mut self.open(conn).congested, false)),
        }
    }

    fn open(&mut self, conn: Conn) -> &mut Stream {
        let stream = self.streams.get_mut(&conn).expect("a number that was never opened");
        assert!(stream.closed.is_none(), "after Closed");
        stream
    }

    /// Returns so many frames.
    pub fn read(&mut self, frames: usize) {
        for buf in self.unread.drain(..frames.min(self.unread.len())) {
            assert!(self.end.loans.release(buf));
            self.end.send(&stream::Down::Free { buf });
        }
    }

    fn push(&mut self, conn: Conn) {
        let stream = self.streams.get_mut(&conn).expect("known");
        if stream.closed.is_some() {
            return;
        }
        while !stream.to_send.is_empty() && !stream.congested {
            let Some(buf) = self.end.own.take() else { return };
            let len = stream.to_send.len().min(self.record);
            for (to, from) in self.end.own.bytes(buf).iter_mut().zip(stream.to_send.drain(..len)) {
                *to = from;
            }
            self.end.own.lend(buf);
            self.end.send(&stream::Down::Send { conn, buf, len: len as u16 });
        }
        if stream.finish && stream.to_send.is_empty() && !core::mem::replace(&mut stream.finish_said, true) {
            self.end.send(&stream::Down::Finish { conn });
        }
    }

    /// The connections that are open.
    pub fn live(&self) -> usize {
        self.streams.values().filter(|s| s.closed.is_none()).count()
    }
}

/// All three.
pub struct Rig {
    pub kernel: Kernel,
    pub now: u64,
    pub nic: Nic,
    pub service: Service,
    pub tls: Tls,
    pub frame: FrameEnd<'static>,
    pub stream: StreamEnd<'static>,
    pub memory: Memory,
    /// When the service wants to be called.
    pub deadline: u64,
    pub events: Vec<crate::Event>,
}

#[derive(Clone, Copy)]
pub struct Memory {
    pub nic_half: HalfMemory,
    pub frame_half: HalfMemory,
    pub stream_half: HalfMemory,
    pub tls_half: HalfMemory,
    pub frames: PoolMemory,
    pub transmit: PoolMemory,
    pub ciphertext: PoolMemory,
    nothing: PoolMemory,
}

/// How many buffers there are.
#[derive(Clone, Copy)]
pub struct Sizes {
    pub frames: u32,
    pub transmit: u32,
    pub ciphertext: u32,
}

impl Default for Sizes {
    fn default() -> Self {
        Sizes { frames: 512, transmit: 256, ciphertext: 256 }
    }
}

pub fn config() -> Config {
    Config { address: Address::Static { ip: IP }, max_connections: 256, ..Config::default() }
}

fn nic_end(kernel: &Kernel, m: &Memory) -> Nic {
    let end = end(kernel, m.nic_half, m.frame_half, (NIC, TCP), m.frames, m.transmit);
    Nic { end, dropped: 0, checked: false }
}

fn tls_end(kernel: &Kernel, m: &Memory) -> Tls {
    Tls::new(end(kernel, m.tls_half, m.stream_half, (TLS, TCP), m.ciphertext, m.frames))
}

impl Rig {
    pub fn new(config: Config, sizes: Sizes) -> Self {
        let capacity = |buffers: u32| (buffers + 4 * config.max_connections).next_power_of_two();
        let frame_capacity = capacity(sizes.frames + sizes.transmit);
        let stream_capacity = capacity(sizes.frames + sizes.ciphertext);
        let memory = Memory {
            nic_half: HalfMemory::new(frame_capacity),
            frame_half: HalfMemory::new(frame_capacity),
            stream_half: HalfMemory::new(stream_capacity),
            tls_half: HalfMemory::new(stream_capacity),
            frames: PoolMemory::new(sizes.frames, 2048),
            transmit: PoolMemory::new(sizes.transmit, 2048),
            ciphertext: PoolMemory::new(sizes.ciphertext, 2048),
            nothing: PoolMemory::new(0, 2048),
        };
        Self::over(memory, config)
    }

    /// On memory of an earlier one, which must not be used any more.
    pub fn over(memory: Memory, config: Config) -> Self {
        let (kernel, m) = (Kernel::default(), &memory);
        for half in [m.nic_half, m.frame_half, m.stream_half, m.tls_half] {
            half.reset();
        }
        let (frames, ciphertext) = (m.frames.buffers, m.ciphertext.buffers);
        let mut rig = Rig {
            now: 1,
            nic: nic_end(&kernel, m),
            service: Service::new(config, frames, ciphertext, &[42; 32]),
            tls: tls_end(&kernel, m),
            frame: end(&kernel, m.frame_half, m.nic_half, (TCP, NIC), m.transmit, m.frames),
            stream: end(&kernel, m.stream_half, m.tls_half, (TCP, TLS), m.nothing, m.ciphertext),
            memory,
            kernel,
            deadline: 0,
            events: Vec::new(),
        };
        rig.settle();
        rig
    }

    /// Lets both links come up.
    pub fn settle(&mut self) {
        for _ in 0..3 {
            self.poll_nic();
            self.tls.work();
            self.drive();
        }
    }

    fn poll_nic(&mut self) {
        if self.nic.end.poll(true) == ipc::ring::Change::Up {
            self.nic.end.send(&frame::Up::Hello { mac: MAC, max_frame: 1514 });
        }
        let _ = self.nic.end.flush();
    }

    /// One turn of the service.
    pub fn drive(&mut self) {
        let _ = (self.nic.end.flush(), self.tls.end.flush());
        self.deadline = self.service.drive(self.now, &mut self.frame, &mut self.stream);
        let _ = (self.frame.flush(), self.stream.flush());
        while let Some(event) = self.service.event() {
            self.events.push(event);
        }
    }

    /// Frames in, tls's reaction, frames out.
    pub fn exchange(&mut self, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        self.poll_nic();
        for bytes in frames {
            self.nic.deliver(bytes);
        }
        self.drive();
        self.tls.work();
        self.drive();
        let out = self.nic.collect();
        self.drive();
        out
    }

    pub fn restart_nic(&mut self) {
        let checked = self.nic.checked;
        self.memory.nic_half.reset();
        self.kernel.restart(NIC);
        self.nic = Nic { checked, ..nic_end(&self.kernel, &self.memory) };
    }

    pub fn restart_tls(&mut self) {
        self.memory.tls_half.reset();
        self.kernel.restart(TLS);
        self.tls = tls_end(&self.kernel, &self.memory);
    }

    /// Every buffer is where it belongs when nothing is under way.
    pub fn assert_quiet(&mut self) {
        self.exchange(&[]);
        for holder in [Holder::Held, Holder::Tls] {
            assert_eq!(self.service.frames.of(holder), [], "leaked to {holder:?}");
        }
        assert_eq!(self.frame.loans.held(), 0, "frames leaked");
        assert_eq!(self.stream.loans.held(), 0, "ciphertext leaked");
        assert_eq!(self.frame.own.lent(), 0, "transmit buffers leaked");
        assert_eq!(self.nic.end.own.lent(), 0);
        assert_eq!(self.tls.end.own.lent(), 0);
        assert_eq!(self.service.frames.held(), 0);
        assert_eq!((self.frame.port.fault(), self.stream.port.fault()), (None, None));
    }
}
