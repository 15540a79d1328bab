//! Series on the drivers of the system: one operation, many answers.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use kinfolk_core::{
    Error, Scope, Task, checkpoint, cleanup, scope, sleep, spawn, timeout, yield_now,
};
use kinfolk_runtime::Runtime;
use kinfolk_runtime::io::{BufferPool, Chunk, IoDriver};
use kinfolk_runtime::net::{TcpListener, TcpStream};
use kinfolk_testkit::io::{Audit, Fault, FaultPlan, OpKind, OpenFiles, SimIo};
use kinfolk_testkit::{Gate, guarded};

const HERE: &str = "127.0.0.1:0";

/// What is open is counted: one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// On each driver, with no workers and with two.
fn on_each(name: &'static str, body: impl Fn(Runtime, &Audit, bool) + Send + Sync + 'static) {
    on_each_with(&[0, 2], name, body);
}

/// On each driver, with so many workers.
fn on_each_with(
    workers: &'static [usize],
    name: &'static str,
    body: impl Fn(Runtime, &Audit, bool) + Send + Sync + 'static,
) {
    let _alone = alone();
    let before = OpenFiles::now();
    guarded(name, move |watched| {
        for driver in [IoDriver::Ring, IoDriver::Readiness] {
            for &workers in workers {
                let audit = Audit::new();
                let seen = audit.clone();
                let rt = Runtime::builder()
                    .workers(workers)
                    .io(driver)
                    .wrap_io(move |driver| seen.watch(driver))
                    .build()
                    .expect("a runtime");
                watched.watch(rt.tree());
                body(rt, &audit, driver == IoDriver::Ring);
                audit.check();
            }
        }
    });
    before.assert_no_more();
}

/// So many connections, of a thread of their own.
async fn connect(addr: std::net::SocketAddr, count: usize) -> Result<Vec<TcpStream>, Error> {
    let mut streams = Vec::new();
    for _ in 0..count {
        streams.push(TcpStream::connect(addr).await?);
    }
    Ok(streams)
}

#[test]
fn io_5_one_operation_brings_many_connections() {
    on_each("one for many", |rt, audit, ring| {
        rt.block_on(async {
            let listener = TcpListener::bind(HERE).await?;
            let mut incoming = listener.incoming();
            let clients = connect(listener.local_addr()?, 50).await?;
            let before = audit.submitted();
            for _ in 0..50 {
                incoming.next().await.expect("it never ends")?;
            }
            let operations = audit.submitted() - before;
            match ring {
                true => assert!(operations <= 2, "{operations}"),
                // One for each, and the last is not begun before it is wanted.
                false => assert_eq!(operations, 50),
            }
            assert_eq!(audit.partial() > 0, ring);
            drop(clients);
            Ok::<_, Error>(())
        })
        .expect("connections");
    });
}

/// They are not taken: the system is told to stop, and told to go on when they
/// were taken.
#[test]
fn io_5_connections_nobody_takes_have_a_bound() {
    on_each("a bound", |rt, audit, ring| {
        rt.block_on(async {
            let listener = TcpListener::bind(HERE).await?;
            let addr = listener.local_addr()?;
            let mut incoming = listener.incoming();
            let mut clients = connect(addr, 1).await?;
            incoming.next().await.expect("it never ends")?;
            assert_eq!(audit.cancels(), 0);
            // One after the other, so that the system has time to hear of it.
            clients.extend(connect(addr, 200).await?);
            while ring && audit.submitted() > audit.completed() {
                sleep(Duration::from_millis(1)).await?;
            }
            assert_eq!(audit.cancels(), u64::from(ring));
            let accepted = audit.partial();
            assert!(accepted < 150, "{accepted}");
            for _ in 0..200 {
                incoming.next().await.expect("it never ends")?;
            }
            clients.extend(connect(addr, 1).await?);
            incoming.next().await.expect("it never ends")?;
            Ok::<_, Error>(())
        })
        .expect("connections");
    });
}

async fn connected() -> Result<(TcpStream, TcpStream), Error> {
    let listener = TcpListener::bind(HERE).await?;
    let one = TcpStream::connect(listener.local_addr()?).await?;
    Ok((one, listener.accept().await?.0))
}

