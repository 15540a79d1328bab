//! An HTTP server on hyper: a job for each connection and for each request, a
//! deadline for requests, and an end that lets those under way finish.

use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, client, server};
use kinfolk::kit::completion;
use kinfolk::net::hyper::{Executor, Timer};
use kinfolk::net::{Polled, TcpListener, TcpStream};
use kinfolk::{ErrorKind, OrFail, Result, Scope};
use kinfolk::{on_cancel, scope, shield_for, sleep, spawn, timeout};

/// How long a request may take.
const DEADLINE: Duration = Duration::from_millis(200);

/// How long requests may go on after the server was stopped.
const GRACE: Duration = Duration::from_secs(5);

/// Takes connections until it is cancelled, and is left when the last of them
/// has ended.
async fn serve(listener: TcpListener) -> Result<()> {
    // A supervisor: the failure of one connection is not that of the others.
    let run = Scope::build().supervisor().run(async |s| -> Result<()> {
        loop {
            let (stream, peer) = listener.accept().await?;
            s.task(peer.to_string()).launch(connection(stream));
        }
    });
    run.await
}

/// One connection. Cancelled, it answers the request it has, and takes no other.
async fn connection(stream: TcpStream) -> Result<()> {
    let (mut stop, stopper) = completion::<()>();
    let _hook = on_cancel(move |_| {
        stopper.complete(());
    });
    let mut stopped = false;
    let served = shield_for(GRACE, async {
        let mut serving = pin!(
            server::conn::http1::Builder::new()
                .timer(Timer)
                .header_read_timeout(Duration::from_secs(10))
                .serve_connection(Polled::new(stream), service_fn(answer))
        );
        let served = std::future::poll_fn(|cx| {
            if !stopped && Pin::new(&mut stop).poll(cx).is_ready() {
                stopped = true;
                serving.as_mut().graceful_shutdown();
            }
            serving.as_mut().poll(cx)
        });
        served.await.or_fail()
    });
    served.await
}

/// One request: a job of its own, which is cancelled when its time is up.
async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>> {
    let work = async { spawn(work(request)).await };
    let (status, words) = match timeout(DEADLINE, work).await {
        Ok(words) => (StatusCode::OK, words),
        Err(error) if error.kind() == ErrorKind::TimedOut => {
            (StatusCode::GATEWAY_TIMEOUT, "too late")
        }
        Err(error) => return Err(error),
    };
    let mut response = Response::new(Full::new(Bytes::from(words)));
    *response.status_mut() = status;
    Ok(response)
}

/// Requests that are being worked on.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

async fn work(request: Request<Incoming>) -> Result<&'static str> {
    match request.uri().path() {
        "/slow" => sleep(Duration::from_secs(3600)).await?,
        "/nap" => {
            UNDER_WAY.fetch_add(1, Ordering::Relaxed);
            sleep(DEADLINE / 4).await?;
        }
        _ => {}
    }
    Ok("hello")
}

/// One request of a client.
async fn get(addr: SocketAddr, path: &'static str) -> Result<(u16, String)> {
    let run = scope(async |s| {
        let stream = Polled::new(TcpStream::connect(addr).await?);
        let (mut sender, connection) = client::conn::http1::handshake(stream).await.or_fail()?;
        hyper::rt::Executor::execute(&Executor::new(s), connection);
        let request = Request::get(path)
            .header("host", addr.to_string())
            .body(Empty::<Bytes>::new())
            .or_fail()?;
        let response = sender.send_request(request).await.or_fail()?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.or_fail()?;
        let words = String::from_utf8(body.to_bytes().to_vec())?;
        Ok((status, words))
    });
    run.await
}

async fn run() -> Result<Vec<(u16, String)>> {
    scope(async |s| {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        let server = s.task("server").spawn(serve(listener));
        let mut said = vec![get(addr, "/").await?, get(addr, "/slow").await?];
        // Stopped while a request is under way: it is answered all the same.
        let last = s.spawn(get(addr, "/nap"));
        while UNDER_WAY.load(Ordering::Relaxed) == 0 {
            sleep(Duration::from_millis(1)).await?;
        }
        server.cancel("closing time");
        said.push(last.await?);
        assert!(server.outcome().await?.is_cancelled());
        assert!(get(addr, "/").await.is_err(), "nobody listens any more");
        Ok(said)
    })
    .await
}

#[kinfolk::main]
async fn main() -> Result<()> {
    for (status, words) in run().await? {
        println!("{status} {words}");
    }
    Ok(())
}

#[test]
fn what_is_under_way_is_answered() {
    let rt = kinfolk::Runtime::new().expect("a runtime");
    let said = rt.block_on(run()).expect("a server");
    let ok = (200, "hello".to_owned());
    assert_eq!(said, [ok.clone(), (504, "too late".to_owned()), ok]);
}
