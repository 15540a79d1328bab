//! Standard input. It belongs to the whole process, and so does the buffer: lines that one
//! wait has read and not taken are there for the next, whichever job that is in.
//!
//! Standard input is shared with other processes (a shell, children), so its mode must not be
//! changed: a thread waits until it is readable, and then reads. The thread reads only while a
//! job waits. It is no thread of a runtime: a read that does not return, because another
//! process was faster, holds up no job, no shutdown and no end of the process.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use kinfolk_core::WaitKind;
use kinfolk_core::host::{Contained, discard, wake};
use kinfolk_core::kit::Point;

use super::buf_reader::{fill, text};
use super::{IoBufMut, IoHandle, ReadStream, StreamRead, cancelled};

/// How much is read at once.
const SIZE: usize = 8 * 1024;

/// Returns standard input of the process, whose reads are cancellation points.
///
/// ```no_run
/// # mod kinfolk { pub use kinfolk_core::*; pub use kinfolk_runtime::io; }
/// use kinfolk::io;
///
/// # async fn demo() -> kinfolk::Result<()> {
/// let mut lines = io::stdin().lines();
/// while let Some(line) = lines.next().await {
///     println!("you said: {}", line?); // Ctrl-C ends the wait: `?` passes the cancel on
/// }
/// # Ok(())
/// # }
/// ```
///
/// All handles share one buffer, and a read that is told or dropped half-way has taken
/// nothing. Several jobs that read at once get different lines. `std::io::stdin()` has a
/// buffer of its own: do not use both.
///
/// In a simulation standard input is empty until the test types something
/// (`SimKernel::type_in`).
pub fn stdin() -> Stdin {
    let of_host = IoHandle::current().ok();
    let input = of_host.and_then(|handle| handle.system().stdin());
    Stdin {
        input: input.unwrap_or_else(of_process),
    }
}

/// That of the process.
fn of_process() -> Arc<Input> {
    static INPUT: OnceLock<Arc<Input>> = OnceLock::new();
    INPUT
        .get_or_init(|| Input::read_from(InputSource::Stdin))
        .clone()
}

/// Standard input; made by [`stdin`]. Clones and other handles share its buffer.
#[derive(Clone, Debug)]
pub struct Stdin {
    input: Arc<Input>,
}

impl Stdin {
    /// Returns the lines of standard input, one after the other.
    pub fn lines(&self) -> StdinLines {
        StdinLines {
            stdin: self.clone(),
        }
    }

    /// Reads a line, without its `\n` or `\r\n`; `None` at the end of the input.
    ///
    /// # Cancellation
    /// A *point*. If it returns `Cancelled`, nothing was taken: the line, and a part of one,
    /// stays for the next read.
    ///
    /// # Errors
    /// Those of the system; `InvalidData` for a line that is not UTF-8: the error inside is a
    /// [`FromUtf8Error`](std::string::FromUtf8Error), which has the bytes.
    #[track_caller]
    pub fn read_line(&self) -> impl Future<Output = io::Result<Option<String>>> + Send + use<> {
        let line = self.read_until(b'\n');
        async move { text(line.await?) }
    }

    /// Reads up to and including `byte`; at the end of the input what is left, and then
    /// nothing.
    ///
    /// # Cancellation
    /// A *point*. If it returns `Cancelled`, nothing was taken.
    ///
    /// # Errors
    /// Those of the system.
    #[track_caller]
    pub fn read_until(&self, byte: u8) -> impl Future<Output = io::Result<Vec<u8>>> + Send + use<> {
        self.wait(move |unread, seen, ended| {
            let end = unread[seen..].iter().position(|b| *b == byte);
            let end = end.map(|at| seen + at + 1);
            end.or_else(|| ended.then_some(unread.len()))
        })
    }

    /// Reads some bytes into `buf`, up to its room; 0 at the end of the input.
    ///
    /// # Cancellation
    /// A *point*. If it returns `Cancelled`, nothing was taken.
    #[track_caller]
    pub fn read<B: IoBufMut>(
        &self,
        buf: B,
    ) -> impl Future<Output = (io::Result<usize>, B)> + Send + use<B> {
        let room = buf.room();
        let some = self.some(room);
        async move {
            let mut buf = Contained::new(buf);
            let read = some.await.map(|bytes| {
                fill(&mut *buf, &bytes);
                bytes.len()
            });
            (read, buf.into_inner())
        }
    }

