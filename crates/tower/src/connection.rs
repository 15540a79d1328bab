//! One connection: hyper in a job.

use std::error::Error as StdError;
use std::fmt::Debug;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::Poll;
use std::time::Duration;

use bytes::Buf;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use kinfolk_core::{BoxError, Error, OrCancel, Result, Scope};
use kinfolk_sync::watch;
use tokio::io::{AsyncRead, AsyncWrite};
use tower_service::Service;

use crate::answer::LayerAnswer;
use crate::server::StopWords;

/// How long a connection may be without its first request, as the head of a request of HTTP/1.
const SILENCE: Duration = Duration::from_secs(30);

/// Runs the streams of HTTP/2 as children of the job that serves their connection.
#[derive(Clone)]
pub(crate) struct StreamExecutor(pub(crate) Scope);

impl<F> Executor<F> for StreamExecutor
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let connection = Scope::current().unwrap_or_else(|| self.0.clone());
        let stream = async move {
            stream.await;
        };
        // Refused, it is dropped: the connection is being cut.
        drop(connection.task("stream").attempted().try_launch(stream));
    }
}

/// The options of every connection.
pub(crate) fn builder(connections: &Scope) -> Builder<StreamExecutor> {
    let mut builder = Builder::new(StreamExecutor(connections.clone()));
    // With a timer there is a limit for the head of a request.
    builder.http1().timer(TokioTimer::new());
    builder.http2().timer(TokioTimer::new());
    builder
}

/// Serves one connection. When `closing` says so it answers what has begun and ends; a cancel
/// of its job cuts it.
pub(crate) async fn serve_connection<I, P, S, B>(
    io: I,
    peer: P,
    service: S,
    builder: Builder<StreamExecutor>,
    mut closing: watch::Receiver<StopWords>,
) -> Result<()>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    P: Clone + Debug + Send + Sync + 'static,
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: Body<Data: Buf + Send, Error: Into<BoxError>> + Send + 'static,
{
    let service = TowerToHyperService::new(service);
    let has_asked = Arc::new(AtomicBool::new(false));
    let asks = has_asked.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        asks.store(true, Relaxed);
        request.extensions_mut().insert(peer.clone());
        service.call(request)
    });
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(io), service);
    let mut connection = pin!(connection);
    let mut closes = pin!(async move { closing.wait_for(Option::is_some).await.is_ok() });
    let mut was_asked = false;
    let mut silence = pin!(tokio::time::sleep(SILENCE));
    let mut was_silent = false;
    let ended = poll_fn(|cx| {
        if !was_asked && let Poll::Ready(closes) = closes.as_mut().poll(cx) {
            was_asked = true;
            if closes {
                connection.as_mut().graceful_shutdown();
            }
        }
        if !was_silent && silence.as_mut().poll(cx).is_ready() {
            was_silent = true;
            if !was_asked && !has_asked.load(Relaxed) {
                return Poll::Ready(Ok(()));
            }
        }
        connection.as_mut().poll(cx)
    });
    match ended.or_cancel().await? {
        Ok(()) => Ok(()),
        Err(error) if is_no_failure(&*error) => Ok(()),
        Err(error) => Err(Error::from_boxed(error)),
    }
}

/// True for an error that a client causes (it is gone, slow, or does not speak HTTP), and for a
/// response that the layer has broken off on purpose.
fn is_no_failure(error: &(dyn StdError + 'static)) -> bool {
    let mut is_of_the_client = None;
    let mut next = Some(error);
    while let Some(at) = next {
        if at.is::<LayerAnswer>() {
            return true;
        }
        if is_of_the_client.is_none() {
            // What a service or a body returns is its own, whatever its sources are.
            is_of_the_client = match at.downcast_ref::<hyper::Error>() {
                Some(error) => Some(!error.is_user()),
                None => at.is::<io::Error>().then_some(true),
            };
        }
        next = at.source();
    }
    is_of_the_client.unwrap_or(false)
}
