//! Running hyper: [`Polled`] implements its i/o traits, [`Executor`] spawns its tasks into a
//! scope, [`HyperTimer`] uses the clock of the job. [`serve()`] lets a connection finish the
//! requests that it has begun when its job is cancelled.

use std::any::Any;
use std::error;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::rt::{self, ReadBufCursor};
use kinfolk_core::host::Contained;
use kinfolk_core::kit::{Point, cancelled_here, completion};
use kinfolk_core::{
    Cancelled, Error, ErrorKind, OrFail, Result, Scope, WaitKind, cleanup, current_job, now, park,
    shield, sleep_until,
};

use kinfolk_runtime::net::by_hand::Streaming;

use crate::polled::{Polled, writes};

impl<S: Streaming + Unpin> rt::Read for Polled<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let room = buf.remaining();
        let read = (self.get_mut()).poll_take(cx, room, |bytes| buf.put_slice(bytes));
        read.map_ok(drop)
    }
}

writes!(
    rt::Write,
    poll_shutdown,
    fn is_write_vectored(&self) -> bool {
        true
    }
);

/// Serves a connection. When its job is cancelled, `stop` asks the connection to end: it
/// answers the requests that it has begun and accepts no other, and then `serve` returns the
/// cancellation.
///
/// ```ignore
/// let http = http1::Builder::new().serve_connection(Polled::new(stream), service);
/// serve(http, |http| http.graceful_shutdown()).await
/// ```
///
/// HTTP/2 needs an executor for its requests: use [`Executor::current`], so that they belong
/// to the connection. A request that panics does not affect the others: its stream is reset,
/// and the failure hook receives the panic. With HTTP/1 a request runs inside the connection,
/// and its panic is the connection's error. Tasks that requests spawn and do not await are in
/// a [supervisor](kinfolk_core::ScopeBuilder::supervisor) too.
///
/// # Cancellation
/// A *point*. The connection, its requests and the tasks that they spawn are not told of the
/// cancel at first: they have the time that clean-up may take
/// ([`Patience::cleanup`](kinfolk_core::Patience::cleanup) of the job), and are told with the
/// same reason when that is spent. Clean-up after that has its own time, as usual. Do not put
/// a shield around `serve`: the cancel would not reach `serve` before the shield ends. If the
/// job is told at entry, no request is accepted.
///
/// An [interrupt](kinfolk_core::Job::interrupt) asks the connection to end as well, without a
/// time limit for its requests: only a cancel sets one. If the connection fails after that,
/// or this future is dropped, the next point reports the interrupt again.
///
/// # Errors
/// Errors of the connection, such as a request that is not HTTP, and of a service that fails.
/// A client that leaves is not an error: a broken connection, even in the middle of a
/// request, ends like a closed one. An error that comes from a cancel is of kind
/// `Cancelled`.
#[track_caller]
pub fn serve<C, E>(
    connection: C,
    stop: impl FnOnce(Pin<&mut C>),
) -> impl Future<Output = Result<()>>
where
    C: Future<Output = std::result::Result<(), E>>,
    E: Into<Box<dyn error::Error + Send + Sync>> + 'static,
{
    let (mut asked, asker) = completion::<()>();
    // Dropped one by one, if the connection is not polled to its end.
    let (connection, mut stop) = (Contained::new(connection), Some(Contained::new(stop)));
    let inside = Arc::new(OnceLock::new());
    let opened = inside.clone();
    let connection = async move {
        let _ = opened.set(Scope::current());
        let mut connection = pin!(connection);
        let ended = poll_fn(|cx| {
            if stop.is_some()
                && Pin::new(&mut asked).poll(cx).is_ready()
                && let Some(stop) = stop.take()
            {
                stop.into_inner()(connection.as_mut().as_pin_mut());
            }
            connection.as_mut().as_pin_mut().poll(cx)
        });
        how_it_ended(ended.await)
    };
    // No clean-up, though it has the time of one: that of a clean-up inside would
    // count from its beginning.
    let served = shield(Scope::build().supervisor().run_future(connection));
    let grace = cleanup(park());
    let mut heard = Heard {
        point: Point::new(),
        told: None,
    };
    async move {
        let (mut served, mut grace) = (pin!(served), pin!(grace));
        let (mut asker, mut spent) = (Some(asker), None);
        let ended = poll_fn(|cx| {
            if heard.told.is_none()
                && let Err(told) = ready!(heard.point.poll_enter(cx))
            {
                heard.told = Some(told);
                if let Some(asker) = asker.take() {
                    asker.complete(());
                }
            }
            let ended = served.as_mut().poll(cx);
            if ended.is_pending() && heard.told.is_none() {
                heard.point.pending_as(cx, WaitKind::Scope);
            } else if ended.is_pending()
                && spent.is_none()
                && let Poll::Ready(Err(told)) = grace.as_mut().poll(cx)
            {
                if let Some(Some(inside)) = inside.get() {
                    inside.cancel(words_of(&told));
                }
                spent = Some(told);
            }
            ended
        });
        match (ended.await, spent) {
            // By our word, in the place of this.
            (Err(error), Some(told)) if error.kind() == ErrorKind::Stopped => Err(told),
            (Err(error), _) => Err(error),
            (Ok(()), Some(told)) => Err(told),
            (Ok(()), None) => match heard.told.take() {
                // A cancel that came after an interrupt is what it ends with.
                Some(told) => Err(cancelled_here().unwrap_or(told).into()),
                None => Ok(()),
            },
        }
    }
}