#[test]
fn io_5_one_operation_brings_many_chunks() {
    on_each("chunks", |rt, audit, ring| {
        rt.block_on(async {
            let (one, two) = connected().await?;
            let pool = BufferPool::new(8, 64);
            let mut chunks = two.chunks(&pool);
            let mut operations = 0;
            for n in 0..50_u8 {
                one.write_all(vec![n; 10]).await.0?;
                let before = audit.submitted();
                let chunk = chunks.next().await.expect("bytes")?;
                operations += audit.submitted() - before;
                assert_eq!(*chunk, [n; 10]);
            }
            assert_eq!(operations, if ring { 1 } else { 50 });
            Ok::<_, Error>(())
        })
        .expect("chunks");
    });
}

/// They are not taken: they have a bound, and the bytes stay with the system.
#[test]
fn io_5_chunks_nobody_takes_have_a_bound() {
    on_each("a bound of chunks", |rt, audit, ring| {
        rt.block_on(async {
            let (one, two) = connected().await?;
            let pool = BufferPool::new(500, 4);
            let mut chunks = two.chunks(&pool);
            one.write_all("ab").await.0?;
            assert_eq!(*chunks.next().await.expect("bytes")?, *b"ab");
            let before = audit.partial();
            for _ in 0..100 {
                one.write_all("abcd").await.0?;
            }
            while ring && audit.submitted() > audit.completed() {
                sleep(Duration::from_millis(1)).await?;
            }
            assert_eq!(audit.cancels(), u64::from(ring));
            let received = audit.partial() - before;
            assert!(received < 60, "{received}");
            let mut seen = 0;
            while seen < 400 {
                seen += chunks.next().await.expect("bytes")?.len();
            }
            assert_eq!(seen, 400);
            Ok::<_, Error>(())
        })
        .expect("chunks");
    });
}

/// A thousand connections that wait, and four buffers.
#[test]
fn io_5_a_thousand_idle_streams_need_no_buffer_each() {
    on_each("idle", |rt, _, _| {
        rt.block_on(scope(async |s| {
            let pool = BufferPool::new(4, 1 << 16);
            let listener = TcpListener::bind(HERE).await?;
            let (mut ones, mut tasks) = (Vec::new(), Vec::new());
            for n in 0..1000_usize {
                ones.push(TcpStream::connect(listener.local_addr()?).await?);
                let (two, _) = listener.accept().await?;
                let pool = pool.clone();
                tasks.push(s.spawn(async move {
                    let mut chunks = two.chunks(&pool);
                    let chunk = chunks.next().await.expect("bytes")?;
                    Ok::<_, Error>((chunk.to_vec(), n))
                }));
            }
            for (n, one) in ones.iter().enumerate().rev() {
                one.write_all(n.to_ne_bytes()).await.0?;
            }
            for task in tasks {
                let (bytes, n) = task.await?;
                assert_eq!(bytes, n.to_ne_bytes());
            }
            Ok(())
        }))
        .expect("idle streams");
    });
}

/// Streams that have nothing to receive do not stand in line, though their pool is
/// dry: each has begun once, and that is all, whatever comes back.
#[test]
fn io_5_a_buffer_does_not_go_round_among_idle_streams() {
    const MANY: usize = 300;
    on_each_with(&[0], "in line for nothing", |rt, audit, _| {
        let body = scope(async |s| {
            let pool = BufferPool::new(1, 8);
            let (one, two) = connected().await?;
            one.write_all("kept").await.0?;
            let kept = two.chunks(&pool).next().await.expect("bytes")?;
            while audit.submitted() > audit.completed() {
                yield_now().await?;
            }
            let (mut ones, mut tasks) = (Vec::new(), Vec::new());
            for _ in 0..MANY {
                let ((one, two), pool) = (connected().await?, pool.clone());
                ones.push(one);
                tasks.push(s.spawn(async move {
                    let Some(chunk) = two.chunks(&pool).next().await.transpose()? else {
                        return Ok(0);
                    };
                    Ok::<_, Error>(chunk[0])
                }));
            }
            let turns = async || {
                for _ in 0..20_000 {
                    yield_now().await?;
                }
                Ok::<_, Error>(())
            };
            turns().await?;
            let begun = audit.submitted();
            assert_eq!(begun - audit.completed(), MANY as u64, "each waits");
            drop(kept);
            turns().await?;
            assert_eq!(audit.submitted(), begun, "there is nothing to receive");
            ones[MANY - 1].write_all([7]).await.0?;
            assert_eq!(tasks.pop().expect("many").await?, 7);
            drop(tasks);
            Ok(())
        });
        rt.block_on(body).expect("streams in line");
    });
}

