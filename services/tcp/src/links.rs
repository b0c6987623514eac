//! The neighbours' comings and goings, and the traffic with the nic.

use crate::buffers::Holder;
use crate::packet::{self, HEADERS, MAX_HEADERS, Packet};
use crate::service::{Event, Io, Service};
use crate::table::{NONE, State};
use ipc::link::frame::{Down, TX_OFFSET, Up};
use ipc::link::stream::Reason;
use ipc::ring::{Change, LinkFault};

impl Service {
    /// Follows the epochs of both links.
    pub(crate) fn follow(&mut self, io: &mut Io) {
        // Frames of the nic's earlier life may still be with tls; its device must not write them again before they are back.
        if io.frame.poll(io.frame.loans.held() == 0) == Change::Down {
            self.nic_gone(io);
            io.frame.poll(io.frame.loans.held() == 0);
        }
        if io.stream.poll(self.sweep.is_none()) == Change::Down {
            self.tls_gone(io);
        }
    }

    /// The nic restarted. Connections stay; what was under way is lost like on a wire.
    fn nic_gone(&mut self, io: &mut Io) {
        self.greeted = false;
        for buf in self.frames.of(Holder::Held) {
            self.frames.set_holder(buf, Holder::Nic);
            let _ = io.frame.loans.release(buf);
        }
        for number in self.actives.slots().map(|(n, _)| n).collect::<alloc::vec::Vec<_>>() {
            let active = self.actives.row_mut(number);
            (active.held_first, active.held_count) = (NONE, 0);
        }
    }

    /// tls restarted: it knows nothing of the connections any more, so they are reset. What it had is back.
    fn tls_gone(&mut self, io: &mut Io) {
        for buf in self.frames.of(Holder::Tls) {
            self.free_frame(io, buf);
        }
        io.stream.loans.forget_all();
        self.close_all();
    }

    /// Starts to reset all connections.
    pub(crate) fn close_all(&mut self) {
        self.sweep = Some((0, 0));
    }

    /// Goes on resetting, as far as there are transmit buffers; at the end tls may come back.
    pub(crate) fn sweep(&mut self, io: &mut Io) {
        let Some((mut slot, mut count)) = self.sweep else { return };
        while slot < self.table.slots() {
            if self.can_transmit(io) && io.frame.own.available() == 0 {
                self.sweep = Some((slot, count));
                return;
            }
            if self.table.row(slot).state == State::Open {
                if self.host.ip != 0 {
                    self.reset(io, slot);
                }
                self.close(io, slot, Reason::Restart);
                count += 1;
            }
            if self.table.row(slot).state == State::Closed && !io.stream.is_up() {
                self.table.release(slot);
            }
            slot += 1;
        }
        self.sweep = None;
        if count > 0 {
            self.log(Event::Reset { connections: count });
        }
        self.follow(io);
    }

    /// Frames can be sent now.
    pub(crate) fn can_transmit(&self, io: &Io) -> bool {
        self.greeted && io.frame.is_up()
    }

    /// Everything that the nic has published, at most a ring full.
    pub(crate) fn receive_frames(&mut self, io: &mut Io) {
        for _ in 0..io.frame.port.capacity() {
            match io.frame.recv() {
                Some(Up::Received { buf, off, len, checked }) => self.received(io, buf, off, len, checked),
                Some(Up::Sent { buf }) => {
                    let result = io.frame.own.give_back(buf);
                    io.frame.check(result);
                }
                Some(Up::Hello { mac, max_frame }) => self.hello(io, mac, max_frame),
                None => break,
            }
        }
    }

    fn hello(&mut self, io: &mut Io, mac: packet::Mac, max_frame: u16) {
        let most = io.frame.own.size().saturating_sub(TX_OFFSET).min(self.scratch.len());
        let fits = (HEADERS + 536..=most).contains(&(max_frame as usize));
        if self.greeted || !fits || mac[0] & 1 == 1 || mac == [0; 6] {
            return io.frame.port.blame(LinkFault::Message);
        }
        self.greeted = true;
        self.host.mac = mac;
        self.mss = max_frame - HEADERS as u16;
        self.log(Event::NicUp);
        self.announce(io);
        self.hurry(io);
    }

    fn received(&mut self, io: &mut Io, buf: u32, off: u16, len: u16, checked: bool) {
        let accepted = io.frame.loans.accept(buf);
        if io.frame.check(accepted).is_none() {
            return;
        }
        let fits =
            io.frame.theirs.holds(buf, off as usize, len as usize) && len as usize <= self.scratch.len();
        if !self.greeted || !fits {
            let _ = io.frame.loans.release(buf);
            return io.frame.port.blame(if self.greeted { LinkFault::Buffer } else { LinkFault::Message });
        }
        if !self.examine(io, buf, off, len as usize, checked) {
            self.free_frame(io, buf);
        }
    }

    /// Looks at a frame by a private copy: of its headers if the device has verified the checksum, else of all. True: the
    /// frame is kept.
    fn examine(&mut self, io: &mut Io, buf: u32, off: u16, len: usize, checked: bool) -> bool {
        let n = if checked { len.min(MAX_HEADERS) } else { len };
        let copied = io.frame.theirs.copy(buf, off as usize, &mut self.scratch[..n]);
        let head = self.scratch.first_chunk().expect("a constant length");
        let packet = packet::parse(head, len, &self.host);
        if let (Packet::Tcp(segment), Ok(())) = (packet, copied) {
            let end = segment.payload_at as usize + segment.len as usize;
            if !checked && !packet::checksum_holds(&self.scratch[..end]) {
                self.counters.corrupt += 1;
                return false;
            }
            return self.segment(io, &segment, buf, off);
        }
        // All else is rare: looked at as a whole.
        if io.frame.theirs.copy(buf, off as usize, &mut self.scratch[..len]).is_ok() {
            self.other_packet(io, packet, len);
        }
        false
    }

    /// A frame that we hold goes back to the nic. (One of the nic's earlier life is only forgotten.)
    pub(crate) fn free_frame(&mut self, io: &mut Io, buf: u32) {
        self.frames.set_holder(buf, Holder::Nic);
        if io.frame.loans.release(buf) && io.frame.is_up() {
            io.frame.send(&Down::Free { buf });
        }
    }

    /// Lets `fill` write a frame into a transmit buffer and sends the bytes that it says. False: none was to be had.
    pub(crate) fn send_frame(
        &mut self,
        io: &mut Io,
        fill: impl FnOnce(&mut Self, &mut [u8]) -> usize,
    ) -> bool {
        if !self.can_transmit(io) {
            return false;
        }
        let Some(buf) = io.frame.own.take() else { return false };
        let bytes = io.frame.own.bytes(buf);
        bytes[..TX_OFFSET].fill(0);
        let len = fill(self, &mut bytes[TX_OFFSET..]);
        io.frame.own.lend(buf);
        io.frame.send(&Down::Transmit { buf, len: len as u16 })
    }
}
