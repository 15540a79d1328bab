//! Starting a child, ordinary or a service: the caller waits until the child reports that it
//! is ready, or gets an error that says why it never will be.

use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use crate::base::error::{Cancelled, Error, Result};
use crate::base::kind::JobKind;
use crate::base::outcome::IntoOutcome;
use crate::base::reason::ReasonKind;
use crate::base::unwind::{Contained, discard};
use crate::engine::pin;
use crate::more::kit::{Completer, Completion, NeverCompleted, Point};
use crate::surface::handle;
use crate::surface::inline::{Inline, Just, Setup};
use crate::surface::lane::{LaneFor, Pool};
use crate::surface::scope::Scope;
use crate::surface::spawn::{ChildSort, Spawner};
use crate::surface::task::Task;

/// A child that was [started](Scope::start) ended before it reported that it is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeverReady;

impl fmt::Display for NeverReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the task ended before it reported that it is ready")
    }
}

impl std::error::Error for NeverReady {}

fn never_ready() -> Error {
    Error::from_boxed(Box::new(NeverReady))
}

/// The value with which a [started](Scope::start) child reports, once, that it is ready.
///
/// Dropping it reports nothing; the start of a child that ends without having reported
/// fails with [`NeverReady`].
pub struct Ready<T>(Arc<Completer<Result<T>>>);

impl<T> Ready<T> {
    /// Reports that the child is ready: the call that started it continues with
    /// `value`. If that caller no longer waits, the value is dropped, and the child, which
    /// is cancelled then, is told at its next point.
    pub fn ready(self, value: T) {
        self.0.complete(Ok(value));
    }
}

impl<T> fmt::Debug for Ready<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ready")
    }
}

pin_project! {
    /// The body of a child that was [started](Scope::start). It runs in a scope
    /// of its own, so that its children have ended too when its result is
    /// known.
    pub struct Service<B, T>
    where
        B: Future<Output: IntoOutcome>,
    {
        #[pin]
        body: Inline<Just<B>>,
        ready: Arc<Completer<Result<T>>>,
        site: &'static Location<'static>,
    }

    impl<B, T> PinnedDrop for Service<B, T>
    where
        B: Future<Output: IntoOutcome>,
    {
        fn drop(this: Pin<&mut Self>) {
            // However the body ended, no caller waits for its report any more,
            // though other code may still hold its `Ready`.
            this.ready.never();
        }
    }
}

impl<B, T> Future for Service<B, T>
where
    B: Future<Output: IntoOutcome>,
{
    type Output = Result<<B::Output as IntoOutcome>::Value>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let result = std::task::ready!(this.body.poll(cx));
        if this.ready.has_completed() {
            return Poll::Ready(result);
        }
        Poll::Ready(match result {
            // The starting code learns from the handle that the child has ended
            // without a report. If the start was given up, no code waited for a
            // report, and this is no failure: so no error is made here.
            Ok(value) => Ok(value),
            // The starting code learns from the handle that the child was
            // stopped.
            Err(error) if error.is_cancelled() => Err(error),
            Err(error) => match stop_itself(this.site) {
                Some(stopped) => {
                    this.ready.complete(Err(error));
                    Err(stopped.into())
                }
                None => Err(error),
            },
        })
    }
}

/// The failure is that of the start, not of the scope: the job ends cancelled.
fn stop_itself(site: &'static Location<'static>) -> Option<Cancelled> {
    let text = "the service failed before it was ready";
    handle::cancel_here(ReasonKind::BodyFailed, text, site)
}

impl<B, T> fmt::Debug for Service<B, T>
where
    B: Future<Output: IntoOutcome>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Service")
    }
}

impl Scope {
    /// Spawns a child task and waits until it reports that it is [ready](Ready::ready); see
    /// [`Spawner::start`].
    ///
    /// # Cancellation
    /// A *point*; see [`Spawner::start`].
    #[track_caller]
    pub fn start<F, B, T>(&self, body: F) -> StartService<Pool, F, B, T>
    where
        F: FnOnce(Ready<T>) -> B,
        B: Future<Output: IntoOutcome>,
        T: Send + 'static,
    {
        Spawner::new(self.clone()).start(body)
    }

