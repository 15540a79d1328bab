//! [`TaskSet::map`]: a task for each of many items, so many at once, and their values in
//! the order of the items.

use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use super::task_set::{TaskSet, check_limit, result_of};
use crate::base::error::{Error, Result};
use crate::base::kind::JobKind;
use crate::base::outcome::IntoOutcome;
use crate::base::unwind::Contained;
use crate::more::combine::branch::ValueOf;
use crate::surface::inline::{Inline, Open, Setup};
use crate::surface::scope::Scope;

impl<T> TaskSet<T> {
    /// Calls `f` for each item and runs the returned future as a task, at most `limit`
    /// at once, in parallel; returns the values in the order of the items. An item is
    /// taken from the iterator when there is room for its task. A limit of zero is an
    /// error.
    ///
    /// The tasks are children of a scope of this call. The first task that ends without a value
    /// decides: no further item is taken, the other tasks are cancelled and waited for, and the
    /// call returns that failure, or `Stopped` for a task that was cancelled by itself; further
    /// failures are [suppressed](crate::Error::suppressed). Futures that borrow, or need no task,
    /// are for [`for_each_concurrent`](crate::for_each_concurrent).
    ///
    /// ```
    /// # use kinfolk_core::TaskSet;
    /// # async fn fetch(url: String) -> kinfolk_core::Result<String> { Ok(url) }
    /// # async fn demo(urls: Vec<String>) -> kinfolk_core::Result<()> {
    /// let pages: Vec<String> = TaskSet::map(urls, 8, fetch).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancellation
    /// A *point* before each item. If the call is told there, it takes no more items, and returns
    /// `Cancelled` when the tasks, which are told too, have ended; with `&mut items` the items that
    /// were not taken are still there. Once the iterator has no more items, waiting for the last
    /// tasks is not a point: if each returns a value though it was told, the call returns the
    /// values. Values that came before are dropped if the call fails or is told.
    #[track_caller]
    pub fn map<I, G, F>(items: I, limit: usize, f: G) -> Inline<MapTasks<I::IntoIter, G>>
    where
        I: IntoIterator,
        G: FnMut(I::Item) -> F,
        F: Future<Output: IntoOutcome<Value = T>> + Send + 'static,
        T: Send,
    {
        let site = Location::caller();
        let body = MapTasks {
            items: Contained::new(items.into_iter()),
            f: Contained::new(f),
            limit,
            site,
        };
        Inline::new(body, Setup::new(JobKind::Scope, site))
    }
}

/// The body of [`TaskSet::map`].
pub struct MapTasks<I, G> {
    items: Contained<I>,
    f: Contained<G>,
    limit: usize,
    site: &'static Location<'static>,
}

impl<I, G, F> Open for MapTasks<I, G>
where
    I: Iterator,
    G: FnMut(I::Item) -> F,
    F: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
{
    type Body = MapBody<I, G, ValueOf<F>>;
    type Value = Vec<ValueOf<F>>;
    type Error = Error;

    fn open(self, scope: Scope) -> Self::Body {
        MapBody {
            items: Some(self.items),
            f: self.f,
            limit: self.limit,
            set: TaskSet::within(&scope),
            values: Vec::new(),
            error: None,
            site: self.site,
        }
    }

    fn result(output: Result<Self::Value>) -> Result<Self::Value> {
        output
    }
}

impl<I, G> fmt::Debug for MapTasks<I, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MapTasks")
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

pin_project! {
    /// The task of one item: its value, with the number of the item.
    struct NumberedItem<F> {
        number: usize,
        #[pin]
        future: F,
    }
}

impl<F: Future<Output: IntoOutcome>> Future for NumberedItem<F> {
    type Output = Result<(usize, ValueOf<F>)>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let ended = ready!(this.future.poll(cx));
        Poll::Ready(ended.into_result().map(|value| (*this.number, value)))
    }
}

/// The body of the scope of [`TaskSet::map`].
pub struct MapBody<I, G, T> {
    /// None when all have been taken.
    items: Option<Contained<I>>,
    f: Contained<G>,
    limit: usize,
    set: TaskSet<(usize, T)>,
    /// By the number of the item.
    values: Vec<Option<Contained<T>>>,
    /// The error of the first task that has no value.
    error: Option<Error>,
    site: &'static Location<'static>,
}

// Nothing in it is pinned.
impl<I, G, T> Unpin for MapBody<I, G, T> {}

impl<I, G, T> MapBody<I, G, T> {
    /// Collects the results that have come.
    fn take_results(&mut self) {
        self.set.look();
        while let Some(ended) = self.set.done.pop_front() {
            match result_of(ended) {
                Ok((number, value)) => self.values[number] = Some(Contained::new(value)),
                Err(error) => drop(self.error.get_or_insert(error)),
            }
        }
    }
}

impl<I, G, F, T> Future for MapBody<I, G, T>
where
    I: Iterator,
    G: FnMut(I::Item) -> F,
    F: Future<Output: IntoOutcome<Value = T>> + Send + 'static,
    T: Send,
{
    type Output = Result<Vec<T>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        check_limit("TaskSet::map with a limit", this.limit)?;
        this.set.most = this.limit;
        loop {
            // An iterator that says it is at its end is not called again for
            // every free place.
            let items = this.items.as_ref();
            if items.is_none_or(|items| items.size_hint().1 == Some(0)) {
                break;
            }
            ready!(this.set.poll_room(cx, this.site))?;
            this.take_results();
            if this.error.is_some() {
                break;
            }
            let Some(item) = this.items.as_mut().and_then(|items| items.next()) else {
                break;
            };
            let number = this.values.len();
            let future = (this.f)(item);
            this.set
                .start(NumberedItem { number, future }, false, this.site);
            this.values.push(None);
        }
        this.items = None;
        this.take_results();
        // Decided: the scope cancels the tasks that still run, and waits for them.
        if this.error.is_some() {
            // A task that was cancelled with this scope: the scope's body is told.
            ready!(this.set.poll_told(cx, this.site))?;
        } else if this.set.running > 0 {
            this.set.park(cx, this.site);
            return Poll::Pending;
        }
        this.set.leave();
        match this.error.take() {
            Some(error) => Poll::Ready(Err(error)),
            None => {
                let values = std::mem::take(&mut this.values).into_iter().flatten();
                Poll::Ready(Ok(values.map(Contained::into_inner).collect()))
            }
        }
    }
}
