//! Calls by tonic, cancelled after each of their polls. Each request is a job at the server,
//! whose tree is looked at too. Written by hand: no compiler of protocols is needed.

use std::convert::Infallible;
use std::future::Ready;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream;
use futures_util::stream::unfold;
use http::uri::PathAndQuery;
use kinfolk::tokio::Root;
use kinfolk::{OrFail, Result, Scope, shield, spawn};
use kinfolk_client_tests::{Awaited, On, Place, after_each_poll, at};
use kinfolk_tokio::TokenExt;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tower::{Service, service_fn};

const DOUBLED: &str = "/kinfolk.Numbers/Doubled";
const UP_TO: &str = "/kinfolk.Numbers/UpTo";

/// Of one call that counts.
const COUNT: u64 = 5;

#[derive(Clone, PartialEq, prost::Message)]
struct Number {
    #[prost(uint64, tag = "1")]
    value: u64,
}

/// What the server has begun, and what has gone since, done or not.
#[derive(Default)]
struct Calls {
    begun: AtomicUsize,
    done: AtomicUsize,
    gone: AtomicUsize,
}

/// Counts one call, and that it has gone.
struct Call(Arc<Calls>);

impl Call {
    fn begin(calls: &Arc<Calls>) -> Call {
        calls.begun.fetch_add(1, SeqCst);
        Call(calls.clone())
    }

    fn done(&self) {
        self.0.done.fetch_add(1, SeqCst);
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.0.gone.fetch_add(1, SeqCst);
    }
}

type Numbers = Pin<Box<dyn Stream<Item = Result<Number, Status>> + Send>>;
type Answer = http::Response<Body>;

/// The service. Its requests are jobs of `requests`.
#[derive(Clone)]
struct NumbersService {
    requests: Scope,
    calls: Arc<Calls>,
}

impl NamedService for NumbersService {
    const NAME: &'static str = "kinfolk.Numbers";
}

impl Service<http::Request<Body>> for NumbersService {
    type Response = Answer;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let NumbersService { requests, calls } = self.clone();
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(ProstCodec::<Number, Number>::default());
            Ok(match request.uri().path() {
                DOUBLED => {
                    let handler = service_fn(move |number: Request<Number>| {
                        doubled(requests.clone(), calls.clone(), number.into_inner().value)
                    });
                    grpc.unary(handler, request).await
                }
                _ => {
                    let handler = service_fn(move |number: Request<Number>| {
                        up_to(&calls, number.into_inner().value)
                    });
                    grpc.server_streaming(handler, request).await
                }
            })
        })
    }
}

/// A job of the server, which the call owns: a child of it computes.
async fn doubled(
    requests: Scope,
    calls: Arc<Calls>,
    number: u64,
) -> Result<Response<Number>, Status> {
    let call = Call::begin(&calls);
    let double = requests.task("doubled").host(async move {
        let child = spawn(async move {
            tokio::task::yield_now().await;
            2 * number
        });
        child.await
    });
    let value = double
        .await
        .map_err(|error| Status::unavailable(error.to_string()))?;
    call.done();
    Ok(Response::new(Number { value }))
}

/// A stream, which the connection polls and drops.
fn up_to(calls: &Arc<Calls>, number: u64) -> Ready<Result<Response<Numbers>, Status>> {
    let call = Call::begin(calls);
    let numbers = unfold((0, call), move |(value, call)| async move {
        tokio::task::yield_now().await;
        if value == number {
            call.done();
            return None;
        }
        Some((Ok(Number { value }), (value + 1, call)))
    });
    std::future::ready(Ok(Response::new(Box::pin(numbers) as Numbers)))
}

/// A server on a runtime and a root of its own.
struct NumbersServer {
    to: SocketAddr,
    calls: Arc<Calls>,
    root: Root,
    runtime: Runtime,
}

impl NumbersServer {
    fn start() -> NumbersServer {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let to = listener.local_addr().unwrap();
        let calls = Arc::new(Calls::default());
        let root = runtime.block_on(async { Root::builder().build() });
        let theirs = calls.clone();
        root.scope().task("server").launch(async move {
            let requests = Scope::named("requests").supervisor();
            requests
                .run(async |s| serve(s, listener, theirs).await)
                .await
        });
        NumbersServer {
            to,
            calls,
            root,
            runtime,
        }
    }

    /// Everything that was begun has gone.
    fn rests(&self) -> bool {
        // The root, the server, the scope of its requests, and the shield in it.
        let jobs = self.root.counters().living() == 4;
        jobs && self.calls.gone.load(SeqCst) == self.calls.begun.load(SeqCst)
    }

