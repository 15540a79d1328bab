//! Sockets on the native runtime, over loopback.
//!
//! One test at a time: they count the sockets of the process.

use std::io::{ErrorKind as IoKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use kinfolk_core::{
    Error, Job, Scope, Tree, WaitKind, cancel_current, checkpoint, cleanup, current_job, detach,
    park, scope, sleep, spawn, timeout, yield_now,
};
use kinfolk_runtime::Runtime;
use kinfolk_runtime::net::{
    Shutdown, TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream,
};
use kinfolk_testkit::guarded;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The tree of the test that runs.
static TREE: Mutex<Option<Tree>> = Mutex::new(None);

/// How many sockets the process has open.
fn sockets() -> usize {
    let open = std::fs::read_dir("/proc/self/fd").expect("procfs");
    open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter(|path| path.to_string_lossy().starts_with("socket:"))
        .count()
}

/// On no workers, one and two; no socket is left behind.
fn on_each(name: &'static str, body: impl Fn(Runtime) + Send + Sync + 'static) {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    guarded(name, move |watched| {
        for workers in 0..3 {
            let before = sockets();
            let rt = Runtime::builder()
                .workers(workers)
                .build()
                .expect("a runtime");
            watched.watch(rt.tree());
            *TREE.lock().unwrap_or_else(PoisonError::into_inner) = Some(rt.tree().clone());
            body(rt);
            *TREE.lock().unwrap_or_else(PoisonError::into_inner) = None;
            assert_eq!(sockets(), before, "{name}: sockets are left open");
        }
    });
}

/// Waits until the job of that name waits for the system, or is parked.
async fn in_the_system(name: &str) -> Result<(), Error> {
    let tree = TREE
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
        .expect("a tree");
    loop {
        let snapshot = tree.snapshot();
        let waits = snapshot.find(name).and_then(|node| node.waits_on);
        if waits.is_some_and(|(kind, ..)| matches!(kind, WaitKind::Io | WaitKind::Park)) {
            return Ok(());
        }
        sleep(Duration::from_micros(100)).await?;
    }
}

/// How many jobs wait for the system.
fn all_in_the_system() -> usize {
    let tree = TREE
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
        .expect("a tree");
    let snapshot = tree.snapshot();
    let waits = snapshot.nodes().iter().filter_map(|node| node.waits_on);
    waits.filter(|(kind, ..)| *kind == WaitKind::Io).count()
}

/// A listener and where it listens.
async fn listener() -> Result<(TcpListener, SocketAddr), Error> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let addr = listener.local_addr()?;
    Ok((listener, addr))
}

/// Both ends of a connection.
async fn connected() -> Result<(TcpStream, TcpStream), Error> {
    let (listener, addr) = listener().await?;
    let here = TcpStream::connect(addr).await?;
    let (there, peer) = listener.accept().await?;
    assert_eq!(peer, here.local_addr()?);
    Ok((here, there))
}

/// What stands at each place of a stream, so that a byte that is missing or
/// comes twice shows.
fn pattern(at: usize) -> u8 {
    (at % 251) as u8
}

fn patterned(at: usize, len: usize) -> Vec<u8> {
    (at..at + len).map(pattern).collect()
}

fn check(at: usize, bytes: &[u8]) {
    for (n, byte) in bytes.iter().enumerate() {
        assert_eq!(*byte, pattern(at + n), "at {}", at + n);
    }
}

#[test]
fn io_5_an_echo_over_tcp() {
    on_each("echo", |rt| {
        rt.block_on(scope(async |s| {
            let (listener, addr) = listener().await?;
            s.launch(async move {
                let (stream, _) = listener.accept().await?;
                let mut buf = Vec::with_capacity(64);
                loop {
                    let (read, back) = stream.read(buf).await;
                    if read? == 0 {
                        return Ok::<_, Error>(());
                    }
                    let (written, back) = stream.write_all(back).await;
                    written?;
                    buf = back;
                }
            });
            let stream = TcpStream::connect(addr).await?;
            assert_eq!(stream.peer_addr()?, addr);
            stream.set_nodelay(true)?;
            for round in 1..20 {
                let message = patterned(0, round * 7);
                let (written, message) = stream.write_all(message).await;
                written?;
                let (read, back) = stream.read_exact(vec![0; message.len()]).await;
                read?;
                assert_eq!(back, message);
            }
            Ok(())
        }))
        .expect("an echo");
        let report = rt.shutdown(Duration::from_secs(1)).expect("a report");
        assert!(report.is_clean(), "{report}");
    });
}

