//! [`Server`]: accepts connections, and ends as its scope says.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Buf;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use kinfolk_core::host::say::{Topic, quoted, say};
use kinfolk_core::host::{contained, discard};
use kinfolk_core::kit::{Completion, completion};
use kinfolk_core::{
    Arm, BoxError, Error, ErrorKind, Job, Lease, Reason, Result, Scope, TreeSnapshot, now,
    on_cancel, select, shield, sleep, timeout, yield_now,
};
use kinfolk_sync::{Semaphore, watch};
use kinfolk_tokio::Root;
use tower_service::Service;

use crate::connection::{builder, serve_connection};
use crate::listen::{AcceptPause, Listen, is_of_one_connection};
use crate::serve_report::{ServeReport, living_below, say_late};

/// How long connections have after the grace to write what the layer has answered.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What every part of the server is told when it is to stop: in which words its scope was
/// cancelled.
pub(crate) type StopWords = Option<Arc<str>>;

/// A server of HTTP/1 and HTTP/2 on tokio that stops when its job is cancelled: with its scope,
/// by a deadline, or in the shutdown of the root.
///
/// ```
/// # mod kinfolk { pub use kinfolk_core::*; pub mod tokio { pub use kinfolk_tokio::*; } }
/// use std::time::Duration;
///
/// use axum::{Router, routing::get};
/// use kinfolk::tokio::Root;
/// use kinfolk_tower::{RequestLayer, Server};
/// use tokio::net::TcpListener;
/// # use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> kinfolk::Result<()> {
/// let root = Root::current();
/// let listener = TcpListener::bind("127.0.0.1:0").await?;
/// # let address = listener.local_addr()?;
/// let server = Server::new(&root, listener).grace(Duration::from_secs(3));
/// let serving = root.scope().task("shop").spawn(server.serve(|requests| {
///     let app = Router::new().route("/", get(async || "open"));
///     app.layer(RequestLayer::new(requests).timeout(Duration::from_secs(10)))
/// }));
/// # let mut client = tokio::net::TcpStream::connect(address).await?;
/// # client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await?;
/// # let mut response = String::new();
/// # client.read_to_string(&mut response).await?;
/// # assert!(response.ends_with("open"));
///
/// // A signal or `root.shutdown()` does the same.
/// serving.cancel("closing time");
/// let report = serving.outcome().await?.into_value().expect("the report");
/// assert!(report.late.is_empty());
/// # root.shutdown().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "call `serve`"]
pub struct Server<L> {
    root: Root,
    listener: L,
    grace: Duration,
    at_once: Option<usize>,
}

impl<L: Listen> Server<L> {
    /// A server of the connections of `listener`, in a job below `root`.
    pub fn new(root: &Root, listener: L) -> Server<L> {
        Server {
            root: root.clone(),
            listener,
            grace: Duration::from_secs(5),
            at_once: None,
        }
    }

    /// Sets how long requests may go on once the server is to stop; five seconds by default.
    /// The grace of the root's shutdown, ten seconds by default, must be longer: at its end the
    /// requests are told all the same.
    pub fn grace(mut self, grace: Duration) -> Server<L> {
        self.grace = grace;
        self
    }

    /// Serves so many connections at a time. The next ones wait in the queue of the system,
    /// in the order in which they came.
    /// A connection that has sent no request after 30 seconds is closed, and its place is free.
    /// One whose client does not read keeps its place.
    pub fn connections(mut self, at_once: usize) -> Server<L> {
        self.at_once = Some(at_once);
        self
    }

