//! Connections of hyper that are asked to end when their job is cancelled.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Bytes, Incoming};
use hyper::rt::{Executor as _, Timer as _};
use hyper::service::service_fn;
use hyper::{Request, Response, client, server};
use kinfolk_adapters::Polled;
use kinfolk_adapters::hyper::{Executor, HyperTimer, serve};
use kinfolk_core::{
    Error, ErrorKind, OrFail, Outcome, Patience, Reason, ReasonKind, Result, checkpoint, cleanup,
    current_job, is_cancelled, now, park, scope, shield, sleep, spawn, timeout,
};
use kinfolk_runtime::net::{TcpListener, TcpStream};
use kinfolk_testkit::{Sim, guarded};

const SECOND: Duration = Duration::from_secs(1);

/// On twenty schedules, and a report of what was dropped before it was done.
fn on_seeds<B>(name: &'static str, body: impl Fn() -> B + Send + Sync + 'static) -> Vec<String>
where
    B: Future<Output = Result<()>> + Send + 'static,
{
    let forced = Arc::new(Mutex::new(Vec::new()));
    let seen = forced.clone();
    guarded(name, move |watched| {
        for seed in 0..20 {
            let forced = forced.clone();
            let mut sim = Sim::builder(seed)
                .on_forced(move |job| forced.lock().unwrap().push(job.to_string()))
                .on_failure(|_| {})
                .build();
            watched.watch(sim.tree());
            let ran = sim.run(body());
            ran.unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
            sim.assert_nothing_left();
            sim.finish();
        }
    });
    std::mem::take(&mut *seen.lock().unwrap())
}

async fn connected() -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let here = TcpStream::connect(listener.local_addr()?).await?;
    Ok((here, listener.accept().await?.0))
}

/// What a handler is doing.
#[derive(Clone, Default)]
struct Work {
    begun: Arc<AtomicUsize>,
    done: Arc<AtomicUsize>,
    tidied: Arc<AtomicUsize>,
}

impl Work {
    async fn has_begun(&self) -> Result<()> {
        while self.begun.load(SeqCst) == 0 {
            sleep(Duration::from_micros(10)).await?;
        }
        Ok(())
    }
}

/// `/` at once, `/nap` after a second, `/park` when it is told, `/tidy` two seconds
/// later, `/endless` when it may clean up no longer, `/stuck` never, `/panic` not at
/// all.
async fn answer(
    request: Request<Incoming>,
    work: Work,
) -> std::result::Result<Response<Full<Bytes>>, Infallible> {
    work.begun.fetch_add(1, SeqCst);
    match request.uri().path() {
        "/nap" => sleep(SECOND).await.expect("it is not told"),
        "/park" => drop(spawn(park()).await),
        "/tidy" => drop(spawn(tidy(work.clone(), Some(2 * SECOND))).await),
        "/endless" => drop(spawn(tidy(work.clone(), None)).await),
        "/stuck" => drop(spawn(std::future::pending::<()>()).await),
        "/panic" => panic!("a handler panics"),
        _ => {}
    }
    work.done.fetch_add(1, SeqCst);
    Ok(Response::new("hello".into()))
}

/// Waits until it is told, in whose words it hears, and cleans up for so long.
async fn tidy(work: Work, time: Option<Duration>) -> Result<()> {
    let told = park().await.expect_err("it is told");
    assert_eq!(told.reason().text(), Some("closing time"));
    cleanup(async {
        match time {
            Some(time) => sleep(time).await?,
            None => drop(park().await?),
        }
        work.tidied.fetch_add(1, SeqCst);
        Ok::<_, Error>(())
    })
    .await
}

async fn http1(stream: TcpStream, work: Work) -> Result<()> {
    let http = server::conn::http1::Builder::new().serve_connection(
        Polled::new(stream),
        service_fn(move |request| answer(request, work.clone())),
    );
    serve(http, |http| http.graceful_shutdown()).await
}

async fn http2(stream: TcpStream, work: Work) -> Result<()> {
    let http = server::conn::http2::Builder::new(Executor::current())
        .timer(HyperTimer)
        .serve_connection(
            Polled::new(stream),
            service_fn(move |request| answer(request, work.clone())),
        );
    serve(http, |http| http.graceful_shutdown()).await
}

