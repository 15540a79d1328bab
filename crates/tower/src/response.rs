//! The client's side of a request: [`RequestFuture`], its response, and [`RequestBody`], the
//! body of that. Dropped before it has ended, each tells the request's job that its client is
//! gone.

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use http::{HeaderMap, Response};
use http_body::{Body, Frame, SizeHint};
use kinfolk_core::BoxError;

use crate::answer::LayerAnswer;
use crate::exchange::{BodyFacts, Exchange, FoundFrame, Head};

/// The client's hand on a request's job.
struct ClientSide<D> {
    exchange: Arc<Exchange<D>>,
    is_grpc: bool,
    /// The client has had all: that it goes is no news.
    is_over: bool,
}

impl<D> Drop for ClientSide<D> {
    fn drop(&mut self) {
        match self.is_over {
            // No frame is wanted any more, and that is no news for the handler.
            true => self.exchange.end(),
            false => self.exchange.leave(),
        }
    }
}

/// The response of a [`RequestService`](crate::RequestService). Dropping it tells the request's
/// job that its client is gone; the scope waits for the clean-up.
///
/// # Cancellation
/// *Not a point.*
#[must_use = "futures do nothing unless awaited"]
pub struct RequestFuture<D, E> {
    state: Pending<D>,
    error: PhantomData<fn() -> E>,
}

enum Pending<D> {
    Job(ClientSide<D>),
    /// There is no job.
    Refused(LayerAnswer, bool),
    Over,
}

impl<D, E> RequestFuture<D, E> {
    pub(crate) fn of_job(exchange: Arc<Exchange<D>>, is_grpc: bool) -> Self {
        let side = ClientSide {
            exchange,
            is_grpc,
            is_over: false,
        };
        RequestFuture {
            state: Pending::Job(side),
            error: PhantomData,
        }
    }

    pub(crate) fn refused(answer: LayerAnswer, is_grpc: bool) -> Self {
        RequestFuture {
            state: Pending::Refused(answer, is_grpc),
            error: PhantomData,
        }
    }
}

impl<D, E: 'static> Future for RequestFuture<D, E> {
    type Output = Result<Response<RequestBody<D>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let head = match &this.state {
            Pending::Job(side) => ready!(side.exchange.poll_head(cx)),
            Pending::Refused(answer, _) => Head::Ours(*answer),
            Pending::Over => panic!("a response was polled after completion"),
        };
        let (side, is_grpc) = match std::mem::replace(&mut this.state, Pending::Over) {
            Pending::Job(side) => {
                let is_grpc = side.is_grpc;
                (Some(side), is_grpc)
            }
            Pending::Refused(_, is_grpc) => (None, is_grpc),
            Pending::Over => unreachable!("looked at above"),
        };
        let over = |side: Option<ClientSide<D>>| {
            if let Some(mut side) = side {
                side.is_over = true;
            }
        };
        Poll::Ready(match head {
            Head::Service(parts, facts) => {
                Ok(Response::from_parts(*parts, RequestBody::new(side, facts)))
            }
            Head::Ours(answer) => {
                over(side);
                Ok(answer.response(is_grpc, RequestBody::default()))
            }
            Head::Failed(error) => {
                over(side);
                match error.downcast() {
                    Ok(error) => Err(*error),
                    Err(_) => unreachable!("the error of this service"),
                }
            }
        })
    }
}

impl<D, E> fmt::Debug for RequestFuture<D, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RequestFuture")
    }
}

/// The body of a response. The request's job produces its frames; the job stays open until the
/// body has ended, or this is dropped, which tells the job that its client is gone.
///
/// A body that the deadline of its request, a cancel or a panic cuts short ends with an
/// [`LayerAnswer`] as its error, so that the client sees a broken response and not a short one; the
/// body of a gRPC response ends with trailers that say so.
pub struct RequestBody<D> {
    /// None once it has ended.
    side: Option<ClientSide<D>>,
    facts: BodyFacts,
}

impl<D> RequestBody<D> {
    fn new(mut side: Option<ClientSide<D>>, facts: BodyFacts) -> RequestBody<D> {
        if facts.is_over || facts.is_left_out {
            if let Some(side) = &mut side {
                side.is_over = true;
            }
            side = None;
        }
        RequestBody { side, facts }
    }

    /// Nothing comes after this.
    fn ends(&mut self) {
        if let Some(mut side) = self.side.take() {
            side.is_over = true;
        }
        self.facts = BodyFacts::NOTHING;
    }

    /// What is known of the rest, after so many bytes more.
    fn took(&mut self, bytes: u64) {
        let facts = &mut self.facts;
        let was_exact = facts.most == Some(facts.size);
        facts.size = facts.size.saturating_sub(bytes);
        facts.most = facts.most.map(|most| most.saturating_sub(bytes));
        // A server that has sent so many bytes as it has promised asks for no more.
        if was_exact
            && facts.size == 0
            && let Some(side) = &mut self.side
        {
            side.is_over = true;
        }
    }
}

/// A body without a frame.
impl<D> Default for RequestBody<D> {
    fn default() -> RequestBody<D> {
        RequestBody {
            side: None,
            facts: BodyFacts::NOTHING,
        }
    }
}

impl<D: Buf> Body for RequestBody<D> {
    type Data = D;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<D>, BoxError>>> {
        let this = self.get_mut();
        let Some(side) = &this.side else {
            return Poll::Ready(None);
        };
        let is_grpc = side.is_grpc;
        let found = ready!(side.exchange.poll_frame(cx));
        Poll::Ready(match found {
            FoundFrame::Frame((frame, is_last)) => {
                if is_last {
                    this.ends();
                } else if let Some(data) = frame.as_ref().ok().and_then(Frame::data_ref) {
                    this.took(u64::try_from(data.remaining()).unwrap_or(u64::MAX));
                }
                Some(frame)
            }
            FoundFrame::Over => {
                this.ends();
                None
            }
            FoundFrame::Cut(answer) => {
                this.ends();
                Some(match is_grpc {
                    true => {
                        let mut trailers = HeaderMap::new();
                        answer.add_grpc_status(&mut trailers);
                        Ok(Frame::trailers(trailers))
                    }
                    false => Err(answer.into()),
                })
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.facts.is_over
    }

    fn size_hint(&self) -> SizeHint {
        self.facts.hint()
    }
}

impl<D> fmt::Debug for RequestBody<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (f.debug_struct("RequestBody"))
            .field("is_over", &self.facts.is_over)
            .finish_non_exhaustive()
    }
}
