//! Bodies, children and clients that do what a server does not expect of them. Their requests
//! end, the places in the limit are free again, and a client has its answer at once.

mod common;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};

use axum::Router;
use bytes::Bytes;
use common::{Answered, SECOND, Script, Step, boxed, flag, get, on_each, on_sockets, set, text};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Empty};
use kinfolk_core::{BoxError, Scope, cleanup, launch, park, sleep, spawn};
use kinfolk_tower::{Listen, RequestLayer, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tower::{Layer, Service, ServiceExt, service_fn};

type Client = Request<Empty<Bytes>>;

/// A body that says how long it is.
struct OfSize(Script, u64);

impl Body for OfSize {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.0).poll_frame(cx)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.1)
    }
}

/// Four bytes, and then trailers.
struct WithTrailers(u32);

impl Body for WithTrailers {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.0 += 1;
        Poll::Ready(match self.0 {
            1 => Some(Ok(Frame::data(Bytes::from_static(b"four")))),
            2 => Some(Ok(Frame::trailers(HeaderMap::new()))),
            _ => None,
        })
    }
}

/// A body that has all its bytes out and never ends keeps neither its job nor its place.
#[test]
fn a_body_that_never_ends_after_its_last_byte_is_let_go() {
    on_each(async |lab| {
        let layer = RequestLayer::new(lab.scope()).limit(1, 0);
        let service = layer.layer(service_fn(async |request: Client| -> Answered {
            let more = match request.uri().path() {
                "/hangs" => [Step::Data("four"), Step::Hang, Step::Hang],
                _ => [Step::Data("four"), Step::Data(""), Step::Data("more")],
            };
            Ok(Response::new(boxed(OfSize(Script::new(more), 4))))
        }));
        for path in ["/hangs", "/goes-on"] {
            let mut body = service
                .clone()
                .oneshot(get(path))
                .await
                .unwrap()
                .into_body();
            assert!(body.frame().await.unwrap().is_ok());
            assert_eq!(body.size_hint().exact(), Some(0));
            drop(body);
            lab.is_empty().await;
        }
    });
}

/// The body of a detached request is dropped with its client, also while it waits.
#[test]
fn a_detached_body_that_waits_goes_with_its_client() {
    on_each(async |lab| {
        let layer = RequestLayer::new(lab.scope()).detached();
        let service = layer.layer(service_fn(async |_: Client| -> Answered {
            let steps = [Step::Data("one"), Step::Hang];
            Ok(Response::new(boxed(Script::new(steps))))
        }));
        let mut body = service.oneshot(get("/")).await.unwrap().into_body();
        assert!(body.frame().await.unwrap().is_ok());
        drop(body);
        lab.is_empty().await;
    });
}

/// A child that fails leaves the answer to the handler of a detached request too.
#[test]
fn a_child_of_a_detached_request_leaves_the_answer_to_the_handler() {
    on_each(async |lab| {
        let layer = RequestLayer::new(lab.scope()).detached();
        let service = layer.layer(service_fn(async |_: Client| -> Answered {
            let part = spawn(async { Err::<(), _>(kinfolk_core::Error::msg("no part")) });
            drop(part.await);
            let mut response = text("no part");
            *response.status_mut() = StatusCode::BAD_GATEWAY;
            Ok(response)
        }));
        let response = service.oneshot(get("/")).await.unwrap();
        assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
        drop(response);
        lab.is_empty().await;
        assert_eq!(lab.failures().len(), 1);
    });
}

/// A client that has as many bytes as the head has promised, or trailers, has the whole: hyper
/// asks no further, and that tells nothing to what the handler has started.
#[test]
fn a_client_that_has_the_whole_is_not_gone() {
    on_each(async |lab| {
        let (go, done) = (Arc::new(Notify::new()), flag());
        let all = (go.clone(), done.clone());
        let handler = move |request: Client| {
            let (go, done) = all.clone();
            async move {
                drop(launch(async move {
                    go.notified().await;
                    kinfolk_core::checkpoint().await?;
                    done.store(true, SeqCst);
                    Ok::<_, kinfolk_core::Error>(())
                }));
                let response = Response::builder();
                Answered::Ok(match request.uri().path() {
                    "/header" => {
                        let body = Script::new([Step::Data("four")]);
                        let response = response.header("content-length", "4");
                        response.body(boxed(body)).unwrap()
                    }
                    _ => response.body(boxed(WithTrailers(0))).unwrap(),
                })
            }
        };
        let service = RequestLayer::new(lab.scope()).layer(service_fn(handler));
        for (path, frames) in [("/header", 1), ("/trailers", 2)] {
            done.store(false, SeqCst);
            let mut body = service
                .clone()
                .oneshot(get(path))
                .await
                .unwrap()
                .into_body();
            for _ in 0..frames {
                assert!(body.frame().await.unwrap().is_ok());
            }
            drop(body);
            go.notify_one();
            lab.is_empty().await;
            assert!(done.load(SeqCst), "{path}");
        }
    });
}