/// Streams that have bytes to receive and lack a buffer, which `kept` has.
async fn hungry(
    s: &Scope,
    count: usize,
    audit: &Audit,
) -> Result<(Chunk, Vec<TcpStream>, Vec<Task<u8>>), Error> {
    let pool = BufferPool::new(1, 8);
    let (one, two) = connected().await?;
    one.write_all("kept").await.0?;
    let kept = two.chunks(&pool).next().await.expect("bytes")?;
    while audit.submitted() > audit.completed() {
        sleep(Duration::from_millis(1)).await?;
    }
    let before = audit.submitted();
    let (mut ones, mut tasks) = (Vec::new(), Vec::new());
    for n in 0..count {
        let ((one, two), pool) = (connected().await?, pool.clone());
        one.write_all([n as u8]).await.0?;
        ones.push(one);
        let submitted = audit.submitted();
        tasks.push(s.spawn(async move {
            let chunk = two.chunks(&pool).next().await.expect("bytes")?;
            Ok::<_, Error>(chunk[0])
        }));
        while audit.submitted() == submitted || audit.submitted() > audit.completed() {
            sleep(Duration::from_millis(1)).await?;
        }
    }
    assert!(audit.submitted() > before, "they have asked in vain");
    Ok((kept, ones, tasks))
}

/// A buffer that comes back is for one: the others are not even woken.
#[test]
fn io_5_a_buffer_that_comes_back_is_for_one() {
    on_each("for one", |rt, audit, _| {
        rt.block_on(scope(async |s| {
            let (kept, _ones, tasks) = hungry(&s, 40, audit).await?;
            let before = audit.submitted();
            drop(kept);
            for (n, task) in tasks.into_iter().enumerate() {
                assert_eq!(usize::from(task.await?), n);
            }
            let asked = audit.submitted() - before;
            assert!(asked < 80, "{asked} operations for 40 chunks");
            Ok(())
        }))
        .expect("each had its turn");
    });
}

/// Those who do not take the buffer that they were given leave it to others.
#[test]
fn io_5_a_buffer_that_nobody_takes_is_for_the_next() {
    on_each("for the next", |rt, audit, _| {
        rt.block_on(scope(async |s| {
            let (kept, ones, mut tasks) = hungry(&s, 4, audit).await?;
            // Between this and its next turn the first one is told; and so the
            // second, which has it then. On several threads it may be earlier.
            drop(kept);
            for task in tasks.drain(..2) {
                task.cancel("enough");
                let _ = task.outcome().await?;
            }
            for (n, task) in (2..).zip(tasks) {
                let next = timeout(Duration::from_secs(20), task).await?;
                assert_eq!(next, n);
            }
            drop(ones);
            Ok(())
        }))
        .expect("the next");
    });
}

/// Somebody else has read what the first one lacked a buffer for.
#[test]
fn io_5_a_buffer_with_nothing_to_receive_is_for_the_next() {
    // With more of them each has a buffer of its own.
    on_each_with(&[0], "nothing to receive", |rt, audit, _| {
        rt.block_on(scope(async |s| {
            let pool = BufferPool::new(1, 8);
            let (one, two) = connected().await?;
            let (three, four) = connected().await?;
            for stream in [&one, &three] {
                stream.write_all("1").await.0?;
            }
            let (five, six) = connected().await?;
            five.write_all("kept").await.0?;
            let kept = six.chunks(&pool).next().await.expect("bytes")?;
            let settled = async |from: u64| {
                while audit.submitted() == from || audit.submitted() > audit.completed() {
                    sleep(Duration::from_millis(1)).await?;
                }
                Ok::<_, Error>(())
            };
            settled(0).await?;
            let two = Arc::new(two);
            let mut tasks = Vec::new();
            for from in [two.clone(), Arc::new(four)] {
                let (before, pool) = (audit.submitted(), pool.clone());
                tasks.push(s.spawn(async move {
                    let chunk = from.chunks(&pool).next().await.expect("bytes")?;
                    Ok::<_, Error>(chunk[0])
                }));
                settled(before).await?;
            }
            two.read_exact([0; 1]).await.0?;
            drop(kept);
            let last = tasks.pop().expect("two");
            assert_eq!(timeout(Duration::from_secs(20), last).await?, b'1');
            one.write_all("2").await.0?;
            let first = tasks.pop().expect("one");
            assert_eq!(timeout(Duration::from_secs(20), first).await?, b'2');
            Ok(())
        }))
        .expect("the next");
    });
}

