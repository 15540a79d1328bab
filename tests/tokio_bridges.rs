//! Bridges between a tree and tokio: tokio tasks that a scope adopts, tokens both ways, and
//! tokio's things in a job of the native runtime. Whichever side goes first, nothing is left.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};
use std::time::Duration;

use kinfolk_core::{
    Error, ErrorKind, OrCancel, OrFail, Outcome, ReasonKind, Scope, cancel_current, checkpoint,
    park, scope, spawn, yield_now,
};
use kinfolk_testkit::{GuardedRun, guarded};
use kinfolk_tokio::{AdoptExt, Root, TokenExt, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::sync::CancellationToken;

const HOUR: Duration = Duration::from_secs(3600);

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn workers() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all();
    builder.build().unwrap()
}

/// Runs `test` on both flavors, each on a root of its own, at which nothing is left.
fn on<F>(name: &'static str, test: fn(Root) -> F)
where
    F: Future<Output = ()> + 'static,
{
    for make in [one_thread, workers] {
        guarded(name, move |watched| {
            make().block_on(async {
                let root = Root::builder().on_failure(Box::new(|_| {})).build();
                watched.watch(root.tree());
                test(root.clone()).await;
                let report = root.shutdown().await.unwrap();
                assert!(report.is_clean(), "{report}");
                assert_eq!(root.counters().living(), 0, "{}", root.counters());
            });
        });
    }
}

/// Counts what is dropped.
struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn dropped() -> (Arc<AtomicUsize>, Dropped) {
    let count = Arc::new(AtomicUsize::new(0));
    (count.clone(), Dropped(count))
}

// ------------------------------------------------------------------ adopted tasks

/// handle-1: a tokio task that a scope adopts is a child like any: its value is the task's,
/// and the scope waits for it.
#[test]
fn handle_1_an_adopted_tokio_task_is_waited_for() {
    on("adopted", |root| async move {
        let (count, gone) = dropped();
        let (open, wait) = tokio::sync::oneshot::channel::<()>();
        let theirs = tokio::spawn(async move {
            let _gone = gone;
            wait.await.is_ok()
        });
        let run = root.run(scope(async move |s: Scope| {
            let _ = s.adopt(theirs).into_job();
            let value = s.adopt(tokio::spawn(async { 42 })).await?;
            open.send(()).unwrap();
            Ok(value)
        }));
        assert_eq!(run.await.unwrap(), 42);
        assert_eq!(count.load(SeqCst), 1, "the scope has waited");
    });
}

/// handle-1: its error and its panic are those of a child: they fail the scope.
#[test]
fn handle_1_an_adopted_tokio_task_fails_its_scope() {
    on("adopted, and fails", |root| async move {
        let run = root.run(scope(async move |s: Scope| {
            let fails = tokio::spawn(async { Err::<(), Error>(Error::msg("theirs")) });
            let _ = s.adopt(fails).into_job();
            park().await?;
            Ok(())
        }));
        assert!(run.await.unwrap_err().to_string().contains("theirs"));
        let run = root.run(scope(async move |s: Scope| {
            let panics = tokio::spawn(async { std::panic::resume_unwind(Box::new("theirs")) });
            s.adopt::<()>(panics).await
        }));
        assert_eq!(run.await.unwrap_err().kind(), ErrorKind::Panicked);
    });
}

/// cancel-1: a cancel of the scope aborts the tokio task, and the scope waits until it is
/// gone.
#[test]
fn cancel_1_an_adopted_tokio_task_is_aborted_and_waited_for() {
    on("aborted", |root| async move {
        let (count, gone) = dropped();
        let seen = count.clone();
        let run = root.run(async move {
            let ended = scope(async move |s: Scope| {
                let theirs = tokio::spawn(async move {
                    let _gone = gone;
                    std::future::pending::<()>().await;
                });
                let _ = s.adopt(theirs).into_job();
                yield_now().await?;
                s.cancel("enough");
                Ok(())
            });
            ended.await?;
            Ok::<_, Error>(seen.load(SeqCst))
        });
        assert_eq!(run.await.unwrap(), 1);
    });
}

/// outcome-6: what cannot be aborted is waited for, and its value is not lost.
#[test]
fn outcome_6_an_adopted_call_that_goes_on_has_a_late_value() {
    on("a late value", |root| async move {
        let (told, is_told) = std::sync::mpsc::channel();
        let outcome = root.run(async move {
            let (up, is_up) = tokio::sync::oneshot::channel();
            let call = tokio::task::spawn_blocking(move || {
                let _ = up.send(());
                is_told.recv().is_ok()
            });
            let adopted = Scope::current().unwrap().adopt(call);
            is_up.await.unwrap();
            adopted.cancel("enough");
            told.send(()).unwrap();
            Ok::<_, Error>(adopted.outcome().await?)
        });
        let Outcome::Cancelled { late, .. } = outcome.await.unwrap() else {
            panic!("a cancelled task never completes");
        };
        assert_eq!(late, Some(true));
    });
}

/// outcome-4: a tokio task that others abort ends its child alone.
#[test]
fn outcome_4_an_adopted_task_that_others_abort_cancels_no_sibling() {
    on("aborted by others", |root| async move {
        let run = root.run(scope(async move |s: Scope| {
            let theirs = tokio::spawn(std::future::pending::<()>());
            let abort = theirs.abort_handle();
            let adopted = s.adopt(theirs);
            abort.abort();
            let outcome = adopted.outcome().await?;
            let reason = outcome
                .reason()
                .map(ToString::to_string)
                .unwrap_or_default();
            assert!(reason.contains("its tokio task was aborted"), "{reason}");
            Ok(7)
        }));
        assert_eq!(run.await.unwrap(), 7);
    });
}

/// tree-5: a scope that is cancelled still aborts what it adopts, and waits; one that has
/// ended aborts it.
#[test]
fn tree_5_a_cancelled_or_ended_scope_aborts_what_it_adopts() {
    on("adopted too late", |root| async move {
        let (count, gone) = dropped();
        let seen = count.clone();
        let run = root.run(async move {
            let mut kept = None;
            let cancelled = scope(async |s: Scope| {
                s.cancel("enough");
                let theirs = tokio::spawn(async move {
                    let _gone = gone;
                    std::future::pending::<()>().await;
                });
                let _ = s.adopt(theirs).into_job();
                kept = Some(s);
                Ok(())
            });
            cancelled.await?;
            assert_eq!(seen.load(SeqCst), 1, "the scope has waited");
            let (count, gone) = dropped();
            let theirs = tokio::spawn(async move {
                let _gone = gone;
                std::future::pending::<()>().await;
            });
            let refused = kept.take().unwrap().adopt(theirs);
            assert!(refused.is_ended());
            while count.load(SeqCst) == 0 {
                yield_now().await?;
            }
            Ok::<_, Error>(())
        });
        run.await.unwrap();
    });
}

/// tree-3: the runtime of an adopted task goes: the child ends.
#[test]
fn tree_3_an_adopted_task_whose_runtime_goes_is_over() {
    on("its runtime goes", |root| async move {
        let other = workers();
        let theirs = other.spawn(std::future::pending::<()>());
        let adopted = root.scope().adopt(theirs);
        other.shutdown_background();
        assert!(adopted.outcome().await.unwrap().is_cancelled());
    });
}

/// cancel-8: an abort handle is called at the cancel, unless its guard is dropped.
#[test]
fn cancel_8_an_abort_handle_is_a_hook() {
    on("an abort handle", |root| async move {
        let theirs = tokio::spawn(std::future::pending::<()>());
        let spared = tokio::spawn(std::future::pending::<()>());
        let (abort, not) = (theirs.abort_handle(), spared.abort_handle());
        let run = root.run(scope(async move |s: Scope| {
            s.abort_on_cancel(abort).keep();
            drop(s.abort_on_cancel(not));
            s.cancel("enough");
            Ok(())
        }));
        run.await.unwrap();
        assert!(theirs.await.unwrap_err().is_cancelled());
        assert!(!spared.is_finished());
        spared.abort();
    });
}

/// cancel-9: a bare `tokio::spawn` in a job makes a tokio task that is no job: the scope does
/// not wait for it, no cancel reaches it, its failure is not the scope's.
#[test]
fn cancel_9_a_bare_tokio_spawn_in_a_job_is_no_job() {
    on("a bare spawn", |root| async move {
        let (go, wait) = tokio::sync::oneshot::channel::<()>();
        let run = root.run(scope(async move |s: Scope| {
            let bare = tokio::spawn(async move {
                assert!(Scope::current().is_none());
                let _ = wait.await;
                // Outside every job a point never fails.
                checkpoint().await.unwrap();
                assert!(std::panic::catch_unwind(|| drop(spawn(async {}))).is_err());
                7
            });
            let fails = tokio::spawn(async { std::panic::resume_unwind(Box::new("theirs")) });
            let failed: Result<(), _> = fails.await;
            assert!(failed.unwrap_err().is_panic());
            s.cancel("enough");
            Ok(bare)
        }));
        let bare = run.await.unwrap();
        assert!(root.shutdown().await.unwrap().is_clean());
        assert!(!bare.is_finished(), "the root did not wait for it");
        go.send(()).unwrap();
        assert_eq!(bare.await.unwrap(), 7);
    });
}

// ------------------------------------------------------------------------- tokens

/// cancel-1: a token cancels the scope that is linked to it; also one that was cancelled
/// before, and a child of it.
#[test]
fn cancel_1_a_token_cancels_its_scope() {
    on("a token", |root| async move {
        for before in [false, true] {
            let token = CancellationToken::new();
            let theirs = token.child_token();
            if before {
                token.cancel();
            }
            let waits = root.scope().spawn(async move {
                Scope::current().unwrap().cancel_on(&theirs).keep();
                park().await?;
                Ok::<(), Error>(())
            });
            tokio::task::yield_now().await;
            token.cancel();
            let outcome = waits.outcome().await.unwrap();
            let reason = outcome
                .reason()
                .map(ToString::to_string)
                .unwrap_or_default();
            assert!(reason.contains("tests/tokio_bridges.rs"), "{reason}");
        }
    });
}

/// cancel-8: a hook of the scope may use the token that cancels it, and its relatives.
#[test]
fn cancel_8_a_token_holds_no_lock_while_it_cancels_a_scope() {
    on("a hook uses the token", |root| async move {
        let token = CancellationToken::new();
        let theirs = token.child_token().child_token();
        let (above, beside) = (token.clone(), theirs.clone());
        let (seen, see) = tokio::sync::oneshot::channel();
        let waits = root.scope().spawn(async move {
            let here = Scope::current().unwrap();
            here.cancel_on(&theirs).keep();
            drop(theirs);
            here.on_cancel(move |_| {
                let both = above.is_cancelled() && beside.child_token().is_cancelled();
                drop((above.child_token(), beside));
                let _ = seen.send(both);
            })
            .keep();
            park().await?;
            Ok::<(), Error>(())
        });
        tokio::task::yield_now().await;
        token.cancel();
        assert!(waits.outcome().await.unwrap().is_cancelled());
        assert!(see.await.unwrap());
    });
}

/// cancel-8: a link that was given up cancels nothing.
#[test]
fn cancel_8_a_link_to_a_token_ends_with_its_guard() {
    on("unlinked", |root| async move {
        let token = CancellationToken::new();
        let run = root.run(scope(async move |s: Scope| {
            let link = s.cancel_on(&token);
            drop(link);
            token.cancel();
            yield_now().await?;
            Ok(7)
        }));
        assert_eq!(run.await.unwrap(), 7);
    });
}

/// cancel-8: the token of a scope is cancelled with it, and when it has ended; cancelling
/// the token leaves the scope alone.
#[test]
fn cancel_8_a_scope_cancels_its_token() {
    on("the token of a scope", |root| async move {
        let tokens = root.run(scope(async |s: Scope| {
            let (one, other) = (s.token(), s.token());
            other.cancel();
            yield_now().await?;
            assert!(!s.cancel_requested() && !one.is_cancelled());
            let cancelled = scope(async |s: Scope| {
                let token = s.token();
                let theirs = tokio::spawn(token.clone().cancelled_owned());
                assert!(!token.is_cancelled());
                s.cancel("enough");
                assert!(token.is_cancelled());
                assert!(s.token().is_cancelled(), "one of a cancelled scope is");
                theirs.await.unwrap();
                Ok(())
            });
            cancelled.await?;
            Ok(vec![one, s.token()])
        }));
        for token in tokens.await.unwrap() {
            assert!(token.is_cancelled(), "its scope has ended");
        }
    });
}

// ---------------------------------------------------------------- hosted futures

/// handle-15: tokio tasks that enter a root on their own: what they spawned is cancelled when
/// tokio aborts them, and the root waits for it.
#[test]
fn handle_15_a_tokio_task_enters_a_root() {
    on("entered", |root| async move {
        let (count, gone) = dropped();
        let entered = root.clone();
        let (up, is_up) = tokio::sync::oneshot::channel();
        let theirs = tokio::spawn(async move {
            let request = entered.enter(async move {
                spawn(async move {
                    let _gone = gone;
                    let _ = up.send(());
                    park().await
                })
                .await
            });
            request.await.map(|_| ())
        });
        is_up.await.unwrap();
        theirs.abort();
        assert!(theirs.await.unwrap_err().is_cancelled());
        assert!(root.shutdown().await.unwrap().is_clean());
        assert_eq!(count.load(SeqCst), 1);
    });
}

/// handle-15: a future that is not `Send` is hosted by the thread of a `LocalSet`.
#[test]
fn handle_15_a_local_set_hosts_what_is_not_send() {
    on("a local set", |root| async move {
        let local = tokio::task::LocalSet::new();
        let hosts = local.run_until(async move {
            let theirs = tokio::task::spawn_local(async move {
                let rc = std::rc::Rc::new(7);
                let hosted = root.enter(async move {
                    let child = spawn(yield_now());
                    child.await?;
                    Ok::<_, Error>(*rc)
                });
                hosted.await
            });
            theirs.await.unwrap()
        });
        assert_eq!(hosts.await.unwrap(), 7);
    });
}

/// handle-15: hosted futures on many tokio tasks, which are aborted, end, fail and outlive
/// their scope at any moment: nothing is left, and no scope ends before them.
#[test]
fn handle_15_hosted_futures_race_with_the_end_of_their_scope() {
    on("hosted, and raced", |root| async move {
        for round in 0..300_usize {
            let (count, living) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let (seen, alive) = (count.clone(), living.clone());
            let run = root.run(async move {
                let mut tasks = Vec::new();
                let ended = scope(async |s: Scope| {
                    for n in 0..6 {
                        let (s, seen, alive) = (s.clone(), seen.clone(), alive.clone());
                        alive.fetch_add(1, SeqCst);
                        let dropped = Dropped(seen);
                        tasks.push(tokio::spawn(async move {
                            let hosted = s.host(async move {
                                let _dropped = dropped;
                                let child = spawn(yield_now());
                                for _ in 0..(round + n) % 5 {
                                    yield_now().await?;
                                }
                                match n {
                                    0 => Err(Error::msg("theirs")),
                                    1 => park()
                                        .await
                                        .map(|never| match never {})
                                        .map_err(Error::from),
                                    _ => Ok(child.await?),
                                }
                            });
                            let _ = hosted.await;
                        }));
                    }
                    for _ in 0..round % 7 {
                        yield_now().await?;
                    }
                    tasks[2].abort();
                    s.cancel("enough");
                    Ok(())
                });
                ended.await?;
                for task in tasks {
                    let _ = task.await;
                }
                Ok::<_, Error>(())
            });
            run.await.unwrap();
            assert_eq!(count.load(SeqCst), living.load(SeqCst), "round {round}");
        }
        assert_eq!(root.snapshot().len(), 1);
    });
}

/// handle-15: a shutdown that forces waits for no executor: a hosted future that is not polled
/// any more is given up, and named. Polled later it is dropped, and its caller hears.
#[test]
fn handle_15_a_forced_shutdown_gives_a_hosted_future_up() {
    guarded("given up", |watched| {
        workers().block_on(async {
            let root = Root::builder().on_forced(Box::new(|_| {})).build();
            watched.watch(root.tree());
            let (count, gone) = dropped();
            let mut kept = Box::pin(root.scope().task("kept").host(async move {
                let _gone = gone;
                spawn(park()).await.map(|_| ())
            }));
            let polled = std::future::poll_fn(|cx| Poll::Ready(kept.as_mut().poll(cx)));
            assert!(polled.await.is_pending());
            let report = root.shutdown_in(Duration::ZERO).await.unwrap();
            assert!(report.to_string().contains("kept"), "{report}");
            assert_eq!(root.counters().living(), 0, "{}", root.counters());
            assert_eq!(count.load(SeqCst), 0, "its caller has it");
            let error = kept.await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Stopped);
            assert_eq!(count.load(SeqCst), 1);
            // So it is for one that comes later.
            let late = root.enter(async { 7 }).await.unwrap_err();
            assert_eq!(late.kind(), ErrorKind::Stopped);
        });
    });
}

