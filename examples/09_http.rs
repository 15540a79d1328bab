//! An HTTP server on hyper, HTTP/1 and HTTP/2: a job for each connection and for
//! each request, a deadline for requests, a limit for connections, and an end that lets
//! those under way finish.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Bytes, Incoming};
use hyper::rt::Executor as _;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Version, client, server};
use kinfolk::io::told;
use kinfolk::net::hyper::{Executor, HyperTimer, serve};
use kinfolk::net::{Polled, TcpListener, TcpStream};
use kinfolk::{ErrorKind, OrFail, Result, Scope, scope, sleep, spawn, timeout};

/// How long a request may take.
const DEADLINE: Duration = Duration::from_millis(200);

/// How long a connection may be silent.
const IDLE: Duration = Duration::from_secs(10);

/// How long a connection may last, also one whose client does not read its answers.
/// Then it is asked to end, as if the server did.
const AGE: Duration = Duration::from_secs(60);

/// How long we wait if a connection cannot be taken.
const BREATH: Duration = Duration::from_millis(10);

/// Requests that take a nap at the moment.
type Naps = Arc<AtomicUsize>;

/// Takes connections until it is cancelled, and is left when the last of them
/// has ended.
async fn server(listener: TcpListener, version: Version, naps: Naps) -> Result<()> {
    // A supervisor: the failure of one connection is not that of the others. The
    // listener is the loop's, and gone with it: nobody connects to a server that ends.
    let run = Scope::build()
        .supervisor()
        .run(async move |s| -> Result<()> {
            loop {
                match listener.accept().await {
                    Ok((stream, peer)) => {
                        let connection = connection(stream, version, naps.clone());
                        s.task(peer.to_string()).launch(connection);
                    }
                    Err(error) if told(&error).is_some() => return Err(error.into()),
                    // Too many open files, or the client has changed its mind.
                    Err(_) => sleep(BREATH).await?,
                }
            }
        });
    run.await
}

/// One connection. Cancelled, or too old, it answers the requests it has, and takes no
/// other.
async fn connection(stream: TcpStream, version: Version, naps: Naps) -> Result<()> {
    match timeout(AGE, requests(stream, version, naps)).await {
        Err(error) if error.kind() == ErrorKind::TimedOut => Ok(()), // nobody's failure
        served => served,
    }
}

async fn requests(stream: TcpStream, version: Version, naps: Naps) -> Result<()> {
    let stream = Polled::new(stream);
    let service = service_fn(move |request| answer(request, naps.clone()));
    match version {
        Version::HTTP_2 => {
            let http = server::conn::http2::Builder::new(Executor::current())
                .timer(HyperTimer)
                // One that is gone without a word is found out.
                .keep_alive_interval(IDLE)
                .keep_alive_timeout(IDLE)
                .serve_connection(stream, service);
            serve(http, |http| http.graceful_shutdown()).await
        }
        _ => {
            let http = server::conn::http1::Builder::new()
                .timer(HyperTimer)
                .header_read_timeout(IDLE)
                .serve_connection(stream, service);
            serve(http, |http| http.graceful_shutdown()).await
        }
    }
}

/// One request: a job of its own, which is cancelled when its time is up.
async fn answer(request: Request<Incoming>, naps: Naps) -> Result<Response<Full<Bytes>>> {
    let work = async { spawn(work(request, naps)).await };
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

async fn work(request: Request<Incoming>, naps: Naps) -> Result<&'static str> {
    match request.uri().path() {
        "/slow" => sleep(Duration::from_secs(3600)).await?,
        "/nap" => {
            naps.fetch_add(1, Ordering::Relaxed);
            sleep(DEADLINE / 4).await?;
        }
        _ => {}
    }
    Ok("hello")
}

/// One request of a client.
async fn get(addr: SocketAddr, version: Version, path: &str) -> Result<(u16, String)> {
    let run = scope(async |s| {
        let executor = Executor::new(s);
        let stream = Polled::new(TcpStream::connect(addr).await?);
        let request = Request::get(format!("http://{addr}{path}"))
            .header("host", addr.to_string())
            .body(Empty::<Bytes>::new())
            .or_fail()?;
        if version == Version::HTTP_2 {
            let http = client::conn::http2::handshake(executor.clone(), stream);
            let (mut sender, connection) = http.await.or_fail()?;
            executor.execute(connection);
            read(sender.send_request(request).await.or_fail()?).await
        } else {
            let (mut sender, connection) =
                client::conn::http1::handshake(stream).await.or_fail()?;
            executor.execute(connection);
            read(sender.send_request(request).await.or_fail()?).await
        }
    });
    run.await
}

