//! A tonic service over HTTP/2, without generated code: a unary call, and a stream of replies.

mod common;

use std::convert::Infallible;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll};
use std::time::Duration;

use common::{Lab, SECOND, flag, on_sockets, set};
use futures_core::Stream;
use http::uri::PathAndQuery;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kinfolk_core::{Task, launch, park, sleep};
use kinfolk_tower::{RequestLayer, ServeReport, Server, TimeoutFormat};
use prost::Message;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tonic::client::Grpc as Client;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::Grpc;
use tonic::{Code, Request, Response, Status};
use tower::service_fn;

#[derive(Clone, PartialEq, Message)]
struct Ask {
    #[prost(string, tag = "1")]
    what: String,
}

#[derive(Clone, PartialEq, Message)]
struct Reply {
    #[prost(uint32, tag = "1")]
    number: u32,
}

/// Messages as prost writes them.
struct Messages<E, D>(PhantomData<(E, D)>);

fn messages<E, D>() -> Messages<E, D> {
    Messages(PhantomData)
}

impl<E, D> Codec for Messages<E, D>
where
    E: Message + 'static,
    D: Message + Default + 'static,
{
    type Encode = E;
    type Decode = D;
    type Encoder = Messages<E, D>;
    type Decoder = Messages<E, D>;

    fn encoder(&mut self) -> Self::Encoder {
        messages()
    }

    fn decoder(&mut self) -> Self::Decoder {
        messages()
    }
}

impl<E: Message, D> Encoder for Messages<E, D> {
    type Item = E;
    type Error = Status;

    fn encode(&mut self, item: E, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        (item.encode(out)).map_err(|error| Status::internal(error.to_string()))
    }
}

impl<E, D: Message + Default> Decoder for Messages<E, D> {
    type Item = D;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<D>, Status> {
        let item = D::decode(bytes).map_err(|error| Status::internal(error.to_string()))?;
        Ok(Some(item))
    }
}

/// What a child of the request feeds.
struct Replies(mpsc::Receiver<Result<Reply, Status>>);

impl Stream for Replies {
    type Item = Result<Reply, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx)
    }
}

/// The methods: `Sum` answers with the length, or hangs, or panics; `Count` counts, and goes on
/// without end if it is asked to.
async fn shop(
    request: http::Request<Incoming>,
    told: Arc<AtomicBool>,
) -> Result<http::Response<tonic::body::Body>, Infallible> {
    if request.uri().path() == "/shop.Till/Sum" {
        let sum = service_fn(async |ask: Request<Ask>| {
            match ask.get_ref().what.as_str() {
                // Every error becomes a reply.
                "slow" => drop(sleep(1000 * SECOND).await),
                "panic" => panic!("the handler panics"),
                _ => {}
            }
            let number = ask.get_ref().what.len().try_into().unwrap_or(u32::MAX);
            Ok::<_, Status>(Response::new(Reply { number }))
        });
        return Ok(Grpc::new(messages::<Reply, Ask>())
            .unary(sum, request)
            .await);
    }
    let count = service_fn(move |ask: Request<Ask>| {
        let told = told.clone();
        async move {
            let (sender, replies) = mpsc::channel(1);
            let is_endless = ask.get_ref().what == "endless";
            drop(launch(async move {
                for number in 1..=3 {
                    if sender.send(Ok(Reply { number })).await.is_err() {
                        return;
                    }
                }
                if is_endless {
                    told.store(park().await.is_err(), SeqCst);
                }
            }));
            Ok::<_, Status>(Response::new(Replies(replies)))
        }
    });
    let mut grpc = Grpc::new(messages::<Reply, Ask>());
    Ok(grpc.server_streaming(count, request).await)
}

/// A connection as a service of tonic's client.
#[derive(Clone)]
struct Connection(http2::SendRequest<tonic::body::Body>);

impl tower::Service<http::Request<tonic::body::Body>> for Connection {
    type Response = http::Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, hyper::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

struct Till {
    client: Client<Connection>,
    task: Task<ServeReport>,
    told: Arc<AtomicBool>,
}

impl Till {
    async fn open(lab: &Lab, grace: Duration) -> Till {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let told = flag();
        let hears = told.clone();
        let server = Server::new(&lab.root, listener).grace(grace);
        let serving = server.serve(move |requests| {
            let layer = RequestLayer::new(requests).timeout_header(
                "grpc-timeout",
                TimeoutFormat::Grpc,
                60 * SECOND,
            );
            let service = service_fn(move |request| shop(request, hears.clone()));
            tower::Layer::layer(&layer, service)
        });
        let task = lab.scope().task("till").spawn(serving);
        let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
        let shaken = http2::handshake(TokioExecutor::new(), io).await;
        let (sender, connection) = shaken.unwrap();
        drop(tokio::spawn(connection));
        let origin = format!("http://{address}").parse().unwrap();
        let client = Client::with_origin(Connection(sender), origin);
        Till { client, task, told }
    }