/// Two streams of one socket, and no buffer for what lies there: both wait for one.
#[test]
fn io_5_two_streams_at_a_dry_pool_wait() {
    on_each_with(&[0], "two at a dry pool", |rt, audit, _| {
        rt.block_on(scope(async |s| {
            let pool = BufferPool::new(1, 1);
            let (one, two) = says("k").await?;
            let (_three, four) = says("ab").await?;
            let kept = two.chunks(&pool).next().await.expect("bytes")?;
            let both = s.spawn(async move {
                let streams = &mut [four.chunks(&pool), four.chunks(&pool)];
                let mut waits = Vec::from_iter(streams.iter_mut().map(|one| Box::pin(one.next())));
                let mut seen = Vec::new();
                // The first is always asked first.
                poll_fn(|cx| {
                    waits.retain_mut(|wait| match wait.as_mut().poll(cx) {
                        Poll::Ready(chunk) => {
                            seen.push(chunk.expect("bytes").expect("no error")[0]);
                            false
                        }
                        Poll::Pending => true,
                    });
                    match waits.is_empty() {
                        true => Poll::Ready(()),
                        false => Poll::Pending,
                    }
                })
                .await;
                Ok::<_, Error>(seen)
            });
            let turns = async || {
                for _ in 0..5_000 {
                    yield_now().await?;
                }
                Ok::<_, Error>(())
            };
            turns().await?;
            let begun = audit.submitted();
            turns().await?;
            assert_eq!(audit.submitted(), begun, "there is no buffer");
            assert_eq!(audit.completed(), begun, "none is under way");
            drop(kept);
            assert_eq!(timeout(Duration::from_secs(20), both).await?, b"ab");
            drop(one);
            Ok(())
        }))
        .expect("both had one");
    });
}

/// Two streams that are connected; the first has said something.
async fn says(bytes: &'static str) -> Result<(TcpStream, TcpStream), Error> {
    let (one, two) = connected().await?;
    one.write_all(bytes).await.0?;
    Ok((one, two))
}

/// Pools come and go, and so do the places the system knows them by.
#[test]
fn io_5_pools_come_and_go() {
    on_each("pools", |rt, _, _| {
        rt.block_on(async {
            let (one, two) = connected().await?;
            let mut kept = Vec::new();
            for n in 0..300_u32 {
                let pool = BufferPool::new(1 + n as usize % 5, 16);
                let mut chunks = two.chunks(&pool);
                one.write_all(n.to_ne_bytes()).await.0?;
                let chunk = chunks.next().await.expect("bytes")?;
                assert_eq!(*chunk, n.to_ne_bytes());
                if n % 50 == 0 {
                    kept.push((n, chunk));
                }
            }
            // They lie where they were, though their pools are gone.
            for (n, chunk) in kept {
                assert_eq!(*chunk, n.to_ne_bytes());
            }
            Ok::<_, Error>(())
        })
        .expect("pools");
    });
}

/// The runtime ends while bytes are being received, and chunks outlive it.
#[test]
fn shutdown_1_chunks_outlive_their_runtime() {
    on_each("teardown of chunks", |rt, audit, ring| {
        let pool = BufferPool::new(4, 8);
        let (one, two) = rt.block_on(connected()).expect("two streams");
        let mut chunks = two.chunks(&pool);
        let first = rt.block_on(async {
            one.write_all("abcd").await.0?;
            Ok::<_, Error>(chunks.next().await.expect("bytes")?)
        });
        let first = first.expect("bytes");
        assert_eq!(audit.submitted() - audit.completed(), u64::from(ring));
        let report = rt.shutdown(Duration::from_secs(5)).expect("a report");
        assert!(report.stragglers.is_empty(), "{report}");
        audit.check();
        assert_eq!(*first, *b"abcd");
        // With another runtime the pool is as good as new.
        let rt = Runtime::builder().workers(0).build().expect("a runtime");
        rt.block_on(async {
            let (one, two) = connected().await?;
            let mut chunks = two.chunks(&pool);
            one.write_all("efgh").await.0?;
            assert_eq!(*chunks.next().await.expect("bytes")?, *b"efgh");
            Ok::<_, Error>(())
        })
        .expect("the pool works");
        drop((first, chunks, one, two));
    });
}