    /// Starts a service and waits until it is ready; see
    /// [`Spawner::start_service`].
    ///
    /// # Cancellation
    /// A *point*; see [`Spawner::start_service`].
    #[track_caller]
    pub fn start_service<F, B, T>(&self, body: F) -> StartService<Pool, F, B, T>
    where
        F: FnOnce(Ready<T>) -> B,
        B: Future<Output: IntoOutcome>,
        T: Send + 'static,
    {
        Spawner::new(self.clone()).start_service(body)
    }
}

impl<L> Spawner<L> {
    /// Spawns a child task and waits until it reports that it is
    /// [ready](Ready::ready). Returns the value that it reported, and its handle.
    ///
    /// ```
    /// # use kinfolk_core::{Result, scope};
    /// # async fn connect() -> Result<u32> { Ok(7) }
    /// # async fn receive(session: u32) -> Result<Vec<String>> { Ok(Vec::new()) }
    /// # async fn demo() -> Result<()> {
    /// scope(async |s| {
    ///     let (session, mail) = s
    ///         .start(async |ready| {
    ///             let session = connect().await?;
    ///             ready.ready(session);
    ///             receive(session).await
    ///         })
    ///         .await?;
    ///     println!("connected: {session}");
    ///     println!("{} letters", mail.await?.len());
    ///     Ok(())
    /// })
    /// .await
    /// # }
    /// ```
    ///
    /// A failure or panic of the child before it is ready is returned here, and the scope is not
    /// affected. If the child ends without having reported, the error is [`NeverReady`]; if it is
    /// cancelled, or refused, the error is of kind `Stopped`. Once ready, it is a child like any
    /// other: the scope's body may end, and the scope waits for the child. For a child that ends
    /// with the others, there is [`start_service`](Spawner::start_service).
    ///
    /// # Cancellation
    /// A *point*. If the current job is cancelled already, nothing is spawned. If it returns
    /// `Cancelled`, or is dropped before it is over, the child is cancelled, and its scope
    /// waits for it; a failure of the child during that time goes to the failure hook.
    #[track_caller]
    pub fn start<F, B, T>(self, body: F) -> StartService<L, F, B, T>
    where
        F: FnOnce(Ready<T>) -> B,
        B: Future<Output: IntoOutcome>,
        T: Send + 'static,
    {
        StartService::new(self, body, ChildSort::ORDINARY, Location::caller())
    }

    /// Spawns a [service](Spawner::spawn_service) and waits until it reports that it is
    /// [ready](Ready::ready). Returns the value that it reported, and its handle.
    ///
    /// ```
    /// # use kinfolk_core::{Error, Result, park, scope};
    /// # struct Listener;
    /// # impl Listener { fn addr(&self) -> u16 { 80 } }
    /// # fn bind() -> Result<Listener> { Ok(Listener) }
    /// # async fn serve(_: Listener) -> Result<()> { park().await?; Ok(()) }
    /// # async fn demo() -> Result<()> {
    /// scope(async |s| {
    ///     let (addr, server) = s
    ///         .start_service(async |ready| {
    ///             let listener = bind()?;
    ///             ready.ready(listener.addr());
    ///             serve(listener).await
    ///         })
    ///         .await?;
    ///     println!("at {addr}");
    /// #   drop(server);
    ///     Ok(())
    /// })
    /// .await
    /// # }
    /// ```
    ///
    /// Until the service is ready, its failure or panic is returned here and does not cancel
    /// the scope. If the service ends without having reported, the error is [`NeverReady`];
    /// if it is cancelled, or the scope refuses it, the error is of kind `Stopped`. Once
    /// ready, it is a service like any other.
    ///
    /// # Cancellation
    /// A *point*. If the current job is cancelled already, nothing is spawned. If it returns
    /// `Cancelled`, or is dropped before it is over, the service is cancelled, and its scope
    /// waits for it; a failure of the service during that time goes to the failure hook.
    #[track_caller]
    pub fn start_service<F, B, T>(self, body: F) -> StartService<L, F, B, T>
    where
        F: FnOnce(Ready<T>) -> B,
        B: Future<Output: IntoOutcome>,
        T: Send + 'static,
    {
        StartService::new(self, body, ChildSort::SERVICE, Location::caller())
    }
}

/// The future of [`Scope::start`] and [`Scope::start_service`].
#[must_use = "nothing is started until it is awaited"]
pub struct StartService<L, F, B, T>
where
    B: Future<Output: IntoOutcome>,
{
    stage: ServiceStage<L, F, <B::Output as IntoOutcome>::Value, T>,
    /// What sort of child it is, in the state word.
    sort: ChildSort,
    point: Point,
    site: &'static Location<'static>,
}