async fn read(response: Response<Incoming>) -> Result<(u16, String)> {
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.or_fail()?;
    let words = String::from_utf8(body.to_bytes().to_vec())?;
    Ok((status, words))
}

async fn run(version: Version) -> Result<Vec<(u16, String)>> {
    scope(async |s| {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        let naps = Naps::default();
        let server = s
            .task("server")
            .spawn(server(listener, version, naps.clone()));
        let hello = get(addr, version, "/").await?;
        let slow = get(addr, version, "/slow").await?;
        // Stopped while a request is under way: it is answered all the same.
        let last = s.spawn(get(addr, version, "/nap"));
        while naps.load(Ordering::Relaxed) == 0 {
            sleep(Duration::from_millis(1)).await?;
        }
        server.cancel("closing time");
        let last = last.await?;
        assert!(server.outcome().await?.is_cancelled());
        let nobody = get(addr, version, "/").await;
        assert!(nobody.is_err(), "nobody listens any more");
        Ok(vec![hello, slow, last])
    })
    .await
}

#[kinfolk::main]
async fn main() -> Result<()> {
    for version in [Version::HTTP_11, Version::HTTP_2] {
        for (status, words) in run(version).await? {
            println!("{version:?} {status} {words}");
        }
    }
    Ok(())
}

#[cfg(test)]
use kinfolk::testkit::{
    Sim,
    io::{Fault, OpKind, SimIo},
};

/// On real sockets, in virtual time: a busy machine must not make a request late. A client
/// that leaves is a failure of its connection, which is for the failure hook.
#[kinfolk::test(flavor = "native", failures = "allowed")]
async fn what_is_under_way_is_answered() -> Result<()> {
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let said = run(version).await?;
        let ok = (200, "hello".to_owned());
        assert_eq!(said, [ok.clone(), (504, "too late".to_owned()), ok]);
    }
    Ok(())
}

#[test]
fn it_can_be_stopped_anywhere() {
    for version in [Version::HTTP_11, Version::HTTP_2] {
        // A client that is cut off is a failure of its connection, which is for the
        // failure hook.
        let went = kinfolk::testkit::CancelEverywhere::new()
            .most(40)
            .seeds(1)
            .allow_failures()
            .run(move || run(version));
        assert_eq!(went.forced, 0, "every wait hears it");
        assert!(went.points > 20, "{went:?}");
    }
}

#[test]
fn it_outlives_a_lack_of_open_files() {
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let weather = SimIo::new().fault(OpKind::Accept, 2, Fault::TooManyFiles);
        let mut sim = Sim::builder(7).io(weather).build();
        assert_eq!(sim.run(run(version)).expect("a server").len(), 3);
        sim.finish();
    }
}

#[test]
fn who_says_nothing_is_not_kept_and_nobody_is_taken_at_the_end() {
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let mut sim = Sim::seeded(7);
        let ran = sim.run(scope(async move |s| {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let addr = listener.local_addr()?;
            let naps = Naps::default();
            let server = s.spawn(server(listener, version, naps.clone()));
            let silent = TcpStream::connect(addr).await?;
            let left = timeout(AGE * 2, async {
                while silent.read([0; 64]).await.0? > 0 {}
                Ok::<_, kinfolk::Error>(())
            });
            left.await?;
            let last = s.spawn(get(addr, version, "/nap"));
            while naps.load(Ordering::Relaxed) == 0 {
                sleep(Duration::from_millis(1)).await?;
            }
            server.cancel("closing time");
            sleep(DEADLINE / 8).await?;
            assert!(!last.is_ended(), "it naps");
            let late = TcpStream::connect(addr).await;
            assert!(late.is_err(), "nobody listens any more");
            assert_eq!(last.await?.0, 200);
            assert!(server.outcome().await?.is_cancelled());
            Ok(())
        }));
        ran.unwrap_or_else(|error| panic!("{version:?}: {error:?}"));
        sim.finish();
    }
}
