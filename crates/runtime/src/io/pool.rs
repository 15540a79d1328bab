//! [`Pool`]: buffers that are filled only when there is something to fill them
//! with, and [`Chunk`]s, which are filled.
//!
//! Each station that receives has a [`Shelf`] of its own, whose buffers its driver
//! fills. **B1** The number of a buffer is in one place: on the shelf, with the
//! driver, or in a chunk; and whoever has it may touch the bytes, nobody else.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Waker};

use kinfolk_core::host::contained;

use super::buf::{Aligned, IoBuf, IoBufMut};
use super::hub::Hub;

/// More the system does not take.
const MOST: usize = 1 << 15;

const PAGE: usize = 4096;

/// Who waits until a buffer comes back.
#[derive(Default)]
struct Returns {
    /// How many came back so far.
    count: AtomicU64,
    /// By whoever waits.
    starving: Mutex<HashMap<u64, Waker>>,
    /// How many have waited.
    waiters: AtomicU64,
}

impl Returns {
    fn starving(&self) -> MutexGuard<'_, HashMap<u64, Waker>> {
        self.starving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn one_more(&self) {
        let mut starving = self.starving();
        // Pairs with `Pool::returned`: who sees it finds the buffer.
        self.count.fetch_add(1, Ordering::Release);
        // All of them: it is not known who can use it. Somebody else may have
        // read meanwhile what one of them was waiting to receive.
        let wakers = std::mem::take(&mut *starving);
        drop(starving);
        for waker in wakers.into_values() {
            contained(move || waker.wake());
        }
    }
}

/// One who waits for a buffer.
pub(crate) struct Waiter(u64);

/// How many buffers had come back to a pool.
#[derive(Clone)]
pub(crate) struct Returned {
    returns: Arc<Returns>,
    count: u64,
}

/// The shelf of a station of a hub.
type Owned = (Weak<Hub>, usize, Arc<Shelf>);

struct Inner {
    count: u16,
    size: u32,
    /// By hub and station.
    shelves: Mutex<Vec<Owned>>,
    returns: Arc<Returns>,
}

/// Buffers for what is received, shared by many streams; see
/// [`TcpStream::chunks`](crate::net::TcpStream::chunks).
///
/// A stream that waits needs no buffer: one is taken when there are bytes, and
/// comes back when the [`Chunk`] is dropped. So a few buffers serve thousands of
/// connections, as long as not all of them receive at once. If none is left,
/// those who receive wait until one comes back.
///
/// Each worker that receives has as many buffers as was said, made when it first
/// receives.
///
/// Clones are the same pool.
#[derive(Clone)]
pub struct Pool(Arc<Inner>);

impl Pool {
    /// A pool of `count` buffers of `size` bytes for each worker.
    ///
    /// # Panics
    /// If one of them is 0, or `count` more than 32768, or they make more than
    /// this machine can address.
    #[track_caller]
    pub fn new(count: usize, size: usize) -> Pool {
        assert!(
            (1..=MOST).contains(&count),
            "a pool of {count} buffers: 1 to {MOST}"
        );
        assert!(
            size > 0 && u32::try_from(size).is_ok() && size.checked_mul(count).is_some(),
            "a pool of {count} buffers of {size} bytes"
        );
        Pool(Arc::new(Inner {
            count: count as u16,
            size: size as u32,
            shelves: Mutex::default(),
            returns: Arc::default(),
        }))
    }

    /// The shelf of a station.
    pub(crate) fn shelf(&self, hub: &Arc<Hub>, station: usize) -> Arc<Shelf> {
        let shelves = self.0.shelves.lock();
        let mut shelves = shelves.unwrap_or_else(PoisonError::into_inner);
        let own = |of: &Weak<Hub>, n: usize| Weak::as_ptr(of) == Arc::as_ptr(hub) && n == station;
        if let Some((.., shelf)) = shelves.iter().find(|(of, n, _)| own(of, *n)) {
            return shelf.clone();
        }
        shelves.retain(|(of, ..)| of.strong_count() > 0);
        let shelf = Arc::new(Shelf::new(&self.0));
        shelves.push((Arc::downgrade(hub), station, shelf.clone()));
        shelf
    }