/// handle-15: so it is when the tokio runtime under the root goes: a thread outside it that
/// still polls finds out.
#[test]
fn handle_15_a_host_that_goes_gives_a_hosted_future_up() {
    guarded("its host goes", |watched| {
        gives_up_as_it_goes(workers(), &watched);
        // One that has never given its tasks a turn.
        let tokio = tokio::runtime::Builder::new_current_thread();
        gives_up_as_it_goes({ tokio }.enable_all().build().unwrap(), &watched);
    });
}

fn gives_up_as_it_goes(tokio: tokio::runtime::Runtime, watched: &GuardedRun) {
    let guard = tokio.enter();
    let root = Root::builder().on_forced(Box::new(|_| {})).build();
    drop(guard);
    watched.watch(root.tree());
    let (count, gone) = dropped();
    let mut hosted = Box::pin(root.enter(async move {
        let _gone = gone;
        park().await.map(|_| ()).map_err(Error::from)
    }));
    let mut cx = Context::from_waker(std::task::Waker::noop());
    assert!(hosted.as_mut().poll(&mut cx).is_pending());
    drop(tokio);
    assert_eq!(root.counters().living(), 1, "{}", root.counters());
    let Poll::Ready(Err(error)) = hosted.as_mut().poll(&mut cx) else {
        panic!("it is over");
    };
    assert_eq!(error.reason().unwrap().kind(), ReasonKind::HostGone);
    assert_eq!(count.load(SeqCst), 1);
}

