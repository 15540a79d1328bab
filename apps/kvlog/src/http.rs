//! HTTP/1: a job for each connection, and in it one for each request.
//!
//! | answer to a change | means |
//! |---|---|
//! | 200 | it is on the disk |
//! | 400, 413, 504, 507 | it is not there, and will not be |
//! | 500, or none | unknown: ask again, with the same id |

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use kinfolk::io::told;
use kinfolk::net::hyper::{HyperTimer, serve as serve_connection};
use kinfolk::net::{Polled, TcpListener, TcpStream};
use kinfolk::prelude::*;
use kinfolk::{ErrorKind, Patience, Result, timeout};

use crate::record::Record;
use crate::store::{Store, is_full};

/// How long a request may take, unless it says less: `?within=…` milliseconds.
const LIMIT: Duration = Duration::from_secs(5);

/// How long a connection may say nothing.
const IDLE: Duration = Duration::from_secs(30);

/// How long a connection may last, so that one whose client does not read its answers
/// ends too. It is asked to end then, as if the server stopped.
const AGE: Duration = Duration::from_secs(60);

/// How long the requests under way may take when the server stops.
const GRACE: Duration = Duration::from_secs(6);

/// The longest value.
const LONGEST: usize = 1 << 20;

type Answer = Response<Full<Bytes>>;

/// Serves until it is told to stop: then it takes no more connections, and
/// returns when the requests under way are answered.
///
/// # Cancellation
/// A *point*.
pub async fn serve(listener: TcpListener, store: Arc<Store>) -> Result<()> {
    let grace = Patience {
        cleanup: GRACE,
        ..Patience::default()
    };
    // A supervisor: a connection that fails is alone in it.
    let connections = Scope::named("http").patience(grace).supervisor();
    let accept = async move |s: Scope| loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let name = format!("connection from {peer}");
                s.task(name).launch(connection(stream, store.clone()));
            }
            Err(error) if told(&error).is_some() => return Err(error.into()),
            // Too many open files, or the client has changed its mind.
            Err(_) => sleep(Duration::from_millis(10)).await?,
        }
    };
    connections.run(accept).await
}

/// Told to stop, or too old, it answers the request under way and no other.
async fn connection(stream: TcpStream, store: Arc<Store>) -> Result<()> {
    // It has the requests in it, and is gone when it is over: a connection that is
    // reset takes its request along.
    let service = service_fn(move |request| answer(request, store.clone()));
    let http = http1::Builder::new()
        .timer(HyperTimer)
        .header_read_timeout(IDLE)
        // A client may say that this is all, and wait for the answer.
        .half_close(true)
        .serve_connection(Polled::new(stream), service);
    let served = serve_connection(http, |http| http.graceful_shutdown());
    match timeout(AGE, served).await {
        // A client that goes away, talks nonsense or takes too long is nobody's failure.
        Err(error) if matches!(error.kind(), ErrorKind::Failed | ErrorKind::TimedOut) => Ok(()),
        served => served,
    }
}

async fn answer(request: Request<Incoming>, store: Arc<Store>) -> Result<Answer, Infallible> {
    let within = query(&request, "within").and_then(|millis| millis.parse().ok());
    let limit = within.map_or(LIMIT, |millis| LIMIT.min(Duration::from_millis(millis)));
    let handled = Scope::named("request")
        .timeout(limit)
        .run_future(handle(request, &store))
        .await;
    // A request that is told to stop has no answer: by then the grace is spent, and its
    // connection is told as well.
    Ok(handled.unwrap_or_else(|error| {
        let disk = error.downcast_ref::<io::Error>().map(io::Error::kind);
        let status = match error.kind() {
            ErrorKind::TimedOut => StatusCode::GATEWAY_TIMEOUT,
            _ if disk.is_some_and(is_full) => StatusCode::INSUFFICIENT_STORAGE,
            _ if disk == Some(io::ErrorKind::InvalidInput) => StatusCode::PAYLOAD_TOO_LARGE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        reply(status, format!("{error}\n"))
    }))
}

async fn handle(request: Request<Incoming>, store: &Store) -> Result<Answer> {
    let key = request.uri().path().trim_start_matches('/').to_owned();
    let put = match *request.method() {
        Method::GET => {
            return Ok(match store.get(&key) {
                Some(value) => reply(StatusCode::OK, value),
                None => reply(StatusCode::NOT_FOUND, "no such key\n"),
            });
        }
        Method::PUT => true,
        Method::DELETE => false,
        _ => {
            return Ok(reply(
                StatusCode::METHOD_NOT_ALLOWED,
                "GET, PUT or DELETE\n",
            ));
        }
    };
    let Some(id) = query(&request, "id").map(str::to_owned) else {
        return Ok(reply(StatusCode::BAD_REQUEST, "say ?id=… of your own\n"));
    };
    // Not a wait of ours: `or_cancel` makes it a point.
    let body = Limited::new(request.into_body(), LONGEST).collect();
    let Ok(body) = body.or_cancel().await? else {
        return Ok(reply(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too long, or cut off\n",
        ));
    };
    let value = put.then(|| body.to_bytes().to_vec());
    store.write(Record { id, key, value }).await?;
    Ok(reply(StatusCode::OK, ""))
}

/// What the part of the address behind the `?` says of `name`.
fn query<'a>(request: &'a Request<Incoming>, name: &str) -> Option<&'a str> {
    let mut pairs = request.uri().query()?.split('&');
    pairs.find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}

fn reply(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer
}