/// The result of a connection: no error if the client has left.
fn how_it_ended<E>(ended: std::result::Result<(), E>) -> Result<()>
where
    E: Into<Box<dyn error::Error + Send + Sync>> + 'static,
{
    let ended = match ended {
        Err(error) if client_left(&error) => Ok(()),
        ended => ended,
    };
    ended.or_fail().map_err(|error| {
        // There is one if its time was spent.
        match cancelled_here() {
            Some(told) if has_words_of(&error, &told) => told.into(),
            _ => error,
        }
    })
}

/// True for an error of hyper's that only says that the other side is gone.
fn client_left(error: &dyn Any) -> bool {
    let Some(error) = error.downcast_ref::<hyper::Error>() else {
        return false;
    };
    // What a service or a body of the program returns is its own, whatever its kind.
    if error.is_user() {
        return false;
    }
    if error.is_incomplete_message() {
        return true;
    }
    let mut source: Option<&(dyn error::Error + 'static)> = error::Error::source(error);
    while let Some(inner) = source {
        if let Some(io) = inner.downcast_ref::<io::Error>() {
            return matches!(
                io.kind(),
                io::ErrorKind::ConnectionReset
                    | io::ErrorKind::ConnectionAborted
                    | io::ErrorKind::BrokenPipe
                    | io::ErrorKind::NotConnected
                    | io::ErrorKind::UnexpectedEof
            );
        }
        source = inner.source();
    }
    false
}

/// The reason of a cancel, for jobs that are told of it later.
fn words_of(told: &Error) -> String {
    let Some(reason) = told.reason() else {
        return told.to_string();
    };
    match reason.text() {
        Some(text) => text.to_owned(),
        None => reason.to_string(),
    }
}

/// What the serving job was told and has not returned yet. If it is not returned at all, it
/// is told again: an interrupt is told only once.
struct Heard {
    point: Point,
    told: Option<Cancelled>,
}

impl Drop for Heard {
    fn drop(&mut self) {
        if let Some(told) = &self.told {
            self.point.tell_again(told);
        }
    }
}

/// True if an error of i/o in `error` says `told`. Of one that our stream returns to
/// it, h2 keeps the kind and the words.
fn has_words_of(error: &Error, told: &Cancelled) -> bool {
    (error.downcast_ref::<io::Error>()).is_some_and(|io| io.to_string() == told.to_string())
}

/// An executor that spawns hyper's tasks into a scope, which cancels them with itself and
/// waits for them.
#[derive(Clone, Debug)]
pub struct Executor(Option<Scope>);

impl Executor {
    /// Spawns into this scope.
    pub fn new(scope: Scope) -> Executor {
        Executor(Some(scope))
    }

    /// Spawns into the job that polls hyper at that moment: the tasks of a connection belong
    /// to the job that serves it.
    ///
    /// # Panics
    /// Outside every job, when hyper launches a task.
    pub fn current() -> Executor {
        Executor(None)
    }
}

impl<F> rt::Executor<F> for Executor
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, future: F) {
        let here = || Scope::of_job(&current_job().expect("hyper is polled in a job"));
        let scope = self.0.clone().unwrap_or_else(here);
        scope.task("hyper").launch(async move {
            future.await;
        });
    }
}

/// A timer for hyper that sleeps by the clock of the job: in a simulation by virtual time.
#[derive(Clone, Copy, Debug, Default)]
pub struct HyperTimer;

impl rt::Timer for HyperTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn rt::Sleep>> {
        // What cannot be represented is never.
        Box::pin(HyperSleep::new(now().checked_add(duration)))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn rt::Sleep>> {
        Box::pin(HyperSleep::new(Some(deadline)))
    }

    fn now(&self) -> Instant {
        now()
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn rt::Sleep>>, new_deadline: Instant) {
        *sleep = self.sleep_until(new_deadline);
    }
}

/// A sleep that cannot return a cancellation: then it does not end. The stream tells the job
/// that waits for it.
struct HyperSleep {
    until: Option<Instant>,
    /// There while it waits. Never locked: it makes the sleep `Sync`.
    inner: Mutex<Option<kinfolk_core::Sleep>>,
}

impl HyperSleep {
    fn new(until: Option<Instant>) -> HyperSleep {
        let inner = Mutex::new(None);
        HyperSleep { until, inner }
    }
}

impl rt::Sleep for HyperSleep {}

impl Future for HyperSleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let Some(until) = this.until else {
            return Poll::Pending;
        };
        let inner = this.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
        let sleep = inner.get_or_insert_with(|| sleep_until(until));
        let slept = ready!(Pin::new(sleep).poll(cx));
        // Told, it waits anew when it is polled in clean-up.
        *inner = None;
        match slept {
            Ok(()) => Poll::Ready(()),
            Err(told) => {
                // The stream tells it, also if it is told once only.
                Point::new().tell_again(&told);
                Poll::Pending
            }
        }
    }
}
