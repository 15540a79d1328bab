//! [`BufferPool`]: buffers that are filled only when there is something to fill them
//! with, and [`Chunk`]s, which are filled.
//!
//! Each thread that receives has a [`BufferGroup`] of its own, whose buffers its driver
//! fills.
//!
//! - **B1** The number of a buffer is in one place: on the group, with the driver,
//!   in a chunk, or with a stream that had waited for it. Only the holder of the number
//!   may touch the bytes.
//! - **B5** A returned buffer goes to the stream that has waited longest, and only that
//!   stream is woken. If the stream goes away without the buffer, or has nothing to receive
//!   any more, the buffer goes to the next.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::ops::Deref;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Waker};

use kinfolk_core::host::{discard, wake};

use super::buf::{Aligned, IoBuf, IoBufMut};
use super::handle::IoHandle;

/// More the system does not take.
const MOST: usize = 1 << 15;

const PAGE: usize = 4096;

/// A stream that waits for a buffer.
struct BufferWaiter {
    waker: Waker,
    /// It takes the buffer or lets go of it; otherwise it may never look again.
    fetches: bool,
}

/// The streams that wait for a buffer, in order, and the buffers that they were given.
#[derive(Default)]
struct WaitLine {
    /// The number of the next one.
    next: u64,
    waiting: BTreeMap<u64, BufferWaiter>,
    /// Not fetched yet.
    given: HashMap<u64, PoolBuf>,
}

/// What comes back to a pool.
#[derive(Default)]
struct Returns {
    /// How often something came back to a group so far.
    count: AtomicU64,
    line: Mutex<WaitLine>,
}

impl Returns {
    fn line(&self) -> MutexGuard<'_, WaitLine> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer goes to the operation that has waited longest (B5), or back to its group.
    fn came_back(&self, group: &Arc<BufferGroup>, number: u16) {
        let mut line = self.line();
        match line.waiting.first_entry() {
            Some(first) if first.get().fetches => {
                let (who, first) = first.remove_entry();
                let group = group.clone();
                line.given.insert(who, PoolBuf { group, number });
                drop(line);
                wake(first.waker);
            }
            // All waiting streams look there.
            _ => {
                group.put(number);
                // Pairs with `BufferPool::returned`: a stream that sees it finds the buffer.
                self.count.fetch_add(1, Ordering::Release);
                let woken = std::mem::take(&mut line.waiting);
                drop(line);
                for waiter in woken.into_values() {
                    wake(waiter.waker);
                }
            }
        }
    }
}

/// The place in line of a stream that waits for a buffer.
pub(crate) struct LineNumber(u64);

/// A buffer that is its owner's, and goes back when it is dropped.
pub(crate) struct PoolBuf {
    group: Arc<BufferGroup>,
    number: u16,
}

impl PoolBuf {
    /// Its bytes.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        let (place, size) = (self.group.buffer_ptr(self.number), self.group.size as usize);
        // SAFETY: the buffer is its owner's (B1), and all of it was zeroed. Noticed by
        // `io_5_a_buffer_that_comes_back_is_for_one`.
        unsafe { std::slice::from_raw_parts_mut(place, size) }
    }

    /// The first `len` bytes of it, which fit.
    pub(crate) fn filled(self, len: u32) -> Chunk {
        assert!(len <= self.group.size, "{len} bytes in {:?}", self.group);
        let bytes = Bytes::Pooled(self, len);
        Chunk { bytes, begin: 0 }
    }
}

impl Drop for PoolBuf {
    fn drop(&mut self) {
        self.group.returns.came_back(&self.group, self.number);
    }
}

/// How many buffers had come back to a pool before one was looked for.
#[derive(Clone)]
pub(crate) struct Returned {
    returns: Arc<Returns>,
    count: u64,
    /// On the group of which thread.
    thread: usize,
}

impl Returned {
    /// What was not there then is not there now: none has come back since.
    pub(crate) fn is_all(&self) -> bool {
        self.returns.count.load(Ordering::Acquire) == self.count
    }

    /// It is about this group.
    pub(crate) fn is_of(&self, pool: &BufferPool, thread: usize) -> bool {
        Arc::ptr_eq(&self.returns, &pool.0.returns) && self.thread == thread
    }