    #[track_caller]
    fn some(&self, room: usize) -> InputWait<impl FindsPart + Send + use<>> {
        self.wait(move |unread, _, ended| {
            (!unread.is_empty() || ended || room == 0).then_some(unread.len().min(room))
        })
    }

    #[track_caller]
    fn wait<F: Fn(&[u8], usize, bool) -> Option<usize>>(&self, part: F) -> InputWait<F> {
        InputWait {
            input: self.input.clone(),
            part,
            seen: 0,
            taken: 0,
            key: None,
            point: Point::new(),
        }
    }
}

impl ReadStream for Stdin {
    #[track_caller]
    fn read_into(&self, mut buf: Vec<u8>) -> StreamRead {
        let some = self.some(buf.capacity());
        StreamRead::new(async move {
            let read = some.await.map(|bytes| {
                fill(&mut buf, &bytes);
                bytes.len()
            });
            (read, buf)
        })
    }
}

/// The lines of standard input; made by [`Stdin::lines`].
#[derive(Clone, Debug)]
pub struct StdinLines {
    stdin: Stdin,
}

impl StdinLines {
    /// Waits for the next line, without its `\n` or `\r\n`; `None` at the end of the input.
    ///
    /// # Cancellation
    /// A *point*. If it returns `Cancelled`, nothing was taken: the line, and a part of one,
    /// stays for the next read, through this handle or another.
    ///
    /// # Errors
    /// As [`Stdin::read_line`].
    #[allow(clippy::should_implement_trait, reason = "it is awaited")]
    #[track_caller]
    pub fn next(&mut self) -> impl Future<Output = Option<io::Result<String>>> + Send + use<> {
        let line = self.stdin.read_line();
        async move { line.await.transpose() }
    }
}

/// What was typed and not taken, and the jobs that wait for more. A host that has a standard
/// input of its own, as the simulation has, makes one and returns it from
/// [`System::stdin`](super::System::stdin).
pub struct Input {
    state: Mutex<State>,
    /// A job waits.
    wanted: Condvar,
    source: InputSource,
}

/// The bytes that were read and not taken. What was taken stays in front of them until it is
/// half of the memory: so a byte is moved once, however small the parts are that leave.
#[derive(Default)]
struct Unread {
    memory: Vec<u8>,
    taken: usize,
}

impl Unread {
    fn bytes(&self) -> &[u8] {
        &self.memory[self.taken..]
    }

    fn add(&mut self, bytes: &[u8]) {
        self.memory.extend_from_slice(bytes);
    }

    fn take(&mut self, bytes: usize) -> Vec<u8> {
        let part = self.bytes()[..bytes].to_vec();
        self.taken += bytes;
        if self.taken >= self.memory.len() / 2 {
            self.memory.drain(..self.taken);
            self.taken = 0;
            let need = SIZE.max(self.memory.len());
            if self.memory.capacity() / 4 > need {
                // It has held a long line: its memory goes back.
                self.memory.shrink_to(need);
            }
        }
        part
    }
}

#[derive(Default)]
struct State {
    unread: Unread,
    /// How many bytes were taken in all.
    taken: u64,
    ended: bool,
    /// Told to one wait.
    failed: Option<io::Error>,
    waiting: BTreeMap<u64, Waker>,
    keys: u64,
    /// The thread that reads was started; the pipe wakes it when no job waits any more.
    bell: Option<PipeWriter>,
    /// There is a byte in that pipe.
    rung: bool,
    /// The thread waits for input, and hears the pipe.
    listens: bool,
}

/// Where bytes come from.
enum InputSource {
    /// A test.
    Typed,
    Stdin,
    #[cfg_attr(not(test), allow(dead_code, reason = "tests read from a pipe"))]
    Other(OwnedFd),
}

impl InputSource {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            InputSource::Typed => None,
            // SAFETY: number 0 is open for the life of the process, as std takes for granted
            // when it reads from it. A program that closes it gets errors here.
            InputSource::Stdin => Some(unsafe { BorrowedFd::borrow_raw(libc::STDIN_FILENO) }),
            InputSource::Other(fd) => Some(fd.as_fd()),
        }
    }
}

impl Input {
    /// Makes a standard input that a test writes into.
    pub fn typed() -> Arc<Input> {
        Input::read_from(InputSource::Typed)
    }