    async fn sum(&mut self, what: &str, limit: Option<Duration>) -> Result<u32, Status> {
        sum(&mut self.client, what, limit).await
    }

    async fn count(&mut self, what: &str, limit: Option<Duration>) -> tonic::Streaming<Reply> {
        self.client.ready().await.unwrap();
        let path = PathAndQuery::from_static("/shop.Till/Count");
        let codec = messages::<Ask, Reply>();
        let replies = self.client.server_streaming(ask(what, limit), path, codec);
        replies.await.unwrap().into_inner()
    }

    async fn close(self) -> ServeReport {
        drop(self.client);
        self.task.cancel("closing time");
        self.task.outcome().await.unwrap().into_value().unwrap()
    }
}

async fn sum(
    client: &mut Client<Connection>,
    what: &str,
    limit: Option<Duration>,
) -> Result<u32, Status> {
    client.ready().await.unwrap();
    let path = PathAndQuery::from_static("/shop.Till/Sum");
    let reply = client.unary(ask(what, limit), path, messages::<Ask, Reply>());
    Ok(reply.await?.into_inner().number)
}

fn ask(what: &str, limit: Option<Duration>) -> Request<Ask> {
    let mut request = Request::new(Ask { what: what.into() });
    if let Some(limit) = limit {
        request.set_timeout(limit);
    }
    request
}

#[test]
fn a_unary_call_is_a_request() {
    on_sockets(async |lab| {
        let mut till = Till::open(&lab, 30 * SECOND).await;
        assert_eq!(till.sum("four", None).await.unwrap(), 4);
        assert_eq!(till.sum("four", Some(50 * SECOND)).await.unwrap(), 4);
        // Its deadline is in the header; the handler says that all is well.
        let late = till.sum("slow", Some(SECOND / 100)).await.unwrap_err();
        assert_eq!(late.code(), Code::DeadlineExceeded, "{late}");
        let failed = till.sum("panic", None).await.unwrap_err();
        assert_eq!(failed.code(), Code::Internal, "{failed}");
        assert_eq!(till.sum("still there", None).await.unwrap(), 11);
        let report = till.close().await;
        assert!(report.late.is_empty(), "{report}");
        assert_eq!(lab.failures().len(), 1, "the panic");
    });
}

#[test]
fn a_stream_of_replies_keeps_its_job() {
    on_sockets(async |lab| {
        let mut till = Till::open(&lab, 30 * SECOND).await;
        let mut replies = till.count("three", None).await;
        let mut numbers = Vec::new();
        while let Some(reply) = replies.message().await.unwrap() {
            numbers.push(reply.number);
        }
        assert_eq!(numbers, [1, 2, 3]);
        // A deadline in the middle: the trailers say it.
        let mut replies = till.count("endless", Some(SECOND / 10)).await;
        let end = loop {
            match replies.message().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("it does not end by itself"),
                Err(status) => break status,
            }
        };
        assert_eq!(end.code(), Code::DeadlineExceeded, "{end}");
        set(&till.told).await;
        // Dropped half-way: told.
        till.told.store(false, SeqCst);
        let mut replies = till.count("endless", None).await;
        assert_eq!(replies.message().await.unwrap().unwrap().number, 1);
        let calls = |lab: &Lab| {
            lab.tasks()
                .iter()
                .filter(|name| name.starts_with('/'))
                .count()
        };
        assert_eq!(
            lab.tasks()
                .iter()
                .find(|name| name.starts_with('/'))
                .unwrap(),
            "/shop.Till/Count"
        );
        drop(replies);
        set(&till.told).await;
        while calls(&lab) > 0 {
            tokio::task::yield_now().await;
        }
        let report = till.close().await;
        assert!(report.late.is_empty(), "{report}");
    });
}

/// A call that is late at a shutdown is told, and its client hears that the server is gone.
#[test]
fn a_late_call_is_unavailable() {
    on_sockets(async |lab| {
        let till = Till::open(&lab, SECOND / 50).await;
        let mut client = till.client.clone();
        let late = tokio::spawn(async move { sum(&mut client, "slow", None).await });
        let calls = |name: &String| name == "/shop.Till/Sum";
        while !lab.tasks().iter().any(calls) {
            tokio::task::yield_now().await;
        }
        let report = till.close().await;
        let late = late.await.unwrap().unwrap_err();
        assert_eq!(late.code(), Code::Unavailable, "{late}");
        assert_eq!(report.late[0].name, "/shop.Till/Sum");
    });
}