/// A client that has heard of the end may be gone before the last word.
async fn last_word(serving: impl Future<Output = Result<()>>) -> Result<()> {
    match serving.await {
        Err(error) if error.kind() == ErrorKind::Failed => Ok(()),
        served => served,
    }
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n")
}

/// All that comes until the end.
async fn rest(stream: &TcpStream) -> Result<String> {
    let mut all = Vec::new();
    loop {
        let (read, more) = stream.read(Vec::with_capacity(256)).await;
        if read? == 0 {
            return Ok(String::from_utf8_lossy(&all).into());
        }
        all.extend(more);
    }
}

/// A client of HTTP/2 that asks once, and holds on to its connection.
async fn get2(stream: TcpStream, path: &'static str) -> Result<String> {
    scope(async |s| {
        let executor = Executor::new(s);
        let shaken = client::conn::http2::handshake(executor.clone(), Polled::new(stream)).await;
        let (mut sender, connection) = shaken.or_fail()?;
        executor.execute(connection);
        let request = Request::get(format!("http://x{path}")).body(Empty::<Bytes>::new());
        let request = request.or_fail()?;
        let response = sender.send_request(request).await.or_fail()?;
        let body = response.into_body().collect().await.or_fail()?;
        Ok(String::from_utf8_lossy(&body.to_bytes()).into())
    })
    .await
}

#[test]
fn io_5_an_idle_connection_ends_at_once() {
    let forced = on_seeds("idle", async || {
        // Before its first request, and between two.
        for before in [true, false] {
            let (here, there) = connected().await?;
            let task = spawn(http1(there, Work::default()));
            if !before {
                here.write_all(get("/")).await.0?;
                let (read, _) = here.read(Vec::with_capacity(4096)).await;
                read?;
            }
            let asked = now();
            task.cancel("closing time");
            let Outcome::Cancelled { reason, late } = task.outcome().await? else {
                return Err(Error::msg("it was cancelled"));
            };
            assert_eq!(reason.text(), Some("closing time"));
            assert!(late.is_none(), "it ends with the cancel");
            assert!(now() - asked < SECOND, "nobody waits for it");
            assert_eq!(rest(&here).await?, "");
        }
        Ok(())
    });
    assert_eq!(forced, [""; 0]);
}

#[test]
fn io_5_a_request_under_way_is_answered() {
    let forced = on_seeds("under_way", async || {
        let (here, there) = connected().await?;
        let work = Work::default();
        let task = spawn(http1(there, work.clone()));
        here.write_all(get("/nap")).await.0?;
        work.has_begun().await?;
        task.cancel("closing time");
        let said = rest(&here).await?;
        assert!(said.starts_with("HTTP/1.1 200"), "{said}");
        assert!(said.contains("connection: close"), "{said}");
        assert!(said.ends_with("hello"), "{said}");
        assert!(task.outcome().await?.is_cancelled());
        Ok(())
    });
    assert_eq!(forced, [""; 0]);
}

/// Asked to end first, and then cancelled: it ends with the cancel.
#[test]
fn io_5_a_cancel_after_an_interrupt_is_what_it_ends_with() {
    let forced = on_seeds("both", async || {
        let (here, there) = connected().await?;
        let work = Work::default();
        let serving = work.clone();
        let task = spawn(async move {
            let told = http1(there, serving).await.expect_err("it was cancelled");
            assert_eq!(told.reason().and_then(Reason::text), Some("closing time"));
        });
        here.write_all(get("/nap")).await.0?;
        work.has_begun().await?;
        task.interrupt("look up");
        sleep(SECOND / 10).await?;
        task.cancel("closing time");
        assert!(rest(&here).await?.ends_with("hello"));
        assert!(task.outcome().await?.is_cancelled());
        Ok(())
    });
    assert_eq!(forced, [""; 0]);
}

/// One whose head has begun to come is under way.
#[test]
fn io_5_the_rest_of_a_request_is_waited_for() {
    let forced = on_seeds("half", async || {
        let (here, there) = connected().await?;
        let task = spawn(http1(there, Work::default()));
        let request = get("/");
        here.write_all(request[..9].to_owned()).await.0?;
        sleep(SECOND).await?;
        task.cancel("closing time");
        sleep(SECOND).await?;
        here.write_all(request[9..].to_owned()).await.0?;
        assert!(rest(&here).await?.ends_with("hello"));
        assert!(task.outcome().await?.is_cancelled());
        Ok(())
    });
    assert_eq!(forced, [""; 0]);
}

