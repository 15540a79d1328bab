//! [`RequestJob`]: the body of a request's job. It runs the handler, hands over what the handler
//! answers, and then the frames of the response's body, inside one scope with the deadline of
//! the request.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Response, StatusCode};
use http_body::Body;
use kinfolk_core::{
    BoxError, ErrorKind, OrCancel, Reason, ReasonKind, Result, Scope, current_job, select,
};

use crate::admission::Ticket;
use crate::answer::LayerAnswer;
use crate::exchange::{BodyFacts, Exchange, Head};

/// What a handler is told when its client has hung up: the [text](kinfolk_core::Reason::text) of
/// the reason, whose kind is [`RaceLost`](kinfolk_core::ReasonKind::RaceLost).
///
/// ```
/// # use kinfolk_core as kinfolk;
/// use std::time::Duration;
///
/// use kinfolk_tower::CLIENT_GONE;
///
/// async fn slow() -> &'static str {
///     if let Err(told) = kinfolk::sleep(Duration::from_secs(3)).await {
///         let is_abandoned = told.reason().text() == Some(CLIENT_GONE);
///         println!("stopped; the client has hung up: {is_abandoned}");
///     }
///     "slow"
/// }
/// ```
pub const CLIENT_GONE: &str = "the client has hung up";

/// The job's side of an [`Exchange`]. Dropped, it ends what has not ended: a job that is never
/// polled, and one that is dropped by force, leave no client without an answer.
pub(crate) struct JobSide<D>(Arc<Exchange<D>>);

impl<D> JobSide<D> {
    pub(crate) fn new(exchange: Arc<Exchange<D>>) -> JobSide<D> {
        JobSide(exchange)
    }
}

impl<D> Drop for JobSide<D> {
    fn drop(&mut self) {
        self.0.cut(LayerAnswer::Stopped);
    }
}

/// What a request's job is to do.
pub(crate) struct RequestJob<D> {
    pub(crate) client: JobSide<D>,
    pub(crate) ticket: Option<Ticket>,
    pub(crate) limit: Option<Duration>,
    /// It goes on without its client.
    pub(crate) is_detached: bool,
    pub(crate) is_head_request: bool,
}

impl<D: Send + 'static> RequestJob<D> {
    /// Runs it to its end.
    pub(crate) async fn run<C, F, R, E>(self, call: C) -> Result<()>
    where
        C: FnOnce() -> F + Send,
        F: Future<Output = Result<Response<R>, E>> + Send,
        R: Body<Data = D> + Send,
        R::Error: Into<BoxError>,
        E: Send + 'static,
    {
        let RequestJob {
            client,
            ticket,
            limit,
            is_detached,
            is_head_request,
        } = self;
        let exchange = &client.0;
        // Until all that the handler has started is over.
        let mut permit = None;
        let mut options = Scope::build();
        if let Some(limit) = limit {
            options = options.timeout(limit);
        }
        let body = async {
            let request = current_job().map(|job| Scope::of_job(&job));
            let request = request.unwrap_or_else(|| unreachable!("a scope is a job"));
            let told = exchange.clone();
            let _hook = request.on_cancel(move |why| stop(&told, why));
            let work = async {
                let _at_once = PanicAnswer(exchange);
                if let Some(ticket) = ticket {
                    permit = Some(ticket.wait().await?);
                }
                let answered = call().await;
                hand_over(exchange, &request, answered, is_head_request).await
            };
            if is_detached {
                return work.await;
            }
            let gone = poll_fn(|cx| exchange.poll_gone(cx));
            let decided = select!(gone.or_cancel(), work).telling(0, CLIENT_GONE);
            decided.await.map(drop)
        };
        // The answer to its own deadline was given when that passed.
        let ended = options.run_future(body).or_none().await.map(drop);
        drop(permit);
        if let Err(error) = &ended
            && error.kind() != ErrorKind::Cancelled
        {
            exchange.cut(LayerAnswer::Failed);
        }
        ended
    }
}

/// A panic is answered at once, before the clean-up of the children.
struct PanicAnswer<'a, D>(&'a Exchange<D>);

impl<D> Drop for PanicAnswer<'_, D> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.cut(LayerAnswer::Failed);
        }
    }
}