    fn read_from(source: InputSource) -> Arc<Input> {
        Arc::new(Input {
            state: Mutex::default(),
            wanted: Condvar::new(),
            source,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds these bytes to what can be read.
    pub fn type_in(&self, bytes: &[u8]) {
        self.change(|state| state.unread.add(bytes));
    }

    /// Ends the input.
    pub fn end(&self) {
        self.change(|state| state.ended = true);
    }

    fn fail(&self, error: io::Error) {
        self.change(|state| state.failed = Some(error));
    }

    /// Every wait looks again.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        for waker in waiting.into_values() {
            wake(waker);
        }
    }

    /// A wait is over: without any the thread stops reading.
    fn leave(&self, key: u64) {
        let mut state = self.state();
        let waker = state.waiting.remove(&key);
        state.ring_if_idle();
        drop(state);
        discard(waker);
    }

    /// Starts the thread that reads, if it is not there.
    fn start(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        if state.bell.is_some() || self.source.fd().is_none() {
            return Ok(());
        }
        let (heard, bell) = io::pipe()?;
        let input = self.clone();
        std::thread::Builder::new()
            .name("kinfolk-stdin".into())
            .spawn(move || input.serve(heard))?;
        state.bell = Some(bell);
        Ok(())
    }

    /// The thread that reads.
    fn serve(&self, mut heard: PipeReader) {
        let Some(fd) = self.source.fd() else {
            return;
        };
        let mut buf = vec![0; SIZE];
        loop {
            let idle = |state: &mut State| state.waiting.is_empty();
            let state = self.wanted.wait_while(self.state(), idle);
            state.unwrap_or_else(PoisonError::into_inner).listens = true;
            let woken_by = wait_readable(fd, heard.as_fd());
            self.state().hears_no_more(&mut heard);
            match woken_by {
                Ok(WokenBy::Input) => {}
                Ok(WokenBy::Bell) => continue,
                Err(error) => {
                    self.fail(error);
                    continue;
                }
            }
            // SAFETY: `buf` is ours, and as long as is said.
            let read = unsafe { libc::read(fd.as_raw_fd(), buf.as_mut_ptr().cast(), buf.len()) };
            match usize::try_from(read) {
                Ok(0) => return self.end(),
                Ok(bytes) => self.type_in(&buf[..bytes]),
                Err(_) => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    // Somebody has made it non-blocking, and another process was faster.
                    error if error.kind() == io::ErrorKind::WouldBlock => {}
                    error => self.fail(error),
                },
            }
        }
    }
}

impl State {
    fn ring_if_idle(&mut self) {
        if self.waiting.is_empty()
            && self.listens
            && !self.rung
            && let Some(bell) = &mut self.bell
        {
            // One byte at most is in the pipe, so this does not block.
            self.rung = bell.write(&[1]).is_ok();
        }
    }

    /// The thread does not wait for input any more. It takes the byte out of the pipe, which
    /// may have come after it was woken for another reason.
    fn hears_no_more(&mut self, heard: &mut PipeReader) {
        self.listens = false;
        if std::mem::take(&mut self.rung) {
            let _ = heard.read(&mut [0]);
        }
    }

    /// The part that `part` finds behind the `seen` bytes in which there is none, or why
    /// there is none.
    fn take(&mut self, part: &impl FindsPart, seen: usize) -> Option<io::Result<Vec<u8>>> {
        if let Some(bytes) = part(self.unread.bytes(), seen, self.ended) {
            self.taken += bytes as u64;
            return Some(Ok(self.unread.take(bytes)));
        }
        self.failed.take().map(Err)
    }
}

/// How many of the unread bytes are the part that is waited for. The second argument says how
/// many of them were looked at before, in vain, the third one that no more will come.
trait FindsPart: Fn(&[u8], usize, bool) -> Option<usize> {}

impl<F: Fn(&[u8], usize, bool) -> Option<usize>> FindsPart for F {}

enum WokenBy {
    Input,
    Bell,
}

/// Waits until one of them can be read.
fn wait_readable(input: BorrowedFd<'_>, bell: BorrowedFd<'_>) -> io::Result<WokenBy> {
    let watch = |fd: BorrowedFd<'_>| libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let mut both = [watch(bell), watch(input)];
    loop {
        // SAFETY: two entries, ours.
        let ready = unsafe { libc::poll(both.as_mut_ptr(), 2, -1) };
        if ready > 0 {
            // The bell first: then no job may wait any more, and nothing is to be read.
            return Ok(match both[0].revents {
                0 => WokenBy::Input,
                _ => WokenBy::Bell,
            });
        }
        let error = io::Error::last_os_error();
        if ready < 0 && error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Input")
            .field("unread", &state.unread.bytes().len())
            .field("ended", &state.ended)
            .finish_non_exhaustive()
    }
}

