//! Where the values of a channel lie. A bounded channel has one ring, made with the channel.
//! One without a limit has blocks, which come and go with the values, so that its memory
//! returns after a burst; they are made and freed outside the locks. So has a rendezvous, for
//! what `try_send` leaves.
//!
//! A buffer has two ends, each with a lock and a [`Cursor`] of its own: values are put in at
//! the back and taken out at the front, at the same time. Each end counts what passes it, and
//! shows that count to the other one, which looks at it when it knows of no room or of no
//! value any more: not for each value.
//!
//! Rules, which `SAFETY` comments cite:
//!
//! - **B1** The cursor of an end is used under the lock of that end.
//! - **B2** The values with the numbers from the front's count up to the back's are in their
//!   places, and belong to the front. All other places are empty, and belong to the back, and
//!   so does the link to the next block until a value was put behind it.
//! - **B3** An end shows its count with Release when it is done with a place, and reads that
//!   of the other end with Acquire; or both locks are held.
//! - **B4** The front leaves a block for the next one when there is a value in that: the back
//!   has left it before.
//!
//! Loom watches the places and the links: `value_vs_take`, `room_vs_put`, `block_vs_block`.

use std::mem::MaybeUninit;
use std::ptr;

use kinfolk_core::host::Contained;

use crate::sync::{AtomicPtr, AtomicUsize, BLOCK, Ordering, Plain, empty_places};

/// A place for a value. Each is [`Contained`]: a destructor that panics ends there, and the
/// others are dropped all the same.
type ValuePlace<T> = Plain<MaybeUninit<Contained<T>>>;

/// Values, first in, first out.
pub(super) struct Buffer<T> {
    /// None: blocks.
    ring: Option<Box<[ValuePlace<T>]>>,
    /// None without a limit.
    capacity: Option<usize>,
    /// Leads to the first block, as each block to its next.
    first: Plain<*mut ValueBlock<T>>,
    /// An empty block, kept for the next.
    spare: AtomicPtr<ValueBlock<T>>,
}

/// So many places of a channel without a limit.
pub(super) struct ValueBlock<T> {
    places: [ValuePlace<T>; BLOCK],
    next: Plain<*mut ValueBlock<T>>,
}

/// Where an end of the buffer is.
pub(super) struct Cursor<T> {
    /// How many values have passed it.
    count: usize,
    /// The count of the other end when this one looked last.
    seen: usize,
    /// The place of the next, in the ring or in `block`.
    at: usize,
    /// The block that it is in; null before the first.
    block: *mut ValueBlock<T>,
}

// SAFETY: by B1 to B3 one thread at a time touches a place, and a value goes from one to the
// other.
unsafe impl<T: Send> Send for Buffer<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Buffer<T> {}
// SAFETY: it leads to blocks, which the rules share out.
unsafe impl<T: Send> Send for Cursor<T> {}

/// Room for `n` things. Without the memory for it the call panics, as one with too large a
/// number does, and the process is not aborted.
#[track_caller]
pub(crate) fn with_room<T>(n: usize) -> Vec<T> {
    let mut room = Vec::new();
    if let Err(error) = room.try_reserve_exact(n) {
        panic!("a channel with room for {n} values cannot be made: {error}");
    }
    room
}

impl<T> ValueBlock<T> {
    /// A new block. Not under a lock.
    pub(super) fn new() -> Box<ValueBlock<T>> {
        // In its place at once: it may be large.
        let mut block = Box::<ValueBlock<T>>::new_uninit();
        let at = block.as_mut_ptr();
        // SAFETY: each field is written, in memory that is ours.
        unsafe {
            (&raw mut (*at).next).write(Plain::new(ptr::null_mut()));
            for n in 0..BLOCK {
                (&raw mut (*at).places[n]).write(Plain::new(MaybeUninit::uninit()));
            }
            block.assume_init()
        }
    }
}

impl<T> Cursor<T> {
    pub(super) fn new() -> Cursor<T> {
        Cursor {
            count: 0,
            seen: 0,
            at: 0,
            block: ptr::null_mut(),
        }
    }