    /// They are about the same group.
    pub(crate) fn is_like(&self, other: &Returned) -> bool {
        Arc::ptr_eq(&self.returns, &other.returns) && self.thread == other.thread
    }
}

/// The group of a thread of a handle.
type GroupOf = (Weak<IoHandle>, usize, Arc<BufferGroup>);

struct Inner {
    count: u16,
    size: u32,
    /// By handle and thread.
    groups: Mutex<Vec<GroupOf>>,
    returns: Arc<Returns>,
}

/// A pool of buffers for received bytes, shared by many streams; see
/// [`TcpStream::chunks`](crate::net::TcpStream::chunks).
///
/// A stream that waits for bytes uses no buffer: one is taken when there are bytes, and
/// returned when the [`Chunk`] is dropped. So a few buffers serve thousands of connections,
/// as long as not all of them receive at once. If none is left, receiving streams wait in
/// line for a returned buffer. So a wait for a chunk that was begun must be polled or
/// dropped: others may be behind it.
///
/// Each worker that receives has `count` buffers, made when it first receives.
///
/// Clones are the same pool.
#[derive(Clone)]
pub struct BufferPool(Arc<Inner>);

impl BufferPool {
    /// Makes a pool of `count` buffers of `size` bytes for each worker.
    ///
    /// # Panics
    /// If `count` or `size` is 0, if `count` is more than 32768, or if the pool is larger than
    /// the address space.
    #[track_caller]
    pub fn new(count: usize, size: usize) -> BufferPool {
        assert!(
            (1..=MOST).contains(&count),
            "a pool must have 1 to {MOST} buffers, not {count}"
        );
        assert!(
            size > 0 && u32::try_from(size).is_ok() && size.checked_mul(count).is_some(),
            "a pool cannot have {count} buffers of {size} bytes"
        );
        BufferPool(Arc::new(Inner {
            count: count as u16,
            size: size as u32,
            groups: Mutex::default(),
            returns: Arc::default(),
        }))
    }

    /// The group of a thread.
    pub(crate) fn group(&self, handle: &Arc<IoHandle>, thread: usize) -> Arc<BufferGroup> {
        let groups = self.0.groups.lock();
        let mut groups = groups.unwrap_or_else(PoisonError::into_inner);
        let own =
            |of: &Weak<IoHandle>, n: usize| Weak::as_ptr(of) == Arc::as_ptr(handle) && n == thread;
        if let Some((.., group)) = groups.iter().find(|(of, n, _)| own(of, *n)) {
            return group.clone();
        }
        groups.retain(|(of, ..)| of.strong_count() > 0);
        let group = Arc::new(BufferGroup::new(&self.0));
        groups.push((Arc::downgrade(handle), thread, group.clone()));
        group
    }

    /// What has come back so far, before a buffer is looked for at a thread.
    pub(crate) fn returned(&self, thread: usize) -> Returned {
        let returns = self.0.returns.clone();
        let count = returns.count.load(Ordering::Acquire);
        Returned {
            returns,
            count,
            thread,
        }
    }

    /// Waits until more has come back than `before`, or a buffer is given to
    /// `who`: that is the same for each poll of one wait, and is [let
    /// go](BufferPool::let_go) when that is over. `fetches` says that it will be, also if
    /// it is given up: otherwise it is woken, but given nothing.
    pub(crate) fn poll_returned(
        &self,
        before: &Returned,
        who: &mut Option<LineNumber>,
        fetches: bool,
        waker: &Waker,
    ) -> Poll<Option<PoolBuf>> {
        // Cloned and dropped outside the lock.
        let waker = waker.clone();
        let mut line = self.0.returns.line();
        if let Some(who) = who
            && let Some(lent) = line.given.remove(&who.0)
        {
            return Poll::Ready(Some(lent));
        }
        if !before.is_all() {
            return Poll::Ready(None);
        }
        let who = who.get_or_insert_with(|| {
            line.next += 1;
            LineNumber(line.next)
        });
        let old = line.waiting.insert(who.0, BufferWaiter { waker, fetches });
        drop(line);
        discard(old);
        Poll::Pending
    }