#[test]
fn io_5_addresses_are_tried_in_turn_and_names_looked_up() {
    on_each("addresses", |rt| {
        rt.block_on(async {
            // Nobody listens at the first: it was given back.
            let nobody = listener().await?.1;
            let error = TcpStream::connect(nobody).await.expect_err("nobody");
            assert_eq!(error.kind(), IoKind::ConnectionRefused);
            let (taken, addr) = listener().await?;
            let stream = TcpStream::connect(&[nobody, addr][..]).await?;
            assert_eq!(stream.peer_addr()?, addr);
            let error = TcpListener::bind(addr).await.expect_err("taken");
            assert_eq!(error.kind(), IoKind::AddrInUse);
            let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let other = TcpListener::bind(&[addr, any][..]).await?;
            assert_ne!(other.local_addr()?, addr);
            let by_name = TcpStream::connect(("localhost", addr.port())).await?;
            assert_eq!(by_name.peer_addr()?.port(), addr.port());
            let by_name = TcpStream::connect(format!("localhost:{}", addr.port())).await?;
            assert_eq!(by_name.peer_addr()?.port(), addr.port());
            let none = TcpStream::connect(&[][..]).await.expect_err("none");
            assert_eq!(none.kind(), IoKind::InvalidInput);
            assert!(TcpStream::connect("no port").await.is_err());
            drop(taken);
            Ok::<_, Error>(())
        })
        .expect("addresses");
    });
}

#[test]
fn src_m9_a_cancelled_job_begins_nothing() {
    on_each("begins_nothing", |rt| {
        rt.block_on(async {
            let (listener, addr) = listener().await?;
            let told = |error: std::io::Error| assert!(Error::from(error).is_cancelled());
            let task = spawn(async move {
                let (here, _there) = UnixStream::pair()?;
                let before = sockets();
                cancel_current("enough");
                told(TcpListener::bind("127.0.0.1:0").await.expect_err("told"));
                told(UdpSocket::bind("127.0.0.1:0").await.expect_err("told"));
                told(TcpStream::connect(addr).await.expect_err("told"));
                told(TcpStream::connect("localhost:1").await.expect_err("told"));
                told(listener.accept().await.expect_err("told"));
                let (read, buf) = here.read(Vec::with_capacity(7)).await;
                told(read.expect_err("told"));
                assert_eq!(buf.capacity(), 7);
                let (written, buf) = here.write("abc").await;
                told(written.expect_err("told"));
                assert_eq!(buf, "abc");
                told(here.shutdown(Shutdown::Both).await.expect_err("told"));
                assert_eq!(sockets(), before);
                cleanup(async move {
                    let there = TcpStream::connect(addr).await.expect("in cleanup");
                    assert_eq!(
                        listener.accept().await.expect("in cleanup").1,
                        there.local_addr().expect("an address")
                    );
                })
                .await?;
                checkpoint().await?;
                Ok::<_, Error>(())
            });
            assert!(task.outcome().await?.is_cancelled());
            Ok::<_, Error>(())
        })
        .expect("nothing");
    });
}

#[test]
fn src_m12_told_while_accepting() {
    on_each("accepting", |rt| {
        rt.block_on(scope(async |s| {
            let (listener, addr) = listener().await?;
            let listener = Arc::new(listener);
            for _ in 0..20 {
                let listener = listener.clone();
                let task = s.task("accepts").spawn(async move {
                    listener.accept().await?;
                    Ok::<_, Error>(())
                });
                in_the_system("accepts").await?;
                task.cancel("enough");
                assert!(task.outcome().await?.is_cancelled());
            }
            let late = timeout(Duration::from_millis(1), listener.accept()).await;
            assert!(late.is_err());
            // It listens all the same.
            let stream = TcpStream::connect(addr).await?;
            assert_eq!(listener.accept().await?.1, stream.local_addr()?);
            Ok(())
        }))
        .expect("told");
    });
}

