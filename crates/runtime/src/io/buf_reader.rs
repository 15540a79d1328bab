//! [`BufReader`] and [`Lines`]: reading a stream in parts that belong together.
//!
//! Bytes leave the reader's buffer when a part is complete, and not before. So a wait that is
//! told or dropped half-way leaves everything for the next.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use kinfolk_core::host::Contained;
use kinfolk_core::kit::Point;

use super::{IoBufMut, ReadStream, StreamRead, cancelled};

/// How much is read at once unless the program says otherwise.
const SIZE: usize = 8 * 1024;

/// Reads a stream through a buffer: line by line, up to some byte, or so many bytes.
///
/// The stream is a socket, a pipe, a file from some offset on, or a type of your own that
/// implements [`ReadStream`]; also a reference to one, so that the same job can write to it.
///
/// ```
/// # mod kinfolk { pub use kinfolk_core::*; pub use kinfolk_runtime::{io, net}; }
/// use kinfolk::{io::BufReader, net::TcpStream};
///
/// /// Sends each line back.
/// async fn echo(stream: TcpStream) -> kinfolk::Result<()> {
///     let mut lines = BufReader::new(&stream).lines();
///     while let Some(line) = lines.next().await {
///         stream.write_all(format!("{}\n", line?)).await.0?;
///     }
///     Ok(())
/// }
/// ```
///
/// # Cancellation
/// Each method that waits is a *point*. If it returns `Cancelled`, nothing was taken: bytes
/// that were read before, a part of a line for example, stay in the reader, and the next call
/// returns them with the rest. The same holds for a wait that is dropped half-way.
pub struct BufReader<S> {
    stream: S,
    /// What was read; the bytes before `at` were taken.
    buf: Vec<u8>,
    at: usize,
    /// The buffer of the next read.
    spare: Vec<u8>,
    size: usize,
    /// A read that is in flight, or was when the wait for it was dropped.
    read: Option<StreamRead>,
}

impl<S: ReadStream> BufReader<S> {
    /// Reads `stream` through a buffer of 8 KiB, which grows for longer parts.
    pub fn new(stream: S) -> BufReader<S> {
        BufReader::with_capacity(SIZE, stream)
    }

    /// Reads `size` bytes at once, at least one.
    pub fn with_capacity(size: usize, stream: S) -> BufReader<S> {
        BufReader {
            stream,
            buf: Vec::new(),
            at: 0,
            spare: Vec::new(),
            size: size.max(1),
            read: None,
        }
    }

    /// Returns the stream, for its addresses, and to write to. What is read from it directly
    /// passes by the bytes in here.
    pub fn get_ref(&self) -> &S {
        &self.stream
    }

    /// Returns the bytes that were read and not taken yet.
    pub fn buffer(&self) -> &[u8] {
        &self.buf[self.at..]
    }

    /// Returns the lines of the stream, one after the other.
    pub fn lines(self) -> Lines<S> {
        Lines {
            reader: self,
            most: usize::MAX,
        }
    }

    /// Reads up to and including `byte`. At the end of the stream it returns what is left,
    /// without that byte, and then nothing.
    ///
    /// ```
    /// # mod kinfolk { pub use kinfolk_core::*; pub use kinfolk_runtime::{io, net}; }
    /// # use kinfolk::io::{BufReader, pipe};
    /// # kinfolk_runtime::Runtime::new()?.block_on(async {
    /// let (reader, writer) = pipe()?;
    /// writer.write_all("key=value").await.0?;
    /// drop(writer);
    /// let mut reader = BufReader::new(reader);
    /// assert_eq!(reader.read_until(b'=').await?, b"key=");
    /// assert_eq!(reader.read_until(b'=').await?, b"value");
    /// assert_eq!(reader.read_until(b'=').await?, b"");
    /// # Ok::<_, kinfolk::Error>(())
    /// # })?;
    /// # Ok::<_, kinfolk::Error>(())
    /// ```
    ///
    /// # Cancellation
    /// A *point*. If it returns `Cancelled`, nothing was taken.
    ///
    /// # Errors
    /// Those of the stream. What was read before stays in the reader.
    #[track_caller]
    pub fn read_until(
        &mut self,
        byte: u8,
    ) -> impl Future<Output = io::Result<Vec<u8>>> + Send + use<'_, S>
    where
        S: Send,
    {
        self.up_to(byte, usize::MAX)
    }