    /// That one does not wait any more. What it was given goes to the next.
    pub(crate) fn let_go(&self, who: LineNumber) {
        let mut line = self.0.returns.line();
        let old = (line.waiting.remove(&who.0), line.given.remove(&who.0));
        drop(line);
        discard(old);
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BufferPool({} of {} bytes)", self.0.count, self.0.size)
    }
}

/// The buffers of a [`BufferPool`] that one driver fills.
pub struct BufferGroup {
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

// SAFETY: what lies there is touched by one at a time (B1). Noticed by
// `io_5_a_buffer_that_comes_back_is_for_one`.
unsafe impl Send for BufferGroup {}
// SAFETY: as above.
unsafe impl Sync for BufferGroup {}

impl BufferGroup {
    fn new(pool: &Inner) -> BufferGroup {
        let bytes = usize::from(pool.count) * pool.size as usize;
        let mut memory = Aligned::zeroed(bytes.next_multiple_of(PAGE));
        BufferGroup {
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

    /// Returns how many buffers there are.
    pub fn count(&self) -> u16 {
        self.count
    }

    /// Returns how many bytes each has room for.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Returns where the bytes of a buffer lie.
    ///
    /// # Panics
    /// If there is no such buffer.
    pub fn buffer_ptr(&self, number: u16) -> *mut u8 {
        assert!(number < self.count, "buffer {number} of {}", self.count);
        // SAFETY: it lies within the memory.
        unsafe { self.begin.add(usize::from(number) * self.size as usize) }
    }

    /// Takes a buffer from the group, if there is one.
    pub fn take(&self) -> Option<u16> {
        self.free().pop()
    }

    /// Takes all that are free.
    pub(crate) fn take_all(&self, to: &mut Vec<u16>) {
        // A put sets this afterwards, under the lock.
        if self.some.load(Ordering::Relaxed) {
            let mut free = self.free();
            self.some.store(false, Ordering::Relaxed);
            to.append(&mut free);
        }
    }

    /// Puts a buffer back that was taken.
    pub(super) fn put(&self, number: u16) {
        let mut free = self.free();
        free.push(number);
        self.some.store(true, Ordering::Relaxed);
    }

    /// Receives what is there just now: the answer of the system, and the buffer
    /// that was filled. `EAGAIN` if nothing is there, `ENOBUFS` if there are bytes
    /// and no buffer. The end of a stream needs none.
    pub(crate) fn recv(&self, fd: RawFd) -> (i32, Option<u16>) {
        let Some(number) = self.take() else {
            let mut byte = 0;
            // SAFETY: there is room for one.
            let seen = unsafe { recv_now(fd, &raw mut byte, 1, libc::MSG_PEEK) };
            return (if seen > 0 { -libc::ENOBUFS } else { seen }, None);
        };
        let (place, size) = (self.buffer_ptr(number), self.size as usize);
        // SAFETY: the buffer was just taken.
        let result = unsafe { recv_now(fd, place, size, 0) };
        if result <= 0 {
            self.put(number);
            return (result, None);
        }
        (result, Some(number))
    }
}

/// What the system says.
///
/// # Safety
/// The pointer is valid for so many bytes, which no other code accesses.
unsafe fn recv_now(fd: RawFd, place: *mut u8, len: usize, flags: i32) -> i32 {
    loop {
        // SAFETY: as the caller says.
        match unsafe { libc::recv(fd, place.cast(), len, flags | libc::MSG_DONTWAIT) } {
            -1 => {
                let error = io::Error::last_os_error();
                match error.raw_os_error().unwrap_or(libc::EIO) {
                    libc::EINTR => {}
                    errno => return -errno,
                }
            }
            received => return received as i32,
        }
    }
}

impl fmt::Debug for BufferGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BufferGroup({} of {} bytes)", self.count, self.size)
    }
}

enum Bytes {
    /// So many of them.
    Pooled(PoolBuf, u32),
    Own(Vec<u8>),
}

/// Received bytes, in a buffer of a [`BufferPool`]. Dropping the chunk returns the buffer.
/// Never empty.
///
/// A chunk is an [`IoBuf`]: it can be written out as it is.
pub struct Chunk {
    bytes: Bytes,
    /// What lies before was taken.
    begin: usize,
}

impl Chunk {
    /// # Safety
    /// The caller owns the buffer and gives it up, and that many of its bytes are
    /// initialised.
    pub(crate) unsafe fn from_pool(group: Arc<BufferGroup>, number: u16, len: u32) -> Chunk {
        PoolBuf { group, number }.filled(len)
    }