impl<L, F, B, T> StartService<L, F, B, T>
where
    B: Future<Output: IntoOutcome>,
{
    fn new(
        spawner: Spawner<L>,
        body: F,
        sort: ChildSort,
        site: &'static Location<'static>,
    ) -> StartService<L, F, B, T> {
        StartService {
            stage: ServiceStage::Unborn(spawner, Contained::new(body)),
            sort,
            point: Point::at(site),
            site,
        }
    }
}

enum ServiceStage<L, F, V, T> {
    /// Contained: a told waiter has a result to return, which a destructor that
    /// panics would lose.
    Unborn(Spawner<L>, Contained<F>),
    /// The child has not reported yet.
    Starting(Task<V>, Completion<Result<T>>),
    /// The child will not report: its handle says why.
    Ending(Task<V>),
    Over,
}

// Nothing in it is pinned.
impl<L, F, B, T> Unpin for StartService<L, F, B, T> where B: Future<Output: IntoOutcome> {}

impl<L, F, B, T> Future for StartService<L, F, B, T>
where
    L: LaneFor<Service<B, T>>,
    F: FnOnce(Ready<T>) -> B,
    B: Future<Output: IntoOutcome>,
    T: Send + 'static,
{
    type Output = Result<(T, Task<<B::Output as IntoOutcome>::Value>)>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let ServiceStage::Unborn(..) = this.stage {
            std::task::ready!(this.point.poll_enter(cx))?;
        }
        loop {
            match std::mem::replace(&mut this.stage, ServiceStage::Over) {
                ServiceStage::Unborn(spawner, body) => {
                    this.stage = begin(&spawner, body.into_inner(), this.sort, this.site);
                }
                ServiceStage::Starting(task, mut said) => match Pin::new(&mut said).poll(cx) {
                    Poll::Pending => {
                        this.stage = ServiceStage::Starting(task, said);
                        return Poll::Pending;
                    }
                    Poll::Ready(Ok(Ok(value))) => return Poll::Ready(Ok((value, task))),
                    Poll::Ready(Ok(Err(failed))) => return Poll::Ready(Err(failed)),
                    Poll::Ready(Err(error)) => {
                        if error.downcast_ref::<NeverCompleted>().is_none() {
                            return Poll::Ready(Err(error));
                        }
                        this.stage = ServiceStage::Ending(task);
                    }
                },
                ServiceStage::Ending(mut task) => match Pin::new(&mut task).poll(cx) {
                    Poll::Pending => {
                        this.stage = ServiceStage::Ending(task);
                        return Poll::Pending;
                    }
                    Poll::Ready(Ok(value)) => {
                        discard(value);
                        return Poll::Ready(Err(never_ready()));
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                },
                ServiceStage::Over => panic!("StartService was polled after completion"),
            }
        }
    }
}

fn begin<L, F, B, T>(
    spawner: &Spawner<L>,
    body: F,
    sort: ChildSort,
    site: &'static Location<'static>,
) -> ServiceStage<L, F, <B::Output as IntoOutcome>::Value, T>
where
    L: LaneFor<Service<B, T>>,
    F: FnOnce(Ready<T>) -> B,
    B: Future<Output: IntoOutcome>,
    T: Send + 'static,
{
    let (said, completer) = crate::more::kit::completion_at(site);
    // No caller gets a failure that is returned here: the hook gets it.
    let scope = spawner.scope().clone();
    said.give_back_to(move |said: Result<T>| {
        if let Err(error) = said
            && let Some(tree) = pin::tree_of(scope.header())
        {
            tree.report_failure(&error);
        }
    });
    let ready = Arc::new(completer);
    let service = Service {
        body: Inline::new(
            Just(body(Ready(ready.clone()))),
            Setup::new(JobKind::Scope, site),
        ),
        ready,
        site,
    };
    let place = spawner.place();
    let task = place.spawn_on(spawner.lane(), service, sort, site);
    ServiceStage::Starting(task, said.begun())
}

impl<L, F, B, T> fmt::Debug for StartService<L, F, B, T>
where
    B: Future<Output: IntoOutcome>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StartService")
    }
}
