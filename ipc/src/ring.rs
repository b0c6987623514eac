//! A link's two single-producer single-consumer rings, with sleep and wake and epochs.
//!
//! Each side of a link writes one *half*: a header page and the slots of the ring that it produces. The other side
//! maps that half read-only. A's ring: `tail` and slots in A's half, `head` and `wake_at` in B's half; B's ring the
//! other way round. Indices run freely (modulo 2^32), the capacity is a power of two known from the task's own
//! constants, and each side keeps private shadows of what it wrote.
//!
//! Every shared word is an atomic, so a peer that scribbles can do no more than lie, and a lie is a [`LinkFault`].
//!
//! *Sleep and wake* (virtio's event index): the consumer stores `wake_at`, fences, and looks at `tail` once more; the
//! producer stores `tail`, fences, and signals when `wake_at` was passed. Of two SeqCst fences one comes first, so
//! either the consumer sees the element or the producer sees the wish: no lost wake-up, at most one signal a batch.
//!
//! *Epochs*: a side that starts, or sees in the kernel's epoch page that its peer restarted, zeroes its half and names
//! `(its epoch, the peer's epoch)` there. The link is up when both halves name each other's current epoch.

use core::marker::PhantomData;

#[cfg(not(loom))]
use core::sync::atomic::{AtomicU32, AtomicU64, fence};
#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, fence};

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

/// One element: 16 bytes. What the fields mean is each link's business ([`crate::link`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Desc {
    pub kind: u8,
    pub flags: u8,
    pub off: u16,
    pub conn: u32,
    pub buf: u32,
    pub len: u32,
}

impl Desc {
    const fn to_words(self) -> [u64; 2] {
        [
            self.kind as u64 | (self.flags as u64) << 8 | (self.off as u64) << 16 | (self.conn as u64) << 32,
            self.buf as u64 | (self.len as u64) << 32,
        ]
    }

    const fn from_words(w: [u64; 2]) -> Self {
        Desc {
            kind: w[0] as u8,
            flags: (w[0] >> 8) as u8,
            off: (w[0] >> 16) as u16,
            conn: (w[0] >> 32) as u32,
            buf: w[1] as u32,
            len: (w[1] >> 32) as u32,
        }
    }
}

/// A message of a link: what its sender encodes and its receiver checks.
pub trait Message: Sized {
    fn encode(&self) -> Desc;
    /// `None`: no such message; the peer is at fault.
    fn decode(desc: Desc) -> Option<Self>;
}

impl Message for Desc {
    fn encode(&self) -> Desc {
        *self
    }
    fn decode(desc: Desc) -> Option<Self> {
        Some(desc)
    }
}

/// One cache line, so that a side's writes don't disturb what the other side writes.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Line<T>(T);

/// First page of a half.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Header {
    /// Writer's epoch, and in the upper half the peer's epoch that it has seen. Written with Release after the rest
    /// of the half was zeroed; pairs with the Acquire load in `Port::poll`.
    epochs: Line<AtomicU64>,
    /// Elements produced. Release in `publish`, pairs with Acquire in `recv`.
    tail: Line<AtomicU32>,
    /// Elements consumed. Release in `release`, pairs with Acquire in `room`.
    head: Line<AtomicU32>,
    /// The consumer sleeps until the producer's tail passes this. Ordered by the SeqCst fences of `sleep` and
    /// `publish`.
    wake_at: Line<AtomicU32>,
}

/// Bytes in front of the slots.
pub const HEADER_BYTES: usize = crate::abi::PAGE;
pub const SLOT_BYTES: usize = 16;

/// Bytes of a half with `capacity` slots, in whole pages.
pub const fn half_bytes(capacity: u32) -> usize {
    (HEADER_BYTES + capacity as usize * SLOT_BYTES).next_multiple_of(crate::abi::PAGE)
}

/// A half in shared memory; which side may write it is the mapping's business.
#[derive(Clone, Copy, Debug)]
pub struct Half<'m> {
    header: &'m Header,
    slots: &'m [[AtomicU64; 2]],
}

impl<'m> Half<'m> {
    /// For memory that is made of these very types (tests, models).
    pub fn new(header: &'m Header, slots: &'m [[AtomicU64; 2]]) -> Self {
        assert!(slots.len().is_power_of_two(), "ring capacity must be a power of two");
        Half { header, slots }
    }

    /// # Safety
    /// `base` points to `half_bytes(capacity)` bytes, 64-byte aligned, mapped for `'m`, accessed by anybody only as
    /// these atomics (or from another address space). Stores go only to a half that is mapped writable.
    #[cfg(not(loom))]
    pub unsafe fn from_raw(base: *const u8, capacity: u32) -> Self {
        assert!(capacity.is_power_of_two(), "ring capacity must be a power of two");
        // SAFETY: the caller promises size, alignment and lifetime; every field is an atomic, valid for any bits.
        unsafe {
            Half {
                header: &*base.cast::<Header>(),
                slots: core::slice::from_raw_parts(base.add(HEADER_BYTES).cast(), capacity as usize),
            }
        }
    }
}

