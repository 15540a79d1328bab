//! Where the values of a channel lie. A bounded channel has one ring, made with the
//! channel. An unbounded one has blocks, which come and go with the values, so that its
//! memory returns after a burst; they are made and freed outside the lock.

use std::collections::{LinkedList, VecDeque};

use kinfolk_core::host::Contained;

use crate::sync::BLOCK;

/// Values, first in, first out. Each is [`Contained`]: a destructor that panics ends
/// there, and the others are dropped all the same.
pub(super) enum Buffer<T> {
    Ring(VecDeque<Contained<T>>),
    Blocks(Blocks<T>),
}

/// Never empty of blocks but at the beginning; only the first may be half taken, only
/// the last half full.
pub(super) struct Blocks<T> {
    blocks: LinkedList<Block<T>>,
    len: usize,
    /// An empty one, kept for the next.
    spare: Spare<T>,
}

/// As many values as it was made for, and no more.
type Block<T> = VecDeque<Contained<T>>;

/// One block, or none, as a list: it is linked in without allocating.
pub(super) type Spare<T> = LinkedList<Block<T>>;

/// A new block. Not under a lock.
pub(super) fn new_block<T>() -> Spare<T> {
    LinkedList::from([VecDeque::with_capacity(BLOCK)])
}

/// A queue with room for `n` values. Without the memory for it the call panics, as one
/// with too large a number does, and the process is not aborted.
#[track_caller]
pub(crate) fn with_room<T>(n: usize) -> VecDeque<T> {
    let mut queue = VecDeque::new();
    if let Err(error) = queue.try_reserve_exact(n) {
        panic!("a channel with room for {n} values cannot be made: {error}");
    }
    queue
}

impl<T> Buffer<T> {
    #[track_caller]
    pub(super) fn new(capacity: Option<usize>) -> Buffer<T> {
        match capacity {
            // One more than none, for what `try_send` leaves in a rendezvous.
            Some(capacity) => Buffer::Ring(with_room(capacity.max(1))),
            None => Buffer::Blocks(Blocks {
                blocks: LinkedList::new(),
                len: 0,
                spare: LinkedList::new(),
            }),
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            Buffer::Ring(ring) => ring.len(),
            Buffer::Blocks(blocks) => blocks.len,
        }
    }

    /// True if the next push needs a block.
    #[inline]
    pub(super) fn needs_block(&self) -> bool {
        match self {
            Buffer::Ring(_) => false,
            Buffer::Blocks(blocks) => {
                blocks.spare.is_empty()
                    && blocks.blocks.back().is_none_or(|last| last.len() == BLOCK)
            }
        }
    }

    /// Adds a value; with a block if it [needs](Buffer::needs_block) one, which is empty
    /// after.
    #[inline]
    pub(super) fn push(&mut self, value: Contained<T>, block: &mut Spare<T>) {
        match self {
            Buffer::Ring(ring) => ring.push_back(value),
            Buffer::Blocks(blocks) => blocks.push(value, block),
        }
    }

    /// Takes the first value out. A block that is not needed any more goes to `gone`, to
    /// be dropped outside the lock.
    #[inline]
    pub(super) fn pop(&mut self, gone: &mut Spare<T>) -> Option<Contained<T>> {
        match self {
            Buffer::Ring(ring) => ring.pop_front(),
            Buffer::Blocks(blocks) => blocks.pop(gone),
        }
    }
}

impl<T> Blocks<T> {
    fn push(&mut self, value: Contained<T>, block: &mut Spare<T>) {
        if self.blocks.back().is_none_or(|last| last.len() == BLOCK) {
            if self.spare.is_empty() {
                self.blocks.append(block);
            } else {
                self.blocks.append(&mut self.spare);
            }
        }
        match self.blocks.back_mut() {
            Some(last) => last.push_back(value),
            None => unreachable!("one was linked in"),
        }
        self.len += 1;
    }

    fn pop(&mut self, gone: &mut Spare<T>) -> Option<Contained<T>> {
        let first = self.blocks.front_mut()?;
        let value = first.pop_front()?;
        self.len -= 1;
        if first.is_empty() {
            // Another one behind it is full or being filled; else this one is kept.
            let behind = self.blocks.split_off(1);
            let mut empty = std::mem::replace(&mut self.blocks, behind);
            if self.spare.is_empty() {
                self.spare.append(&mut empty);
            } else {
                gone.append(&mut empty);
            }
        }
        Some(value)
    }
}