#[test]
fn io_5_requests_of_http_2_are_answered_too() {
    let forced = on_seeds("http_2", async || {
        let (here, there) = connected().await?;
        let work = Work::default();
        let task = spawn(http2(there, work.clone()));
        let client = spawn(get2(here, "/nap"));
        work.has_begun().await?;
        task.cancel("closing time");
        assert_eq!(client.await?, "hello");
        assert!(task.outcome().await?.is_cancelled());
        Ok(())
    });
    assert_eq!(forced, [""; 0]);
}

#[test]
fn io_5_an_idle_connection_of_http_2_ends_at_once() {
    let forced = on_seeds("http_2_idle", async || {
        let (here, there) = connected().await?;
        let task = spawn(last_word(http2(there, Work::default())));
        let client = spawn(scope(async move |s| {
            let executor = Executor::new(s);
            let shaken = client::conn::http2::handshake(executor.clone(), Polled::new(here));
            let (sender, connection) = shaken.await.or_fail()?;
            executor.execute(connection);
            let sender: client::conn::http2::SendRequest<Empty<Bytes>> = sender;
            while !sender.is_closed() {
                sleep(Duration::from_millis(1)).await?;
            }
            Ok(())
        }));
        sleep(SECOND).await?;
        let asked = now();
        task.cancel("closing time");
        assert!(task.outcome().await?.is_cancelled());
        client.await?;
        assert!(now() - asked < SECOND, "nobody waits for it");
        Ok(())
    });
    assert_eq!(forced, [""; 0]);
}

/// What a request has spawned, and hears, is told when the time for clean-up is
/// spent.
#[test]
fn io_5_requests_have_the_time_that_clean_up_may_take() {
    let patience = Patience {
        cleanup: 5 * SECOND,
        ..Patience::default()
    };
    let forced = on_seeds("budget", move || async move {
        scope(async |s| {
            let (here, there) = connected().await?;
            let work = Work::default();
            let serving = s.task("connection").patience(patience);
            let task = serving.spawn(http1(there, work.clone()));
            here.write_all(get("/park")).await.0?;
            work.has_begun().await?;
            let asked = now();
            task.cancel("closing time");
            let outcome = task.outcome().await?;
            assert!(outcome.is_cancelled(), "{outcome:?}");
            let took = now() - asked;
            assert!((5 * SECOND..6 * SECOND).contains(&took), "{took:?}");
            Ok(())
        })
        .await
    });
    assert_eq!(forced, [""; 0]);
}

/// What is told when that time is spent has time of its own to clean up, and no more
/// than that; also if the connection was asked to end before, by an interrupt.
#[test]
fn io_5_a_request_that_is_told_in_the_end_can_clean_up() {
    for (path, seconds, tidied) in [("/tidy", 7, 1), ("/endless", 10, 0)] {
        for http_2 in [false, true] {
            for interrupted in [false, true] {
                let forced = on_seeds("tidy", move || async move {
                    let work = Work::default();
                    let took = told_in_the_end(path, work.clone(), http_2, interrupted).await?;
                    let right = seconds * SECOND..(seconds + 1) * SECOND;
                    assert!(right.contains(&took), "{took:?}");
                    assert_eq!(work.tidied.load(SeqCst), tidied);
                    Ok(())
                });
                assert_eq!(forced, [""; 0]);
            }
        }
    }
}

/// How long a connection lasts after its cancel, if it may clean up for five seconds.
async fn told_in_the_end(
    path: &'static str,
    work: Work,
    http_2: bool,
    interrupted: bool,
) -> Result<Duration> {
    let patience = Patience {
        cleanup: 5 * SECOND,
        ..Patience::default()
    };
    scope(async |s| {
        let (here, there) = connected().await?;
        let (serving, served) = (s.task("connection").patience(patience), work.clone());
        let task = serving.spawn(async move {
            let served = match http_2 {
                true => http2(there, served).await,
                false => http1(there, served).await,
            };
            let told = served.expect_err("it was cancelled");
            assert_eq!(told.kind(), ErrorKind::Cancelled);
            assert_eq!(told.reason().and_then(Reason::text), Some("closing time"));
        });
        if http_2 {
            s.launch(async move {
                get2(here, path).await.expect_err("it is cut");
            });
        } else {
            here.write_all(get(path)).await.0?;
            s.launch(async move { rest(&here).await.map(drop) });
        }
        work.has_begun().await?;
        if interrupted {
            task.interrupt("look up");
            sleep(SECOND).await?;
        }
        let asked = now();
        task.cancel("closing time");
        let outcome = task.outcome().await?;
        assert!(outcome.is_cancelled(), "{outcome:?}");
        Ok(now() - asked)
    })
    .await
}