    /// Reads a line, without its `\n` or `\r\n`; `None` at the end of the stream.
    ///
    /// # Cancellation
    /// A *point*. If it returns `Cancelled`, nothing was taken.
    ///
    /// # Errors
    /// Those of the stream; `InvalidData` for a line that is not UTF-8: the error inside is a
    /// [`FromUtf8Error`](std::string::FromUtf8Error), which has the bytes, and the next call
    /// reads the next line.
    #[track_caller]
    pub fn read_line(
        &mut self,
    ) -> impl Future<Output = io::Result<Option<String>>> + Send + use<'_, S>
    where
        S: Send,
    {
        let line = self.up_to(b'\n', usize::MAX);
        async move { text(line.await?) }
    }

    /// Fills all of `buf`.
    ///
    /// # Cancellation
    /// A *point*. If it returns `Cancelled`, nothing was taken: the bytes that are there stay
    /// in the reader, and `buf` is as it was.
    ///
    /// # Errors
    /// `UnexpectedEof` if the stream ends before; the bytes stay in the reader.
    #[track_caller]
    pub fn read_exact<B: IoBufMut>(
        &mut self,
        buf: B,
    ) -> impl Future<Output = (io::Result<()>, B)> + Send + use<'_, S, B>
    where
        S: Send,
    {
        let room = buf.room();
        let filled = self.part(move |reader, ended| {
            if reader.buffer().len() >= room {
                return Some(Ok(reader.take(room)));
            }
            ended.then(|| Err(io::ErrorKind::UnexpectedEof.into()))
        });
        async move {
            let mut buf = Contained::new(buf);
            let read = filled.await.map(|bytes| fill(&mut *buf, &bytes));
            (read, buf.into_inner())
        }
    }

    /// Reads some bytes into `buf`, up to its room; 0 at the end of the stream.
    ///
    /// # Cancellation
    /// A *point*. If it returns `Cancelled`, nothing was taken.
    #[track_caller]
    pub fn read<B: IoBufMut>(
        &mut self,
        buf: B,
    ) -> impl Future<Output = (io::Result<usize>, B)> + Send + use<'_, S, B>
    where
        S: Send,
    {
        let room = buf.room();
        let some = self.part(move |reader, ended| {
            let bytes = reader.buffer().len().min(room);
            (bytes > 0 || ended || room == 0).then(|| Ok(reader.take(bytes)))
        });
        async move {
            let mut buf = Contained::new(buf);
            let read = some.await.map(|bytes| {
                fill(&mut *buf, &bytes);
                bytes.len()
            });
            (read, buf.into_inner())
        }
    }

    /// Reads to the end of the stream.
    ///
    /// # Cancellation
    /// A *point*. If it returns `Cancelled`, nothing was taken: what was read until then stays
    /// in the reader.
    ///
    /// # Errors
    /// Those of the stream.
    #[track_caller]
    pub fn read_to_end(&mut self) -> impl Future<Output = io::Result<Vec<u8>>> + Send + use<'_, S>
    where
        S: Send,
    {
        self.part(|reader, ended| {
            let all = reader.buffer().len();
            ended.then(|| Ok(reader.take(all)))
        })
    }

    /// Up to `byte`, which is among the first `most` bytes or an error.
    #[allow(clippy::type_complexity, reason = "a closure has no shorter name")]
    #[track_caller]
    fn up_to(
        &mut self,
        byte: u8,
        most: usize,
    ) -> Part<'_, S, impl FnMut(&mut BufReader<S>, bool) -> Option<io::Result<Vec<u8>>> + use<S>>
    {
        let mut seen = 0;
        self.part(move |reader, ended| {
            let unread = reader.buffer();
            if let Some(at) = unread[seen..].iter().position(|b| *b == byte) {
                let len = seen + at + 1;
                return Some(match len > most {
                    true => Err(too_long(most)),
                    false => Ok(reader.take(len)),
                });
            }
            seen = unread.len();
            if seen >= most {
                return Some(Err(too_long(most)));
            }
            ended.then(|| Ok(reader.take(seen)))
        })
    }