/// The scope of the request was cancelled: its client need not wait for the clean-up.
fn stop<D>(exchange: &Exchange<D>, why: &Reason) {
    match why.kind() {
        ReasonKind::Deadline => exchange.cut(LayerAnswer::TimedOut),
        // The handler's to report.
        ReasonKind::ChildFailed => {}
        // The body may say that it ends.
        _ => {
            exchange.decide(Head::Ours(LayerAnswer::Stopped));
        }
    }
}

/// What the layer answers, whatever the handler has.
fn decided_by_layer(request: &Scope) -> Option<LayerAnswer> {
    if request.deadline_passed() {
        return Some(LayerAnswer::TimedOut);
    }
    let why = current_job().and_then(|job| job.reason())?;
    // A failure is the handler's to report.
    (why.kind() != ReasonKind::ChildFailed).then_some(LayerAnswer::Stopped)
}

/// Hands over what the service has answered.
async fn hand_over<R, E>(
    exchange: &Exchange<R::Data>,
    request: &Scope,
    answered: Result<Response<R>, E>,
    is_head_request: bool,
) -> Result<()>
where
    R: Body + Send,
    R::Data: Send,
    R::Error: Into<BoxError>,
    E: Send + 'static,
{
    if let Some(ours) = decided_by_layer(request) {
        exchange.decide(Head::Ours(ours));
        return Ok(());
    }
    let response = match answered {
        Ok(response) => response,
        Err(error) => {
            exchange.decide(Head::Failed(Box::new(error)));
            return Ok(());
        }
    };
    let (parts, body) = response.into_parts();
    let size = body.size_hint();
    let said = content_length(&parts.headers).filter(|_| size.exact().is_none());
    let has_none = has_no_body(parts.status);
    let facts = BodyFacts {
        size: said.unwrap_or(size.lower()),
        most: said.or(size.upper()),
        is_over: body.is_end_stream() || has_none,
        is_left_out: is_head_request || has_none,
    };
    let goes_on = !facts.is_over && !facts.is_left_out;
    if exchange.decide(Head::Service(Box::new(parts), facts)) && goes_on {
        return send(exchange, request, body).await;
    }
    exchange.end();
    Ok(())
}

/// What the head promises where the body does not know.
fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn has_no_body(status: StatusCode) -> bool {
    status.is_informational()
        || status == StatusCode::NO_CONTENT
        || status == StatusCode::NOT_MODIFIED
}

/// Polls the body, inside the job, and hands over its frames.
async fn send<R>(exchange: &Exchange<R::Data>, request: &Scope, body: R) -> Result<()>
where
    R: Body + Send,
    R::Data: Send,
    R::Error: Into<BoxError>,
{
    let mut body = pin!(body);
    loop {
        let next = poll_fn(|cx| match exchange.poll_unwanted(cx) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => body.as_mut().poll_frame(cx),
        });
        let next = next.await.map(|frame| frame.map_err(Into::into));
        let is_last = match &next {
            Some(Ok(frame)) => frame.is_trailers() || body.is_end_stream(),
            Some(Err(_)) | None => true,
        };
        if is_last && request.deadline_passed() {
            // A child of the body that was told may have ended it before the hook of the
            // request is called: to the client that must not look whole.
            exchange.cut(LayerAnswer::TimedOut);
            return Ok(());
        }
        let frame = match next {
            Some(Ok(frame)) => (Ok(frame), is_last),
            Some(Err(error)) => (Err(error), true),
            None => break,
        };
        // Told, a body may still hand over what there is room for, and no more: one that
        // does not hear would go on as long as its client takes frames.
        let looked = poll_fn(|cx| Poll::Ready(exchange.poll_room(cx))).await;
        let is_wanted = match looked {
            Poll::Ready(is_wanted) => is_wanted,
            Poll::Pending => match poll_fn(|cx| exchange.poll_room(cx)).or_cancel().await {
                Ok(is_wanted) => is_wanted,
                Err(told) => {
                    // Its client need not wait for the clean-up of the children.
                    exchange.cut(LayerAnswer::Stopped);
                    return Err(told.into());
                }
            },
        };
        if is_wanted {
            exchange.put(frame);
        }
        if is_last || !is_wanted {
            break;
        }
    }
    exchange.end();
    Ok(())
}
