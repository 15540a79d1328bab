//! Streams behind the traits of futures-io, tokio and hyper, and listeners as a
//! `Stream`.

use std::future::poll_fn;
use std::io::ErrorKind as IoKind;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures_util::StreamExt;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Bytes, Incoming};
use hyper::rt::{Executor as _, Timer as _};
use hyper::service::service_fn;
use hyper::{Request, Response};
use kinfolk_adapters::hyper::{Executor, HyperTimer};
use kinfolk_adapters::{Polled, Streaming};
use kinfolk_core::{
    Error, Tree, WaitKind, checkpoint, cleanup, current_job, now, scope, sleep, timeout,
};
use kinfolk_runtime::Runtime;
use kinfolk_runtime::io::IoDriver;
use kinfolk_runtime::net::{Shutdown, TcpListener, TcpStream, UnixListener, UnixStream};
use kinfolk_testkit::{Gate, Sim, guarded};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// On no workers, one and two.
fn on_each(name: &'static str, body: impl Fn(Runtime) + Send + Sync + 'static) {
    guarded(name, move |watched| {
        for workers in 0..3 {
            let rt = Runtime::builder()
                .workers(workers)
                .build()
                .expect("a runtime");
            watched.watch(rt.tree());
            body(rt);
        }
    });
}

async fn listener() -> Result<(TcpListener, SocketAddr), Error> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let addr = listener.local_addr()?;
    Ok((listener, addr))
}

async fn connected() -> Result<(TcpStream, TcpStream), Error> {
    let (listener, addr) = listener().await?;
    let here = TcpStream::connect(addr).await?;
    Ok((here, listener.accept().await?.0))
}

fn patterned(at: usize, len: usize) -> Vec<u8> {
    (at..at + len).map(|at| (at % 251) as u8).collect()
}

/// Reads to the end; how much. It must be the pattern.
async fn read_all(stream: &TcpStream) -> Result<usize, Error> {
    let (mut at, mut buf) = (0, Vec::with_capacity(1 << 16));
    loop {
        let (read, back) = stream.read(buf).await;
        if read? == 0 {
            return Ok(at);
        }
        assert!(back == patterned(at, back.len()), "after {at}");
        at += back.len();
        buf = back;
    }
}

/// Less than a write accepts, more than the system takes of a [`narrow`] stream and
/// of a pair with little room.
const MUCH: usize = 60_000;

/// As [`connected`], with little room in the system. The receiving side has it from
/// its listener: what it has once said it takes, it takes.
async fn narrow() -> Result<(TcpStream, TcpStream), Error> {
    let (listener, addr) = listener().await?;
    socket2::SockRef::from(&listener).set_recv_buffer_size(8192)?;
    let here = TcpStream::connect(addr).await?;
    socket2::SockRef::from(&here).set_send_buffer_size(8192)?;
    Ok((here, listener.accept().await?.0))
}

/// Two that are connected, and take a little at a time.
fn narrow_pair() -> std::io::Result<(UnixStream, UnixStream)> {
    let (here, there) = UnixStream::pair()?;
    socket2::SockRef::from(&here).set_send_buffer_size(4096)?;
    Ok((here, there))
}

/// Writes the pattern until the stream has accepted [`MUCH`] for which the system
/// has no room: it waits until the other side reads. How much there is to be read.
async fn fill<S>(stream: &mut Polled<S>) -> std::io::Result<usize>
where
    S: Streaming + AsFd,
    Polled<S>: AsyncWrite + Unpin,
{
    let mut at = 0;
    loop {
        // Nothing is under way here, so that this overtakes nothing.
        at += stuff(stream.get_ref(), at)?;
        let accepted = stream.write(&patterned(at, MUCH)).await?;
        at += accepted;
        let mut flush = pin!(stream.flush());
        match poll_fn(|cx| Poll::Ready(flush.as_mut().poll(cx))).await {
            Poll::Ready(flushed) => flushed?,
            // What is on its way to the other side makes less room than that.
            Poll::Pending => {
                assert_eq!(accepted, MUCH, "the rest would be the caller's");
                return Ok(at);
            }
        }
    }
}

/// Sends the pattern from `at` on until the system has no room for a send of
/// [`MUCH`]; how much it took.
fn stuff(stream: &impl AsFd, at: usize) -> std::io::Result<usize> {
    let socket = socket2::SockRef::from(stream);
    let mut taken = 0;
    loop {
        match socket.send_with_flags(&patterned(at + taken, MUCH), libc::MSG_DONTWAIT) {
            Ok(sent) => taken += sent,
            Err(error) if error.kind() == IoKind::WouldBlock => return Ok(taken),
            Err(error) => return Err(error),
        }
    }
}

