//! A TAP device as the messages of [`ipc::link::frame`].

use ipc::link::End;
use ipc::link::frame::{Down, TX_OFFSET, Up};
use ipc::ring::{Change, LinkFault};
use rustix::fd::BorrowedFd;
use rustix::io::{Errno, read, write};

pub type FrameEnd<'m> = End<'m, Up, Down>;

/// `struct virtio_net_hdr_v1`, which the device puts before each frame, as a virtio card does.
pub const HEADER: usize = 12;
/// Header flags: the checksum has been verified, or is left out between programs of one machine.
const CHECKED: u8 = 1 | 2;
/// Ethernet frames without CRC.
const MIN_FRAME: usize = 14;
const MAX_FRAME: usize = 1514;
/// Frames received in one round.
const BATCH: usize = 64;

pub struct Tap<'t> {
    device: BorrowedFd<'t>,
    mac: [u8; 6],
    scratch: [u8; 2048],
}

impl<'t> Tap<'t> {
    /// `device` must not block.
    pub fn new(device: BorrowedFd<'t>, mac: [u8; 6]) -> Self {
        Tap { device, mac, scratch: [0; 2048] }
    }

    /// One round. True: more can be done at once.
    pub fn drive(&mut self, end: &mut FrameEnd) -> bool {
        let mut change = end.poll(true);
        if change == Change::Down {
            change = end.poll(true);
        }
        if change == Change::Up {
            end.send(&Up::Hello { mac: self.mac, max_frame: MAX_FRAME as u16 });
        }
        if !end.is_up() {
            return false;
        }
        while let Some(order) = end.recv() {
            let result = match order {
                Down::Free { buf } => end.own.give_back(buf),
                Down::Transmit { buf, len } => self.transmit(end, buf, len),
            };
            end.check(result);
        }
        self.receive(end)
    }

    /// One frame to the device. What it has no room for is lost, like on a wire.
    fn transmit(&mut self, end: &mut FrameEnd, buf: u32, len: u16) -> Result<(), LinkFault> {
        let whole = HEADER + len as usize;
        let sized = (MIN_FRAME..=MAX_FRAME).contains(&(len as usize));
        if !sized || !end.theirs.holds(buf, TX_OFFSET, len as usize) {
            return Err(LinkFault::Buffer);
        }
        end.loans.accept(buf)?;
        let bytes = &mut self.scratch[..whole];
        end.theirs.copy(buf, TX_OFFSET - HEADER, bytes)?;
        // Whatever stands there: the frame is complete as it is.
        bytes[..HEADER].fill(0);
        let _ = write(self.device, bytes);
        let _ = end.loans.release(buf);
        end.send(&Up::Sent { buf });
        Ok(())
    }

    fn receive(&mut self, end: &mut FrameEnd) -> bool {
        for _ in 0..BATCH {
            let Some(buf) = end.own.take() else { return false };
            let bytes = end.own.bytes(buf);
            let came = match read(self.device, &mut bytes[..]) {
                Ok(came) => came,
                Err(error) => {
                    end.own.put(buf);
                    return error == Errno::INTR;
                }
            };
            let len = came.saturating_sub(HEADER);
            if !(MIN_FRAME..=MAX_FRAME).contains(&len) {
                end.own.put(buf);
                continue;
            }
            let checked = end.own.bytes(buf)[0] & CHECKED != 0;
            end.own.lend(buf);
            end.send(&Up::Received { buf, off: HEADER as u16, len: len as u16, checked });
        }
        true
    }
}
