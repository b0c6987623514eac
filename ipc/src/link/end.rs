//! One end of a link, as a task holds it: port, own pool, view of the peer's pool, and what we hold of it.

use crate::pool::{Loans, OwnPool, PoolView};
use crate::ring::{Change, LinkFault, Message, Port};

pub struct End<'m, Out, In> {
    pub port: Port<'m, Out, In>,
    pub own: OwnPool<'m>,
    pub theirs: PoolView<'m>,
    /// Buffers of `theirs` that we hold. Kept when the link goes down, so that the owner of the end can wait for those that
    /// it has lent on; forgotten when the link comes up.
    pub loans: Loans<'m>,
    bell: bool,
}

impl<'m, Out: Message, In: Message> End<'m, Out, In> {
    pub fn new(port: Port<'m, Out, In>, own: OwnPool<'m>, theirs: PoolView<'m>, loans: Loans<'m>) -> Self {
        End { port, own, theirs, loans, bell: false }
    }

    /// Follows the epochs; call on every wake-up before anything else. On [`Change::Down`] all buffers of our own pool are
    /// free again. `ready`: the link may come up (again).
    pub fn poll(&mut self, ready: bool) -> Change {
        let (change, signal) = self.port.poll(ready);
        self.bell |= signal;
        match change {
            Change::Down => self.own.reclaim_all(),
            Change::Up => self.loans.forget_all(),
            Change::None => {}
        }
        change
    }

    pub fn is_up(&self) -> bool {
        self.port.is_up()
    }

    /// Sends a message; false when the link isn't up. The manifest sizes rings so that there is always room, so a full ring
    /// is the peer's fault.
    pub fn send(&mut self, message: &Out) -> bool {
        let sent = self.port.send(message);
        if !sent && self.port.is_up() {
            self.port.blame(LinkFault::Overrun);
        }
        sent
    }

    pub fn recv(&mut self) -> Option<In> {
        self.port.recv()
    }

    /// Keeps the link's rules: an error is the peer's fault, after which the link is down.
    pub fn check<T>(&mut self, result: Result<T, LinkFault>) -> Option<T> {
        result.map_err(|fault| self.port.blame(fault)).ok()
    }

    /// Publishes what was sent and tells what was consumed. True: the peer must be signalled.
    #[must_use]
    pub fn flush(&mut self) -> bool {
        self.port.release();
        let wake = self.port.publish();
        core::mem::take(&mut self.bell) | wake
    }

    /// Asks to be signalled. True: nothing has come, the caller may wait.
    #[must_use]
    pub fn sleep(&mut self) -> bool {
        self.port.sleep()
    }
}