    /// The same bytes in a buffer of their own; none if they have one.
    pub(crate) fn own(&self) -> Option<Chunk> {
        match &self.bytes {
            Bytes::Own(_) => None,
            Bytes::Pooled(..) => Some(Chunk {
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
            Bytes::Pooled(lent, len) => {
                let place = lent.group.buffer_ptr(lent.number);
                // SAFETY: the buffer is this chunk's (B1), and so much is filled.
                unsafe { std::slice::from_raw_parts(place, *len as usize) }
            }
            Bytes::Own(bytes) => bytes,
        };
        &all[self.begin..]
    }
}

// SAFETY: the bytes lie on the group or on the heap, and no code writes them.
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

    /// One who waits, and how often it was woken.
    type Waiting = (Arc<Bell>, Option<LineNumber>);

    /// A pool whose one buffer is out, and so many who wait for it.
    fn waiter<const N: usize>(fetch: [bool; N]) -> (BufferPool, PoolBuf, [Waiting; N]) {
        let pool = BufferPool::new(1, 16);
        let (before, group) = (pool.returned(0), Arc::new(BufferGroup::new(&pool.0)));
        let number = group.take().expect("one");
        let all = fetch.map(|fetches| {
            let (bell, mut who) = (Arc::new(Bell::default()), None);
            let waker = Waker::from(bell.clone());
            for _ in 0..2 {
                let polled = pool.poll_returned(&before, &mut who, fetches, &waker);
                assert!(polled.is_pending());
            }
            (bell, who)
        });
        (pool, PoolBuf { group, number }, all)
    }

    fn woken<const N: usize>(all: &[Waiting; N]) -> [usize; N] {
        all.each_ref().map(|one| one.0.0.load(Ordering::Relaxed))
    }

    #[test]
    fn a_buffer_goes_to_the_one_who_has_waited_longest() {
        let (pool, lent, mut all) = waiter([true; 3]);
        let before = Returned {
            returns: pool.0.returns.clone(),
            count: 0,
            thread: 0,
        };
        let mut lent = Some(lent);
        for n in 0..3 {
            drop(lent.take().expect("it was fetched"));
            assert_eq!(woken(&all), [1, usize::from(n > 0), usize::from(n > 1)]);
            let polled = pool.poll_returned(&before, &mut all[n].1, true, Waker::noop());
            lent = match polled {
                Poll::Ready(given) => given,
                Poll::Pending => None,
            };
        }
        drop(lent);
        let late = pool.poll_returned(&before, &mut all[0].1, true, Waker::noop());
        assert!(matches!(late, Poll::Ready(None)), "it is on its group");
    }

    /// One that gave up leaves nothing, and keeps nothing.
    #[test]
    fn what_nobody_fetches_goes_to_the_next() {
        let (pool, lent, mut all) = waiter([true; 3]);
        pool.let_go(all[0].1.take().expect("it waits"));
        assert_eq!(Arc::strong_count(&all[0].0), 1, "its waker is gone");
        drop(lent);
        assert_eq!(woken(&all), [0, 1, 0]);
        pool.let_go(all[1].1.take().expect("it has it"));
        assert_eq!(woken(&all), [0, 1, 1]);
        pool.let_go(all[2].1.take().expect("it has it"));
        let line = pool.0.returns.line();
        assert!(line.waiting.is_empty() && line.given.is_empty());
        assert_eq!(pool.returned(0).count, 1, "nobody wants it");
    }

    /// One that may never look again is given nothing: everybody looks.
    #[test]
    fn one_that_may_not_fetch_it_keeps_nobody_waiting() {
        let (pool, lent, all) = waiter([true, false, true]);
        drop(lent);
        assert_eq!(woken(&all), [1, 0, 0]);
        for one in all {
            pool.let_go(one.1.expect("it waits"));
        }
        let (pool, lent, all) = waiter([false, true, true]);
        drop(lent);
        assert_eq!(woken(&all), [1, 1, 1]);
        assert_eq!(pool.returned(0).count, 1, "it is on its group");
    }
}
