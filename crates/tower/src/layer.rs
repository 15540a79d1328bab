//! [`RequestLayer`] and [`RequestService`]: each request that passes becomes a job.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderMap, HeaderName, Method, Request, Response};
use http_body::Body;
use kinfolk_core::{BoxError, Patience, Scope};
use tower_layer::Layer;
use tower_service::Service;

use crate::admission::Admission;
use crate::answer::{LayerAnswer, is_grpc};
use crate::exchange::Exchange;
use crate::request_job::{JobSide, RequestJob};
use crate::response::{RequestBody, RequestFuture};
use crate::route_name::name_of;
use crate::time_limit::{TimeoutFormat, TimeoutHeader};

/// A tower layer that makes a job of each request, below a scope: named after its route, with a
/// deadline, told when its client is gone, and waited for by the scope.
///
/// The job runs the service and polls the body of its response, so that all of it is inside the
/// job: `spawn`, points, `deadline()`, task-locals. What the layer does when:
///
/// | | the handler | the client gets |
/// |---|---|---|
/// | the client hangs up | is told, with the words [`CLIENT_GONE`](crate::CLIENT_GONE); with no point to hear it is dropped | – |
/// | the same on a [detached](RequestLayer::detached) route | goes on to its end | – |
/// | the deadline passes | is told; with no point to hear it is dropped | 504, whatever the handler returns; a body that has begun is broken off |
/// | the scope is cancelled | is told, and has its [patience](RequestLayer::patience) | 503, whatever the handler returns; a body that has begun is told, and broken off at the first frame that must wait for its client |
/// | the scope takes no more children | is not called | 503 |
/// | it panics | the failure hook gets the panic | 500; a body that has begun is broken off |
/// | too many requests | is not called | 503 with `Retry-After` |
///
/// A request whose `content-type` is gRPC gets the status of gRPC instead, in the headers or in
/// trailers; [`LayerAnswer`] lists them. In each row the job stays until the handler's clean-up and
/// all that the handler has started are over, and the scope waits for it.
///
/// A failure of a handler's child does not make the layer answer: the handler was told of it,
/// and its response is sent. If it has none, the answer is 500.
///
/// ```
/// # use kinfolk_core as kinfolk;
/// use std::time::Duration;
///
/// use kinfolk_tower::{RequestLayer, TimeoutFormat};
///
/// # fn layer(server: kinfolk::Scope) -> RequestLayer {
/// RequestLayer::new(server)
///     .timeout(Duration::from_secs(10))
///     .timeout_header("grpc-timeout", TimeoutFormat::Grpc, Duration::from_secs(30))
///     .limit(512, 1024)
/// # }
/// ```
#[derive(Clone)]
pub struct RequestLayer {
    scope: Scope,
    otherwise: Cow<'static, str>,
    limit: Option<Duration>,
    header: Option<TimeoutHeader>,
    is_detached: bool,
    patience: Option<Patience>,
    admission: Option<Arc<Admission>>,
    retry_after: u32,
}

impl RequestLayer {
    /// Requests become jobs below `scope`. A failure of one cancels no other.
    pub fn new(scope: Scope) -> RequestLayer {
        RequestLayer {
            scope,
            otherwise: Cow::Borrowed("request"),
            limit: None,
            header: None,
            is_detached: false,
            patience: None,
            admission: None,
            retry_after: 1,
        }
    }

    /// Sets what stands for the route in the name of a job where no route is known: without the
    /// feature `axum`, and outside an axum router. `request` by default. A gRPC request is
    /// named after its path.
    pub fn named(mut self, route: impl Into<Cow<'static, str>>) -> RequestLayer {
        self.otherwise = route.into();
        self
    }

    /// Sets the deadline of a request: so long after it came, to the last frame of its response.
    /// Waiting for a [place](RequestLayer::limit) counts.
    pub fn timeout(mut self, limit: Duration) -> RequestLayer {
        self.limit = Some(limit);
        self
    }