    /// What has come back so far.
    pub(crate) fn returned(&self) -> Returned {
        let returns = self.0.returns.clone();
        let count = returns.count.load(Ordering::Acquire);
        Returned { returns, count }
    }

    /// Waits until more has come back than `before`. `who` is the same for each
    /// poll of one wait, and is [let go](Pool::let_go) when that is over.
    pub(crate) fn poll_returned(
        &self,
        before: &Returned,
        who: &mut Option<Waiter>,
        waker: &Waker,
    ) -> Poll<()> {
        // What another pool lacks is nothing to this one.
        if !Arc::ptr_eq(&before.returns, &self.0.returns) {
            return Poll::Ready(());
        }
        let mut starving = self.0.returns.starving();
        if before.returns.count.load(Ordering::Acquire) != before.count {
            return Poll::Ready(());
        }
        let waiters = &self.0.returns.waiters;
        let who = who.get_or_insert_with(|| Waiter(waiters.fetch_add(1, Ordering::Relaxed)));
        let old = starving.insert(who.0, waker.clone());
        drop(starving);
        drop(old);
        Poll::Pending
    }

    /// That one does not wait any more.
    pub(crate) fn let_go(&self, who: Waiter) {
        let old = self.0.returns.starving().remove(&who.0);
        drop(old);
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({} of {} bytes)", self.0.count, self.0.size)
    }
}

/// The buffers of a [`Pool`] that one driver fills.
pub struct Shelf {
    /// Reached through `begin` only.
    _memory: Aligned<PAGE>,
    begin: *mut u8,
    size: u32,
    count: u16,
    free: Mutex<Vec<u16>>,
    /// There may be free ones, to be seen without the lock.
    some: AtomicBool,
    returns: Arc<Returns>,
}

// SAFETY: what lies there is touched by one at a time (B1).
unsafe impl Send for Shelf {}
// SAFETY: as above.
unsafe impl Sync for Shelf {}

impl Shelf {
    fn new(pool: &Inner) -> Shelf {
        let bytes = usize::from(pool.count) * pool.size as usize;
        let mut memory = Aligned::zeroed(bytes.next_multiple_of(PAGE));
        Shelf {
            begin: memory.ptr_mut(),
            _memory: memory,
            size: pool.size,
            count: pool.count,
            // The first are used first.
            free: Mutex::new((0..pool.count).rev().collect()),
            some: AtomicBool::new(true),
            returns: pool.returns.clone(),
        }
    }

    fn free(&self) -> MutexGuard<'_, Vec<u16>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many buffers there are.
    pub fn count(&self) -> u16 {
        self.count
    }

    /// How many bytes each has room for.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Where the bytes of a buffer lie.
    ///
    /// # Panics
    /// If there is no such buffer.
    pub fn place(&self, number: u16) -> *mut u8 {
        assert!(number < self.count, "buffer {number} of {}", self.count);
        // SAFETY: it lies within the memory.
        unsafe { self.begin.add(usize::from(number) * self.size as usize) }
    }

    /// Takes a buffer from the shelf, if there is one.
    pub fn take(&self) -> Option<u16> {
        self.free().pop()
    }

    /// Takes all that are free.
    pub(crate) fn take_all(&self, to: &mut Vec<u16>) {
        // Who puts one there says so afterwards, under the lock.
        if self.some.load(Ordering::Relaxed) {
            let mut free = self.free();
            self.some.store(false, Ordering::Relaxed);
            to.append(&mut free);
        }
    }

    /// Puts a buffer back.
    ///
    /// # Safety
    /// The caller has taken it, and gives it up.
    pub unsafe fn give_back(&self, number: u16) {
        let mut free = self.free();
        free.push(number);
        self.some.store(true, Ordering::Relaxed);
        drop(free);
        self.returns.one_more();
    }