#[test]
#[should_panic(expected = "a pool must have 1 to 32768 buffers, not 0")]
fn a_pool_has_buffers() {
    BufferPool::new(0, 1);
}

#[test]
#[should_panic(expected = "a pool cannot have 3 buffers of 0 bytes")]
fn the_buffers_of_a_pool_have_room() {
    BufferPool::new(3, 0);
}

/// A stream that is not polled hinders no other.
#[test]
fn io_5_accept_beside_a_stream_that_rests() {
    on_each("beside", |rt, _, _| {
        rt.block_on(async {
            let listener = TcpListener::bind(HERE).await?;
            let addr = listener.local_addr()?;
            let mut incoming = listener.incoming();
            let mut clients = connect(addr, 1).await?;
            incoming.next().await.expect("it never ends")?;
            for _ in 0..5 {
                let mut accept = pin!(listener.accept());
                assert!(poll_once(&mut accept).await.is_none());
                let client = TcpStream::connect(addr).await?;
                let accepted = timeout(Duration::from_secs(20), async {
                    Ok::<_, Error>(accept.await?)
                });
                assert_eq!(accepted.await?.1, client.local_addr()?);
                clients.push(client);
            }
            // And the other way round.
            let pool = BufferPool::new(4, 8);
            let (one, two) = connected().await?;
            let mut chunks = two.chunks(&pool);
            one.write_all("ab").await.0?;
            assert_eq!(*chunks.next().await.expect("bytes")?, *b"ab");
            one.write_all("cd").await.0?;
            let read = timeout(Duration::from_secs(20), async {
                let (read, buf) = two.read_exact([0; 2]).await;
                read?;
                Ok::<_, Error>(buf)
            });
            assert_eq!(&read.await?, b"cd");
            Ok::<_, Error>(())
        })
        .expect("both");
    });
}

/// A series takes no place of others.
#[test]
fn io_3_a_series_is_in_nobodys_way() {
    let _alone = alone();
    guarded("one place", |watched| {
        for driver in [IoDriver::Ring, IoDriver::Readiness] {
            let rt = Runtime::builder().workers(0).io(driver).io_in_flight(1);
            let rt = rt.build().expect("a runtime");
            watched.watch(rt.tree());
            rt.block_on(async {
                let listener = TcpListener::bind(HERE).await?;
                let client = TcpStream::connect(listener.local_addr()?).await?;
                let mut incoming = listener.incoming();
                let stream = incoming.next().await.expect("it never ends")?;
                client.write_all("abc").await.0?;
                let (read, buf) = stream.read_exact([0; 3]).await;
                read?;
                assert_eq!(&buf, b"abc");
                Ok::<_, Error>(())
            })
            .expect("it does not wait for itself");
        }
    });
}

/// Polls once; what it has come to, if it has.
async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    let polled = poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx)));
    match polled.await {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    }
}

/// A job that gives a wait up takes its waker along, however long another waits at
/// the same socket.
#[test]
fn io_5_who_goes_away_leaves_no_waker() {
    struct Nobody;
    impl std::task::Wake for Nobody {
        fn wake(self: Arc<Self>) {}
    }
    on_each("no waker", |rt, _, _| {
        rt.block_on(async {
            let own = Arc::new(Nobody);
            let waker = Waker::from(own.clone());
            let listener = TcpListener::bind(HERE).await?;
            let mut first = listener.incoming();
            let mut first = pin!(first.next());
            assert!(poll_once(&mut first).await.is_none());
            let mut other = listener.incoming();
            for _ in 0..10 {
                assert!(poll_with(&waker, other.next()).await.is_none());
                assert!(poll_with(&waker, listener.accept()).await.is_none());
            }
            let (_one, two) = connected().await?;
            let pool = BufferPool::new(4, 8);
            let mut first = two.chunks(&pool);
            let mut first = pin!(first.next());
            assert!(poll_once(&mut first).await.is_none());
            for _ in 0..10 {
                let mut other = two.chunks(&pool);
                assert!(poll_with(&waker, other.next()).await.is_none());
                assert!(poll_with(&waker, two.read([0; 1])).await.is_none());
            }
            drop(waker);
            assert_eq!(Arc::strong_count(&own), 1);
            Ok::<_, Error>(())
        })
        .expect("no waker");
    });
}