/// Waits until `part` finds its part among what was not taken.
struct InputWait<F> {
    input: Arc<Input>,
    part: F,
    /// So many unread bytes it has looked at in vain, when so many had been taken in all: a
    /// long line is searched once.
    seen: usize,
    taken: u64,
    /// Its place among those that wait.
    key: Option<u64>,
    point: Point,
}

// Nothing in it is pinned.
impl<F> Unpin for InputWait<F> {}

impl<F: FindsPart> Future for InputWait<F> {
    type Output = io::Result<Vec<u8>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<Vec<u8>>> {
        let this = self.get_mut();
        // Told, it takes nothing: what is there stays for the next.
        if let Err(told) = ready!(this.point.poll_enter(cx)) {
            this.leave();
            return Poll::Ready(Err(cancelled(told)));
        }
        let waker = cx.waker().clone();
        let mut state = this.input.state();
        let seen = match this.taken == state.taken {
            true => this.seen,
            // Another wait has taken some of them.
            false => 0,
        };
        let taken = match state.take(&this.part, seen) {
            None => this.input.start(&mut state).err().map(Err),
            taken => taken,
        };
        (this.seen, this.taken) = (state.unread.bytes().len(), state.taken);
        if let Some(taken) = taken {
            drop(state);
            discard(Some(waker));
            this.leave();
            this.point.done();
            return Poll::Ready(taken);
        }
        let key = *this.key.get_or_insert_with(|| {
            state.keys += 1;
            state.keys
        });
        let before = state.waiting.insert(key, waker);
        this.input.wanted.notify_one();
        drop(state);
        discard(before);
        this.point.pending_as(cx, WaitKind::Io);
        Poll::Pending
    }
}

impl<F> InputWait<F> {
    fn leave(&mut self) {
        if let Some(key) = self.key.take() {
            self.input.leave(key);
        }
    }
}

impl<F> Drop for InputWait<F> {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Runtime;
    use kinfolk_core::{Error, ErrorKind, Result, current_job, spawn, timeout, yield_now};
    use std::time::Duration;

    /// Standard input that is a pipe.
    fn piped() -> (Stdin, PipeWriter) {
        let (read, write) = io::pipe().expect("a pipe");
        let input = Input::read_from(InputSource::Other(read.into()));
        (Stdin { input }, write)
    }

    fn each(body: impl AsyncFn() -> Result<()>) {
        for workers in [0, 2] {
            let rt = Runtime::builder().workers(workers).build();
            rt.expect("a runtime").block_on(body()).expect("it is well");
        }
    }

    #[test]
    fn io_7_lines_come_and_end() {
        each(async || {
            let (stdin, mut write) = piped();
            let mut lines = stdin.lines();
            write.write_all(b"one\r\ntwo\nlast")?;
            drop(write);
            for wanted in ["one", "two", "last"] {
                assert_eq!(lines.next().await.transpose()?.as_deref(), Some(wanted));
            }
            assert!(lines.next().await.is_none());
            assert!(lines.next().await.is_none());
            Ok(())
        });
    }

    /// FindsPart of a line is there when the wait is told: the next handle gets all of it.
    #[test]
    fn io_7_a_told_wait_for_a_line_loses_none() {
        each(async || {
            let (stdin, mut write) = piped();
            let own = stdin.clone();
            write.write_all(b"be")?;
            let task = spawn(async move {
                own.lines().next().await.transpose()?;
                Ok::<_, Error>(())
            });
            while stdin.input.state().unread.bytes().is_empty() {
                yield_now().await?;
            }
            task.cancel("enough");
            assert!(task.outcome().await?.is_cancelled());
            write.write_all(b"gin\nnext\n")?;
            assert_eq!(stdin.read_line().await?.as_deref(), Some("begin"));
            assert_eq!(stdin.read_line().await?.as_deref(), Some("next"));
            Ok(())
        });
    }

    /// cancel-3: a line that is there is not given to a job that was told.
    #[test]
    fn io_7_told_at_entry_a_line_is_left() {
        each(async || {
            let input = Input::typed();
            input.type_in(b"line\n");
            let stdin = Stdin { input };
            let mine = stdin.clone();
            let task = spawn(async move {
                current_job().expect("a job").cancel("enough");
                mine.read_line().await?;
                Ok::<_, Error>(())
            });
            assert!(task.outcome().await?.is_cancelled());
            assert_eq!(stdin.read_line().await?.as_deref(), Some("line"));
            Ok(())
        });
    }