#[test]
fn io_1_a_connection_that_was_accepted_all_the_same_is_returned() {
    on_each("all_the_same", |rt| {
        rt.block_on(scope(async |s| {
            let (listener, addr) = listener().await?;
            let listener = Arc::new(listener);
            let kept = Arc::new(AtomicUsize::new(0));
            for round in 0..200_u32 {
                let before = kept.load(Ordering::Relaxed);
                let task = {
                    let (listener, kept) = (listener.clone(), kept.clone());
                    s.task("accepts").spawn(async move {
                        let accepted = listener.accept().await;
                        if accepted.is_ok() {
                            kept.fetch_add(1, Ordering::Relaxed);
                        }
                        // The next point tells.
                        park().await?;
                        accepted?;
                        Ok::<_, Error>(())
                    })
                };
                in_the_system("accepts").await?;
                let client = std::net::TcpStream::connect(addr)?;
                for _ in 0..round % 3 {
                    yield_now().await?;
                }
                task.cancel("enough");
                assert!(task.outcome().await?.is_cancelled());
                if kept.load(Ordering::Relaxed) == before {
                    // It waits to be accepted.
                    let (_, peer) = listener.accept().await?;
                    assert_eq!(peer, client.local_addr()?);
                }
            }
            Ok(())
        }))
        .expect("all the same");
    });
}

#[test]
fn io_3_an_accept_that_is_dropped_loses_no_file() {
    on_each("dropped_accept", |rt| {
        rt.block_on(async {
            let (listener, addr) = listener().await?;
            for _ in 0..100 {
                {
                    let mut accept = pin!(listener.accept());
                    // Ready, if one of those before has waited for this.
                    let _ = std::future::poll_fn(|cx| Poll::Ready(accept.as_mut().poll(cx))).await;
                    // It is accepted for nobody, or in time for the next.
                    drop(std::net::TcpStream::connect(addr)?);
                }
                yield_now().await?;
            }
            // Whoever comes next is accepted, behind those who have gone.
            let client = TcpStream::connect(addr).await?;
            loop {
                let (_, peer) = listener.accept().await?;
                if peer == client.local_addr()? {
                    return Ok::<_, Error>(());
                }
            }
        })
        .expect("dropped");
    });
}

#[test]
fn src_m12_told_while_reading_nothing_is_lost() {
    on_each("reading", |rt| {
        rt.block_on(scope(async |s| {
            let (here, there) = connected().await?;
            let here = Arc::new(here);
            let (mut sent, got) = (0, Arc::new(AtomicUsize::new(0)));
            for round in 0..100_usize {
                let task = {
                    let (here, got) = (here.clone(), got.clone());
                    s.task("reads").spawn(async move {
                        let (read, buf) = here.read(Vec::with_capacity(100)).await;
                        assert_eq!(buf.capacity(), 100, "the buffer comes back");
                        let read = read?;
                        check(got.fetch_add(read, Ordering::Relaxed), &buf);
                        park().await?;
                        Ok::<_, Error>(())
                    })
                };
                in_the_system("reads").await?;
                if round % 2 == 1 {
                    let (written, bytes) = there.write(patterned(sent, 3)).await;
                    assert_eq!(written?, 3);
                    sent += bytes.len();
                }
                task.cancel("enough");
                assert!(task.outcome().await?.is_cancelled());
            }
            let got = got.load(Ordering::Relaxed);
            if got < sent {
                let (read, buf) = here.read_exact(vec![0; sent - got]).await;
                read?;
                check(got, &buf);
            }
            Ok(())
        }))
        .expect("told");
    });
}

#[test]
fn io_1_told_while_writing_every_byte_is_accounted_for() {
    on_each("writing", |rt| {
        rt.block_on(scope(async |s| {
            let (here, there) = connected().await?;
            let written = Arc::new(AtomicUsize::new(0));
            let task = {
                let written = written.clone();
                s.task("writes").spawn(async move {
                    loop {
                        let at = written.load(Ordering::Relaxed);
                        let (sent, buf) = here.write(patterned(at, 1 << 20)).await;
                        assert_eq!(buf.len(), 1 << 20, "the buffer comes back");
                        match sent {
                            Ok(bytes) => written.fetch_add(bytes, Ordering::Relaxed),
                            Err(error) => return Err::<(), _>(Error::from(error)),
                        };
                    }
                })
            };
            // Until the system takes no more.
            let mut before = usize::MAX;
            while before != written.load(Ordering::Relaxed) || before == 0 {
                before = written.load(Ordering::Relaxed);
                in_the_system("writes").await?;
                sleep(Duration::from_millis(2)).await?;
            }
            task.cancel("enough");
            assert!(task.outcome().await?.is_cancelled());
            let (mut got, mut buf) = (0, Vec::with_capacity(1 << 20));
            loop {
                let (read, back) = there.read(buf).await;
                if read? == 0 {
                    break;
                }
                check(got, &back);
                got += back.len();
                buf = back;
            }
            assert_eq!(got, written.load(Ordering::Relaxed));
            Ok(())
        }))
        .expect("told");
    });
}