// ------------------------------------------------------------- the root of a runtime

/// outcome-3: a root with options is the current one, if it is made before any other.
#[test]
fn outcome_3_a_configured_root_is_the_current_one() {
    guarded("configured", |watched| {
        let (told, failures) = std::sync::mpsc::channel();
        one_thread().block_on(async {
            let hook = move |error: &Error| told.send(error.to_string()).unwrap();
            let root = Root::builder().on_failure(Box::new(hook));
            let root = root.build_current().unwrap();
            watched.watch(root.tree());
            let run = kinfolk_tokio::run(async {
                kinfolk_core::detach(async { Err::<(), _>(Error::msg("of nobody")) });
            });
            run.await.unwrap();
            let second = Root::builder().build_current().unwrap_err();
            assert!(second.to_string().contains("already"), "{second}");
            assert!(Root::current().shutdown().await.unwrap().is_clean());
            // One that is over makes room.
            let next = Root::builder().build_current().unwrap();
            assert_eq!(kinfolk_tokio::run(async { 7 }).await.unwrap(), 7);
            assert!(next.shutdown().await.unwrap().is_clean());
        });
        assert!(failures.try_recv().unwrap().contains("of nobody"));
    });
}

/// host-2: timers that make jobs below a root, and what the root says of itself.
#[test]
fn host_2_a_root_has_timers_and_gauges() {
    on("timers of a root", |root| async move {
        let (count, up) = (
            Arc::new(AtomicUsize::new(0)),
            Arc::new(tokio::sync::Notify::new()),
        );
        let (counted, done) = (count.clone(), up.clone());
        let every = root.interval(Duration::from_millis(1), move || {
            let (counted, done) = (counted.clone(), done.clone());
            async move {
                if counted.fetch_add(1, SeqCst) == 2 {
                    done.notify_one();
                }
            }
        });
        let every = every.unwrap();
        up.notified().await;
        every.cancel();
        let done = up.clone();
        let _once = root.delay(Duration::from_millis(1), move || async move {
            done.notify_one()
        });
        up.notified().await;
        assert!(root.interval(Duration::ZERO, || async {}).is_err());
        let far = root.delay(HOUR, || async {});
        while root.gauges().next_deadline_in.is_none() {
            tokio::task::yield_now().await;
        }
        far.cancel();
    });
}

