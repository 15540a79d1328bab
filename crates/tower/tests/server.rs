//! The server, over sockets of loopback: how it accepts, how it stops, and clients that hang up.

mod common;

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::extract::Extension;
use axum::routing::{get, post};
use bytes::Bytes;
use common::{Lab, SECOND, Script, Step, boxed, flag, on_sockets, set};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kinfolk_core::{OrCancel, Task, cleanup, park, sleep};
use kinfolk_tower::{Listen, RequestLayer, ServeReport, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// A server that runs.
struct Running {
    task: Task<ServeReport>,
    address: SocketAddr,
}

impl Running {
    async fn start(lab: &Lab, grace: Duration, app: Router) -> Running {
        Running::start_with(lab, app, |server| server.grace(grace)).await
    }

    async fn start_with(
        lab: &Lab,
        app: Router,
        with: impl FnOnce(Server<TcpListener>) -> Server<TcpListener>,
    ) -> Running {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = with(Server::new(&lab.root, listener));
        let serving = server.serve(|requests| app.layer(RequestLayer::new(requests)));
        let task = lab.scope().task("shop").spawn(serving);
        Running { task, address }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn end(self) -> ServeReport {
        self.task.cancel("closing time");
        let outcome = self.task.outcome().await.unwrap();
        assert!(outcome.is_cancelled());
        outcome.into_value().expect("the report")
    }
}

fn ask(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n")
}

/// Sends a request, and reads a response with a `content-length`.
async fn talk(stream: &mut TcpStream, path: &str) -> (u16, String) {
    stream.write_all(ask(path).as_bytes()).await.unwrap();
    response(stream).await
}

async fn response(stream: &mut TcpStream) -> (u16, String) {
    let (mut bytes, mut more) = (Vec::new(), [0; 512]);
    loop {
        if let Some(found) = whole(&bytes) {
            return found;
        }
        let read = stream.read(&mut more).await.unwrap();
        assert_ne!(read, 0, "half: {:?}", String::from_utf8_lossy(&bytes));
        bytes.extend_from_slice(&more[..read]);
    }
}

/// The status and the body of a response that is there.
fn whole(bytes: &[u8]) -> Option<(u16, String)> {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length?.parse().ok()?;
    (body.len() >= length).then(|| (status, body.to_owned()))
}

/// True if the other side has closed it, and has sent nothing more.
async fn is_closed(mut stream: TcpStream) -> bool {
    let mut rest = Vec::new();
    stream
        .read_to_end(&mut rest)
        .await
        .is_ok_and(|_| rest.is_empty())
}

/// `/begin` says that it has begun, and waits until it may go on.
fn waits(begun: &Arc<AtomicBool>, go: &Arc<Semaphore>) -> Router {
    let (begun, go) = (begun.clone(), go.clone());
    let wait = move || {
        let (begun, go) = (begun.clone(), go.clone());
        async move {
            begun.store(true, SeqCst);
            match go.acquire().or_cancel().await {
                Ok(permit) => permit.unwrap().forget(),
                Err(_) => return "told".to_owned(),
            }
            "done".to_owned()
        }
    };
    Router::new().route("/begin", get(wait))
}

#[test]
fn an_idle_connection_ends_with_the_server() {
    on_sockets(async |lab| {
        let app = Router::new().route(
            "/",
            get(async |Extension(peer): Extension<SocketAddr>| peer.port().to_string()),
        );
        let server = Running::start(&lab, 30 * SECOND, app).await;
        let silent = server.connect().await;
        let mut kept = server.connect().await;
        let port = kept.local_addr().unwrap().port().to_string();
        for _ in 0..2 {
            assert_eq!(talk(&mut kept, "/").await, (200, port.clone()));
        }
        assert_eq!(
            lab.tasks()
                .iter()
                .filter(|name| name.starts_with("connection "))
                .count(),
            2
        );
        let address = server.address;
        let report = server.end().await;
        assert!(is_closed(silent).await);
        assert!(is_closed(kept).await);
        assert_eq!(report.connections, 2);
        assert!(report.late.is_empty(), "{report}");
        assert!(report.took < 10 * SECOND, "{report}");
        assert!(
            TcpStream::connect(address).await.is_err(),
            "it listens no more"
        );
    });
}

#[test]
fn a_request_that_has_begun_is_answered() {
    on_sockets(async |lab| {
        let (begun, go) = (flag(), Arc::new(Semaphore::new(0)));
        let server = Running::start(&lab, 30 * SECOND, waits(&begun, &go)).await;
        let mut stream = server.connect().await;
        stream.write_all(ask("/begin").as_bytes()).await.unwrap();
        set(&begun).await;
        server.task.cancel("closing time");
        go.add_permits(1);
        assert_eq!(response(&mut stream).await, (200, "done".into()));
        assert!(is_closed(stream).await);
        let report = server.end().await;
        assert!(report.late.is_empty(), "{report}");
    });
}

#[test]
fn a_request_that_is_late_is_told_and_named() {
    on_sockets(async |lab| {
        let (begun, tidy, go) = (flag(), flag(), Arc::new(Semaphore::new(0)));
        let all = (begun.clone(), tidy.clone(), go.clone());
        let slow = move || {
            let (begun, tidy, go) = all.clone();
            async move {
                begun.store(true, SeqCst);
                let told = park().await.expect_err("it is told");
                assert_eq!(told.reason().text(), Some("closing time"));
                let _permit = cleanup(async { go.acquire().await.map(drop) }).await;
                tidy.store(true, SeqCst);
                "everything is well"
            }
        };
        let app = Router::new().route("/slow", get(slow));
        let server = Running::start(&lab, SECOND / 50, app).await;
        let mut stream = server.connect().await;
        stream.write_all(ask("/slow").as_bytes()).await.unwrap();
        set(&begun).await;
        server.task.cancel("closing time");
        assert_eq!(response(&mut stream).await, (503, String::new()));
        assert!(is_closed(stream).await);
        assert!(!tidy.load(SeqCst), "its clean-up goes on");
        go.add_permits(1);
        let report = server.end().await;
        assert!(tidy.load(SeqCst), "and is waited for");
        assert!(report.late[0].name.starts_with("GET "), "{report}");
        assert!(report.late[1].name.starts_with("connection "), "{report}");
        assert!(report.to_string().contains("late: \"GET "), "{report}");
    });
}

/// Half a head, and then nothing: the connection is cut a second after the grace.
#[test]
fn a_client_that_stops_half_way_is_cut() {
    on_sockets(async |lab| {
        let server = Running::start(&lab, Duration::ZERO, Router::new()).await;
        let mut stream = server.connect().await;
        stream.write_all(b"GET / HTTP/1.1\r\nhos").await.unwrap();
        while lab.tasks().len() < 4 {
            tokio::task::yield_now().await;
        }
        // Whatever the server has read by then, the test holds.
        tokio::time::sleep(SECOND / 10).await;
        let report = server.end().await;
        assert_eq!(report.late.len(), 1, "{report}");
        assert!(report.took >= SECOND, "{report}");
        assert!(is_closed(stream).await);
    });
}

#[test]
fn a_detached_request_is_waited_for() {
    on_sockets(async |lab| {
        let (begun, go, paid) = (flag(), Arc::new(Semaphore::new(0)), flag());
        let all = (begun.clone(), go.clone(), paid.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = Server::new(&lab.root, listener).grace(30 * SECOND);
        let serving = server.serve(move |requests| {
            let pay = move || {
                let (begun, go, paid) = all.clone();
                async move {
                    begun.store(true, SeqCst);
                    go.acquire().await.unwrap().forget();
                    kinfolk_core::checkpoint().await.expect("it is not told");
                    paid.store(true, SeqCst);
                }
            };
            let detached = RequestLayer::new(requests).detached();
            Router::new().route("/pay", post(pay)).layer(detached)
        });
        let task = lab.scope().task("shop").spawn(serving);
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = b"POST /pay HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(request).await.unwrap();
        set(&begun).await;
        drop(stream);
        while lab
            .tasks()
            .iter()
            .any(|name| name.starts_with("connection "))
        {
            tokio::task::yield_now().await;
        }
        task.cancel("closing time");
        go.add_permits(1);
        let report = task.outcome().await.unwrap().into_value().unwrap();
        assert!(paid.load(SeqCst));
        assert!(report.late.is_empty(), "{report}");
    });
}

/// Connections that cannot be accepted are no end of the server.
#[test]
fn a_server_that_cannot_accept_tries_again() {
    struct Scarce(TcpListener, Vec<io::Error>);

    impl Listen for Scarce {
        type Io = TcpStream;
        type Peer = SocketAddr;

        async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
            match self.1.pop() {
                Some(error) => Err(error),
                None => Listen::accept(&mut self.0).await,
            }
        }
    }

    on_sockets(async |lab| {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let no_file = || io::Error::from_raw_os_error(24);
        let gone = io::ErrorKind::ConnectionAborted.into();
        let scarce = Scarce(listener, vec![no_file(), gone, no_file(), no_file()]);
        let app = Router::new().route("/", get(async || "open"));
        let server = Server::new(&lab.root, scarce);
        let serving = server.serve(|requests| app.layer(RequestLayer::new(requests)));
        let task = lab.scope().task("shop").spawn(serving);
        let mut stream = TcpStream::connect(address).await.unwrap();
        assert_eq!(talk(&mut stream, "/").await, (200, "open".into()));
        let running = Running { task, address };
        assert_eq!(running.end().await.connections, 1);
    });
}

#[test]
fn connections_over_the_limit_wait() {
    on_sockets(async |lab| {
        let app = Router::new().route("/", get(async || "open"));
        let server = Running::start_with(&lab, app, |server| server.connections(1)).await;
        let mut first = server.connect().await;
        assert_eq!(talk(&mut first, "/").await, (200, "open".into()));
        let mut second = server.connect().await;
        second.write_all(ask("/").as_bytes()).await.unwrap();
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        let connections = |lab: &Lab| {
            let tasks = lab.tasks();
            tasks
                .iter()
                .filter(|name| name.starts_with("connection "))
                .count()
        };
        assert_eq!(connections(&lab), 1);
        drop(first);
        assert_eq!(response(&mut second).await, (200, "open".into()));
        let report = server.end().await;
        assert_eq!(report.connections, 2);
    });
}

#[test]
fn streams_of_http_2_are_requests_too() {
    on_sockets(async |lab| {
        let (begun, go, told) = (flag(), Arc::new(Semaphore::new(0)), flag());
        let hears = told.clone();
        let park = async move || {
            hears.store(park().await.is_err(), SeqCst);
        };
        let app = waits(&begun, &go).route("/park", get(park));
        let server = Running::start(&lab, 30 * SECOND, app).await;
        let io = TokioIo::new(server.connect().await);
        let shaken = http2::handshake(TokioExecutor::new(), io).await;
        let (sender, connection) = shaken.unwrap();
        let connection = tokio::spawn(connection);
        let send = |path: &str| {
            let request = Request::get(format!("http://x{path}"));
            let request = request.body(Empty::<Bytes>::new()).unwrap();
            let mut sender = sender.clone();
            tokio::spawn(async move { sender.send_request(request).await })
        };
        // One stream is reset: its handler is told, the other goes on.
        let parked = send("/park");
        let response = send("/begin");
        set(&begun).await;
        while lab
            .tasks()
            .iter()
            .filter(|name| name.starts_with("GET "))
            .count()
            < 2
        {
            tokio::task::yield_now().await;
        }
        parked.abort();
        set(&told).await;
        server.task.cancel("closing time");
        go.add_permits(1);
        let response = response.await.unwrap().unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let body = response.into_body().collect().await.unwrap();
        assert_eq!(body.to_bytes(), "done");
        let report = server.end().await;
        assert!(report.late.is_empty(), "{report}");
        assert!(connection.await.unwrap().is_ok());
    });
}

/// A future that is dropped cannot wait: its scope does.
#[test]
fn a_server_that_is_dropped_leaves_nothing_behind() {
    on_sockets(async |lab| {
        let (begun, tidy) = (flag(), flag());
        let all = (begun.clone(), tidy.clone());
        let slow = move || {
            let (begun, tidy) = all.clone();
            async move {
                begun.store(true, SeqCst);
                park().await.expect_err("it is told");
                cleanup(sleep(SECOND / 100)).await.unwrap();
                tidy.store(true, SeqCst);
            }
        };
        let app = Router::new().route("/slow", get(slow));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = Server::new(&lab.root, listener);
        let serving = server.serve(|requests| app.layer(RequestLayer::new(requests)));
        let task = lab.scope().task("shop").spawn(serving.or_cancel());
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(ask("/slow").as_bytes()).await.unwrap();
        set(&begun).await;
        task.cancel("at once");
        assert!(task.outcome().await.unwrap().is_cancelled());
        assert!(tidy.load(SeqCst), "waited for");
        assert_eq!(lab.root.snapshot().len(), 1);
    });
}

/// On the wire it is no short response that looks whole; and the connection is no failure: the
/// layer has meant it.
#[test]
fn a_deadline_breaks_a_response_off_on_the_wire() {
    on_sockets(async |lab| {
        let stream = async || {
            let script = Script::new([Step::Data("one"), Step::Hang]);
            Response::new(axum::body::Body::new(boxed(script)))
        };
        let app = Router::new().route("/stream", get(stream));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = Server::new(&lab.root, listener).serve(|requests| {
            let layer = RequestLayer::new(requests).timeout(SECOND / 10);
            app.layer(layer)
        });
        let task = lab.scope().task("shop").spawn(serving);
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(ask("/stream").as_bytes()).await.unwrap();
        let mut all = Vec::new();
        drop(stream.read_to_end(&mut all).await);
        let all = String::from_utf8_lossy(&all);
        assert!(all.contains("200 OK"), "{all:?}");
        assert!(all.ends_with("one\r\n"), "no last chunk: {all:?}");
        Running { task, address }.end().await;
    });
}

/// A number from a seed.
fn next(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

/// One client: what it sends, how much it reads, and then it hangs up.
fn hang_up(address: SocketAddr, seed: &mut u64) -> io::Result<()> {
    let mut stream = std::net::TcpStream::connect(address)?;
    stream.set_read_timeout(Some(10 * SECOND))?;
    let paths = ["/quick", "/park", "/stream", "/deaf", "/missing"];
    let request = match next(seed) % 8 {
        0 => String::new(),
        1 => "nonsense\r\n\r\n".into(),
        2 => "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(),
        3 => "POST /quick HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\nhalf".into(),
        _ => ask(paths[(next(seed) % 5) as usize]),
    };
    let sent = match next(seed) % 3 {
        0 => request.len() * (next(seed) % 100) as usize / 100,
        _ => request.len(),
    };
    stream.write_all(&request.as_bytes()[..sent])?;
    match next(seed) % 4 {
        0 => {}
        1 => stream.shutdown(Shutdown::Write)?,
        // What can be read without an answer that never comes.
        2 if sent == request.len() && request.contains("/stream") => {
            stream.read_exact(&mut [0; 16])?;
        }
        _ => thread::yield_now(),
    }
    Ok(())
}

#[test]
fn clients_that_hang_up_at_random_leave_nothing_behind() {
    on_sockets(async |lab| {
        let stream = async || {
            Response::new(axum::body::Body::new(boxed(Script::new([
                Step::Data("0123456789abcdef"),
                Step::Hang,
            ]))))
        };
        let app = Router::new()
            .route(
                "/quick",
                get(async || "quick").post(async |body: Bytes| body),
            )
            .route("/park", get(async || drop(park().await)))
            .route("/stream", get(stream))
            .route("/deaf", get(std::future::pending::<()>));
        let server = Running::start(&lab, 30 * SECOND, app).await;
        let address = server.address;
        let clients = (1..=2).map(|n| {
            thread::spawn(move || {
                let mut seed = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(n);
                for _ in 0..150 {
                    // The server may have closed it first: what it says is not looked at.
                    drop(hang_up(address, &mut seed));
                }
            })
        });
        let clients: Vec<_> = clients.collect();
        while !clients.iter().all(thread::JoinHandle::is_finished) {
            tokio::task::yield_now().await;
        }
        for client in clients {
            client.join().unwrap();
        }
        // Those that have gone are noticed, however they went.
        while lab.tasks().len() > 3 {
            tokio::time::sleep(SECOND / 1000).await;
        }
        let report = server.end().await;
        assert!(report.connections > 200, "{report}");
        assert!(report.late.is_empty(), "{report}");
    });
}

/// Asks again and again; how many whole answers came. Panics at half of one.
fn client(address: SocketAddr, answers: &AtomicUsize) {
    while let Ok(mut stream) = std::net::TcpStream::connect(address) {
        let (mut bytes, mut more) = (Vec::new(), [0; 512]);
        loop {
            if bytes.is_empty() && stream.write_all(ask("/work").as_bytes()).is_err() {
                break;
            }
            match stream.read(&mut more) {
                Ok(read) if read > 0 => bytes.extend_from_slice(&more[..read]),
                _ => {
                    assert!(
                        bytes.is_empty(),
                        "half: {:?}",
                        String::from_utf8_lossy(&bytes)
                    );
                    break;
                }
            }
            if let Some(answer) = whole(&bytes) {
                assert_eq!(answer, (200, "worked".into()));
                answers.fetch_add(1, SeqCst);
                bytes.clear();
            }
        }
    }
}

#[test]
fn a_shutdown_under_load_answers_what_has_begun() {
    on_sockets(async |lab| {
        let (begun, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let all = (begun.clone(), done.clone());
        let work = move || {
            let (begun, done) = all.clone();
            async move {
                begun.fetch_add(1, SeqCst);
                let part = kinfolk_core::spawn(sleep(SECOND / 500));
                part.await.expect("it is not told");
                done.fetch_add(1, SeqCst);
                "worked"
            }
        };
        let app = Router::new().route("/work", get(work));
        let server = Running::start(&lab, 30 * SECOND, app).await;
        let (address, answers) = (server.address, Arc::new(AtomicUsize::new(0)));
        let clients: Vec<_> = (0..4)
            .map(|_| {
                let answers = answers.clone();
                thread::spawn(move || client(address, &answers))
            })
            .collect();
        while answers.load(SeqCst) < 100 {
            tokio::task::yield_now().await;
        }
        let report = server.end().await;
        assert!(report.late.is_empty(), "{report}");
        while !clients.iter().all(thread::JoinHandle::is_finished) {
            tokio::task::yield_now().await;
        }
        for client in clients {
            client.join().unwrap();
        }
        assert_eq!(begun.load(SeqCst), done.load(SeqCst));
        assert_eq!(
            done.load(SeqCst),
            answers.load(SeqCst),
            "each answer has come"
        );
    });
}