    /// Told to stop, it finishes what is under way; nothing is left.
    fn end(self) {
        let shutdown = self.root.shutdown_in(Duration::from_secs(20));
        let report = self.runtime.block_on(shutdown).unwrap();
        assert!(report.is_clean(), "{report}");
        assert_eq!(self.root.counters().living(), 0);
    }
}

/// Told to stop, the server takes no more and finishes what is under way.
async fn serve(requests: Scope, listener: TcpListener, calls: Arc<Calls>) -> Result<()> {
    let told = requests.token();
    let service = NumbersService { requests, calls };
    let server = Server::builder().add_service(service);
    let incoming = TcpIncoming::from(listener);
    let serve = server.serve_with_incoming_shutdown(incoming, told.cancelled_owned());
    shield(async { serve.await.or_fail() }).await
}

async fn dial(to: SocketAddr) -> Result<Channel> {
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{to}"));
    endpoint.or_fail()?.connect().await.or_fail()
}

/// One call that has an answer, and one whose answers come as a stream.
async fn calls(channel: Channel, number: u64) -> Result<Vec<u64>> {
    let mut client = tonic::client::Grpc::new(channel);
    let codec = ProstCodec::<Number, Number>::default;
    client.ready().await.or_fail()?;
    let request = Request::new(Number { value: number });
    let path = PathAndQuery::from_static(DOUBLED);
    let answer = client.unary(request, path, codec()).await.or_fail()?;
    let mut all = vec![answer.into_inner().value];
    client.ready().await.or_fail()?;
    let request = Request::new(Number { value: COUNT });
    let path = PathAndQuery::from_static(UP_TO);
    let counted = client.server_streaming(request, path, codec());
    let mut counted = counted.await.or_fail()?.into_inner();
    while let Some(number) = counted.message().await.or_fail()? {
        all.push(number.value);
    }
    Ok(all)
}

fn is_whole(all: &[u64], number: u64) -> bool {
    let counted = 0..COUNT;
    all.iter()
        .copied()
        .eq(std::iter::once(2 * number).chain(counted))
}

/// Cancelled after each poll, the calls are whole or given up at the server too; the same
/// channel makes the next ones.
fn numbers(place: &Place, awaited: Awaited) {
    let server = NumbersServer::start();
    let channel = place.tokio(dial(server.to)).unwrap();
    let make = || calls(channel.clone(), 21);
    let cancelled = after_each_poll(place, awaited, make, |ran| {
        if let Some(all) = &ran.value {
            assert!(is_whole(all, 21), "{ran:?}");
        }
        let next = place.tokio(calls(channel.clone(), 4)).unwrap();
        assert!(is_whole(&next, 4), "after {ran:?}: {next:?}");
        place.until(|| server.rests());
    });
    assert!(cancelled > 1);
    let begun = server.calls.begun.load(SeqCst);
    if awaited == Awaited::Cleanup {
        assert_eq!(server.calls.done.load(SeqCst), begun, "none is given up");
    }
    drop(channel);
    // A connection that is cut short before it is used is a whole one too.
    dials(place, awaited, server.to);
    server.end();
}

/// The same from the beginning, with a connection of its own.
fn dials(place: &Place, awaited: Awaited, to: SocketAddr) {
    let make = || async move {
        let channel = dial(to).await?;
        calls(channel, 3).await
    };
    after_each_poll(place, awaited, make, |ran| {
        if let Some(all) = &ran.value {
            assert!(is_whole(all, 3), "{ran:?}");
        }
    });
}

/// cancel-6: a call that hears nothing is dropped when patience is over.
#[test]
fn cancel_6_tonic_in_a_job_is_dropped_after_each_poll() {
    for on in [On::OneThread, On::Workers] {
        at(on, |place| numbers(place, Awaited::Bare));
    }
}

/// cancel-5: a call is dropped when its job is told, and its request at the server with it.
#[test]
fn cancel_5_tonic_under_or_cancel_after_each_poll() {
    for on in [On::OneThread, On::Workers] {
        at(on, |place| numbers(place, Awaited::OrCancel));
    }
}

/// shield-3: a call in a clean-up is whole, whenever the cancel comes.
#[test]
fn shield_3_tonic_in_a_clean_up_is_whole() {
    for on in [On::OneThread, On::Workers, On::Native] {
        at(on, |place| numbers(place, Awaited::Cleanup));
    }
}

/// cancel-5: on the native runtime too, through `within`.
#[test]
fn cancel_5_tonic_on_the_native_runtime_after_each_poll() {
    for awaited in [Awaited::Bare, Awaited::OrCancel] {
        at(On::Native, move |place| numbers(place, awaited));
    }
}