    /// The next place is in the next block.
    #[inline]
    fn leaves_block(&self) -> bool {
        self.block.is_null() || self.at == BLOCK
    }

    /// The front: whether there is a value to take, as far as the back has shown.
    #[inline]
    pub(super) fn has_value(&mut self, put: &AtomicUsize) -> bool {
        if self.seen == self.count {
            // B3.
            self.seen = put.load(Ordering::Acquire);
        }
        self.seen != self.count
    }

    /// Both locks are held: each end knows of the other.
    pub(super) fn meet(front: &mut Cursor<T>, back: &mut Cursor<T>) {
        (front.seen, back.seen) = (back.count, front.count);
    }

    /// The back: how many values are between it and the front. Both locks are held.
    pub(super) fn ahead_of(&self, front: &Cursor<T>) -> usize {
        self.count.wrapping_sub(front.count)
    }
}

impl<T> Buffer<T> {
    #[track_caller]
    pub(super) fn new(capacity: Option<usize>) -> Buffer<T> {
        Buffer {
            ring: match capacity {
                None | Some(0) => None,
                Some(capacity) => Some(empty_places(with_room(capacity), capacity)),
            },
            capacity,
            first: Plain::new(ptr::null_mut()),
            spare: AtomicPtr::new(ptr::null_mut()),
        }
    }

    #[inline]
    pub(super) fn capacity(&self) -> Option<usize> {
        self.capacity
    }

    /// The back: whether there is room for one more, as far as the front has shown.
    #[inline]
    pub(super) fn has_room(&self, back: &mut Cursor<T>, taken: &AtomicUsize) -> bool {
        let Some(capacity) = self.capacity else {
            return true;
        };
        if back.count.wrapping_sub(back.seen) >= capacity {
            // B3.
            back.seen = taken.load(Ordering::Acquire);
        }
        back.count.wrapping_sub(back.seen) < capacity
    }

    /// The back: whether the next value needs a block. If a spare one is there it is taken into
    /// `block`.
    #[inline]
    pub(super) fn needs_block(
        &self,
        back: &Cursor<T>,
        block: &mut Option<Box<ValueBlock<T>>>,
    ) -> bool {
        if self.ring.is_some() || !back.leaves_block() || block.is_some() {
            return false;
        }
        *block = self.take_spare();
        block.is_none()
    }

    fn take_spare(&self) -> Option<Box<ValueBlock<T>>> {
        // Acquire: from the front, which has emptied it.
        let spare = self.spare.swap(ptr::null_mut(), Ordering::Acquire);
        // SAFETY: it was a box, and is ours alone now.
        (!spare.is_null()).then(|| unsafe { Box::from_raw(spare) })
    }

    /// Keeps a block that is empty, and no part of the buffer; one that was kept before comes
    /// back, to be freed outside the lock.
    pub(super) fn keep_spare(&self, block: Box<ValueBlock<T>>) -> Option<Box<ValueBlock<T>>> {
        let before = self.spare.swap(Box::into_raw(block), Ordering::AcqRel);
        // SAFETY: as in `take_spare`.
        (!before.is_null()).then(|| unsafe { Box::from_raw(before) })
    }

    /// What leads on from `block`.
    ///
    /// # Safety
    /// It is null, or a block of this buffer.
    #[inline]
    unsafe fn link(&self, block: *mut ValueBlock<T>) -> &Plain<*mut ValueBlock<T>> {
        // SAFETY: the caller's promise.
        match unsafe { block.as_ref() } {
            Some(block) => &block.next,
            None => &self.first,
        }
    }

    /// Moves a cursor on, and answers its place. A block that was left has to be there still.
    ///
    /// # Safety
    /// B1, and for blocks it is in one that the place is in.
    #[inline]
    unsafe fn step(&self, cursor: &mut Cursor<T>) -> &ValuePlace<T> {
        let at = cursor.at;
        cursor.count = cursor.count.wrapping_add(1);
        cursor.at += 1;
        match &self.ring {
            Some(ring) => {
                if cursor.at == ring.len() {
                    cursor.at = 0;
                }
                &ring[at]
            }
            // SAFETY: the caller's promise; a block is freed by the front alone, after it has
            // left it (B4).
            None => unsafe { &(*cursor.block).places[at] },
        }
    }