/// Polls once on behalf of another waker, and gives it up then.
async fn poll_with<F: Future>(waker: &Waker, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut cx = Context::from_waker(waker);
    match poll_fn(|_| Poll::Ready(future.as_mut().poll(&mut cx))).await {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    }
}

/// A wait that was given up is as if it had not been.
#[test]
fn io_5_told_after_a_wait_that_was_given_up_nothing_is_taken() {
    on_each("given up", |rt, audit, ring| {
        rt.block_on(async {
            let listener = Arc::new(TcpListener::bind(HERE).await?);
            let (from, gate, given_up) = (listener.clone(), Gate::new(), Gate::new());
            let (opens, gives_up) = (gate.clone(), given_up.clone());
            let takes = spawn(async move {
                let mut incoming = from.incoming();
                assert!(poll_once(&mut pin!(incoming.next())).await.is_none());
                gives_up.open();
                cleanup(async {
                    opens.wait().await;
                    Ok::<_, Error>(())
                })
                .await?;
                let told = incoming.next().await.expect("it never ends");
                assert!(Error::from(told.expect_err("told")).is_cancelled());
                checkpoint().await?;
                Ok::<_, Error>(())
            });
            given_up.wait().await;
            let client = TcpStream::connect(listener.local_addr()?).await?;
            while ring && audit.partial() == 0 {
                sleep(Duration::from_millis(1)).await?;
            }
            takes.cancel("enough");
            gate.open();
            assert!(takes.outcome().await?.is_cancelled());
            assert_eq!(listener.accept().await?.1, client.local_addr()?);
            Ok::<_, Error>(())
        })
        .expect("given up");
    });
}

/// What lies in the listener is there at once, and there is nothing to give up.
#[test]
fn io_5_a_connection_in_the_listener_is_accepted_at_once() {
    on_each("at once", |rt, audit, _| {
        rt.block_on(async {
            let listener = TcpListener::bind(HERE).await?;
            let clients = connect(listener.local_addr()?, 3).await?;
            let mut incoming = listener.incoming();
            let first = incoming.next().await.expect("it never ends")?;
            drop(incoming);
            while audit.submitted() > audit.completed() {
                sleep(Duration::from_millis(1)).await?;
            }
            let mut seen = vec![first.peer_addr()?];
            while seen.len() < 3 {
                // With what is left, and without a trip to the system. Dropped
                // before it was polled, it has taken nothing.
                drop(listener.accept());
                let before = audit.submitted();
                let (_, peer) = listener.accept().await?;
                seen.push(peer);
                let asked = audit.submitted() - before;
                assert!(asked <= 1, "{asked}");
            }
            seen.sort_unstable();
            let from = clients.iter().map(TcpStream::local_addr);
            let mut from = from.collect::<std::io::Result<Vec<_>>>()?;
            from.sort_unstable();
            assert_eq!(seen, from);
            Ok::<_, Error>(())
        })
        .expect("at once");
    });
}

/// The address of a listener is free when it is gone, though the system has not
/// let go of it.
#[test]
fn io_5_the_address_of_a_listener_is_free_with_it() {
    on_each("an address", |rt, _, _| {
        rt.block_on(async {
            let listener = TcpListener::bind(HERE).await?;
            let addr = listener.local_addr()?;
            drop(listener);
            for _ in 0..20 {
                let listener = TcpListener::bind(addr).await?;
                let mut incoming = listener.incoming();
                assert!(poll_once(&mut pin!(incoming.next())).await.is_none());
                drop(incoming);
            }
            Ok::<_, Error>(())
        })
        .expect("an address");
    });
}

/// Nothing that was received goes with a socket to other code.
#[test]
fn io_5_what_lies_in_a_socket_does_not_leave_it_unseen() {
    on_each("into_std", |rt, audit, ring| {
        rt.block_on(async {
            let settled = async || {
                while audit.submitted() > audit.completed() {
                    sleep(Duration::from_millis(1)).await?;
                }
                Ok::<_, Error>(())
            };
            let (one, two) = connected().await?;
            let pool = BufferPool::new(4, 4);
            let mut chunks = two.chunks(&pool);
            one.write_all("abcdefgh").await.0?;
            let first = chunks.next().await.expect("bytes")?;
            drop(chunks);
            settled().await?;
            match two.into_std() {
                Ok(mut two) => {
                    assert!(!ring, "there were bytes left");
                    let mut rest = [0; 4];
                    std::io::Read::read_exact(&mut two, &mut rest)?;
                    assert_eq!(&rest, b"efgh");
                }
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ResourceBusy),
            }
            drop(first);
            Ok::<_, Error>(())
        })
        .expect("into_std");
    });
}

