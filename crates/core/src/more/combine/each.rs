//! `for_each_concurrent`: a body for each of many items, so many at once.

use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use crate::base::error::Result;
use crate::base::outcome::IntoOutcome;
use crate::base::reason::ReasonKind;
use crate::base::unwind::Contained;
use crate::base::wait_kind::WaitKind;
use crate::more::combine::all::Verdict;
use crate::more::combine::branch::{BranchGroup, Lost, Pass, PassStatus};
use crate::more::combine::branches::Iterators;
use crate::more::combine::many::Many;
use crate::more::combine::taken_in::Cut;
use crate::more::combine::task_set::check_limit;
use crate::points::point::{self, Yielded};
use crate::points::wait::Wait;
use crate::record::header::Site;

/// Calls `body` for each item and runs the returned futures concurrently inside the calling
/// task, at most `limit` at once. Items come from an iterator, or with the feature `stream`
/// from a `Stream`; an item is taken when fewer than `limit` bodies run. A limit of zero is
/// an error.
///
/// Each body is a branch, like those of [`all`](crate::all): a scope that may borrow. The
/// first that fails decides: no further item is taken, and the other bodies are cancelled
/// with `RaceLost` and awaited; further failures are [suppressed](crate::Error::suppressed).
/// To run in parallel, use a [`TaskSet`](crate::TaskSet).
///
/// ```
/// # use kinfolk_core as kinfolk;
/// # async fn send(to: &str, text: &str) -> kinfolk::Result<()> { Ok(()) }
/// # async fn demo() -> kinfolk::Result<()> {
/// let text = String::from("hello");
/// let people = ["ada", "bob", "cy"];
/// kinfolk::for_each_concurrent(people, 2, |to| send(to, &text)).await?;
/// # Ok(())
/// # }
/// ```
///
/// Because bodies may borrow, they can keep their results outside, where the results are
/// not lost if the call is cancelled:
///
/// ```
/// # use kinfolk_core as kinfolk;
/// # async fn fetch(url: &str) -> kinfolk::Result<String> { Ok(url.into()) }
/// # async fn demo(urls: Vec<String>) -> kinfolk::Result<()> {
/// let pages = std::sync::Mutex::new(Vec::new());
/// let told = kinfolk::for_each_concurrent(&urls, 8, async |url| {
///     let page = fetch(url).await; // a failure is a result like any other
///     pages.lock().unwrap().push((url, page));
/// })
/// .await;
/// println!("{} of {} done", pages.lock().unwrap().len(), urls.len());
/// told
/// # }
/// ```
///
/// # Cancellation
/// A *point* before each item. When the call is told, it takes no further item, and returns
/// when the running bodies, which are cancelled too, have ended. Dropping the call before it
/// is over drops the running bodies and cancels their children, for which the enclosing job
/// waits.
#[track_caller]
pub fn for_each_concurrent<Shape, S, G, F>(
    items: S,
    limit: usize,
    body: G,
) -> ForEach<S::Source, G, F>
where
    S: Items<Shape>,
    G: FnMut(S::Item) -> F,
    F: Future<Output: IntoOutcome<Value = ()>>,
{
    let site = Location::caller();
    ForEach {
        source: items.into_source(),
        body: Contained::new(body),
        limit,
        running: Many::new(site),
        taking: Taking::More,
        verdict: Verdict::default(),
        told: Cut::default(),
        yielded: Yielded::at(Site::of(site)),
        wait: Wait::new(),
        site,
    }
}

/// Something to take items from: an iterator, or with the feature `stream` a
/// `Stream`. There is nothing to implement.
///
/// `Shape` tells the two apart; it is always inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an iterator",
    note = "give an iterator, or a `Stream` with the feature `stream`"
)]
pub trait Items<Shape> {
    /// The type of one item.
    type Item;

    #[doc(hidden)]
    type Source: Source<Item = Self::Item>;

    #[doc(hidden)]
    fn into_source(self) -> Self::Source;
}

/// A source of items.
pub trait Source {
    /// The type of one item.
    type Item;

    /// The next one; none if there are no more.
    fn poll_item(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>>;
}

impl<I: IntoIterator> Items<Iterators> for I {
    type Item = I::Item;
    type Source = Iterated<I::IntoIter>;