    /// The back: puts a value in, and shows that.
    ///
    /// # Safety
    /// B1; `back` and `put` are those of this buffer, and there is room. If it
    /// [needs](Buffer::needs_block) a block, `block` has one.
    #[inline]
    pub(super) unsafe fn put(
        &self,
        back: &mut Cursor<T>,
        value: Contained<T>,
        block: &mut Option<Box<ValueBlock<T>>>,
        put: &AtomicUsize,
    ) {
        if self.ring.is_none() && back.leaves_block() {
            // SAFETY: B1.
            unsafe { self.grow(back, block) };
        }
        // SAFETY: B1; the block was seen to.
        let place = unsafe { self.step(back) };
        // SAFETY: B2, there is room.
        unsafe {
            place.with_mut(|place| {
                place.write(value);
            });
        }
        // B3.
        put.store(back.count, Ordering::Release);
    }

    /// Links a block in, and moves the back into it.
    ///
    /// # Safety
    /// B1.
    #[cold]
    unsafe fn grow(&self, back: &mut Cursor<T>, block: &mut Option<Box<ValueBlock<T>>>) {
        let Some(block) = block.take() else {
            unreachable!("it was brought along");
        };
        let block = Box::into_raw(block);
        // SAFETY: it was a box of ours, and is no part of the buffer yet.
        unsafe { (*block).next.with_mut(|next| *next = ptr::null_mut()) };
        // SAFETY: B2: no value was put behind it. The block of a cursor is one of the buffer.
        unsafe { self.link(back.block).with_mut(|link| *link = block) };
        (back.block, back.at) = (block, 0);
    }

    /// The front: takes the first value out, and shows that. A block that is not needed any
    /// more goes to `gone`, to be freed outside the lock.
    ///
    /// # Safety
    /// B1; `front` and `taken` are those of this buffer, and there is a value.
    #[inline]
    pub(super) unsafe fn take(
        &self,
        front: &mut Cursor<T>,
        gone: &mut Option<Box<ValueBlock<T>>>,
        taken: &AtomicUsize,
    ) -> Contained<T> {
        if self.ring.is_none() && front.leaves_block() {
            // SAFETY: B1, and there is a value behind it.
            *gone = unsafe { self.shrink(front) };
        }
        // SAFETY: B1; the block was seen to.
        let place = unsafe { self.step(front) };
        // SAFETY: B2, there is a value.
        let value = unsafe { place.with_mut(|place| place.assume_init_read()) };
        // B3.
        taken.store(front.count, Ordering::Release);
        value
    }

    /// Moves the front into the next block, and takes the one before out of the buffer.
    ///
    /// # Safety
    /// B1, and the next value is in the next block.
    #[cold]
    unsafe fn shrink(&self, front: &mut Cursor<T>) -> Option<Box<ValueBlock<T>>> {
        // SAFETY: B2: a value was put behind it. The block of a cursor is one of the buffer.
        let next = unsafe { self.link(front.block).with_mut(|next| *next) };
        let before = std::mem::replace(&mut front.block, next);
        front.at = 0;
        if before.is_null() {
            return None;
        }
        // SAFETY: it was a box, and by B4 nothing leads to it any more.
        self.keep_spare(unsafe { Box::from_raw(before) })
    }

    /// Frees the blocks. The buffer is empty, and is not used any more.
    ///
    /// # Safety
    /// `front` is that of this buffer.
    pub(super) unsafe fn free(&mut self, front: &mut Cursor<T>) {
        drop(self.take_spare());
        let block = std::mem::replace(&mut front.block, ptr::null_mut());
        if !block.is_null() {
            // SAFETY: it was a box. An empty buffer has no other: the back goes on to the next
            // one with a value.
            drop(unsafe { Box::from_raw(block) });
        }
    }
}