    /// The thread reads while a job waits, and not otherwise: what comes later is for
    /// whichever process reads it.
    #[test]
    fn io_7_nothing_is_read_while_no_job_waits() {
        each(async || {
            let (stdin, mut write) = piped();
            let none = timeout(Duration::from_millis(1), stdin.read_line()).await;
            assert_eq!(none.expect_err("none came").kind(), ErrorKind::TimedOut);
            // The thread has heard the bell, and waits to be wanted.
            while stdin.input.state().rung {
                yield_now().await?;
            }
            write.write_all(b"later\n")?;
            assert!(stdin.input.state().unread.bytes().is_empty());
            assert_eq!(stdin.read_line().await?.as_deref(), Some("later"));
            Ok(())
        });
    }

    /// The last wait leaves before the thread has come to listen: no byte is left in the pipe,
    /// and none is when the thread was woken by input in the same moment.
    #[test]
    fn io_7_the_bell_rings_only_while_the_thread_listens() {
        let (read, _write) = io::pipe().expect("a pipe");
        let input = Input::read_from(InputSource::Other(read.into()));
        let (mut heard, bell) = io::pipe().expect("a pipe");
        input.state().bell = Some(bell);
        input.leave(0);
        assert!(!input.state().rung, "the thread would not hear it");

        input.state().listens = true;
        input.leave(0);
        assert!(input.state().rung);
        input.state().hears_no_more(&mut heard);
        input.leave(0);
        assert!(!input.state().rung);
        input.state().bell = None;
        assert_eq!(
            heard.read(&mut [0]).expect("the end"),
            0,
            "the byte was taken"
        );
    }

    #[test]
    fn io_7_a_dropped_wait_leaves_its_place() {
        each(async || {
            let stdin = Stdin {
                input: Input::typed(),
            };
            let mut wait = Box::pin(stdin.read_line());
            std::future::poll_fn(|cx| {
                assert!(wait.as_mut().poll(cx).is_pending());
                Poll::Ready(())
            })
            .await;
            assert_eq!(stdin.input.state().waiting.len(), 1);
            drop(wait);
            assert!(stdin.input.state().waiting.is_empty());
            stdin.input.end();
            assert_eq!(stdin.read_line().await?, None);
            Ok(())
        });
    }

    /// A long line is searched once, however often a part of it comes; what another wait has
    /// taken meanwhile makes it begin anew. Its memory goes back.
    #[test]
    fn io_7_a_long_line_is_searched_once() {
        each(async || {
            let stdin = Stdin {
                input: Input::typed(),
            };
            let looked_at = std::sync::atomic::AtomicUsize::new(0);
            let mut line = Box::pin(stdin.wait(|unread, seen, _| {
                let fresh = &unread[seen..];
                looked_at.fetch_add(fresh.len(), std::sync::atomic::Ordering::Relaxed);
                let end = fresh.iter().position(|b| *b == b'\n')?;
                Some(seen + end + 1)
            }));
            let mut other = Some(Box::pin(stdin.read(Vec::with_capacity(10))));
            for n in 0..1000 {
                // A turn for each, which has a budget of its own.
                yield_now().await?;
                stdin.input.type_in(&[b'x'; 100]);
                if n == 500
                    && let Some(other) = other.take()
                {
                    // Ten of those that it has looked at.
                    assert_eq!(other.await.0?, 10);
                }
                std::future::poll_fn(|cx| {
                    assert!(line.as_mut().poll(cx).is_pending());
                    Poll::Ready(())
                })
                .await;
            }
            stdin.input.type_in(b"\n");
            assert_eq!(line.await?.len(), 99_991);
            let looked_at = looked_at.into_inner();
            assert_eq!(looked_at, 99_991 + 50_000, "all of it, and half of it anew");
            assert!(stdin.input.state().unread.memory.capacity() <= 4 * SIZE);
            Ok(())
        });
    }

    /// A file that cannot be read is an error of the wait, not a loop.
    #[test]
    fn io_7_an_error_is_told() {
        each(async || {
            // A directory is always readable for poll(2), and never for read(2).
            let root = std::fs::File::open("/")?;
            let stdin = Stdin {
                input: Input::read_from(InputSource::Other(root.into())),
            };
            let error = stdin.read_line().await.expect_err("it cannot be read");
            assert_eq!(error.raw_os_error(), Some(libc::EISDIR));
            Ok(())
        });
    }
}