    #[track_caller]
    fn part<F, T>(&mut self, take: F) -> Part<'_, S, F>
    where
        F: FnMut(&mut BufReader<S>, bool) -> Option<io::Result<T>>,
    {
        Part {
            reader: self,
            take,
            looked: false,
            entered: false,
            point: Point::new(),
        }
    }

    /// Takes the next `bytes`, which are there.
    fn take(&mut self, bytes: usize) -> Vec<u8> {
        let taken = self.buffer()[..bytes].to_vec();
        self.at += bytes;
        taken
    }

    /// Reads more; how many bytes.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut read = match self.read.take() {
            Some(read) => read,
            None => {
                let mut spare = std::mem::take(&mut self.spare);
                spare.clear();
                if spare.capacity() > self.size {
                    // It has held a long part: its memory goes back.
                    spare = Vec::new();
                }
                spare.reserve_exact(self.size);
                self.stream.read_into(spare)
            }
        };
        let Poll::Ready((read, bytes)) = Pin::new(&mut read).poll(cx) else {
            self.read = Some(read);
            return Poll::Pending;
        };
        if let Err(error) = read {
            self.spare = bytes;
            return Poll::Ready(Err(error));
        }
        let count = bytes.len();
        if self.buffer().is_empty() {
            self.spare = std::mem::replace(&mut self.buf, bytes);
        } else {
            self.buf.drain(..self.at);
            let need = self.size.max(self.buf.len() + bytes.len());
            if self.buf.capacity() / 4 > need {
                self.buf.shrink_to(need);
            }
            self.buf.extend_from_slice(&bytes);
            self.spare = bytes;
        }
        self.at = 0;
        Poll::Ready(Ok(count))
    }
}

impl<S: fmt::Debug> fmt::Debug for BufReader<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufReader")
            .field("stream", &self.stream)
            .field("buffered", &(self.buf.len() - self.at))
            .finish()
    }
}

/// Waits until `take` finds its part in the buffer. It is asked first with what is there, then
/// after each read; its second argument says that the stream has ended.
struct Part<'a, S, F> {
    reader: &'a mut BufReader<S>,
    take: F,
    /// It has looked at what was there.
    looked: bool,
    /// It has passed a point since its last read: the reads of a stream of the program's may
    /// be none, and ready each time.
    entered: bool,
    point: Point,
}

// Nothing in it is pinned.
impl<S, F> Unpin for Part<'_, S, F> {}

impl<S, F, T> Future for Part<'_, S, F>
where
    S: ReadStream,
    F: FnMut(&mut BufReader<S>, bool) -> Option<io::Result<T>>,
{
    type Output = io::Result<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let this = self.get_mut();
        loop {
            if !this.entered {
                // Told at entry it takes nothing, also if the part is there.
                ready!(this.point.poll_enter(cx)).map_err(cancelled)?;
                this.point.done();
                this.entered = true;
            }
            if !std::mem::replace(&mut this.looked, true)
                && let Some(part) = (this.take)(this.reader, false)
            {
                return Poll::Ready(part);
            }
            let bytes = ready!(this.reader.poll_more(cx))?;
            if let Some(part) = (this.take)(this.reader, bytes == 0) {
                return Poll::Ready(part);
            }
            this.entered = false;
        }
    }
}

impl<S, F> Drop for Part<'_, S, F> {
    fn drop(&mut self) {
        // The reader keeps the read, and the next wait gets what it brings.
        if let Some(read) = &mut self.reader.read {
            read.ask_to_end();
        }
    }
}

/// The lines of a stream; made by [`BufReader::lines`].
///
/// ```
/// # mod kinfolk { pub use kinfolk_core::*; pub use kinfolk_runtime::{io, net}; }
/// # use kinfolk::io::{BufReader, pipe};
/// # kinfolk_runtime::Runtime::new()?.block_on(async {
/// let (reader, writer) = pipe()?;
/// writer.write_all("one\r\ntwo").await.0?;
/// drop(writer);
/// let mut lines = BufReader::new(reader).lines();
/// let mut seen = Vec::new();
/// while let Some(line) = lines.next().await {
///     seen.push(line?);
/// }
/// assert_eq!(seen, ["one", "two"]);
/// # Ok::<_, kinfolk::Error>(())
/// # })?;
/// # Ok::<_, kinfolk::Error>(())
/// ```
pub struct Lines<S> {
    reader: BufReader<S>,
    most: usize,
}

