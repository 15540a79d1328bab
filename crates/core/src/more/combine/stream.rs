//! Streams: a [`TaskSet`] as a stream, items from a stream, and a point around
//! any stream.

use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use pin_project_lite::pin_project;

use crate::base::error::{Cancelled, Error, Result};
use crate::base::unwind::Contained;
use crate::base::wait_kind::WaitKind;
use crate::more::combine::each::{Items, Source};
use crate::more::combine::task_set::TaskSet;
use crate::points::point::{self, Yielded};
use crate::points::wait::Wait;
use crate::record::header::Site;

impl<T> Stream for TaskSet<T> {
    type Item = Result<T>;

    #[track_caller]
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<T>>> {
        let site = Location::caller();
        let next = ready!(self.get_mut().poll_next_result(cx, site));
        Poll::Ready(next.unwrap_or_else(|told| Some(Err(Error::from(told)))))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // While the waiter is being told there are more items than results.
        (self.len(), None)
    }
}

/// The shape of streams.
pub enum Streams {}

impl<S: Stream> Items<Streams> for S {
    type Item = S::Item;
    type Source = Streamed<S>;

    fn into_source(self) -> Streamed<S> {
        let stream = Contained::new(self);
        Streamed { stream }
    }
}

pin_project! {
    /// Items of a stream.
    pub struct Streamed<S> {
        #[pin]
        stream: Contained<S>,
    }
}

impl<S: Stream> Source for Streamed<S> {
    type Item = S::Item;

    fn poll_item(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        self.project().stream.as_pin_mut().poll_next(cx)
    }
}

/// Makes a point of the items of any stream.
pub trait OrCancelStream: Stream + Sized {
    /// The items of this stream, or `Cancelled` while the current job is
    /// cancelled.
    ///
    /// # Cancellation
    /// Waiting for an item is a *point*. When told, the stream is not polled, and
    /// is not dropped either: no item is lost, and inside a shield or
    /// [`cleanup`](crate::cleanup) they come again. It ends when the stream does.
    #[track_caller]
    fn or_cancel(self) -> OrCancelItems<Self> {
        OrCancelItems {
            stream: self,
            yielded: Yielded::here(),
            wait: Wait::new(),
            site: Site::of(Location::caller()),
        }
    }
}

impl<S: Stream> OrCancelStream for S {}

pin_project! {
    /// The stream of [`OrCancelStream::or_cancel`].
    #[must_use = "streams do nothing unless polled"]
    pub struct OrCancelItems<S> {
        #[pin]
        stream: S,
        yielded: Yielded,
        wait: Wait,
        site: Site,
    }
}

impl<S: Stream> Stream for OrCancelItems<S> {
    type Item = Result<S::Item, Cancelled>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.project();
        if let Err(told) = ready!(point::poll_point_at(cx, this.yielded, *this.site)) {
            this.wait.over();
            this.yielded.reset();
            return Poll::Ready(Some(Err(told)));
        }
        let Poll::Ready(item) = this.stream.poll_next(cx) else {
            this.wait
                .pending(cx.waker(), WaitKind::OrCancel, *this.site);
            return Poll::Pending;
        };
        this.wait.over();
        Poll::Ready(item.map(Ok))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // Being told is an item too.
        (self.stream.size_hint().0, None)
    }
}

impl<S> fmt::Debug for OrCancelItems<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OrCancelItems")
    }
}