/// The epochs of all tasks, written by the kernel when it (re)starts one.
#[derive(Clone, Copy, Debug)]
pub struct Epochs<'m>(&'m [AtomicU32; crate::abi::MAX_TASKS]);

impl<'m> Epochs<'m> {
    pub fn new(page: &'m [AtomicU32; crate::abi::MAX_TASKS]) -> Self {
        Epochs(page)
    }

    /// Acquire: pairs with the kernel's Release store, which it makes after it reset the task's halves.
    pub fn of(&self, task: u16) -> u32 {
        self.0[task as usize % crate::abi::MAX_TASKS].load(Acquire)
    }
}

/// The peer broke the link's rules. The link stays down until the peer restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkFault {
    /// An index beyond the capacity, or one that went backwards.
    Index,
    /// A message that the link doesn't have.
    Message,
    /// A buffer that isn't the peer's to give: unknown, given twice, or out of its bounds.
    Buffer,
    /// A connection or request that doesn't exist.
    Reference,
    /// The peer didn't keep to what the manifest bounds: no room where there must be room.
    Overrun,
}

/// What `Port::poll` found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    None,
    /// The peer restarted or is not there: take back lent buffers, forget the peer's, then `poll(true)` again.
    Down,
    /// Both sides have named each other's epoch: messages may flow, from nothing.
    Up,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waiting for the owner to be ready to name the peer's epoch.
    Down,
    /// Our half is zeroed and named; waiting for the peer.
    Named,
    Up,
    Faulted(LinkFault),
}

/// One side of a link: sends `Out`, receives `In`.
#[derive(Debug)]
pub struct Port<'m, Out, In> {
    mine: Half<'m>,
    theirs: Half<'m>,
    epochs: Epochs<'m>,
    me: u16,
    peer: u16,
    peer_epoch: u32,
    state: State,
    capacity: u32,
    /// Elements written, and of them published.
    tail: u32,
    published: u32,
    /// Elements of ours that the peer had consumed when we last looked.
    peer_head: u32,
    /// Elements of the peer's consumed, made known to it, and published by it when we last looked.
    head: u32,
    released: u32,
    peer_tail: u32,
    messages: PhantomData<(Out, In)>,
}

impl<'m, Out: Message, In: Message> Port<'m, Out, In> {
    /// `me` and `peer` are task numbers. The port starts down; see [`Port::poll`].
    pub fn new(mine: Half<'m>, theirs: Half<'m>, epochs: Epochs<'m>, me: u16, peer: u16) -> Self {
        assert_eq!(mine.slots.len(), theirs.slots.len());
        Port {
            mine,
            theirs,
            epochs,
            me,
            peer,
            peer_epoch: 0,
            state: State::Down,
            capacity: mine.slots.len() as u32,
            tail: 0,
            published: 0,
            peer_head: 0,
            head: 0,
            released: 0,
            peer_tail: 0,
            messages: PhantomData,
        }
    }

    pub fn is_up(&self) -> bool {
        self.state == State::Up
    }

    pub fn fault(&self) -> Option<LinkFault> {
        match self.state {
            State::Faulted(f) => Some(f),
            _ => None,
        }
    }

    pub fn peer(&self) -> u16 {
        self.peer
    }

    pub fn peer_epoch(&self) -> u32 {
        self.peer_epoch
    }

    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Follows the epochs; call on every wake-up. `ready`: the owner holds no buffer of the peer's earlier life, so the
    /// link may come up. The second value: signal the peer, it has something to see.
    pub fn poll(&mut self, ready: bool) -> (Change, bool) {
        let current = self.epochs.of(self.peer);
        if current != self.peer_epoch && matches!(self.state, State::Named | State::Up | State::Faulted(_)) {
            let was_up = self.state != State::Named;
            self.state = State::Down;
            if was_up {
                return (Change::Down, false);
            }
        }
        if self.state == State::Down {
            if current == 0 || !ready {
                return (Change::None, false);
            }
            self.name(current);
            return (self.see_name(), true);
        }
        if self.state == State::Named { (self.see_name(), false) } else { (Change::None, false) }
    }

    /// Zeroes our half, then names the epochs in it.
    fn name(&mut self, peer_epoch: u32) {
        let my_epoch = self.epochs.of(self.me);
        let header = self.mine.header;
        // Un-name first, so that the peer can't take a half that is being zeroed for one that is up.
        header.epochs.0.store(0, Release);
        fence(SeqCst);
        header.tail.0.store(0, Relaxed);
        header.head.0.store(0, Relaxed);
        header.wake_at.0.store(0, Relaxed);
        header.epochs.0.store(my_epoch as u64 | (peer_epoch as u64) << 32, Release);
        self.peer_epoch = peer_epoch;
        self.state = State::Named;
        (self.tail, self.published, self.peer_head) = (0, 0, 0);
        (self.head, self.released, self.peer_tail) = (0, 0, 0);
    }