    /// Serves until the current job is cancelled. `make` gets the scope for requests, which is
    /// for a [`RequestLayer`](crate::RequestLayer), and makes the service; each connection has a
    /// clone of that. Each request has the address of the other side among its extensions: with
    /// axum, `Extension<SocketAddr>`.
    ///
    /// When the job is cancelled:
    ///
    /// 1. The listener is dropped. A connection without a request ends at once, others when the
    ///    requests that have begun on them are answered; HTTP/2 connections say so (`GOAWAY`).
    ///    Requests hear nothing of it.
    /// 2. At the end of the [grace](Server::grace) what is left is named in the report and on
    ///    standard error. Requests are cancelled, with the words of the cancel, and their
    ///    clients are answered by the layer. Connections that have not ended a second later
    ///    are cut.
    /// 3. When the clean-up of all requests is over, the report is returned.
    ///
    /// A connection that fails is no failure of the server unless its service is to blame, and
    /// then it is an [attempt's](kinfolk_core::Scope::attempt). When accepting fails, because no
    /// file is free for instance, or panics, that is said on standard error, and the server tries
    /// again after a pause. A service that panics when it is cloned costs its connection.
    ///
    /// # Errors
    /// If it is awaited outside every job.
    ///
    /// # Cancellation
    /// A cancel of its job makes it stop, and then it returns the report: the value of a task
    /// that was cancelled is late. It hears no [interrupt](kinfolk_core::Job::interrupt).
    /// Dropped half-way, it cancels requests and connections at once, and the scope around it
    /// waits for their clean-up.
    pub async fn serve<M, S, B>(self, make: M) -> Result<ServeReport>
    where
        M: FnOnce(Scope) -> S,
        S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError>,
        B: Body<Data: Buf + Send, Error: Into<BoxError>> + Send + 'static,
    {
        let (teller, told) = watch::channel::<StopWords>(None);
        let _hook = on_cancel(move |why| drop(teller.send_replace(Some(words_of(why)))));
        // A cancel is heard by the hook: what is in here goes on, and is told in its turn.
        let inside = async move {
            let here = Scope::current().ok_or_else(|| Error::msg("a server is in a job"))?;
            self.run(&here, told, make).await
        };
        let inside = Scope::named("server").supervisor().run_future(inside);
        shield(inside).await
    }

    async fn run<M, S, B>(
        self,
        here: &Scope,
        mut told: watch::Receiver<StopWords>,
        make: M,
    ) -> Result<ServeReport>
    where
        M: FnOnce(Scope) -> S,
        S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError>,
        B: Body<Data: Buf + Send, Error: Into<BoxError>> + Send + 'static,
    {
        let requests = Household::open(here, "requests").await?;
        let connections = Household::open(here, "connections").await?;
        let service = make(requests.scope.clone());
        let http = builder(&connections.scope);
        let places = (self.at_once).map(|n| Arc::new(Semaphore::new(n).named("connections")));
        let (mut listener, mut pause) = (self.listener, AcceptPause::default());
        let mut accepted = 0;
        let words = loop {
            let next = next_connection(&mut listener, places.as_ref(), &mut pause);
            let (io, peer, place) = match select!(stop_words(&mut told), next).await? {
                Arm::A(words) => break words,
                Arm::B(next) => next,
                _ => unreachable!("there are two arms"),
            };
            accepted += 1;
            let name = name_of(&peer);
            let Some(service) = clone_of(&service) else {
                discard(io);
                discard(peer);
                continue;
            };
            let (http, told) = (http.clone(), told.clone());
            let serving = async move {
                let _place = place;
                serve_connection(io, peer, service, http, told).await
            };
            let connection = connections.scope.task(name).attempted();
            // Refused, it is dropped: a shutdown has come to its last steps.
            drop(connection.try_launch(serving));
        };
        discard(listener);
        let began = now();
        let late = end(&self.root, requests, connections, self.grace, &words).await?;
        Ok(ServeReport {
            connections: accepted,
            took: now().saturating_duration_since(began),
            late,
        })
    }
}

impl<L> fmt::Debug for Server<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("grace", &self.grace)
            .field("connections", &self.at_once)
            .finish_non_exhaustive()
    }
}

/// In which words the server was told to stop.
async fn stop_words(told: &mut watch::Receiver<StopWords>) -> Result<Arc<str>> {
    let words = told.wait_for(Option::is_some).await?;
    Ok(words.and_then(|words| (*words).clone()).unwrap_or_default())
}

