//! Registered buffers: a pool whose memory is registered with io_uring in advance.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use kinfolk_core::kit::Point;
use kinfolk_core::{Cancelled, WaitKind};

use super::limit::{Limit, Permit, PermitWait};
use super::region::{ListedRegion, PAGE};

struct Inner {
    listed: ListedRegion,
    size: usize,
    /// How far from one buffer to the next.
    stride: usize,
    /// As many permits as there are buffers.
    limit: Arc<Limit>,
    free: Mutex<Vec<u32>>,
}

impl Inner {
    fn free(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A pool of buffers that is registered with io_uring; made by [`registered`].
///
/// Clones are the same pool. Its memory is freed when the last clone and the last of its
/// buffers are dropped; operations in flight own theirs.
#[derive(Clone)]
pub struct RegisteredBufs(Arc<Inner>);

/// Makes a pool of `count` buffers of `size` bytes each, zeroed. Each begins at a multiple of
/// 4096, so that they can be used for direct i/o if `size` is a multiple of 4096 too.
///
/// A ring that first uses one of the buffers for a read or write at an offset registers the
/// whole pool, or the gigabyte of it in which the buffer lies: the kernel looks up and pins
/// the pages once, and not for each operation. On any other driver, for other operations, and
/// where the system refuses registration (an old kernel, `RLIMIT_MEMLOCK`), they are plain
/// buffers; a ring that was refused tries again when another pool is gone.
/// [`rings`](RegisteredBufs::rings) returns how many rings have registered the pool.
///
/// Registration helps most with long and direct reads and writes.
///
/// ```
/// use kinfolk_runtime::{Runtime, fs::File, io};
///
/// # let path = std::env::temp_dir().join(format!("kinfolk-registered-{}", std::process::id()));
/// # std::fs::write(&path, vec![7; 8192])?;
/// Runtime::new()?.block_on(async {
///     let pool = io::registered(16, 4096);
///     let file = File::open(&path).await?;
///     let buf = pool.take().await?; // waits if all are out
///     let (read, buf) = file.read_at(buf, 4096).await;
///     assert_eq!(read?, 4096);
///     assert!(buf.iter().all(|byte| *byte == 7));
///     drop(buf); // back in the pool
///     assert_eq!(pool.free(), 16);
///     Ok::<_, kinfolk_core::Error>(())
/// })?;
/// # std::fs::remove_file(&path)?;
/// # Ok::<_, kinfolk_core::Error>(())
/// ```
///
/// # Panics
/// If `count` or `size` is zero.
pub fn registered(count: u32, size: usize) -> RegisteredBufs {
    assert!(
        count > 0 && size > 0,
        "a pool must have at least one buffer of at least one byte"
    );
    let whole = size
        .checked_next_multiple_of(PAGE)
        .and_then(|stride| Some((stride, stride.checked_mul(count as usize)?)));
    let (stride, len) = whole.expect("a pool that fits into memory");
    RegisteredBufs(Arc::new(Inner {
        listed: ListedRegion::zeroed(len, stride),
        size,
        stride,
        limit: Limit::new(count as usize),
        free: Mutex::new((0..count).rev().collect()),
    }))
}

impl RegisteredBufs {
    /// Takes a buffer, if one is free and no task waits for one. It still contains the bytes of
    /// its last use.
    pub fn try_take(&self) -> Option<RegisteredBuf> {
        self.0.limit.try_take().map(|permit| self.hand_out(permit))
    }

    /// Takes a buffer; waits until one is free. First come, first served.
    ///
    /// # Cancellation
    /// A *point*. If it returns `Cancelled`, no buffer was taken.
    #[track_caller]
    pub fn take(&self) -> Take {
        Take {
            pool: self.clone(),
            turn: None,
            point: Point::new(),
        }
    }

    /// Returns how many buffers are free.
    pub fn free(&self) -> usize {
        self.0.free().len()
    }

    /// Returns how many rings have registered the pool so far: one for each worker that has
    /// used one of its buffers, and 0 where the system refuses.
    pub fn rings(&self) -> usize {
        self.0.listed.region().rings()
    }

    fn hand_out(&self, permit: Permit) -> RegisteredBuf {
        let n = self.0.free().pop().expect("a buffer for each permit");
        let start = self.0.listed.region().start();
        // SAFETY: `n` is below the count that the region was made for. Noticed by
        // `io_5_each_registered_buffer_is_out_once`.
        let ptr = unsafe { start.add(n as usize * self.0.stride) };
        RegisteredBuf {
            ptr,
            n,
            pool: self.0.clone(),
            _permit: permit,
        }
    }
}

impl fmt::Debug for RegisteredBufs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegisteredBufs")
            .field("free", &self.free())
            .field("size", &self.0.size)
            .field("rings", &self.rings())
            .finish()
    }
}

/// Waits for a buffer; made by [`RegisteredBufs::take`].
///
/// # Cancellation
/// A *point*. Told or dropped, it has taken none.
#[must_use = "futures do nothing unless awaited"]
pub struct Take {
    pool: RegisteredBufs,
    turn: Option<PermitWait>,
    point: Point,
}

// Nothing in it is pinned.
impl Unpin for Take {}

impl Future for Take {
    type Output = Result<RegisteredBuf, Cancelled>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Err(told) = ready!(this.point.poll_enter(cx)) {
            // To the next in the queue, if it was our turn.
            this.turn = None;
            return Poll::Ready(Err(told));
        }
        let turn = this
            .turn
            .get_or_insert_with(|| PermitWait::of(this.pool.0.limit.clone()));
        match turn.poll(cx) {
            Poll::Ready(permit) => {
                this.turn = None;
                this.point.done();
                Poll::Ready(Ok(this.pool.hand_out(permit)))
            }
            Poll::Pending => {
                this.point.pending_as(cx, WaitKind::Io);
                Poll::Pending
            }
        }
    }
}

impl fmt::Debug for Take {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Take")
    }
}

/// A buffer of [`RegisteredBufs`], of a fixed length. Dropping it returns it to its pool.
pub struct RegisteredBuf {
    ptr: NonNull<u8>,
    n: u32,
    pool: Arc<Inner>,
    /// Given back after the buffer.
    _permit: Permit,
}

// SAFETY: it owns its bytes, as a Box does: each number is out once. Noticed by
// `io_5_each_registered_buffer_is_out_once`.
unsafe impl Send for RegisteredBuf {}
// SAFETY: as above.
unsafe impl Sync for RegisteredBuf {}

impl Deref for RegisteredBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: that many bytes of the region, zeroed when it was made, are
        // ours while the number is out.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.pool.size) }
    }
}

impl DerefMut for RegisteredBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.pool.size) }
    }
}

impl Drop for RegisteredBuf {
    fn drop(&mut self) {
        self.pool.free().push(self.n);
    }
}

impl fmt::Debug for RegisteredBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RegisteredBuf({} bytes)", self.pool.size)
    }
}