    fn into_source(self) -> Self::Source {
        Iterated(Contained::new(self.into_iter()))
    }
}

/// Items of an iterator, which are always ready.
pub struct Iterated<I>(Contained<I>);

impl<I> Unpin for Iterated<I> {}

impl<I: Iterator> Source for Iterated<I> {
    type Item = I::Item;

    fn poll_item(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<I::Item>> {
        Poll::Ready(self.get_mut().0.next())
    }
}

/// Whether there are items to take.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taking {
    /// Perhaps.
    More,
    /// Perhaps, but not before the next turn.
    NotNow,
    /// There are no more, or it is decided that none is taken.
    NoMore,
}

pin_project! {
    /// The future of [`for_each_concurrent`].
    #[must_use = "futures do nothing unless awaited"]
    pub struct ForEach<S, G, F: Future>
    where
        F::Output: IntoOutcome,
    {
        #[pin]
        source: S,
        body: Contained<G>,
        limit: usize,
        running: Many<F>,
        taking: Taking,
        verdict: Verdict,
        told: Cut,
        yielded: Yielded,
        wait: Wait,
        site: &'static Location<'static>,
    }
}

impl<S, G, F> ForEach<S, G, F>
where
    S: Source,
    G: FnMut(S::Item) -> F,
    F: Future<Output: IntoOutcome<Value = ()>>,
{
    /// Takes items while there is room for them.
    fn take_items(self: Pin<&mut Self>, cx: &mut Context<'_>) {
        let mut this = self.project();
        while *this.taking == Taking::More && this.running.running() < *this.limit {
            *this.taking = match point::poll_point_at(cx, this.yielded, Site::of(this.site)) {
                Poll::Pending => Taking::NotNow,
                Poll::Ready(Err(told)) => {
                    // A cancel tells the running bodies by itself; an interrupt
                    // is told once, here.
                    if told.reason().kind() == ReasonKind::Interrupted {
                        Pin::new(&mut *this.running).lose(&Lost::to_interrupt(), this.site);
                    }
                    this.told.take_in(told.into());
                    Taking::NoMore
                }
                Poll::Ready(Ok(())) => match this.source.as_mut().poll_item(cx) {
                    Poll::Pending => Taking::NotNow,
                    Poll::Ready(None) => Taking::NoMore,
                    Poll::Ready(Some(item)) => {
                        this.running.push((this.body)(item));
                        Taking::More
                    }
                },
            };
        }
    }

    /// Polls the running bodies, and tells the others if one has failed.
    fn run(self: Pin<&mut Self>, cx: &mut Context<'_>) {
        let this = self.project();
        loop {
            let verdict = &mut *this.verdict;
            let mut ended = |_, how: Result<()>| how.err().and_then(|e| verdict.take_in(e));
            let mut pass = Pass::new(&mut ended);
            Pin::new(&mut *this.running).poll(cx, &mut pass);
            let PassStatus::Decided(lost) = pass.status() else {
                return;
            };
            *this.taking = Taking::NoMore;
            Pin::new(&mut *this.running).lose(&lost, this.site);
        }
    }
}

impl<S, G, F> Future for ForEach<S, G, F>
where
    S: Source,
    G: FnMut(S::Item) -> F,
    F: Future<Output: IntoOutcome<Value = ()>>,
{
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        if let Err(error) = check_limit("for_each_concurrent with a limit", self.limit) {
            return Poll::Ready(Err(error));
        }
        let this = self.as_mut().project();
        if *this.taking == Taking::NotNow {
            *this.taking = Taking::More;
        }
        loop {
            self.as_mut().take_items(cx);
            self.as_mut().run(cx);
            let room = self.running.running() < self.limit;
            if !(room && self.taking == Taking::More) {
                break;
            }
        }
        let this = self.project();
        if *this.taking != Taking::NoMore || this.running.running() > 0 {
            this.wait
                .pending(cx.waker(), WaitKind::Scope, Site::of(this.site));
            return Poll::Pending;
        }
        this.wait.over();
        let verdict = std::mem::take(this.verdict);
        let told = std::mem::take(this.told);
        Poll::Ready(match verdict.error().or_else(|| told.into_error()) {
            Some(error) => Err(error),
            None => Ok(()),
        })
    }
}

impl<S, G, F: Future<Output: IntoOutcome>> fmt::Debug for ForEach<S, G, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForEach")
            .field("running", &self.running.running())
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}
