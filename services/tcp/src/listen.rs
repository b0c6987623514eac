//! Segments of no connection: SYNs, the ACK that makes a connection, and everything that gets a reset.

use crate::cookie::{Flow, Verdict};
use crate::emit;
use crate::packet::{ACK, FIN, HEADERS, RST, SYN, Segment, SynOptions};
use crate::service::{Io, Service};
use crate::table::{Conn, SCALED};
use ipc::link::stream::{PeerAddress, Up};

/// Segments that are acknowledged at once when a connection is new.
const QUICK_ACKS: u8 = 16;

impl Service {
    /// A TCP segment with a right checksum. True: its frame is kept.
    pub(crate) fn segment(&mut self, io: &mut Io, segment: &Segment, buf: u32, off: u16) -> bool {
        self.counters.segments_in += 1;
        if let Some(slot) = self.table.find(segment.ip, segment.port) {
            return self.arrives(io, slot, segment, buf, off);
        }
        // Neither answers: a reset, and what no client sends.
        match segment.flags & (SYN | ACK | RST | FIN) {
            SYN => self.syn(io, segment),
            ACK => return self.accept(io, segment, buf, off),
            flags if flags == ACK | FIN && segment.len > 0 => return self.accept(io, segment, buf, off),
            flags if flags & (ACK | RST | SYN) == ACK => return self.refuse(io, segment),
            _ => {}
        }
        false
    }

    /// Answers with a cookie and keeps nothing. When nobody could be served, the SYN is dropped, before any hashing: the
    /// client tries again by itself.
    fn syn(&mut self, io: &mut Io, segment: &Segment) {
        if self.table.is_full() || !io.stream.is_up() || self.sweep.is_some() {
            self.counters.refused += 1;
            return;
        }
        let at = HEADERS..HEADERS + segment.options_len as usize;
        let mut options = SynOptions::parse(&self.scratch[at]);
        options.mss = options.mss.min(self.mss);
        let flow = Flow { ip: segment.ip, port: segment.port, irs: segment.seq };
        let isn = self.cookies.make(&flow, &options, io.now, &mut self.random);
        let [high, low] = self.mss.to_be_bytes();
        let all = [2, 4, high, low, 1, 3, 3, self.config.window_shift()];
        let ours = if options.shift.is_some() { &all[..] } else { &all[..4] };
        let window = self.config.window.min(0xffff) as u16;
        self.counters.syns += 1;
        self.answer(io, segment, isn, segment.seq.wrapping_add(1), SYN | ACK, window, ours);
    }

    /// The ACK that brings our cookie back, perhaps with the first data.
    fn accept(&mut self, io: &mut Io, segment: &Segment, buf: u32, off: u16) -> bool {
        let flow = Flow { ip: segment.ip, port: segment.port, irs: segment.seq.wrapping_sub(1) };
        let isn = segment.ack.wrapping_sub(1);
        let can = io.stream.is_up() && self.sweep.is_none();
        let verdict = self.cookies.check(&flow, isn, io.now, &mut self.random);
        let options = match verdict {
            Verdict::Valid(options) if can => options,
            // Its first segment is late or lost: that one will come again.
            Verdict::Early if can => return false,
            _ => return self.refuse(io, segment),
        };
        let Some(slot) = self.table.open(segment.ip, segment.port) else { return self.refuse(io, segment) };
        let row = self.table.row_mut(slot);
        *row = Conn {
            mac: segment.mac,
            rcv_nxt: segment.seq,
            rcv_adv: segment.seq.wrapping_add(self.config.window.min(0xffff)),
            snd_una: segment.ack,
            snd_nxt: segment.ack,
            snd_wl1: segment.seq,
            mss: options.mss.min(self.mss),
            shift: options.shift.unwrap_or(0),
            flags: row.flags | if options.shift.is_some() { SCALED } else { 0 },
            quick: QUICK_ACKS,
            ..*row
        };
        row.snd_wnd = (segment.window as u32) << row.shift;
        self.counters.opened += 1;
        let opening = PeerAddress { ip: segment.ip.to_be_bytes(), port: segment.port };
        io.stream.send(&Up::Opened { conn: self.table.number(slot), opening });
        self.arrives(io, slot, segment, buf, off)
    }

    /// Nobody here: so also late segments of a connection that is closed (there is no TIME-WAIT) or that an earlier life
    /// of this task had.
    fn refuse(&mut self, io: &mut Io, segment: &Segment) -> bool {
        if self.resets.allow(io.now, &mut self.random) {
            self.counters.resets_sent += 1;
            self.answer(io, segment, segment.ack, 0, RST, 0, &[]);
        }
        false
    }

    /// A segment without payload, back to where `segment` came from.
    #[allow(clippy::too_many_arguments)]
    fn answer(
        &mut self,
        io: &mut Io,
        segment: &Segment,
        seq: u32,
        ack: u32,
        flags: u8,
        window: u16,
        options: &[u8],
    ) {
        let header = emit::Header {
            from: self.host.mac,
            to: segment.mac,
            from_ip: self.host.ip,
            to_ip: segment.ip,
            from_port: self.host.port,
            to_port: segment.port,
            seq,
            ack,
            flags,
            window,
            ident: self.ident(),
        };
        self.counters.segments_out += 1;
        self.send_frame(io, |_, bytes| emit::segment(bytes, &header, options, 0));
    }
}