// ----------------------------------------------------------- on the native runtime

fn native() -> kinfolk_runtime::Runtime {
    kinfolk_runtime::Runtime::builder()
        .workers(1)
        .on_failure(Box::new(|_| {}))
        .on_forced(Box::new(|_| {}))
        .build()
        .expect("a runtime")
}

/// Cancels its job after so many polls of what it wraps.
struct CancelAfter<F> {
    future: Pin<Box<F>>,
    polls: usize,
}

impl<F: Future> Future for CancelAfter<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let polled = self.future.as_mut().poll(cx);
        self.polls = self.polls.wrapping_sub(1);
        if self.polls == 0 && polled.is_pending() {
            cancel_current("after this poll");
        }
        polled
    }
}

/// What a client does that needs tokio: it connects, sends, waits a moment, and reads.
async fn talk(to: std::net::SocketAddr) -> std::io::Result<String> {
    let mut stream = tokio::net::TcpStream::connect(to).await?;
    stream.write_all(b"ping").await?;
    tokio::time::sleep(Duration::from_millis(1)).await;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    tokio::spawn(async { answer })
        .await
        .map_err(std::io::Error::other)
}

/// An echo server on tokio. It counts connections that have ended.
async fn echo(listener: tokio::net::TcpListener, ended: Arc<AtomicUsize>) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let ended = ended.clone();
        tokio::spawn(async move {
            let mut word = [0; 4];
            if stream.read_exact(&mut word).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(1)).await;
                let _ = stream.write_all(&word).await;
            }
            drop(stream);
            ended.fetch_add(1, SeqCst);
        });
    }
}