#[test]
fn io_5_a_handler_that_is_stuck_is_dropped_and_named() {
    for serving in [true, false] {
        let forced = on_seeds("stuck", move || async move {
            let (here, there) = connected().await?;
            let work = Work::default();
            let client = match serving {
                true => {
                    here.write_all(get("/stuck")).await.0?;
                    spawn(async move { rest(&here).await })
                }
                false => spawn(async move {
                    let cut = get2(here, "/stuck").await;
                    cut.expect_err("it is cut");
                    Ok::<_, Error>(String::new())
                }),
            };
            let task = match serving {
                true => spawn(http1(there, work.clone())),
                false => spawn(http2(there, work.clone())),
            };
            work.has_begun().await?;
            let asked = now();
            task.cancel("closing time");
            let outcome = task.outcome().await?;
            assert!(outcome.is_cancelled(), "{outcome:?}");
            let took = now() - asked;
            let limit = Patience::default().cleanup + Patience::default().unaware;
            assert!(
                took >= Patience::default().cleanup && took <= limit + SECOND,
                "{took:?}"
            );
            assert_eq!(client.await?, "");
            assert_eq!(work.done.load(SeqCst), 0);
            Ok(())
        });
        assert_eq!(forced.len(), 20, "{forced:?}");
        for job in forced {
            assert!(job.contains("serving.rs"), "{job}");
        }
    }
}

#[test]
fn io_5_told_at_entry_no_request_is_taken() {
    let forced = on_seeds("entry", async || {
        let (here, there) = connected().await?;
        here.write_all(get("/")).await.0?;
        let work = Work::default();
        let served = timeout(Duration::ZERO, http1(there, work.clone())).await;
        assert_eq!(served.expect_err("late").kind(), ErrorKind::TimedOut);
        assert_eq!(work.begun.load(SeqCst), 0);
        Ok(())
    });
    assert_eq!(forced, [""; 0]);
}

/// A client that leaves in the middle of a request, or breaks the connection under an answer,
/// has left; no job has failed.
#[test]
fn io_5_a_client_that_leaves_is_no_failure() {
    let forced = on_seeds("leaves", async || {
        let (here, there) = connected().await?;
        here.write_all("GET / HTTP/1.1\r\nhos").await.0?;
        drop(here);
        http1(there, Work::default()).await?;
        // One that goes with most of the answer unread: the connection is reset.
        let (here, there) = connected().await?;
        let task = spawn(http1(there, Work::default()));
        here.write_all(get("/")).await.0?;
        here.read_exact([0; 1]).await.0?;
        drop(here);
        task.await?;
        Ok(())
    });
    assert_eq!(forced, [""; 0]);
}

#[test]
fn io_5_the_end_and_the_errors_of_a_connection_are_its_own() {
    let forced = on_seeds("ends", async || {
        // The client wants no more.
        let (here, there) = connected().await?;
        let task = spawn(http1(there, Work::default()));
        let last = "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        here.write_all(last).await.0?;
        assert!(rest(&here).await?.ends_with("hello"));
        task.await?;
        // It talks nonsense.
        let (here, there) = connected().await?;
        here.write_all("nonsense\r\n\r\n").await.0?;
        let served = http1(there, Work::default()).await;
        assert_eq!(served.expect_err("nonsense").kind(), ErrorKind::Failed);
        // A handler panics.
        let (here, there) = connected().await?;
        here.write_all(get("/panic")).await.0?;
        let served = http1(there, Work::default()).await;
        assert_eq!(served.expect_err("panic").kind(), ErrorKind::Panicked);
        Ok(())
    });
    assert_eq!(forced, [""; 0]);
}