/// Waits until these jobs wait for i/o.
async fn until_io(tree: &Tree, names: &[&str]) -> Result<(), Error> {
    loop {
        let snapshot = tree.snapshot();
        let waits = |name: &&str| {
            let mut nodes = snapshot.nodes().iter();
            nodes.any(|node| {
                node.name == **name && node.waits_on.is_some_and(|(kind, ..)| kind == WaitKind::Io)
            })
        };
        if names.iter().all(waits) {
            return Ok(());
        }
        kinfolk_core::yield_now().await?;
    }
}

/// Reads so much of the pattern.
macro_rules! expect_pattern {
    ($stream:expr, $much:expr) => {{
        let (mut at, mut buf) = (0, Vec::with_capacity(1 << 16));
        while at < $much {
            let (read, back) = $stream.read(buf).await;
            assert!(read? > 0, "after {at} of {}", $much);
            assert!(back == patterned(at, back.len()), "after {at}");
            at += back.len();
            buf = back;
        }
    }};
}

#[test]
fn io_5_the_traits_of_tokio() {
    const MUCH: usize = 3 << 20;

    on_each("tokio_io", |rt| {
        rt.block_on(scope(async |s| {
            let (here, there) = connected().await?;
            // Both directions at once, by two jobs on each side.
            for stream in [here, there] {
                let (mut reader, mut writer) = tokio::io::split(Polled::new(stream));
                s.launch(async move {
                    let bytes = patterned(0, MUCH);
                    writer.write_all(&bytes).await?;
                    writer.flush().await?;
                    writer.shutdown().await?;
                    Ok::<_, Error>(())
                });
                s.launch(async move {
                    let mut all = Vec::new();
                    reader.read_to_end(&mut all).await?;
                    assert!(all == patterned(0, MUCH));
                    Ok::<_, Error>(())
                });
            }
            Ok(())
        }))
        .expect("tokio-io");
    });
}

#[test]
fn io_5_several_parts_are_one_write() {
    on_each("parts", |rt| {
        rt.block_on(async {
            let (here, there) = connected().await?;
            let mut here = Polled::new(here);
            assert!(AsyncWrite::is_write_vectored(&here));
            let parts = [&b"ab"[..], b"", b"cde"].map(std::io::IoSlice::new);
            assert_eq!(here.write_vectored(&parts).await?, 5);
            let (read, buf) = there.read_exact([0; 5]).await;
            read?;
            assert_eq!(&buf, b"abcde");
            Ok::<_, Error>(())
        })
        .expect("parts");
    });
}

#[test]
fn io_5_a_read_that_is_dropped_loses_nothing() {
    on_each("dropped_read", |rt| {
        rt.block_on(async {
            let (here, there) = connected().await?;
            let mut here = Polled::new(here);
            let mut got = Vec::new();
            for round in 0..200 {
                {
                    let mut buf = [0; 100];
                    let mut read = pin!(here.read(&mut buf));
                    let polled = poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx))).await;
                    if let Poll::Ready(read) = polled {
                        let bytes = read?;
                        got.extend_from_slice(&buf[..bytes]);
                    }
                }
                there.write_all(patterned(round * 3, 3)).await.0?;
                if round % 2 == 0 {
                    let mut byte = [0];
                    here.read_exact(&mut byte).await?;
                    got.extend(byte);
                }
            }
            there.shutdown(Shutdown::Write).await?;
            here.read_to_end(&mut got).await?;
            assert_eq!(got, patterned(0, 600));
            Ok::<_, Error>(())
        })
        .expect("dropped");
    });
}

#[test]
fn io_5_told_while_reading_the_stream_reads_on_in_cleanup() {
    on_each("told_reading", |rt| {
        rt.block_on(scope(async |s| {
            let (here, there) = connected().await?;
            let begun = Arc::new(AtomicUsize::new(0));
            let task = {
                let begun = begun.clone();
                s.spawn(async move {
                    let mut here = Polled::new(here);
                    let mut buf = [0; 5];
                    {
                        let mut read = pin!(here.read_exact(&mut buf));
                        let polled = poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx))).await;
                        assert!(polled.is_pending());
                    }
                    begun.store(1, Ordering::Release);
                    let error = here.read_exact(&mut buf).await.expect_err("told");
                    assert_eq!(error.kind(), IoKind::Other);
                    assert!(Error::from(error).is_cancelled());
                    begun.store(2, Ordering::Release);
                    cleanup(async {
                        here.read_exact(&mut buf).await.expect("in cleanup");
                        assert_eq!(&buf, b"hello");
                    })
                    .await?;
                    checkpoint().await?;
                    Ok::<_, Error>(())
                })
            };
            for step in 1..3 {
                while begun.load(Ordering::Acquire) < step {
                    sleep(Duration::from_micros(100)).await?;
                }
                match step {
                    1 => drop(task.cancel("enough")),
                    _ => there.write_all("hello").await.0?,
                }
            }
            assert!(task.outcome().await?.is_cancelled());
            Ok(())
        }))
        .expect("told");
    });
}