/// cancel-5: what needs a tokio context runs in a job of the native runtime, and is cancelled
/// after each of its polls: told, dropped, and its connection closed.
#[test]
fn cancel_5_a_future_of_tokio_in_a_native_job_is_cancelled_after_each_poll() {
    guarded("within, after each poll", |watched| {
        let tokio = workers();
        let ended = Arc::new(AtomicUsize::new(0));
        let listener = tokio
            .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
            .unwrap();
        let to = listener.local_addr().unwrap();
        tokio.spawn(echo(listener, ended.clone()));
        let rt = native();
        watched.watch(rt.tree());
        let (mut polls, mut completed) = (0, false);
        while !completed {
            polls += 1;
            let handle = tokio.handle().clone();
            let outcome = rt.block_on(async move {
                let talks = spawn(CancelAfter {
                    future: Box::pin(async move {
                        let answer = within(&handle, talk(to)).or_cancel().await??;
                        Ok::<_, Error>(answer)
                    }),
                    polls,
                });
                Ok::<_, Error>(talks.outcome().await?)
            });
            match outcome.unwrap() {
                Outcome::Completed(answer) => {
                    assert_eq!(answer, "ping");
                    completed = true;
                }
                Outcome::Cancelled { late: None, .. } => assert!(polls < 100),
                other => panic!("after {polls} polls: {other:?}"),
            }
        }
        assert!(polls > 1, "the sleep is one: {polls} polls");
        // Every connection that the server saw has ended.
        while tokio.metrics().num_alive_tasks() > 1 {
            std::thread::yield_now();
        }
        assert!(ended.load(SeqCst) > 0);
        assert!(
            rt.shutdown(Duration::from_secs(10))
                .is_ok_and(|report| report.is_clean())
        );
    });
}