/// A request that fails ends a connection of HTTP/1. This one sleeps before, or waits
/// until it is told.
async fn fails(stream: TcpStream, work: Work, told: bool) -> Result<()> {
    let answer = move |_: Request<Incoming>| {
        work.begun.fetch_add(1, SeqCst);
        async move {
            match told {
                true => drop(park().await),
                false => sleep(SECOND).await.expect("it is not told"),
            }
            Err::<Response<Full<Bytes>>, _>(std::io::Error::other("the disk is on fire"))
        }
    };
    // Without this it is the connection that is told first: it looks out for a client
    // that goes away.
    let http = server::conn::http1::Builder::new()
        .half_close(true)
        .serve_connection(Polled::new(stream), service_fn(answer));
    serve(http, |http| http.graceful_shutdown()).await
}

/// The time is spent, and the request has failed of itself.
#[test]
fn outcome_5_a_failure_is_not_taken_for_the_cancel() {
    let forced = on_seeds("on_fire", async || {
        let (here, there) = connected().await?;
        let work = Work::default();
        let serving = work.clone();
        let task = spawn(async move {
            let error = fails(there, serving, true).await.expect_err("it fails");
            assert_eq!(error.kind(), ErrorKind::Failed);
            assert!(format!("{error:?}").contains("on fire"), "{error:?}");
            assert!(is_cancelled());
        });
        here.write_all(get("/")).await.0?;
        work.has_begun().await?;
        task.cancel("closing time");
        let outcome = task.outcome().await?;
        assert!(
            matches!(outcome, Outcome::Cancelled { late: Some(_), .. }),
            "{outcome:?}"
        );
        Ok(())
    });
    assert_eq!(forced, [""; 0]);
}

/// As on tokio: only its own stream is reset.
#[test]
fn io_5_a_stream_that_panics_is_alone() {
    guarded("stream_panics", |watched| {
        for seed in 0..20 {
            let heard = Arc::new(Mutex::new(Vec::new()));
            let hears = heard.clone();
            let mut sim = Sim::builder(seed)
                .on_failure(move |error| hears.lock().unwrap().push(error.kind()))
                .build();
            watched.watch(sim.tree());
            let ran = sim.run(scope(async |s| {
                let (here, there) = connected().await?;
                let work = Work::default();
                let task = spawn(last_word(http2(there, work.clone())));
                let executor = Executor::new(s);
                let shaken = client::conn::http2::handshake(executor.clone(), Polled::new(here));
                let (mut sender, connection) = shaken.await.or_fail()?;
                executor.execute(connection);
                let mut ask = |path: &str| {
                    let request = Request::get(format!("http://x{path}"));
                    sender.send_request(request.body(Empty::<Bytes>::new()).expect("a request"))
                };
                let nap = ask("/nap");
                work.has_begun().await?;
                ask("/panic").await.expect_err("it is reset");
                nap.await.or_fail()?;
                ask("/").await.or_fail()?;
                drop(sender);
                task.await
            }));
            ran.unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
            assert_eq!(*heard.lock().unwrap(), [ErrorKind::Panicked]);
            sim.assert_nothing_left();
            sim.finish();
        }
    });
}

#[test]
fn io_5_an_interrupt_is_heard_too() {
    let forced = on_seeds("interrupt", async || {
        for under_way in [false, true] {
            let (here, there) = connected().await?;
            let work = Work::default();
            let task = spawn(http1(there, work.clone()));
            let path = if under_way { "/nap" } else { "/" };
            here.write_all(get(path)).await.0?;
            work.has_begun().await?;
            if !under_way {
                here.read(Vec::with_capacity(4096)).await.0?;
            }
            let asked = now();
            task.interrupt("look up");
            let Outcome::Cancelled { reason, late } = task.outcome().await? else {
                return Err(Error::msg("it was interrupted"));
            };
            assert_eq!(reason.kind(), ReasonKind::Interrupted);
            assert!(late.is_none(), "it ends with the interrupt");
            assert!(now() - asked <= SECOND + SECOND / 10, "{:?}", now() - asked);
            assert_eq!(rest(&here).await?.ends_with("hello"), under_way);
        }
        Ok(())
    });
    assert_eq!(forced, [""; 0]);
}