impl<S: ReadStream> Lines<S> {
    /// Refuses lines that are longer than `bytes`, their end included: a server should, since
    /// a line is kept in memory until it is complete.
    pub fn at_most(mut self, bytes: usize) -> Lines<S> {
        self.most = bytes;
        self
    }

    /// Waits for the next line, without its `\n` or `\r\n`; `None` at the end of the stream.
    /// What stands behind the last `\n` is a line too, unless it is empty.
    ///
    /// # Cancellation
    /// A *point*. If it returns `Cancelled`, nothing was taken: a part of a line stays in the
    /// reader, and the next call, in a clean-up for example, returns it with the rest.
    ///
    /// # Errors
    /// As [`BufReader::read_line`]; `InvalidData` for a line that is too long, which stays in
    /// the reader, so that the next call returns the same error.
    #[allow(clippy::should_implement_trait, reason = "it is awaited")]
    #[track_caller]
    pub fn next(&mut self) -> impl Future<Output = Option<io::Result<String>>> + Send + use<'_, S>
    where
        S: Send,
    {
        let line = self.reader.up_to(b'\n', self.most);
        async move { line.await.and_then(text).transpose() }
    }

    /// Returns the reader, with what it has read.
    pub fn get_ref(&self) -> &BufReader<S> {
        &self.reader
    }

    /// Converts back into the reader, with what it has read: for what follows the lines.
    pub fn into_reader(self) -> BufReader<S> {
        self.reader
    }
}

impl<S: fmt::Debug> fmt::Debug for Lines<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lines").field(&self.reader).finish()
    }
}

/// A line as text, without its end; nothing at the end of a stream.
pub(super) fn text(mut line: Vec<u8>) -> io::Result<Option<String>> {
    if line.is_empty() {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
    }
    match String::from_utf8(line) {
        Ok(line) => Ok(Some(line)),
        Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error)),
    }
}

/// Puts `bytes` into `buf`, which has room for them.
pub(super) fn fill(buf: &mut impl IoBufMut, bytes: &[u8]) {
    assert!(bytes.len() <= buf.room(), "no more is taken than fits");
    // SAFETY: there is room for them, asserted above, and they are written before they count
    // as filled; the two do not overlap, since `bytes` is borrowed from elsewhere.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), buf.ptr_mut(), bytes.len());
        buf.set_filled(bytes.len());
    }
}

fn too_long(most: usize) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("a line is longer than {most} bytes"),
    )
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Runtime;
    use crate::io::{BufWriter, pipe};
    use kinfolk_core::{Error, scope};

    /// What a long part has taken is given back with the next ones, whether the buffer is
    /// empty between them or not.
    #[test]
    fn io_7_memory_returns_after_a_long_line() {
        for shorts in ["ab\n", "a\nb"] {
            let rt = Runtime::builder().workers(0).build().expect("a runtime");
            let run = rt.block_on(scope(async |s| {
                let (reader, writer) = pipe()?;
                s.launch(async move {
                    let mut out = BufWriter::with_capacity(64, writer);
                    out.write_all(format!("{}\n", "x".repeat(100_000))).await?;
                    out.flush().await?;
                    assert!(
                        out.capacity() <= 4 * 64,
                        "the writer keeps {}",
                        out.capacity()
                    );
                    for _ in 0..100 {
                        out.write_all(shorts).await?;
                        out.flush().await?;
                    }
                    Ok::<_, Error>(())
                });
                let mut lines = BufReader::with_capacity(64, reader).lines();
                let long = lines.next().await.transpose()?.expect("a line");
                assert_eq!(long.len(), 100_000);
                while let Some(line) = lines.next().await {
                    line?;
                }
                let reader = lines.into_reader();
                for kept in [reader.buf.capacity(), reader.spare.capacity()] {
                    assert!(kept <= 4 * 64, "{kept} bytes are kept");
                }
                Ok::<_, Error>(())
            }));
            run.expect("all was read");
        }
    }
}
