//! Queues and link, and nothing of the machine: the registers are behind [`Transport`].

use alloc::collections::VecDeque;
use ipc::link::End;
use ipc::link::frame::{Down, TX_OFFSET, Up};
use ipc::ring::{Change, LinkFault};
use virtio::{DeviceFault, EVENT_IDX, Queue, Transport, VERSION_1};

/// The device's header in front of each frame (section 5.1.6.1), both ways.
const HEADER: usize = 12;
/// Header flags: the checksum has been verified; or it is still to be computed, as between guests of one host,
/// where nothing can have damaged it.
const CHECKED: u8 = 1 | 2;

const GUEST_CSUM: u64 = 1 << 1;
const MAC: u64 = 1 << 5;
const WANTED: u64 = VERSION_1 | EVENT_IDX | GUEST_CSUM | MAC;
const NEEDED: u64 = VERSION_1 | MAC;

const RX: u16 = 0;
const TX: u16 = 1;

/// Ethernet frames without CRC.
const MIN_FRAME: usize = 14;
const MAX_FRAME: usize = 1514;

/// Received frames handed on before tcp gets its signal.
const BATCH: usize = 64;

/// Physical bases of the pools, and the MSI-X vector of both queues.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    pub received: u64,
    pub transmit: u64,
    pub vector: u16,
}

pub struct Driver<'m, T> {
    transport: T,
    rx: Queue<'m>,
    tx: Queue<'m>,
    memory: Memory,
    live: bool,
    /// Frames for which the transmit queue had no room; at most as many as tcp has buffers.
    waiting: VecDeque<(u32, u16)>,
}

type FrameEnd<'m> = End<'m, Up, Down>;

impl<'m, T: Transport> Driver<'m, T> {
    /// Resets the device, which an earlier life of this task may have left running; it stays so until the link to tcp
    /// comes up.
    pub fn new(mut transport: T, rx: Queue<'m>, tx: Queue<'m>, memory: Memory) -> Result<Self, DeviceFault> {
        transport.reset()?;
        Ok(Driver { transport, rx, tx, memory, live: false, waiting: VecDeque::new() })
    }

    /// One round: epochs, frames both ways, at most [`BATCH`] received ones.
    pub fn drive(&mut self, end: &mut FrameEnd) -> Result<(), DeviceFault> {
        let mut change = end.poll(!self.live);
        if self.live && !end.is_up() {
            self.stop()?;
            change = end.poll(true);
        }
        if change == Change::Down {
            // A link that had a fault: there may be no other signal than the one that woke us.
            change = end.poll(true);
        }
        if change == Change::Up {
            self.start(end)?;
        }
        if !self.live {
            return Ok(());
        }
        self.take_sent(end)?;
        self.take_received(end)?;
        self.take_orders(end);
        if !end.is_up() {
            // tcp broke the rules: nothing of its pool goes out any more.
            return self.stop();
        }
        self.fill_receive_queue(end);
        self.publish();
        Ok(())
    }

    /// Asks the device for interrupts. True: nothing has come meanwhile, the task may wait.
    pub fn sleep(&mut self) -> Result<bool, DeviceFault> {
        if !self.live {
            return Ok(true);
        }
        let received = self.rx.ask_interrupt(0)?;
        Ok(!(received | self.ask_sent()?))
    }

    /// Sent buffers go back whenever the task is awake anyway; it wakes for them only when tcp could run out of them.
    fn ask_sent(&mut self) -> Result<bool, DeviceFault> {
        let in_flight = self.tx.in_flight();
        if in_flight <= self.tx.addresses().size / 2 && self.waiting.is_empty() {
            self.tx.forgo_interrupts();
            return Ok(false);
        }
        self.tx.ask_interrupt(in_flight / 2)
    }

