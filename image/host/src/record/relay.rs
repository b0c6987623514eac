//! A recorded link is two: one from each of its tasks to us, who carry every message across and write it down.
//!
//! Towards task A we are B: the half that A reads as B's is ours, and so the other way round. Pools stay as they are; a buffer's
//! bytes are copied before the message that names it is passed on, while its receiver can't have given it back yet.

use super::format::{Event, Message, Writer};
use super::meaning::{Kind, Meaning};
use anyhow::Result;
use ipc::pool::PoolView;
use ipc::ring::{Change, Desc, Epochs, Half, Port};

pub struct Relay {
    pub link: String,
    pub kind: Kind,
    pub sides: [Side; 2],
    pub epochs: Epochs<'static>,
}

/// One of the link's tasks, and our end towards it.
pub struct Side {
    pub task: u16,
    pub name: String,
    /// The task's, when we last looked; 0: it hasn't been started.
    pub epoch: u32,
    /// What the task reads, written by us in the name of the other task; and what the task writes.
    pub ours: Half<'static>,
    pub its: Half<'static>,
    pub pool: PoolView<'static>,
    pub port: Port<'static, Desc, Desc>,
    pub fault_since: Option<u64>,
    /// It was told.
    pub faulted: bool,
}

/// Microseconds after which a fault is one.
const FAULT_US: u64 = 50_000;

/// What a step of a relay has found.
#[derive(Default)]
pub struct Step {
    pub busy: bool,
    /// Tasks to wake, by their numbers.
    pub wake: u64,
}

impl Relay {
    /// Follows the epochs, then carries what there is. An error is the file's; messages are carried all the same.
    pub fn step(&mut self, us: u64, file: &mut Option<Writer>) -> (Step, Result<()>) {
        let (mut step, mut result) = (Step::default(), Ok(()));
        let mut write = |event: Event| {
            if let (Some(writer), Ok(())) = (&mut *file, &result) {
                result = writer.event(&event);
            }
        };
        for side in 0..2 {
            let (task, seen) = (self.sides[side].task, self.sides[side].epoch);
            let epoch = self.epochs.of(task);
            if epoch != seen {
                if seen > 0 {
                    write(Event::Restart { us, restart: self.sides[side].name.clone() });
                }
                self.sides[side].epoch = epoch;
                (self.sides[side].fault_since, self.sides[side].faulted) = (None, false);
                // Its neighbour waits to be named with the new epoch, by whom it takes for the task.
                let other = &mut self.sides[1 - side];
                other.port = Port::new(other.ours, other.its, self.epochs, task, other.task);
                step.busy = true;
            }
        }
        if self.sides.iter().any(|side| side.epoch == 0) {
            return (step, result);
        }
        for side in &mut self.sides {
            let (change, signal) = side.port.poll(true);
            step.busy |= change != Change::None;
            step.wake |= (signal as u64) << side.task;
        }
        // A restart since we looked: nothing is carried by ends of the life before.
        if self.sides.iter().any(|side| self.epochs.of(side.task) != side.epoch) {
            return (Step { busy: true, ..step }, result);
        }
        for from in 0..2 {
            self.carry(from, us, &mut step, &mut write);
        }
        (step, result)
    }

    fn carry(&mut self, from: usize, us: u64, step: &mut Step, write: &mut impl FnMut(Event)) {
        let [a, b] = &mut self.sides;
        let (from_side, to) = if from == 0 { (a, b) } else { (b, a) };
        while to.port.room() > 0 {
            let Some(desc) = from_side.port.recv() else { break };
            let mut data = Vec::new();
            if let Some(Meaning::Carries { payload, .. }) = self.kind.meaning(from, desc) {
                data.resize(payload.len.min(from_side.pool.size() as usize), 0);
                // A buffer that doesn't exist is for the receiver to find.
                let _ = from_side.pool.copy(payload.buf, payload.off, &mut data);
            }
            write(Event::Message(Message::new(us, &self.link, &from_side.name, desc, data)));
            step.busy = true;
            // No room though there was some: its head has changed to nonsense meanwhile, which is a fault of its own.
            if !to.port.send(&desc) {
                break;
            }
        }
        from_side.port.release();
        step.wake |= (to.port.publish() as u64) << to.task;
        let Some(fault) = from_side.port.fault() else { return };
        // What looks like a fault may be a half that is being zeroed, just before its task's epoch moves on.
        let since = *from_side.fault_since.get_or_insert(us);
        if !from_side.faulted && us - since >= FAULT_US {
            from_side.faulted = true;
            eprintln!("recorder: {} broke the rules of link {}: {fault:?}", from_side.name, self.link);
            // As its neighbour would see it: an index that cannot be.
            to.port.break_rules();
            step.wake |= 1 << to.task;
        }
    }

    /// True: nothing has come.
    pub fn sleep(&mut self) -> bool {
        let [a, b] = &mut self.sides;
        a.port.sleep() & b.port.sleep()
    }
}