/// cancel-5: the tokio runtime goes while a native job waits in its context: a timer
/// panics, which fails the job; a socket returns its error; a wait for what was spawned
/// there says that it was cancelled.
#[test]
fn cancel_5_a_tokio_runtime_that_goes_half_way_hangs_no_native_job() {
    guarded("within, and it goes", |watched| {
        let rt = native();
        watched.watch(rt.tree());
        let tokio = workers();
        let handle = tokio.handle().clone();
        let results = rt.block_on(Scope::build().supervisor().run(async move |s: Scope| {
            let listener = within(&handle, tokio::net::TcpListener::bind("127.0.0.1:0")).await?;
            let (up, is_up) = tokio::sync::mpsc::channel::<()>(3);
            let of = |up: &tokio::sync::mpsc::Sender<()>| (handle.clone(), up.clone());
            let (on, ready) = of(&up);
            let sleeps = s.spawn(async move {
                within(&on, async {
                    let sleep = tokio::time::sleep(HOUR);
                    ready.send(()).await.unwrap();
                    sleep.await;
                })
                .await;
            });
            let (on, ready) = of(&up);
            let accepts = s.spawn(async move {
                ready.send(()).await.unwrap();
                within(&on, listener.accept()).await?;
                Ok::<(), Error>(())
            });
            let (on, ready) = of(&up);
            let waits = s.spawn(async move {
                ready.send(()).await.unwrap();
                within(&on, async {
                    tokio::spawn(std::future::pending::<()>()).await
                })
                .await
                .or_fail()?;
                Ok::<(), Error>(())
            });
            let mut is_up = is_up;
            for _ in 0..3 {
                is_up.recv().await.unwrap();
            }
            // Each has been polled once more, so that it waits.
            for _ in 0..3 {
                yield_now().await?;
            }
            tokio.shutdown_background();
            let mut kinds = Vec::new();
            for task in [sleeps, accepts, waits] {
                match task.outcome().await? {
                    Outcome::Failed(error) => kinds.push(error.kind()),
                    other => panic!("{other:?}"),
                }
            }
            Ok(kinds)
        }));
        assert_eq!(
            results.unwrap(),
            [ErrorKind::Panicked, ErrorKind::Failed, ErrorKind::Failed]
        );
        assert!(rt.shutdown(Duration::from_secs(10)).is_ok());
    });
}

/// cancel-5: a future that is dropped goes in the context too.
#[test]
fn cancel_5_a_future_is_dropped_within_its_context() {
    struct Asks(Arc<AtomicUsize>);
    impl Drop for Asks {
        fn drop(&mut self) {
            self.0
                .fetch_add(usize::from(Handle::try_current().is_ok()), SeqCst);
        }
    }
    let tokio = one_thread();
    let asked = Arc::new(AtomicUsize::new(0));
    let asks = Asks(asked.clone());
    drop(within(tokio.handle(), async move {
        let _asks = asks;
        std::future::pending::<()>().await;
    }));
    assert_eq!(asked.load(SeqCst), 1);
    assert!(Handle::try_current().is_err());
}