    /// Takes the deadline from a header of the request, at most `most`. A request without the
    /// header, or with a value that says no duration, has that of
    /// [`timeout`](RequestLayer::timeout).
    ///
    /// # Panics
    /// If `name` is not the name of a header.
    pub fn timeout_header(
        mut self,
        name: &'static str,
        format: TimeoutFormat,
        most: Duration,
    ) -> RequestLayer {
        let name = HeaderName::from_static(name);
        self.header = Some(TimeoutHeader { name, format, most });
        self
    }

    /// Lets a request go on to its end when its client hangs up, below the scope: for a route
    /// whose work must not stop half-way, such as a payment. Its deadline and a cancel of the
    /// scope still reach it. The body of its response is dropped with the client.
    pub fn detached(mut self) -> RequestLayer {
        self.is_detached = true;
        self
    }

    /// Sets how long a request that was cancelled with the scope may stay idle before it is
    /// dropped.
    pub fn patience(mut self, patience: Patience) -> RequestLayer {
        self.patience = Some(patience);
        self
    }

    /// Lets `at_once` requests run at a time, from the call of the handler to the end of
    /// everything in its job. At most `waiting` more stand in line, first come, first served;
    /// what comes then is answered at once with 503. All services and clones that are made of
    /// this layer from here on share the limit.
    pub fn limit(mut self, at_once: usize, waiting: usize) -> RequestLayer {
        self.admission = Some(Admission::new(at_once, waiting, "requests"));
        self
    }

    /// Sets the `Retry-After` of requests over the limit, in whole seconds; one by default.
    pub fn retry_after(mut self, seconds: u32) -> RequestLayer {
        self.retry_after = seconds;
        self
    }

    fn limit_for(&self, headers: &HeaderMap) -> Option<Duration> {
        let asked = self
            .header
            .as_ref()
            .and_then(|header| header.limit(headers));
        asked.or(self.limit)
    }
}

impl fmt::Debug for RequestLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestLayer")
            .field("scope", &self.scope)
            .field("timeout", &self.limit)
            .field("detached", &self.is_detached)
            .finish_non_exhaustive()
    }
}

impl<S> Layer<S> for RequestLayer {
    type Service = RequestService<S>;

    fn layer(&self, inner: S) -> RequestService<S> {
        RequestService {
            inner,
            layer: Arc::new(self.clone()),
        }
    }
}

/// The service of a [`RequestLayer`].
#[derive(Clone, Debug)]
pub struct RequestService<S> {
    inner: S,
    layer: Arc<RequestLayer>,
}

impl<S, B, R> Service<Request<B>> for RequestService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Send + 'static,
    R: Body + Send + 'static,
    R::Data: Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<RequestBody<R::Data>>;
    type Error = S::Error;
    type Future = RequestFuture<R::Data, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    #[track_caller]
    fn call(&mut self, request: Request<B>) -> Self::Future {
        let layer = self.layer.clone();
        let is_grpc = is_grpc(request.method(), request.headers());
        let ticket = match layer.admission.as_ref().map(Admission::enter) {
            Some(None) => {
                let retry_after = layer.retry_after;
                return RequestFuture::refused(LayerAnswer::Overloaded { retry_after }, is_grpc);
            }
            Some(ticket) => ticket,
            None => None,
        };
        let (method, uri) = (request.method(), request.uri());
        let name = name_of(method, uri, request.extensions(), is_grpc, &layer.otherwise);
        let exchange = Exchange::new();
        let job = RequestJob {
            client: JobSide::new(exchange.clone()),
            ticket,
            limit: layer.limit_for(request.headers()),
            is_detached: layer.is_detached,
            is_head_request: method == Method::HEAD,
        };
        // The clone has not been asked if it is ready.
        let fresh = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, fresh);
        let work = job.run(move || inner.call(request));
        let mut spawner = layer.scope.task(name).attempted();
        if let Some(patience) = layer.patience {
            spawner = spawner.patience(patience);
        }
        match spawner.try_launch(work) {
            Ok(_) => RequestFuture::of_job(exchange, is_grpc),
            Err(_) => RequestFuture::refused(LayerAnswer::Stopped, is_grpc),
        }
    }
}