fn words_of(why: &Reason) -> Arc<str> {
    match why.text() {
        Some(text) => text.into(),
        None => why.root_cause().kind().to_string().into(),
    }
}

/// The name of the job of a connection. A `Debug` that panics costs the name, and not the
/// server.
fn name_of(peer: &impl fmt::Debug) -> String {
    let mut name = String::new();
    if contained(|| name = format!("connection {peer:?}")) {
        return "connection".into();
    }
    name
}

/// None if the service panics: then its connection is closed, and the server goes on.
fn clone_of<S: Clone>(service: &S) -> Option<S> {
    let mut clone = None;
    contained(|| clone = Some(service.clone()));
    clone
}

/// The next connection of the listener. A panic of it is an error, after which it is asked again.
async fn accept<L: Listen>(listener: &mut L) -> io::Result<(L::Io, L::Peer)> {
    let mut accepting = pin!(async { listener.accept().await });
    let accepted = poll_fn(|cx| {
        let mut polled = Poll::Pending;
        match contained(|| polled = accepting.as_mut().poll(cx)) {
            true => Poll::Ready(Err(io::Error::other("the listener panicked"))),
            false => polled,
        }
    });
    accepted.await
}

/// The next connection, and its place if there is a limit. Tries for as long as it takes.
async fn next_connection<L: Listen>(
    listener: &mut L,
    places: Option<&Arc<Semaphore>>,
    pause: &mut AcceptPause,
) -> Result<(L::Io, L::Peer, Option<kinfolk_sync::OwnedSemaphorePermit>)> {
    let place = match places {
        Some(places) => Some(places.clone().acquire_owned().await?),
        None => None,
    };
    loop {
        match accept(listener).await {
            Ok((io, peer)) => {
                pause.ends();
                return Ok((io, peer, place));
            }
            Err(error) if is_of_one_connection(&error) => yield_now().await?,
            Err(error) => {
                if pause.is_over() {
                    let words = error.to_string();
                    say(
                        Topic::Seldom,
                        format_args!(
                            "kinfolk: the server cannot accept connections, and tries again: {}",
                            quoted(&words)
                        ),
                    );
                }
                sleep(pause.next()).await?;
            }
        }
    }
}

/// A job that has children and no body of its own, and stays open until it is closed.
struct Household {
    job: Job,
    scope: Scope,
    stays: Option<Lease>,
}

impl Household {
    async fn open(below: &Scope, name: &'static str) -> Result<Household> {
        let (opened, opener): (Completion<(Scope, Option<Lease>)>, _) = completion();
        let body = async move {
            if let Some(scope) = Scope::current() {
                let lease = scope.lease();
                opener.complete((scope, lease));
            }
        };
        let body = Scope::build().supervisor().run_future(body);
        let job = below.task(name).launch(body);
        let (scope, stays) = opened.await?;
        Ok(Household { job, scope, stays })
    }

    /// It ends with its last child.
    async fn end(&mut self) -> Result<()> {
        self.stays = None;
        let _how = self.job.join().await?;
        Ok(())
    }
}

/// Lets them end within the grace, or ends them. Those that were late.
async fn end(
    root: &Root,
    mut requests: Household,
    mut connections: Household,
    grace: Duration,
    words: &Arc<str>,
) -> Result<Vec<kinfolk_core::NodeSnapshot>> {
    let in_time = async {
        connections.end().await?;
        requests.end().await
    };
    match timeout(grace, in_time).await {
        Err(error) if error.kind() == ErrorKind::TimedOut => {}
        ended => return ended.map(|()| Vec::new()),
    }
    let tree: TreeSnapshot = root.snapshot();
    let mut late = living_below(&tree, requests.job.id());
    late.extend(living_below(&tree, connections.job.id()));
    say_late(&late, grace);
    requests.scope.cancel(words.to_string());
    match timeout(LAST_WORDS, connections.end()).await {
        Err(error) if error.kind() == ErrorKind::TimedOut => {
            connections.scope.cancel(words.to_string());
        }
        ended => ended?,
    }
    connections.end().await?;
    requests.end().await?;
    Ok(late)
}
