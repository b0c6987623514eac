//! Queues of a pool's buffers: any number of first-in first-out lists over one array, since a buffer stands in one queue at most.

use alloc::vec;
use alloc::vec::Vec;

const END: u32 = u32::MAX;

/// `len` bytes from `off` of buffer `buf`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub buf: u32,
    pub off: u16,
    pub len: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    first: u32,
    last: u32,
}

impl Queue {
    pub const EMPTY: Queue = Queue { first: END, last: END };

    pub fn is_empty(&self) -> bool {
        self.first == END
    }
}

/// What the queues of one pool share: each buffer's successor, and which of its bytes count.
pub struct Chain {
    links: Vec<(u32, u16, u16)>,
}

impl Chain {
    pub fn new(buffers: u32) -> Self {
        Chain { links: vec![(END, 0, 0); buffers as usize] }
    }

    /// The buffer exists and stands in no queue: the pool's tables say so.
    pub fn push(&mut self, queue: &mut Queue, piece: Piece) {
        self.links[piece.buf as usize] = (END, piece.off, piece.len);
        match queue.last {
            END => queue.first = piece.buf,
            last => self.links[last as usize].0 = piece.buf,
        }
        queue.last = piece.buf;
    }

    pub fn push_front(&mut self, queue: &mut Queue, piece: Piece) {
        self.links[piece.buf as usize] = (queue.first, piece.off, piece.len);
        if queue.is_empty() {
            queue.last = piece.buf;
        }
        queue.first = piece.buf;
    }

    pub fn first(&self, queue: &Queue) -> Option<Piece> {
        let &(_, off, len) = self.links.get(queue.first as usize)?;
        Some(Piece { buf: queue.first, off, len })
    }

    pub fn pop(&mut self, queue: &mut Queue) -> Option<Piece> {
        let piece = self.first(queue)?;
        queue.first = self.links[piece.buf as usize].0;
        if queue.is_empty() {
            queue.last = END;
        }
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(buf: u32) -> Piece {
        Piece { buf, off: buf as u16, len: 1 }
    }

    #[test]
    fn queues_keep_their_order_and_stay_apart() {
        let mut chain = Chain::new(8);
        let (mut a, mut b) = (Queue::EMPTY, Queue::EMPTY);
        for n in 0..4 {
            chain.push(&mut a, piece(n));
            chain.push(&mut b, piece(n + 4));
        }
        assert_eq!(chain.pop(&mut a), Some(piece(0)));
        chain.push_front(&mut a, Piece { off: 9, ..piece(0) });
        assert_eq!(chain.pop(&mut a), Some(Piece { off: 9, ..piece(0) }));
        for n in 1..4 {
            assert_eq!(chain.pop(&mut a), Some(piece(n)));
        }
        assert!(chain.pop(&mut a).is_none() && a.is_empty());
        for n in 4..8 {
            assert_eq!(chain.pop(&mut b), Some(piece(n)));
        }
        chain.push_front(&mut b, piece(3));
        chain.push(&mut b, piece(2));
        assert_eq!(
            (chain.pop(&mut b), chain.pop(&mut b), chain.pop(&mut b)),
            (Some(piece(3)), Some(piece(2)), None)
        );
    }
}