/// No client waits for the clean-up of what a handler has started: neither after its panic nor
/// when a body that has begun is cancelled.
#[test]
fn no_client_waits_for_the_clean_up_of_children() {
    on_each(async |lab| {
        let (go, ended) = (Arc::new(Notify::new()), flag());
        let (cleans_up, ends) = (go.clone(), ended.clone());
        let handler = move |request: Client| {
            let (go, ends) = (cleans_up.clone(), ends.clone());
            async move {
                drop(launch(async move {
                    park().await.expect_err("it is told");
                    cleanup(async { go.notified().await }).await
                }));
                sleep(SECOND / 1000).await.unwrap();
                match request.uri().path() {
                    "/panic" => panic!("the handler panics"),
                    _ => {
                        let words = ["one", "two", "three"].map(Step::Data);
                        let mut script = Script::new(words);
                        script.dropped = ends;
                        Answered::Ok(Response::new(boxed(script)))
                    }
                }
            }
        };
        let (says, hears) = tokio::sync::oneshot::channel();
        let server = lab.scope().task("server").spawn(async move {
            says.send(Scope::current().expect("a task")).expect("heard");
            park().await
        });
        let layer = RequestLayer::new(hears.await.unwrap());
        let service = layer.layer(service_fn(handler));
        let response = service.clone().oneshot(get("/panic")).await.unwrap();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        go.notify_one();
        let mut body = service.oneshot(get("/")).await.unwrap().into_body();
        assert!(body.frame().await.unwrap().is_ok());
        // As long as its next frame is not taken, the one behind it waits for room.
        server.cancel("closing time");
        set(&ended).await;
        let broken = async {
            while let Some(frame) = body.frame().await {
                if frame.is_err() {
                    return true;
                }
            }
            false
        };
        assert!(broken.await, "before the clean-up is over");
        go.notify_one();
        lab.is_empty().await;
        assert_eq!(lab.failures().len(), 1);
    });
}

/// A request is one of gRPC by its method too: its answers have the status 200.
#[test]
fn a_get_is_no_request_of_grpc() {
    on_each(async |lab| {
        let limit = SECOND / 50;
        let service = RequestLayer::new(lab.scope())
            .timeout(limit)
            .layer(service_fn(async |_: Client| -> Answered {
                drop(park().await);
                Ok(text("late"))
            }));
        let request = Request::get("/").header("content-type", "application/grpc");
        let request = request.body(Empty::new()).unwrap();
        let response = service.oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);
        drop(response);
        lab.is_empty().await;
    });
}

/// A status that has no body has none, whatever the handler put there.
#[test]
fn a_response_that_has_no_body_is_over_with_its_head() {
    on_each(async |lab| {
        let service =
            RequestLayer::new(lab.scope()).layer(service_fn(async |_: Client| -> Answered {
                let mut response = text("four");
                *response.status_mut() = StatusCode::NO_CONTENT;
                Ok(response)
            }));
        let response = service.oneshot(get("/")).await.unwrap();
        assert!(response.body().is_end_stream());
        drop(response);
        lab.is_empty().await;
    });
}

/// Fails at once, each time, as if the client were gone.
struct Aborted;

impl Listen for Aborted {
    type Io = TcpStream;
    type Peer = SocketAddr;

    async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        Err(io::ErrorKind::ConnectionReset.into())
    }
}

/// A listener whose connections are all gone before they are accepted stops no cancel.
#[test]
fn a_server_whose_connections_are_all_reset_hears_its_cancel() {
    on_each(async |lab| {
        let server = Server::new(&lab.root, Aborted);
        let serving = server.serve(|requests| Router::new().layer(RequestLayer::new(requests)));
        let task = lab.scope().task("shop").spawn(serving);
        tokio::task::yield_now().await;
        task.cancel("closing time");
        assert!(task.outcome().await.unwrap().is_cancelled());
    });
}

