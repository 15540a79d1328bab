//! [`Chunks`]: the bytes that a stream receives, in buffers of a pool.

use std::fmt;
use std::io;
#[cfg(feature = "stream")]
use std::pin::Pin;
#[cfg(feature = "stream")]
use std::task::{Context, Poll};

use crate::io::{Chunk, SeriesItem, SeriesStream, failure};

/// The bytes that a stream receives, chunk by chunk, to its end; made by `chunks`.
///
/// A stream that waits needs no buffer: one of the [`BufferPool`](crate::io::BufferPool) is taken when there
/// are bytes. With io_uring it is begun once, and the system receives by itself
/// from then on, up to 16 chunks, with what came with them, that were not taken;
/// then it stops until they were taken. If the pool has no buffer left it waits
/// until a [`Chunk`] is dropped.
///
/// ```
/// use kinfolk_core::{Error, scope};
/// use kinfolk_runtime::Runtime;
/// use kinfolk_runtime::io::BufferPool;
/// use kinfolk_runtime::net::{TcpListener, TcpStream};
///
/// Runtime::new()?.block_on(scope(async |s| {
///     let listener = TcpListener::bind("127.0.0.1:0").await?;
///     let addr = listener.local_addr()?;
///     s.launch(async move {
///         let pool = BufferPool::new(64, 4096); // for all connections together
///         let (stream, _peer) = listener.accept().await?;
///         let mut chunks = stream.chunks(&pool);
///         while let Some(chunk) = chunks.next().await {
///             // It is written out as it is, and then goes back to the pool.
///             stream.write_all(chunk?).await.0?;
///         }
///         Ok::<_, Error>(())
///     });
///     let stream = TcpStream::connect(addr).await?;
///     stream.write_all("hello").await.0?;
///     let (read, buf) = stream.read_exact([0; 5]).await;
///     read?;
///     assert_eq!(&buf, b"hello");
///     Ok(())
/// }))?;
/// # Ok::<_, Error>(())
/// ```
///
/// # Cancellation
/// A poll is a *point*: a `Cancelled` is an item. No byte is lost by that, nor by dropping a
/// poll or the `Chunks`: bytes that were received and not taken are returned by the next
/// `chunks` or `read` of the stream. If the job is told before the poll waits, nothing is
/// taken; if it is told while the poll waits, a chunk that still came is returned, and the
/// next point reports the cancel.
pub struct Chunks {
    next: SeriesStream,
    ended: bool,
}

impl Chunks {
    pub(super) fn new(next: SeriesStream) -> Chunks {
        let ended = false;
        Chunks { next, ended }
    }

    /// Returns the next chunk; `None` once the other side has ended its direction.
    ///
    /// # Cancellation
    /// A *point*: see [`Chunks`].
    ///
    /// # Errors
    /// Those of the system, as items.
    pub async fn next(&mut self) -> Option<io::Result<Chunk>> {
        if self.ended {
            return None;
        }
        let item = self.next.wait().await;
        self.chunk(item)
    }

    fn chunk(&mut self, item: io::Result<SeriesItem>) -> Option<io::Result<Chunk>> {
        match item {
            Ok(SeriesItem::Bytes(chunk)) => Some(Ok(chunk)),
            Ok(SeriesItem::Failed { result, .. }) => Some(Err(failure(result))),
            Ok(_) => {
                self.ended = true;
                None
            }
            Err(error) => Some(Err(error)),
        }
    }
}

#[cfg(feature = "stream")]
impl futures_core::Stream for Chunks {
    type Item = io::Result<Chunk>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Chunk>>> {
        let this = self.get_mut();
        if this.ended {
            return Poll::Ready(None);
        }
        let item = this.next.poll(cx);
        item.map(|item| this.chunk(item))
    }
}

impl fmt::Debug for Chunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut chunks = f.debug_struct("Chunks");
        chunks.field("ended", &self.ended).finish_non_exhaustive()
    }
}