/// It was heard, and something else came of it: the next point tells it again.
#[test]
fn io_5_an_interrupt_is_not_lost_to_a_failure_or_a_drop() {
    let forced = on_seeds("interrupt_back", async || {
        let (here, there) = connected().await?;
        let work = Work::default();
        let serving = work.clone();
        let task = spawn(async move {
            let served = fails(there, serving, false).await;
            assert_eq!(served.expect_err("it fails").kind(), ErrorKind::Failed);
            let told = checkpoint().await.expect_err("it was interrupted");
            assert_eq!(told.reason().kind(), ReasonKind::Interrupted);
            Ok::<_, Error>(())
        });
        here.write_all(get("/")).await.0?;
        work.has_begun().await?;
        task.interrupt("look up");
        task.await?;

        let (here, there) = connected().await?;
        here.write_all(get("/park")).await.0?;
        let work = Work::default();
        spawn(async move {
            let mut serving = Box::pin(http1(there, work.clone()));
            let mut poll = async || {
                let polled = std::future::poll_fn(|cx| Poll::Ready(serving.as_mut().poll(cx)));
                assert!(polled.await.is_pending());
            };
            while work.begun.load(SeqCst) == 0 {
                poll().await;
                sleep(Duration::from_micros(10)).await?;
            }
            current_job().expect("inside a job").interrupt("look up");
            poll().await;
            checkpoint().await?; // it was heard
            drop(serving);
            let told = checkpoint().await.expect_err("it is told again");
            assert_eq!(told.reason().kind(), ReasonKind::Interrupted);
            Ok::<_, Error>(())
        })
        .await
    });
    assert_eq!(forced, [""; 0]);
}

/// hyper's sleep has no way to say that it was told. It waits on, and what it has
/// heard the next point tells: whether it was asleep already or not.
/// Also: request-1.
#[test]
fn io_5_a_sleep_of_hyper_swallows_no_interrupt() {
    let forced = on_seeds("sleep", async || {
        for asleep in [true, false] {
            spawn(async move {
                let began = now();
                let mut nap = HyperTimer.sleep(SECOND);
                let mut poll = async || {
                    let polled = std::future::poll_fn(|cx| Poll::Ready(nap.as_mut().poll(cx)));
                    assert!(polled.await.is_pending());
                };
                if asleep {
                    poll().await;
                }
                current_job().expect("inside a job").interrupt("look up");
                poll().await;
                let told = checkpoint().await.expect_err("it was interrupted");
                assert_eq!(told.reason().kind(), ReasonKind::Interrupted);
                // Once.
                checkpoint().await?;
                nap.await;
                assert_eq!(now() - began, SECOND);
                Ok::<_, Error>(())
            })
            .await?;
        }
        Ok(())
    });
    assert_eq!(forced, [""; 0]);
}

#[test]
fn io_5_dropped_it_closes_its_connection() {
    let forced = on_seeds("dropped", async || {
        let (here, there) = connected().await?;
        let work = Work::default();
        here.write_all(get("/park")).await.0?;
        let mut serving = Box::pin(http1(there, work.clone()));
        while work.begun.load(SeqCst) == 0 {
            let polled = std::future::poll_fn(|cx| Poll::Ready(serving.as_mut().poll(cx)));
            assert!(polled.await.is_pending());
            sleep(Duration::from_micros(10)).await?;
        }
        drop(serving);
        assert_eq!(rest(&here).await?, "");
        Ok(())
    });
    assert_eq!(forced, [""; 0]);
}

#[test]
fn io_5_a_shutdown_gives_requests_its_grace() {
    guarded("shutdown", |watched| {
        for seed in 0..20 {
            let mut sim = Sim::builder(seed).on_failure(|_| {}).build();
            watched.watch(sim.tree());
            let (nap, scope) = (Work::default(), sim.root());
            let works = [("/nap", nap.clone()), ("/park", Work::default())];
            let ran = sim.run(async move {
                for (path, work) in &works {
                    let (here, there) = connected().await?;
                    here.write_all(get(path)).await.0?;
                    scope.launch(http1(there, work.clone()));
                    scope.launch(shield(async move { rest(&here).await.map(drop) }));
                }
                for (_, work) in &works {
                    work.has_begun().await?;
                }
                Ok::<_, Error>(())
            });
            ran.expect("two requests under way");
            let before = sim.elapsed();
            drop(sim.shutdown(3 * SECOND));
            assert_eq!(nap.done.load(SeqCst), 1);
            let took = sim.elapsed() - before;
            assert!((3 * SECOND..4 * SECOND).contains(&took), "{took:?}");
            sim.finish();
        }
    });
}