/// One request of a client, over a socket; the status line.
async fn visit(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let mut answer = String::new();
    // A connection that the server drops may be reset, at any moment.
    drop(stream.write_all(request).await);
    drop(stream.read_to_string(&mut answer).await);
    answer.lines().next().unwrap_or_default().to_owned()
}

/// The other side of a connection, which cannot be printed.
#[derive(Clone)]
struct Unprintable;

impl fmt::Debug for Unprintable {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("it is not printed")
    }
}

/// What a listener does before it accepts.
enum Fit {
    /// It panics in the call.
    Call,
    /// And in the poll.
    Poll,
}

/// A listener that panics now and then, as it is asked, polled and dropped.
struct Nervous(TcpListener, Vec<Fit>);

impl Listen for Nervous {
    type Io = TcpStream;
    type Peer = Unprintable;

    fn accept(&mut self) -> impl Future<Output = io::Result<(TcpStream, Unprintable)>> + Send {
        let fit = self.1.pop();
        if matches!(fit, Some(Fit::Call)) {
            panic!("it is asked");
        }
        let accept = Listen::accept(&mut self.0);
        async move {
            tokio::task::yield_now().await;
            assert!(fit.is_none(), "it is polled");
            accept.await.map(|(stream, _)| (stream, Unprintable))
        }
    }
}

impl Drop for Nervous {
    fn drop(&mut self) {
        panic!("it is dropped")
    }
}

/// A listener and a peer that panic end no server: its clients are answered, and it stops as it
/// was told.
#[test]
fn a_listener_that_panics_is_no_end_of_the_server() {
    on_sockets(async |lab| {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let nervous = Nervous(listener, vec![Fit::Poll, Fit::Call, Fit::Poll]);
        let app = Router::new().route("/", axum::routing::get(async || "open"));
        let server = Server::new(&lab.root, nervous);
        let serving = server.serve(|requests| app.layer(RequestLayer::new(requests)));
        let task = lab.scope().task("shop").spawn(serving);
        for _ in 0..2 {
            assert_eq!(visit(address).await, "HTTP/1.1 200 OK");
        }
        task.cancel("closing time");
        let outcome = task.outcome().await.unwrap();
        assert!(outcome.is_cancelled(), "{outcome:?}");
        let report = outcome.into_value().expect("the report");
        assert_eq!(report.connections, 2);
        assert!(report.late.is_empty(), "{report}");
    });
}

/// A service whose first clones panic.
struct Rare<S>(S, Arc<AtomicUsize>);

impl<S: Clone> Clone for Rare<S> {
    fn clone(&self) -> Self {
        let left = self.1.load(SeqCst);
        if left > 0 {
            self.1.store(left - 1, SeqCst);
            panic!("it is cloned");
        }
        Rare(self.0.clone(), self.1.clone())
    }
}

impl<S: Service<R>, R> Service<R> for Rare<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> S::Future {
        self.0.call(request)
    }
}

#[test]
fn a_service_that_panics_when_it_is_cloned_costs_its_connection() {
    on_sockets(async |lab| {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = Server::new(&lab.root, listener);
        let serving = server.serve(|requests| {
            let app = Router::new().route("/", axum::routing::get(async || "open"));
            Rare(app.layer(RequestLayer::new(requests)), Arc::new(1.into()))
        });
        let task = lab.scope().task("shop").spawn(serving);
        assert_eq!(visit(address).await, "", "closed without an answer");
        assert_eq!(visit(address).await, "HTTP/1.1 200 OK");
        task.cancel("closing time");
        let report = task.outcome().await.unwrap().into_value();
        assert_eq!(report.expect("the report").connections, 2);
    });
}

/// A connection that asks for nothing is closed, and another one takes its place.
#[test]
fn a_client_that_says_nothing_keeps_its_place_for_a_while() {
    on_each(async |lab| {
        if !lab.is_paused {
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = Server::new(&lab.root, listener).connections(1);
        let serving = server.serve(|requests| Router::new().layer(RequestLayer::new(requests)));
        let task = lab.scope().task("shop").spawn(serving);
        for _ in 0..2 {
            let mut silent = TcpStream::connect(address).await.unwrap();
            assert_eq!(silent.read(&mut [0; 8]).await.unwrap(), 0, "closed");
        }
        task.cancel("closing time");
        assert!(task.outcome().await.unwrap().is_cancelled());
    });
}