#[test]
fn io_5_told_while_flushing_what_was_accepted_is_sent_in_cleanup_once() {
    on_each("told_flushing", |rt| {
        rt.block_on(scope(async |s| {
            let (here, there) = narrow().await?;
            let accepted = Arc::new(AtomicUsize::new(0));
            let (go_on, cleaning) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let task = {
                let (accepted, go_on, cleaning) =
                    (accepted.clone(), go_on.clone(), cleaning.clone());
                s.spawn(async move {
                    let mut here = Polled::new(here);
                    accepted.store(fill(&mut here).await?, Ordering::Release);
                    go_on.store(1, Ordering::Release);
                    let error = here.flush().await.expect_err("told");
                    assert_eq!(error.kind(), IoKind::Other);
                    assert!(Error::from(error).is_cancelled());
                    let error = here.write(b"more").await.expect_err("told");
                    assert!(Error::from(error).is_cancelled());
                    cleaning.store(1, Ordering::Release);
                    cleanup(async {
                        here.flush().await.expect("in cleanup");
                        here.shutdown().await.expect("in cleanup");
                    })
                    .await?;
                    checkpoint().await?;
                    Ok::<_, Error>(())
                })
            };
            while go_on.load(Ordering::Acquire) == 0 {
                sleep(Duration::from_micros(100)).await?;
            }
            task.cancel("enough");
            while cleaning.load(Ordering::Acquire) == 0 {
                sleep(Duration::from_micros(100)).await?;
            }
            let got = read_all(&there).await?;
            assert_eq!(got, accepted.load(Ordering::Acquire));
            assert!(task.outcome().await?.is_cancelled());
            Ok(())
        }))
        .expect("told");
    });
}

#[test]
fn io_5_whoever_reads_sends_what_is_left_to_send() {
    on_each("beside", |rt| {
        rt.block_on(scope(async |s| {
            let (here, there) = narrow().await?;
            let here = &mut Polled::new(here);
            let accepted = fill(here).await?;
            // Told once: what is under way is stopped and kept.
            current_job().expect("a job").interrupt("once");
            let error = here.flush().await.expect_err("told");
            assert!(Error::from(error).is_cancelled());
            s.launch(async move {
                let (read, _) = there.read_exact(vec![0; accepted]).await;
                read?;
                there.write_all("done").await.0?;
                Ok::<_, Error>(())
            });
            // No flush.
            let mut answer = [0; 4];
            here.read_exact(&mut answer).await?;
            assert_eq!(&answer, b"done");
            Ok(())
        }))
        .expect("beside");
    });
}

#[test]
fn io_5_a_write_that_fails_later_is_told_to_the_next() {
    on_each("fails_later", |rt| {
        rt.block_on(async {
            let (here, there) = narrow().await?;
            let mut here = Polled::new(here);
            fill(&mut here).await?;
            drop(there);
            let error = here.flush().await.expect_err("nobody reads it");
            let gone = [IoKind::ConnectionReset, IoKind::BrokenPipe];
            assert!(gone.contains(&error.kind()), "{error:?}");
            let error = async {
                here.write_all(b"more").await?;
                here.flush().await
            };
            let error = error.await.expect_err("nobody reads that either");
            assert!(gone.contains(&error.kind()), "{error:?}");
            // An end that is there already is no error.
            let _ = here.shutdown().await;
            Ok::<_, Error>(())
        })
        .expect("fails later");
    });
}