#[test]
fn src_m12_told_while_connecting() {
    on_each("connecting", |rt| {
        // It takes one connection and no more, and nobody accepts.
        let full = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)
            .expect("a socket");
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        full.bind(&any.into()).expect("an address");
        full.listen(0).expect("it listens");
        let addr = full
            .local_addr()
            .expect("an address")
            .as_socket()
            .expect("tcp");
        let mut waiting = Vec::new();
        while let Ok(stream) =
            std::net::TcpStream::connect_timeout(&addr, Duration::from_millis(200))
        {
            waiting.push(stream);
        }
        let elsewhere = std::net::TcpListener::bind(any).expect("a listener");
        let next = elsewhere.local_addr().expect("an address");
        rt.block_on(scope(async |s| {
            let before = sockets();
            let task = s.task("connects").spawn(async move {
                // Told, it does not try the next.
                TcpStream::connect(&[addr, next][..]).await?;
                Ok::<_, Error>(())
            });
            in_the_system("connects").await?;
            task.cancel("enough");
            assert!(task.outcome().await?.is_cancelled());
            // Nor if it could, because it was only interrupted.
            let task = s.task("connects").spawn(async move {
                let told = TcpStream::connect(&[addr, next][..]).await;
                assert!(Error::from(told.expect_err("told")).is_cancelled());
                Ok::<_, Error>(())
            });
            in_the_system("connects").await?;
            task.interrupt("once");
            task.await?;
            let late = timeout(Duration::from_millis(5), TcpStream::connect(addr)).await;
            assert_eq!(
                late.expect_err("late").kind(),
                kinfolk_core::ErrorKind::TimedOut
            );
            {
                let mut connect = pin!(TcpStream::connect(addr));
                let polled =
                    std::future::poll_fn(|cx| Poll::Ready(connect.as_mut().poll(cx))).await;
                assert!(polled.is_pending());
            }
            while sockets() > before {
                sleep(Duration::from_micros(100)).await?;
            }
            Ok(())
        }))
        .expect("told");
        elsewhere.set_nonblocking(true).expect("a listener");
        assert!(elsewhere.accept().is_err(), "nobody has come here");
    });
}

#[test]
fn io_5_one_direction_ends_and_the_other_goes_on() {
    on_each("half_close", |rt| {
        rt.block_on(scope(async |s| {
            let (here, there) = connected().await?;
            s.launch(async move {
                let (mut all, mut buf) = (Vec::new(), Vec::with_capacity(100));
                loop {
                    let (read, back) = there.read(buf).await;
                    if read? == 0 {
                        break;
                    }
                    all.extend_from_slice(&back);
                    buf = back;
                }
                all.reverse();
                there.write_all(all).await.0?;
                Ok::<_, Error>(())
            });
            here.write_all("abc").await.0?;
            here.shutdown(Shutdown::Write).await?;
            let (written, _) = here.write("more").await;
            assert_eq!(written.expect_err("ended").kind(), IoKind::BrokenPipe);
            let (read, buf) = here.read_exact([0; 3]).await;
            read?;
            assert_eq!(&buf, b"cba");
            let (read, buf) = here.read_exact(vec![0; 3]).await;
            assert_eq!(read.expect_err("its end").kind(), IoKind::UnexpectedEof);
            assert_eq!(buf.capacity(), 3);
            Ok(())
        }))
        .expect("half closed");
    });
}

#[test]
fn io_5_much_goes_both_ways_through_one_stream() {
    const MUCH: usize = 6 << 20;

    async fn write(stream: &TcpStream) -> Result<(), Error> {
        let mut at = 0;
        while at < MUCH {
            let len = (MUCH - at).min(1_000_003);
            stream.write_all(patterned(at, len)).await.0?;
            at += len;
        }
        stream.shutdown(Shutdown::Write).await?;
        Ok(())
    }

    async fn read(stream: &TcpStream) -> Result<(), Error> {
        let (mut at, mut buf) = (0, Vec::with_capacity(70_000));
        loop {
            let (read, back) = stream.read(buf).await;
            if read? == 0 {
                assert_eq!(at, MUCH);
                return Ok(());
            }
            check(at, &back);
            at += back.len();
            buf = back;
        }
    }

    on_each("much", |rt| {
        rt.block_on(scope(async |s| {
            let (here, there) = connected().await?;
            for stream in [here, there] {
                let stream = Arc::new(stream);
                let other = stream.clone();
                s.launch(async move { read(&other).await });
                s.launch(async move { write(&stream).await });
            }
            Ok(())
        }))
        .expect("much");
    });
}

