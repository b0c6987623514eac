//! What tls asks for.
//!
//! A message that names a buffer or a connection which tls can't have is a fault of the link. One that crosses a `Closed`
//! is none: it is ignored, its buffer returned.

use crate::buffers::{Cursor, Holder};
use crate::service::{Io, Service};
use crate::table::*;
use ipc::link::stream::{self, Down, Reason, Up};
use ipc::ring::LinkFault;

impl Service {
    /// Everything that tls has published, at most a ring full.
    pub(crate) fn receive_commands(&mut self, io: &mut Io) {
        for _ in 0..io.stream.port.capacity() {
            let Some(command) = io.stream.recv() else { break };
            let result = self.command(io, command);
            io.stream.check(result);
        }
    }

    fn command(&mut self, io: &mut Io, command: Down) -> Result<(), LinkFault> {
        match command {
            Down::Free { buf } => return self.freed(io, buf),
            Down::Send { conn, buf, len } => return self.queue(io, conn, buf, len),
            Down::Released { conn } => {
                let slot = self.table.slot(conn).ok_or(LinkFault::Reference)?;
                if self.table.row(slot).state != State::Closed {
                    return Err(LinkFault::Reference);
                }
                self.table.release(slot);
                return Ok(());
            }
            Down::Finish { .. } | Down::Abort { .. } | Down::Pause { .. } | Down::Resume { .. } => {}
        }
        let (Down::Finish { conn } | Down::Abort { conn } | Down::Pause { conn } | Down::Resume { conn }) =
            command
        else {
            return Ok(());
        };
        let slot = self.table.slot(conn).ok_or(LinkFault::Reference)?;
        if self.table.row(slot).state != State::Open {
            return Ok(());
        }
        match command {
            Down::Finish { .. } => self.finish(io, slot),
            Down::Abort { .. } => self.abort(io, slot),
            Down::Pause { .. } => self.table.row_mut(slot).flags |= PAUSED,
            _ => {
                self.table.row_mut(slot).flags &= !PAUSED;
                self.update_window(slot);
            }
        }
        Ok(())
    }

    /// tls has read a frame.
    fn freed(&mut self, io: &mut Io, buf: u32) -> Result<(), LinkFault> {
        let frame = *self.frames.get(buf).ok_or(LinkFault::Buffer)?;
        if frame.holder != Holder::Tls {
            return Err(LinkFault::Buffer);
        }
        self.free_frame(io, buf);
        if let Some(slot) = self.table.slot(frame.conn) {
            self.returned(slot, frame.len);
        }
        Ok(())
    }

    /// Ciphertext to send.
    fn queue(&mut self, io: &mut Io, conn: stream::Conn, buf: u32, len: u16) -> Result<(), LinkFault> {
        io.stream.loans.accept(buf)?;
        if len == 0 || !io.stream.theirs.holds(buf, 0, len as usize) {
            return Err(LinkFault::Buffer);
        }
        let slot = self.table.slot(conn).ok_or(LinkFault::Reference)?;
        let row = self.table.row(slot);
        if row.has(FINISHING) {
            return Err(LinkFault::Message);
        }
        let number = if row.state == State::Open { self.activate(slot) } else { None };
        let Some(number) = number else {
            let _ = io.stream.loans.release(buf);
            io.stream.send(&Up::Sent { buf });
            if self.table.row(slot).state == State::Open {
                self.abort(io, slot);
            }
            return Ok(());
        };
        self.append(number, buf, len);
        self.enqueue(slot);
        let row = self.table.row_mut(slot);
        if !row.has(CONGESTED) && self.actives.row(number).queue.bytes > self.config.congested {
            row.flags |= CONGESTED;
            io.stream.send(&Up::Congested { conn });
        }
        Ok(())
    }

    fn append(&mut self, number: u32, buf: u32, len: u16) {
        self.sends.set(buf, len);
        let queue = &mut self.actives.row_mut(number).queue;
        let start = Cursor { buf, off: 0 };
        if queue.last == NONE {
            queue.first = start;
        } else {
            self.sends.link(queue.last, buf);
        }
        if queue.next.buf == NONE {
            queue.next = start;
        }
        queue.last = buf;
        queue.bytes += len as u32;
    }

    /// A FIN after all that is queued. Without an [`crate::active::Active`] to retransmit it, a reset must do.
    fn finish(&mut self, io: &mut Io, slot: Slot) {
        if self.table.row(slot).has(FINISHING) {
            return;
        }
        if self.activate(slot).is_none() {
            return self.abort(io, slot);
        }
        self.table.row_mut(slot).flags |= FINISHING;
        self.enqueue(slot);
    }

    fn abort(&mut self, io: &mut Io, slot: Slot) {
        self.reset(io, slot);
        self.close(io, slot, Reason::Aborted);
    }
}