    fn start(&mut self, end: &mut FrameEnd) -> Result<(), DeviceFault> {
        self.transport.reset()?;
        let offered = self.transport.offered_features();
        if offered & NEEDED != NEEDED {
            return Err(DeviceFault::Features);
        }
        let features = offered & WANTED;
        self.transport.accept_features(features)?;
        for (index, queue) in [(RX, &mut self.rx), (TX, &mut self.tx)] {
            queue.reset(features & EVENT_IDX != 0);
            self.transport.enable_queue(index, queue.addresses(), self.memory.vector)?;
        }
        let mac = core::array::from_fn(|i| self.transport.config_byte(i));
        self.transport.start();
        self.live = true;
        end.send(&Up::Hello { mac, max_frame: MAX_FRAME as u16 });
        self.tx.forgo_interrupts();
        self.fill_receive_queue(end);
        self.publish();
        Ok(())
    }

    /// After this the device touches no memory.
    fn stop(&mut self) -> Result<(), DeviceFault> {
        self.live = false;
        self.waiting.clear();
        self.transport.reset()
    }

    fn fill_receive_queue(&mut self, end: &mut FrameEnd) {
        while self.rx.room() > 0 {
            let Some(buf) = end.own.take() else { break };
            self.offer(end, buf);
        }
    }

    /// Gives the device a buffer of ours to receive into, or frees it when the queue is full.
    fn offer(&mut self, end: &mut FrameEnd, buf: u32) {
        let size = end.own.size();
        let phys = self.memory.received + buf as u64 * size as u64;
        if !self.rx.add(buf, phys, size as u32, true) {
            end.own.put(buf);
        }
    }

    fn take_received(&mut self, end: &mut FrameEnd) -> Result<(), DeviceFault> {
        for _ in 0..BATCH {
            let Some((buf, written)) = self.rx.take()? else { break };
            let len = (written as usize).saturating_sub(HEADER);
            if !(MIN_FRAME..=MAX_FRAME).contains(&len) {
                self.offer(end, buf);
                continue;
            }
            let checked = end.own.bytes(buf)[0] & CHECKED != 0;
            end.own.lend(buf);
            end.send(&Up::Received { buf, off: HEADER as u16, len: len as u16, checked });
        }
        Ok(())
    }

    fn take_sent(&mut self, end: &mut FrameEnd) -> Result<(), DeviceFault> {
        while let Some((buf, _)) = self.tx.take()? {
            if end.loans.release(buf) {
                end.send(&Up::Sent { buf });
            }
        }
        while let Some((buf, len)) = self.waiting.pop_front() {
            if !self.transmit(end, buf, len) {
                self.waiting.push_front((buf, len));
                break;
            }
        }
        Ok(())
    }

    /// What tcp asks for.
    fn take_orders(&mut self, end: &mut FrameEnd) {
        while let Some(order) = end.recv() {
            match order {
                Down::Free { buf } => {
                    let returned = end.own.returned(buf);
                    if end.check(returned).is_some() {
                        self.offer(end, buf);
                    }
                }
                Down::Transmit { buf, len } => {
                    let accepted = accept(end, buf, len);
                    if end.check(accepted).is_some()
                        && (!self.waiting.is_empty() || !self.transmit(end, buf, len))
                    {
                        self.waiting.push_back((buf, len));
                    }
                }
            }
        }
    }

    #[must_use]
    fn transmit(&mut self, end: &FrameEnd, buf: u32, len: u16) -> bool {
        let start = self.memory.transmit + buf as u64 * end.theirs.size() as u64;
        let header = (TX_OFFSET - HEADER) as u64;
        self.tx.add(buf, start + header, HEADER as u32 + len as u32, false)
    }

    fn publish(&mut self) {
        if self.rx.publish() {
            self.transport.notify(RX);
        }
        if self.tx.publish() {
            self.transport.notify(TX);
        }
    }
}

/// A frame lies in a buffer of tcp's that we don't have yet.
fn accept(end: &mut FrameEnd, buf: u32, len: u16) -> Result<(), LinkFault> {
    let sized = (MIN_FRAME..=MAX_FRAME).contains(&(len as usize));
    if !sized || !end.theirs.holds(buf, TX_OFFSET, len as usize) {
        return Err(LinkFault::Buffer);
    }
    end.loans.accept(buf)
}