/// An error that the system will tell again is forgotten with the last stream.
#[test]
fn io_5_an_error_nobody_has_seen_is_in_nobodys_way() {
    let _alone = alone();
    guarded("an old error", |watched| {
        for driver in [IoDriver::Ring, IoDriver::Readiness] {
            let (audit, fault_plan) = (Audit::new(), FaultPlan::new(SimIo::new(), 1));
            let (seen, exposed) = (audit.clone(), fault_plan.clone());
            let rt = Runtime::builder()
                .workers(0)
                .io(driver)
                .wrap_io(move |driver| seen.watch(exposed.wrap(driver)))
                .build()
                .expect("a runtime");
            watched.watch(rt.tree());
            rt.block_on(async {
                let listener = TcpListener::bind(HERE).await?;
                fault_plan.fault(OpKind::Accept, Fault::TooManyFiles);
                let mut incoming = listener.incoming();
                assert!(poll_once(&mut pin!(incoming.next())).await.is_none());
                while audit.completed() == 0 {
                    sleep(Duration::from_millis(1)).await?;
                }
                drop(incoming);
                listener.into_std()?;
                Ok::<_, Error>(())
            })
            .expect("nothing lies there");
        }
    });
}

/// Two streams of one listener, told again and again while the other begins.
#[test]
fn io_5_two_streams_of_a_listener_that_are_told() {
    on_each("two streams", |rt, _, _| {
        rt.block_on(scope(async |s| {
            let listener = Arc::new(TcpListener::bind(HERE).await?);
            for _ in 0..1500 {
                let mut tasks = Vec::new();
                for _ in 0..2 {
                    let from = listener.clone();
                    tasks.push(s.spawn(async move {
                        let told = from.incoming().next().await.expect("it never ends");
                        Err::<(), Error>(told.expect_err("nobody connects").into())
                    }));
                }
                yield_now().await?;
                for task in &tasks {
                    task.cancel("enough");
                }
                for task in tasks {
                    assert!(task.outcome().await?.is_cancelled());
                }
            }
            Ok(())
        }))
        .expect("two streams");
    });
}

/// The runtime ends with a series under way and connections in the listener: they
/// stay there, and then nothing more comes.
#[test]
fn shutdown_1_a_series_ends_with_its_runtime() {
    on_each("teardown", |rt, audit, ring| {
        let listener = rt.block_on(async { Ok::<_, Error>(TcpListener::bind(HERE).await?) });
        let listener = listener.expect("a listener");
        let addr = listener.local_addr().expect("an address");
        let mut incoming = listener.incoming();
        let clients = rt.block_on(async {
            let clients = connect(addr, 5).await?;
            incoming.next().await.expect("it never ends")?;
            Ok::<_, Error>(clients)
        });
        let clients = clients.expect("connections");
        assert_eq!(audit.submitted() - audit.completed(), u64::from(ring));
        let report = rt.shutdown(Duration::from_secs(5)).expect("a report");
        assert!(report.stragglers.is_empty(), "{report}");
        audit.check();
        // All that the system had accepted, but for the one that was taken.
        let left = audit.partial().saturating_sub(1);
        let other = Runtime::builder().workers(0).build().expect("a runtime");
        other
            .block_on(async {
                for _ in 0..left {
                    let stream = incoming.next().await.expect("it never ends")?;
                    let peer = stream.peer_addr()?;
                    let mut from = clients.iter().map(TcpStream::local_addr);
                    assert!(from.any(|from| from.is_ok_and(|from| from == peer)));
                }
                let over = incoming.next().await.expect("it never ends");
                let error = over.expect_err("nobody accepts any more");
                assert!(error.to_string().contains("is gone"), "{error}");
                Ok::<_, Error>(())
            })
            .expect("what was accepted");
        drop(incoming);
        drop((clients, listener));
    });
}