#[test]
fn io_5_listeners_are_streams() {
    on_each("incoming", |rt| {
        let path = std::env::temp_dir().join(format!("kinfolk-incoming-{}", std::process::id()));
        rt.block_on(scope(async |s| {
            let (listener, addr) = listener().await?;
            {
                let mut incoming = listener.incoming();
                for _ in 0..10 {
                    // A poll that is dropped loses no connection.
                    let _ = poll_fn(|cx| Poll::Ready(incoming.poll_next_unpin(cx))).await;
                    let client = TcpStream::connect(addr).await?;
                    let stream = incoming.next().await.expect("it never ends")?;
                    assert_eq!(stream.peer_addr()?, client.local_addr()?);
                }
            }
            let task = s.spawn(async move {
                let mut incoming = listener.incoming();
                incoming.next().await.expect("it never ends")?;
                Ok::<_, Error>(())
            });
            task.cancel("enough");
            assert!(task.outcome().await?.is_cancelled());
            let listener = UnixListener::bind(&path).await?;
            let _client = UnixStream::connect(&path).await?;
            listener.incoming().next().await.expect("it never ends")?;
            Ok(())
        }))
        .expect("incoming");
        std::fs::remove_file(&path).expect("the path of a listener");
    });
}

async fn hello(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Error> {
    let body = request
        .into_body()
        .collect()
        .await
        .map_err(|error| Error::msg(error.to_string()))?;
    let mut words = b"hello ".to_vec();
    words.extend_from_slice(&body.to_bytes());
    Ok(Response::new(Full::new(Bytes::from(words))))
}

#[test]
fn io_5_what_hyper_wants() {
    use hyper::{client, server};

    on_each("hyper", |rt| {
        rt.block_on(scope(async |s| {
            let (here, there) = connected().await?;
            s.launch(async move {
                let served = server::conn::http1::Builder::new()
                    .timer(HyperTimer)
                    .header_read_timeout(Duration::from_secs(60))
                    .serve_connection(Polled::new(there), service_fn(hello))
                    .await;
                match served {
                    // The client may have it all, and be gone, before hyper has
                    // heard that all is sent.
                    Err(error) if !error.is_incomplete_message() => {
                        Err(Error::msg(error.to_string()))
                    }
                    _ => Ok(()),
                }
            });
            let (mut sender, connection) =
                client::conn::http1::handshake::<_, Full<Bytes>>(Polled::new(here))
                    .await
                    .map_err(|error| Error::msg(error.to_string()))?;
            Executor::new(s.clone()).execute(async move {
                connection.await.expect("a connection");
            });
            for name in ["you".to_owned(), "w".repeat(300_000)] {
                let request = Request::builder()
                    .uri("/")
                    .header("host", "localhost")
                    .body(Full::new(Bytes::from(name.clone())))
                    .expect("a request");
                sender.ready().await.expect("a connection");
                let response = sender
                    .send_request(request)
                    .await
                    .map_err(|error| Error::msg(error.to_string()))?;
                let body = response.into_body().collect().await.expect("a body");
                assert_eq!(body.to_bytes(), format!("hello {name}"));
            }
            drop(sender);
            Ok(())
        }))
        .expect("hyper");
    });
}

#[test]
fn io_5_http_2_with_a_job_for_each_request() {
    use hyper::{client, server};

    on_each("http_2", |rt| {
        rt.block_on(scope(async |s| {
            let (here, there) = connected().await?;
            let executor = Executor::new(s.clone());
            let served = server::conn::http2::Builder::new(executor.clone())
                .timer(HyperTimer)
                .serve_connection(Polled::new(there), service_fn(hello));
            s.launch(async move { served.await.map_err(|error| Error::msg(error.to_string())) });
            let (sender, connection) =
                client::conn::http2::handshake(executor.clone(), Polled::new(here))
                    .await
                    .map_err(|error| Error::msg(error.to_string()))?;
            executor.execute(async move {
                connection.await.expect("a connection");
            });
            let asked: Vec<_> = (0..20)
                .map(|n| {
                    let mut sender = sender.clone();
                    let name = n.to_string().repeat(1 + n * 1000);
                    s.spawn(async move {
                        let request = Request::builder()
                            .uri("http://localhost/")
                            .body(Full::new(Bytes::from(name.clone())))
                            .expect("a request");
                        let response = sender.send_request(request).await.expect("a response");
                        let body = response.into_body().collect().await.expect("a body");
                        assert_eq!(body.to_bytes(), format!("hello {name}"));
                        Ok::<_, Error>(())
                    })
                })
                .collect();
            for task in asked {
                task.await?;
            }
            Ok(())
        }))
        .expect("http/2");
    });
}

#[test]
fn io_5_a_header_that_does_not_come_in_time() {
    on_each("header", |rt| {
        rt.block_on(async {
            let (here, there) = connected().await?;
            let service = service_fn(async |_: Request<Incoming>| {
                Ok::<_, Error>(Response::new(Empty::<Bytes>::new()))
            });
            let served = hyper::server::conn::http1::Builder::new()
                .timer(HyperTimer)
                .header_read_timeout(Duration::from_millis(5))
                .serve_connection(Polled::new(there), service)
                .await;
            assert!(served.expect_err("nothing came").is_timeout());
            drop(here);
            Ok::<_, Error>(())
        })
        .expect("header");
    });
}

#[test]
fn io_5_sleeps_of_hyper_are_those_of_the_job() {
    let hour = Duration::from_secs(3600);
    let outcome = Sim::seeded(1).outcome(async move {
        let begun = now();
        HyperTimer.sleep(hour).await;
        assert_eq!(now() - begun, hour);
        assert_eq!(HyperTimer.now(), now());
        let mut sleep = HyperTimer.sleep_until(now() + hour);
        HyperTimer.reset(&mut sleep, now() + 2 * hour);
        sleep.await;
        assert_eq!(now() - begun, 3 * hour);
        // Cancelled, it does not say that the time has come.
        let _ = timeout(hour, async {
            let mut sleep = HyperTimer.sleep(hour + Duration::from_secs(5));
            let first = poll_fn(|cx| Poll::Ready(sleep.as_mut().poll(cx))).await;
            assert!(first.is_pending());
            kinfolk_core::sleep(hour).await.expect_err("it is late");
            let told = poll_fn(|cx| Poll::Ready(sleep.as_mut().poll(cx))).await;
            assert!(told.is_pending());
            cleanup(sleep).await?;
            Ok::<_, Error>(())
        })
        .await;
        assert_eq!(now() - begun, 4 * hour + Duration::from_secs(5));
        Ok::<_, Error>(())
    });
    assert!(outcome.is_completed(), "{outcome:?}");
}

#[test]
fn io_5_the_executor_launches_into_its_scope() {
    on_each("executor", |rt| {
        rt.block_on(async {
            let ran = Arc::new(AtomicUsize::new(0));
            scope(async |s| {
                for _ in 0..10 {
                    let ran = ran.clone();
                    Executor::new(s.clone()).execute(async move {
                        ran.fetch_add(1, Ordering::Relaxed);
                    });
                }
                Ok::<_, Error>(())
            })
            .await?;
            assert_eq!(ran.load(Ordering::Relaxed), 10, "the scope has waited");
            Ok::<_, Error>(())
        })
        .expect("executor");
    });
}

/// Apart, because the traits of both have the same names.
mod of_futures_io {
    use futures_util::io::{AsyncReadExt, AsyncWriteExt};
    use kinfolk_adapters::Polled;
    use kinfolk_core::{Error, scope};
    use kinfolk_runtime::net::UnixStream;

    use super::on_each;

    #[test]
    fn io_5_the_traits_of_futures_io() {
        on_each("futures_io", |rt| {
            rt.block_on(scope(async |s| {
                let (here, there) = UnixStream::pair()?;
                s.launch(async move {
                    let stream = Polled::new(there);
                    let (mut reader, mut writer) = stream.split();
                    futures_util::io::copy(&mut reader, &mut writer).await?;
                    writer.close().await?;
                    Ok::<_, Error>(())
                });
                let mut stream = Polled::from(here);
                assert!(stream.get_ref().peer_addr()?.is_unnamed());
                stream.write_all(b"hello ").await?;
                stream.write_all(b"world").await?;
                stream.close().await?;
                let mut all = String::new();
                stream.read_to_string(&mut all).await?;
                assert_eq!(all, "hello world");
                assert_eq!(stream.read(&mut []).await?, 0);
                Ok(())
            }))
            .expect("futures-io");
        });
    }
}

/// One job writes more than the system takes, and gives its flush up half-way; the
/// other, which reads, sends the rest. On readiness, where a send is short.
#[test]
fn io_5_what_one_half_gave_up_the_other_sends() {
    guarded("gave_up", |watched| {
        let rt = Runtime::builder()
            .workers(1)
            .io(IoDriver::Readiness)
            .build();
        let rt = rt.expect("a runtime");
        watched.watch(rt.tree());
        rt.block_on(scope(async |s| {
            let (here, there) = narrow_pair()?;
            let mut here = Polled::new(here);
            let much = fill(&mut here).await?;
            let (mut reader, mut writer) = tokio::io::split(here);
            let gave_up = Gate::new();
            let told = gave_up.clone();
            let half = s.spawn(async move {
                // Polled once, so that it waits for its operation; then dropped.
                {
                    let mut flush = pin!(writer.flush());
                    poll_fn(|cx| Poll::Ready(flush.as_mut().poll(cx).is_ready())).await;
                }
                told.open();
                // It lives on, and does something else.
                kinfolk_core::park().await?;
                drop(writer);
                Ok::<_, Error>(())
            });
            gave_up.wait().await;
            let reads = s.spawn(async move {
                let mut byte = [0];
                let read = reader.read(&mut byte).await?;
                Ok::<_, Error>((read, byte))
            });
            // All of it arrives, then the answer goes back.
            expect_pattern!(there, much);
            there.write_all("!").await.0?;
            assert_eq!(reads.await?, (1, *b"!"));
            half.cancel("enough");
            assert!(half.outcome().await?.is_cancelled());
            Ok::<_, Error>(())
        }))
        .expect("all of it");
    });
}

/// One half reads and one flushes what the system does not take. Only the second
/// is cancelled: it is told, and the first sends on what it has left.
#[test]
fn io_5_a_flush_is_cancelled_while_the_other_half_reads() {
    on_each("flush", |rt| {
        let tree = rt.tree().clone();
        rt.block_on(scope(async |s| {
            let (here, there) = narrow().await?;
            let mut here = Polled::new(here);
            let much = fill(&mut here).await?;
            let (mut reader, mut writer) = tokio::io::split(here);
            let reads = s.task("reads").spawn(async move {
                let mut byte = [0];
                Ok::<_, Error>((reader.read(&mut byte).await?, byte))
            });
            let flushes = (s.task("flushes")).spawn(async move {
                writer.flush().await?;
                Ok::<_, Error>(())
            });
            until_io(&tree, &["reads", "flushes"]).await?;
            flushes.cancel("enough");
            assert!(flushes.outcome().await?.is_cancelled());
            expect_pattern!(there, much);
            there.write_all("!").await.0?;
            assert_eq!(reads.await?, (1, *b"!"));
            Ok::<_, Error>(())
        }))
        .expect("all of it");
    });
}

/// As above, and the one who reads has begun to wait before anything was written.
///
/// How much a write accepts is nobody's promise: if its send is over while it
/// looks on, that is what was sent. So the system has no room to begin with, and
/// the send cannot be over before the other side reads.
#[test]
fn io_5_what_is_given_up_behind_a_reader_that_waits() {
    fn body(rt: &Runtime) -> Result<(), Error> {
        let tree = rt.tree().clone();
        rt.block_on(scope(async |s| {
            let (here, there) = narrow_pair()?;
            let before = stuff(&here, 0)?;
            assert!(before < MUCH, "a send would not be short: {before}");
            let (mut reader, mut writer) = tokio::io::split(Polled::new(here));
            let reads = s.task("reads").spawn(async move {
                let mut byte = [0];
                Ok::<_, Error>((reader.read(&mut byte).await?, byte))
            });
            until_io(&tree, &["reads"]).await?;
            // Nobody flushes it.
            assert_eq!(writer.write(&patterned(before, MUCH)).await?, MUCH);
            expect_pattern!(there, before + MUCH);
            there.write_all("!").await.0?;
            assert_eq!(reads.await?, (1, *b"!"));
            drop(writer);
            Ok(())
        }))
    }

    guarded("behind", |watched| {
        for driver in [IoDriver::Best, IoDriver::Readiness] {
            for workers in 0..3 {
                let rt = Runtime::builder().workers(workers).io(driver).build();
                let rt = rt.expect("a runtime");
                watched.watch(rt.tree());
                body(&rt).expect("all of it");
            }
        }
    });
}

/// An interrupt is told to the wait that can act on it: reading, not the write
/// that is looked after on the way.
#[test]
fn cancel_3_an_interrupt_is_not_lost_in_what_is_written_beside() {
    on_each("beside", |rt| {
        rt.block_on(async {
            let (here, _there) = narrow().await?;
            let mut here = Polled::new(here);
            fill(&mut here).await?;
            let me = current_job().expect("a job");
            let mut byte = [0];
            let mut read = pin!(here.read(&mut byte));
            poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx).is_ready())).await;
            me.interrupt("look up");
            let error = read.await.expect_err("there is nothing to read");
            assert_eq!(error.kind(), IoKind::Other, "{error}");
            checkpoint().await?;
            Ok::<_, Error>(())
        })
        .expect("an interrupt");
    });
}