#[test]
fn io_5_several_buffers_in_one_write() {
    on_each("vectored", |rt| {
        rt.block_on(async {
            let (here, there) = connected().await?;
            let bufs = vec![b"ab".to_vec(), Vec::new(), b"cde".to_vec()];
            let (written, bufs) = here.write_vectored(bufs).await;
            assert_eq!((written?, bufs.len()), (5, 3));
            let (read, buf) = there.read_exact([0; 5]).await;
            read?;
            assert_eq!(&buf, b"abcde");
            // More than the system takes at once: it says how many.
            let many = vec![vec![7_u8; 2]; 3000];
            let (written, _) = here.write_vectored(many).await;
            assert_eq!(written?, 2048);
            Ok::<_, Error>(())
        })
        .expect("vectored");
    });
}

#[test]
fn io_5_a_connection_that_is_cut_off_is_an_error() {
    on_each("cut_off", |rt| {
        rt.block_on(scope(async |s| {
            let (listener, addr) = listener().await?;
            let client = std::net::TcpStream::connect(addr)?;
            let (stream, _) = listener.accept().await?;
            let task = s.task("reads").spawn(async move {
                let (read, buf) = stream.read(Vec::with_capacity(9)).await;
                assert_eq!(buf.capacity(), 9);
                Ok::<_, Error>(read.map_err(|error| error.kind()))
            });
            in_the_system("reads").await?;
            socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO))?;
            drop(client);
            assert_eq!(task.await?, Err(IoKind::ConnectionReset));
            Ok(())
        }))
        .expect("cut off");
    });
}

#[test]
fn shutdown_1_with_connections_open() {
    on_each("shutdown", |rt| {
        let before = sockets();
        let opened = rt.block_on(async {
            let (listener, addr) = listener().await?;
            for n in 0..50 {
                let client = TcpStream::connect(addr).await?;
                let (server, _) = listener.accept().await?;
                detach(async move {
                    match n % 2 {
                        0 => client.read(vec![0; 100]).await.0.map(drop)?,
                        _ => client.write_all(vec![0; 32 << 20]).await.0?,
                    }
                    drop(server);
                    Ok::<_, Error>(())
                });
            }
            detach(async move {
                listener.accept().await?;
                Ok::<_, Error>(())
            });
            while all_in_the_system() < 51 {
                sleep(Duration::from_micros(100)).await?;
            }
            Ok::<_, Error>(sockets())
        });
        assert!(opened.expect("connections") > before + 50);
        let report = rt.shutdown(Duration::from_secs(5)).expect("a report");
        assert!(report.is_clean(), "{report}");
    });
}

/// Lets the process open no more files than it has, until it is dropped.
struct NoMoreFiles(libc::rlimit);

impl NoMoreFiles {
    fn new() -> NoMoreFiles {
        let mut old = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: a valid place for the answer.
        let asked = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut old) };
        assert_eq!(asked, 0);
        let none = libc::rlimit { rlim_cur: 0, ..old };
        // SAFETY: a valid limit.
        let set = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const none) };
        assert_eq!(set, 0);
        NoMoreFiles(old)
    }
}

impl Drop for NoMoreFiles {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const self.0) };
    }
}

#[test]
fn io_5_no_files_left_is_an_error_and_the_connection_waits() {
    on_each("no_files", |rt| {
        rt.block_on(async {
            let (listener, addr) = listener().await?;
            let client = std::net::TcpStream::connect(addr)?;
            let none = NoMoreFiles::new();
            let accepted = listener.accept().await;
            let connected = TcpStream::connect(addr).await;
            drop(none);
            let errno = |error: std::io::Error| error.raw_os_error();
            assert_eq!(accepted.map_err(errno).err(), Some(Some(libc::EMFILE)));
            assert_eq!(connected.map_err(errno).err(), Some(Some(libc::EMFILE)));
            let (_, peer) = listener.accept().await?;
            assert_eq!(peer, client.local_addr()?);
            Ok::<_, Error>(())
        })
        .expect("no files");
    });
}