    fn see_name(&mut self) -> Change {
        let my_epoch = self.epochs.of(self.me);
        let named = self.theirs.header.epochs.0.load(Acquire);
        if named == self.peer_epoch as u64 | (my_epoch as u64) << 32 {
            self.state = State::Up;
            return Change::Up;
        }
        Change::None
    }

    /// The caller found a lie. The link goes down for good (until the peer restarts).
    pub fn blame(&mut self, fault: LinkFault) {
        // What looks like a lie may be the half of a peer that the kernel has just reset.
        if self.state == State::Up && self.epochs.of(self.peer) == self.peer_epoch {
            self.state = State::Faulted(fault);
        }
    }

    /// Slots that can be written now.
    pub fn room(&mut self) -> u32 {
        if self.state != State::Up {
            return 0;
        }
        let used = self.tail.wrapping_sub(self.peer_head);
        if used < self.capacity / 2 {
            return self.capacity - used;
        }
        let head = self.theirs.header.head.0.load(Acquire);
        let moved = head.wrapping_sub(self.peer_head);
        if moved > self.published.wrapping_sub(self.peer_head) {
            self.blame(LinkFault::Index);
            return 0;
        }
        self.peer_head = head;
        self.capacity - self.tail.wrapping_sub(head)
    }

    /// Writes one message; it becomes visible with [`Port::publish`]. False: no room (or the link isn't up).
    #[must_use]
    pub fn send(&mut self, message: &Out) -> bool {
        if self.room() == 0 {
            return false;
        }
        let words = message.encode().to_words();
        let slot = &self.mine.slots[(self.tail & (self.capacity - 1)) as usize];
        slot[0].store(words[0], Relaxed);
        slot[1].store(words[1], Relaxed);
        self.tail = self.tail.wrapping_add(1);
        true
    }

    /// For who relays a link: the peer finds a fault, as it would at the side that we stand for.
    #[cfg(any(test, feature = "std"))]
    pub fn break_rules(&mut self) {
        self.mine.header.tail.0.store(self.published.wrapping_add(2 * self.capacity + 1), Release);
    }

    /// Makes all that was sent visible. True: the peer sleeps and must be signalled.
    #[must_use]
    pub fn publish(&mut self) -> bool {
        let new = self.tail.wrapping_sub(self.published);
        if self.state != State::Up || new == 0 {
            return false;
        }
        // Release: the slots; pairs with Acquire in the peer's `recv`.
        self.mine.header.tail.0.store(self.tail, Release);
        self.published = self.tail;
        // Pairs with the fence in the peer's `sleep`.
        fence(SeqCst);
        let wake_at = self.theirs.header.wake_at.0.load(Relaxed);
        self.tail.wrapping_sub(wake_at).wrapping_sub(1) < new
    }

    /// The next message, if there is one. A fault is kept (see [`Port::fault`]) and reads as "none".
    pub fn recv(&mut self) -> Option<In> {
        if self.state != State::Up || (self.head == self.peer_tail && !self.look()) {
            return None;
        }
        let slot = &self.theirs.slots[(self.head & (self.capacity - 1)) as usize];
        let desc = Desc::from_words([slot[0].load(Relaxed), slot[1].load(Relaxed)]);
        self.head = self.head.wrapping_add(1);
        let message = In::decode(desc);
        if message.is_none() {
            self.blame(LinkFault::Message);
        }
        message
    }

    /// Loads the peer's tail. True: there is something new.
    fn look(&mut self) -> bool {
        // Pairs with Release in the peer's `publish`.
        let tail = self.theirs.header.tail.0.load(Acquire);
        // Beyond what the peer was told is at most the capacity, or a batch would have no end; and an index doesn't go
        // backwards.
        let beyond = tail.wrapping_sub(self.released);
        if beyond > self.capacity || beyond < self.head.wrapping_sub(self.released) {
            self.blame(LinkFault::Index);
            return false;
        }
        self.peer_tail = tail;
        tail != self.head
    }

    /// Tells the peer how much was consumed; call at the end of a batch.
    pub fn release(&mut self) {
        if self.state == State::Up && self.released != self.head {
            // Release: our reads of the slots are done; pairs with Acquire in the peer's `room`.
            self.mine.header.head.0.store(self.head, Release);
            self.released = self.head;
        }
    }

    /// Asks for a signal at the next message. True: nothing is there and the caller may wait; false: something came.
    #[must_use]
    pub fn sleep(&mut self) -> bool {
        self.release();
        if self.state != State::Up {
            return true;
        }
        self.mine.header.wake_at.0.store(self.head, Relaxed);
        // Pairs with the fence in the peer's `publish`.
        fence(SeqCst);
        self.head == self.peer_tail && !self.look()
    }
}