    /// Receives what is there just now: the answer of the system, and the buffer
    /// that was filled. `ENOBUFS` if there is none, `EAGAIN` if nothing is there.
    pub(crate) fn recv(&self, fd: RawFd) -> (i32, Option<u16>) {
        let Some(number) = self.take() else {
            return (-libc::ENOBUFS, None);
        };
        let (place, size) = (self.place(number), self.size as usize);
        let result = loop {
            // SAFETY: the buffer was just taken.
            match unsafe { libc::recv(fd, place.cast(), size, libc::MSG_DONTWAIT) } {
                -1 => {
                    let error = io::Error::last_os_error();
                    match error.raw_os_error().unwrap_or(libc::EIO) {
                        libc::EINTR => {}
                        errno => break -errno,
                    }
                }
                received => break received as i32,
            }
        };
        if result <= 0 {
            let mut free = self.free();
            free.push(number);
            self.some.store(true, Ordering::Relaxed);
            return (result, None);
        }
        (result, Some(number))
    }
}

impl fmt::Debug for Shelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shelf({} of {} bytes)", self.count, self.size)
    }
}

enum Bytes {
    Lent {
        shelf: Arc<Shelf>,
        number: u16,
        len: u32,
    },
    Own(Vec<u8>),
}

/// Bytes that were received, in a buffer of a [`Pool`], which gets it back when
/// the chunk is dropped. Never empty.
///
/// It can be written out as it is: it is an [`IoBuf`].
pub struct Chunk {
    bytes: Bytes,
    /// What lies before was taken.
    begin: usize,
}

impl Chunk {
    /// # Safety
    /// The buffer is the caller's, who gives it up, and that much of it is
    /// filled.
    pub(crate) unsafe fn lent(shelf: Arc<Shelf>, number: u16, len: u32) -> Chunk {
        let bytes = Bytes::Lent { shelf, number, len };
        Chunk { bytes, begin: 0 }
    }

    /// The same bytes in a buffer of their own; none if they have one.
    pub(crate) fn own(&self) -> Option<Chunk> {
        match &self.bytes {
            Bytes::Own(_) => None,
            Bytes::Lent { .. } => Some(Chunk {
                bytes: Bytes::Own(self.to_vec()),
                begin: 0,
            }),
        }
    }

    /// So many bytes were taken.
    pub(crate) fn advance(&mut self, bytes: usize) {
        self.begin += bytes;
    }
}

impl Deref for Chunk {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let all = match &self.bytes {
            Bytes::Lent { shelf, number, len } => {
                // SAFETY: the buffer is this chunk's (B1), and so much is filled.
                unsafe { std::slice::from_raw_parts(shelf.place(*number), *len as usize) }
            }
            Bytes::Own(bytes) => bytes,
        };
        &all[self.begin..]
    }
}

// SAFETY: the bytes lie on the shelf or on the heap, and nobody writes them.
unsafe impl IoBuf for Chunk {
    fn ptr(&self) -> *const u8 {
        self.as_ptr()
    }

    fn filled(&self) -> usize {
        self.len()
    }
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if let Bytes::Lent { shelf, number, .. } = &self.bytes {
            // SAFETY: it was this chunk's.
            unsafe { shelf.give_back(*number) };
        }
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chunk({} bytes)", self.len())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    #[derive(Default)]
    struct Bell(AtomicUsize);

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Two that wait at one socket are two; one that gave up leaves nothing.
    #[test]
    fn each_who_starves_is_woken() {
        let pool = Pool::new(1, 16);
        let before = pool.returned();
        let bells: [Arc<Bell>; 3] = Default::default();
        let mut who = [None, None, None];
        for (bell, who) in bells.iter().zip(&mut who) {
            let waker = Waker::from(bell.clone());
            for _ in 0..2 {
                assert!(pool.poll_returned(&before, who, &waker).is_pending());
            }
        }
        pool.let_go(who[1].take().expect("it waits"));
        assert_eq!(Arc::strong_count(&bells[1]), 1, "its waker is gone");
        pool.0.returns.one_more();
        let woken = bells.each_ref().map(|bell| bell.0.load(Ordering::Relaxed));
        assert_eq!(woken, [1, 0, 1]);
        let late = pool.poll_returned(&before, &mut who[0], Waker::noop());
        assert!(late.is_ready(), "more has come back");
    }
}