#[test]
fn io_5_sockets_come_from_elsewhere_and_go_there() {
    on_each("adopted", |rt| {
        let std_listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
        let addr = std_listener.local_addr().expect("an address");
        let outside = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
        assert!(UdpSocket::try_from(outside).is_err(), "outside any job");
        rt.block_on(scope(async |s| {
            let listener = TcpListener::try_from(std_listener)?;
            assert_eq!(listener.local_addr()?, addr);
            let client = TcpStream::connect(addr).await?;
            let (server, _) = listener.accept().await?;
            let copy = server.as_fd().try_clone_to_owned()?;
            let copy = TcpStream::try_from(copy)?;
            client.write_all("abcd").await.0?;
            for stream in [&server, &copy] {
                let (read, buf) = stream.read_exact([0; 2]).await;
                read?;
                assert!(matches!(&buf, b"ab" | b"cd"));
            }
            drop(copy);
            // In the hands of an operation it cannot go.
            let client = Arc::new(client);
            let task = {
                let client = client.clone();
                s.task("reads").spawn(async move {
                    client.read([0; 4]).await.0?;
                    Ok::<_, Error>(())
                })
            };
            in_the_system("reads").await?;
            task.cancel("enough");
            assert!(task.outcome().await?.is_cancelled());
            let client = Arc::into_inner(client).expect("the last");
            let mut client: std::net::TcpStream = client.into_std()?;
            client.write_all(b"hello")?;
            let mut server = server.into_std()?;
            let mut buf = [0; 5];
            server.read_exact(&mut buf)?;
            assert_eq!(&buf, b"hello");
            let (one, two) = UnixStream::pair()?;
            {
                let mut read = pin!(one.read([0; 4]));
                let polled = std::future::poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx))).await;
                assert!(polled.is_pending());
                let busy = one.into_std().expect_err("in the hands of an operation");
                assert_eq!(busy.kind(), IoKind::ResourceBusy);
            }
            drop(two);
            let pair = OwnedFd::from(std::os::unix::net::UnixDatagram::pair()?.0);
            UnixDatagram::try_from(pair)?;
            Ok(())
        }))
        .expect("adopted");
    });
}

#[test]
fn io_5_udp() {
    on_each("udp", |rt| {
        rt.block_on(scope(async |s| {
            let one = Arc::new(UdpSocket::bind("127.0.0.1:0").await?);
            let two = UdpSocket::bind("127.0.0.1:0").await?;
            one.set_broadcast(true)?;
            let (sent, buf) = two.send_to("hello", one.local_addr()?).await;
            assert_eq!((sent?, buf), (5, "hello"));
            let (got, buf) = one.recv_from(Vec::with_capacity(100)).await;
            assert_eq!(got?, (5, two.local_addr()?));
            assert_eq!(buf, b"hello");
            two.connect(one.local_addr()?).await?;
            assert_eq!(two.peer_addr()?, one.local_addr()?);
            let (sent, _) = two.send(vec![9; 300]).await;
            assert_eq!(sent?, 300);
            let (got, buf) = one.recv(Vec::with_capacity(100)).await;
            assert_eq!((got?, buf), (100, vec![9; 100]), "the rest is cut off");
            for _ in 0..20 {
                let one = one.clone();
                let task = s.task("receives").spawn(async move {
                    let (got, buf) = one.recv_from(Vec::with_capacity(7)).await;
                    assert_eq!(buf.capacity(), 7);
                    got?;
                    Ok::<_, Error>(())
                });
                in_the_system("receives").await?;
                task.cancel("enough");
                assert!(task.outcome().await?.is_cancelled());
            }
            two.send("x").await.0?;
            assert_eq!(one.recv(vec![0; 9]).await.0?, 1);
            Ok(())
        }))
        .expect("udp");
    });
}

