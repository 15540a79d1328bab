//! A request by reqwest, cancelled after each of its polls. The server is written by hand, so
//! that it sees every byte.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};

use kinfolk::{OrFail, Result};
use kinfolk_client_tests::{Awaited, On, Place, after_each_poll, at};
use reqwest::Client;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

/// Of a request's body: more than a socket takes at once.
const BODY: usize = 1 << 20;

/// Of an answer's body, in as many parts.
const PARTS: usize = 5;

/// What the server has seen.
#[derive(Default)]
struct Seen {
    opened: AtomicUsize,
    closed: AtomicUsize,
    /// Requests that came whole.
    whole: AtomicUsize,
    /// Connections that ended in the middle of a request or of its answer.
    cut: AtomicUsize,
    /// Whole requests with bytes of another one.
    torn: AtomicUsize,
}

impl Seen {
    fn open(&self) -> usize {
        self.opened.load(SeqCst) - self.closed.load(SeqCst)
    }
}

/// A server on a thread of its own, which ends with it.
struct Server {
    to: SocketAddr,
    seen: Arc<Seen>,
    _runtime: Runtime,
}

impl Server {
    fn start() -> Server {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let to = listener.local_addr().unwrap();
        let seen = Arc::new(Seen::default());
        runtime.spawn(serve(listener, seen.clone()));
        Server {
            to,
            seen,
            _runtime: runtime,
        }
    }
}

async fn serve(listener: TcpListener, seen: Arc<Seen>) {
    while let Ok((stream, _)) = listener.accept().await {
        seen.opened.fetch_add(1, SeqCst);
        let seen = seen.clone();
        tokio::spawn(async move {
            // Whatever ends it: the client has gone.
            if connection(stream, &seen).await.is_err() {
                seen.cut.fetch_add(1, SeqCst);
            }
            seen.closed.fetch_add(1, SeqCst);
        });
    }
}

/// Answers requests until the client closes the connection between two of them.
async fn connection(stream: TcpStream, seen: &Seen) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if stream.read_until(b'\n', &mut head).await? == 0 {
                let between = head.is_empty();
                return between
                    .then_some(())
                    .ok_or(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let head = String::from_utf8(head).expect("of reqwest");
        let id: u64 = head
            .split(['/', ' '])
            .find_map(|word| word.parse().ok())
            .expect("in the path");
        let mut body = vec![0; BODY];
        stream.read_exact(&mut body).await?;
        seen.whole.fetch_add(1, SeqCst);
        if body.iter().any(|byte| *byte != id as u8) {
            seen.torn.fetch_add(1, SeqCst);
        }
        answer(&mut stream, id).await?;
    }
}

/// In parts, so that the client has several waits.
async fn answer(stream: &mut BufReader<TcpStream>, id: u64) -> io::Result<()> {
    let part = format!("{id} ");
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n",
        part.len() * PARTS
    );
    stream.write_all(head.as_bytes()).await?;
    for _ in 0..PARTS {
        stream.flush().await?;
        tokio::task::yield_now().await;
        stream.write_all(part.as_bytes()).await?;
    }
    stream.flush().await
}

/// Sends one request and reads its answer, part by part.
async fn ask(client: Client, to: SocketAddr, id: u64) -> Result<String> {
    let request = client.post(format!("http://{to}/{id}"));
    let sent = request.body(vec![id as u8; BODY]).send().await;
    let mut answer = sent.or_fail()?;
    let mut text = String::new();
    while let Some(part) = answer.chunk().await.or_fail()? {
        text.push_str(std::str::from_utf8(&part).or_fail()?);
    }
    Ok(text)
}

fn is_answer(text: &str, id: u64) -> bool {
    text == format!("{id} ").repeat(PARTS)
}

/// Cancelled after each poll, the request is whole at the server or its connection is closed;
/// the same client answers the next request, with its own answer.
fn requests(place: &Place, awaited: Awaited) {
    let server = Server::start();
    let (to, seen) = (server.to, server.seen.clone());
    let builder = Client::builder().pool_max_idle_per_host(1).no_proxy();
    let client = builder.build().expect("without TLS");
    let ids = AtomicU64::new(0);
    let make = || ask(client.clone(), to, ids.fetch_add(1, SeqCst));
    let cancelled = after_each_poll(place, awaited, make, |ran| {
        let id = ids.load(SeqCst) - 1;
        if let Some(text) = &ran.value {
            assert!(is_answer(text, id), "{ran:?}");
        }
        let next = ids.fetch_add(1, SeqCst);
        let text = place.tokio(ask(client.clone(), to, next)).unwrap();
        assert!(is_answer(&text, next), "after {ran:?}: {text}");
        // One is kept for the next request.
        place.until(|| seen.open() <= 1);
    });
    assert!(cancelled > 1);
    // After it every connection of the client's has been accepted.
    let last = Client::builder().no_proxy().build().unwrap();
    place.tokio(ask(last.clone(), to, 0)).unwrap();
    drop((client, last));
    place.until(|| seen.open() == 0);
    assert_eq!(seen.torn.load(SeqCst), 0, "bytes of another request");
    assert!(
        seen.whole.load(SeqCst) > cancelled,
        "each next one is whole"
    );
    if awaited == Awaited::Cleanup {
        assert_eq!(seen.cut.load(SeqCst), 0, "a clean-up is not cut short");
    }
}

/// cancel-6: a request that hears nothing is dropped when patience is over.
#[test]
fn cancel_6_reqwest_in_a_job_is_dropped_after_each_poll() {
    for on in [On::OneThread, On::Workers] {
        at(on, |place| requests(place, Awaited::Bare));
    }
}

/// cancel-5: a request is dropped when its job is told.
#[test]
fn cancel_5_reqwest_under_or_cancel_after_each_poll() {
    for on in [On::OneThread, On::Workers] {
        at(on, |place| requests(place, Awaited::OrCancel));
    }
}

/// shield-3: a request in a clean-up is whole, whenever the cancel comes.
#[test]
fn shield_3_reqwest_in_a_clean_up_is_whole() {
    for on in [On::OneThread, On::Workers, On::Native] {
        at(on, |place| requests(place, Awaited::Cleanup));
    }
}

/// cancel-5: on the native runtime too, through `within`.
#[test]
fn cancel_5_reqwest_on_the_native_runtime_after_each_poll() {
    for awaited in [Awaited::Bare, Awaited::OrCancel] {
        at(On::Native, move |place| requests(place, awaited));
    }
}