#[test]
fn io_5_sockets_of_this_machine() {
    on_each("unix", |rt| {
        let dir = std::env::temp_dir().join(format!("kinfolk-net-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a scratch directory");
        rt.block_on(async {
            let path = dir.join("stream");
            let listener = UnixListener::bind(&path).await?;
            assert_eq!(listener.local_addr()?.as_pathname(), Some(&*path));
            let client = UnixStream::connect(&path).await?;
            let (server, peer) = listener.accept().await?;
            assert!(peer.is_unnamed());
            assert_eq!(client.peer_addr()?.as_pathname(), Some(&*path));
            assert_eq!(server.local_addr()?.as_pathname(), Some(&*path));
            client.write_all("hello").await.0?;
            client.shutdown(Shutdown::Write).await?;
            let (read, buf) = server.read_exact([0; 5]).await;
            read?;
            assert_eq!(&buf, b"hello");
            assert_eq!(server.read(vec![0; 5]).await.0?, 0);
            let (written, _) = server.write_vectored(vec!["a", "b"]).await;
            assert_eq!(written?, 2);
            assert_eq!(client.read(vec![0; 5]).await.0?, 2);
            drop(server);
            assert_eq!(
                UnixStream::connect(dir.join("none"))
                    .await
                    .expect_err("none")
                    .kind(),
                IoKind::NotFound
            );

            let (one, two) = UnixDatagram::pair()?;
            one.send("first").await.0?;
            one.send("second").await.0?;
            let (got, buf) = two.recv(Vec::with_capacity(100)).await;
            assert_eq!((got?, &*buf), (5, &b"first"[..]));
            let (got, from) = two.recv_from(Vec::with_capacity(100)).await;
            assert_eq!(from, b"second");
            assert!(got?.1.is_unnamed());
            let (path, other) = (dir.join("one"), dir.join("two"));
            let (one, two) = (
                UnixDatagram::bind(&path).await?,
                UnixDatagram::bind(&other).await?,
            );
            one.send_to("hello", &other).await.0?;
            let (got, _) = two.recv_from(vec![0; 9]).await;
            assert_eq!(got?.1.as_pathname(), Some(&*path));
            let third = UnixDatagram::unbound()?;
            assert!(third.local_addr()?.is_unnamed());
            third.connect(&path).await?;
            third.send("x").await.0?;
            assert_eq!(one.recv(vec![0; 9]).await.0?, 1);
            let too_long = "x".repeat(500);
            let (sent, buf) = one.send_to("y", &too_long).await;
            assert!(sent.is_err());
            assert_eq!(buf, "y");
            assert!(UnixListener::bind(&too_long).await.is_err());
            Ok::<_, Error>(())
        })
        .expect("unix");
        std::fs::remove_dir_all(&dir).expect("a scratch directory");
    });
}

/// How many connections the storm has.
fn connections() -> usize {
    let asked = std::env::var("KINFOLK_CONNECTIONS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(300)
}

/// Numbers that look random, the same for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

/// What becomes of a connection.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Fate {
    Served,
    CutOff,
    Cancelled,
}

impl Fate {
    fn of(n: usize) -> Fate {
        match n % 4 {
            0 => Fate::CutOff,
            1 => Fate::Cancelled,
            _ => Fate::Served,
        }
    }
}

/// What one side has sent and received on a connection.
#[derive(Default)]
struct Account {
    sent: AtomicUsize,
    received: AtomicUsize,
}

/// Both sides of all connections, and the jobs that the server is to cancel.
struct Books {
    client: Vec<Account>,
    server: Vec<Account>,
    doomed: Mutex<Vec<Job>>,
}

/// Receives what comes; 0 at the end. What it says stands in the books.
async fn receive(
    stream: &TcpStream,
    account: &Account,
    buf: Vec<u8>,
) -> (std::io::Result<usize>, Vec<u8>) {
    let (read, buf) = stream.read(buf).await;
    if let Ok(bytes) = read {
        check(account.received.fetch_add(bytes, Ordering::Relaxed), &buf);
    }
    (read, buf)
}

async fn serve(stream: TcpStream, books: Arc<Books>) -> Result<(), Error> {
    let (read, number) = stream.read_exact([0; 4]).await;
    read?;
    let n = u32::from_le_bytes(number) as usize;
    let account = &books.server[n];
    if Fate::of(n) == Fate::Cancelled {
        let mut doomed = books.doomed.lock().expect("no panic");
        doomed.extend(current_job());
    }
    let echo = async {
        let mut buf = Vec::with_capacity(4096);
        loop {
            let (read, mut back) = receive(&stream, account, buf).await;
            if read? == 0 {
                return Ok(());
            }
            while !back.is_empty() {
                let (sent, bytes) = stream.write(back).await;
                back = bytes;
                let sent = sent?;
                account.sent.fetch_add(sent, Ordering::Relaxed);
                back.drain(..sent);
            }
            buf = back;
        }
    };
    let end: Result<(), Error> = echo.await;
    if end.as_ref().is_err_and(Error::is_cancelled) {
        // It says good-bye, and hears what was under way.
        cleanup(async {
            let mut buf = Vec::with_capacity(4096);
            let _ = stream.shutdown(Shutdown::Write).await;
            loop {
                let (read, back) = receive(&stream, account, buf).await;
                if read.unwrap_or(0) == 0 {
                    break;
                }
                buf = back;
            }
        })
        .await?;
    }
    end
}

async fn visit(addr: SocketAddr, n: usize, books: Arc<Books>) -> Result<(), Error> {
    let mut dice = Dice(n as u64 * 0x9e37_79b9 + 1);
    let account = &books.client[n];
    let stream = TcpStream::connect(addr).await?;
    stream.write_all((n as u32).to_le_bytes()).await.0?;
    let rounds = 1 + dice.below(8);
    for round in 0.. {
        let fate = Fate::of(n);
        if round >= rounds && fate == Fate::Served {
            break;
        }
        let len = 1 + dice.below(4000);
        let at = account.sent.load(Ordering::Relaxed);
        let (sent, _) = stream.write_all(patterned(at, len)).await;
        sent?;
        account.sent.fetch_add(len, Ordering::Relaxed);
        if round >= rounds && fate == Fate::CutOff {
            return Ok(());
        }
        let wanted = at + len;
        let mut buf = Vec::with_capacity(len);
        while account.received.load(Ordering::Relaxed) < wanted {
            let (read, back) = receive(&stream, account, buf).await;
            if read? == 0 {
                assert_eq!(fate, Fate::Cancelled, "only those are cancelled");
                stream.shutdown(Shutdown::Write).await?;
                return Ok(());
            }
            buf = back;
        }
    }
    stream.shutdown(Shutdown::Write).await?;
    let (read, _) = receive(&stream, account, Vec::with_capacity(1)).await;
    assert_eq!(read?, 0);
    Ok(())
}

#[test]
fn io_5_a_storm_of_connections_every_byte_accounted_for() {
    on_each("storm", |rt| {
        let count = connections();
        let books = Arc::new(Books {
            client: (0..count).map(|_| Account::default()).collect(),
            server: (0..count).map(|_| Account::default()).collect(),
            doomed: Mutex::new(Vec::new()),
        });
        let doomed = (0..count)
            .filter(|n| Fate::of(*n) == Fate::Cancelled)
            .count();
        rt.block_on(Scope::build().supervisor().run(async |s| {
            let (listener, addr) = listener().await?;
            let (server, kept) = (s.clone(), books.clone());
            s.task("server").launch(async move {
                for _ in 0..count {
                    let (stream, _) = listener.accept().await?;
                    server.launch(serve(stream, kept.clone()));
                }
                Ok::<_, Error>(())
            });
            let clients: Vec<_> = (0..count)
                .map(|n| s.spawn(visit(addr, n, books.clone())))
                .collect();
            let mut dice = Dice(7);
            let mut cancelled = 0;
            while cancelled < doomed {
                let jobs = std::mem::take(&mut *books.doomed.lock().expect("no panic"));
                for job in &jobs {
                    for _ in 0..dice.below(4) {
                        yield_now().await?;
                    }
                    job.cancel("a guest too many");
                }
                cancelled += jobs.len();
                sleep(Duration::from_micros(200)).await?;
            }
            for client in clients {
                client.await?;
            }
            Ok(())
        }))
        .expect("a storm");
        for n in 0..count {
            let of = |account: &Account| {
                (
                    account.sent.load(Ordering::Relaxed),
                    account.received.load(Ordering::Relaxed),
                )
            };
            let (client, server) = (of(&books.client[n]), of(&books.server[n]));
            let fate = Fate::of(n);
            match fate {
                // What was under way may be lost when it is cut off.
                Fate::CutOff => {
                    assert!(server.1 <= client.0 && client.1 <= server.0);
                }
                Fate::Served | Fate::Cancelled => {
                    assert_eq!(client.0, server.1, "{n} {fate:?}: to the server");
                    assert_eq!(server.0, client.1, "{n} {fate:?}: to the client");
                }
            }
        }
        let report = rt.shutdown(Duration::from_secs(5)).expect("a report");
        assert!(report.is_clean(), "{report}");
    });
}

#[test]
fn io_3_a_read_that_is_dropped_frees_its_socket() {
    on_each("dropped_read", |rt| {
        rt.block_on(async {
            let before = sockets();
            for _ in 0..50 {
                let (here, there) = UnixStream::pair()?;
                let mut read = pin!(here.read(vec![0; 100]));
                let polled = std::future::poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx))).await;
                assert!(polled.is_pending());
                drop((here, there));
            }
            while sockets() > before {
                sleep(Duration::from_micros(100)).await?;
            }
            // A host that ends while somebody waits.
            spawn(async {
                let (here, _there) = UnixStream::pair()?;
                here.read(vec![0; 100]).await.0?;
                park().await?;
                Ok::<_, Error>(())
            })
            .cancel("enough");
            Ok::<_, Error>(())
        })
        .expect("dropped");
    });
}
