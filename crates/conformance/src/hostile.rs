//! Values, errors, payloads, wakers and callbacks that panic, or that ask the
//! very job they belong to: whatever they do ends with them.
//!
//! `tests/hostile.rs` builds whole programs from such types at random.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use kinfolk_core::kit::Work;
use kinfolk_core::{
    Backoff, Error, ErrorKind, IntoOutcome, Job, JobState, Local, Main, OrCancel, Outcome, Scope,
    Success, TaskSet, all, attempt, blocking, checkpoint, current_job, detach, for_each_concurrent,
    forever, launch, local_scope, on_cancel, park, race, restarting, retry, scope, scope_as,
    shield, sleep, spawn, timeout, try_shield,
};
use kinfolk_sync::OnceCell;
use kinfolk_testkit::{Gate, Lab, Tally};

const MS: Duration = Duration::from_millis(1);

/// Panics without a word on standard error.
fn raise<T>() -> T {
    std::panic::resume_unwind(Box::new("hostile"))
}

/// Drops what a program has taken, and catches the panic of it: forgotten, it would leak.
fn set_off<T>(taken: T) {
    let _ = catch_unwind(AssertUnwindSafe(move || drop(taken)));
}

/// Panics with `bomb` as what the panic carries.
fn throw(bomb: Bomb) {
    std::panic::resume_unwind(Box::new(bomb))
}

/// Panics when it is dropped.
#[derive(Debug)]
struct Bomb(Tally);

impl Success for Bomb {}

impl Drop for Bomb {
    fn drop(&mut self) {
        drop(self.0.guard());
        raise()
    }
}

/// An error that panics when it is dropped, once the last hand on it lets go.
#[derive(Debug)]
struct Mine(#[expect(dead_code, reason = "dropped with it")] Bomb);

impl fmt::Display for Mine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mine")
    }
}

impl std::error::Error for Mine {}

impl From<Error> for Mine {
    fn from(error: Error) -> Mine {
        panic!("nothing else fails here: {error}")
    }
}

fn mine(tally: &Tally) -> Result<(), Mine> {
    Err(Mine(Bomb(tally.clone())))
}

/// An error that goes off in whichever hand is the last: the failure hook's, the
/// parent's, the handle's, the caller's.
pub async fn outcome_1_an_error_whose_destructor_panics_is_an_error_like_any_other(lab: Lab) {
    let tally = Tally::new();
    let [a, b, c, d, e, f] = [(); 6].map(|()| tally.clone());
    // Nobody holds it but the hook.
    let job = detach(async move { mine(&a) });
    assert!(job.join().await.unwrap().is_failed());
    drop(lab.take_failures());
    drop(job);
    // It is recorded at a parent, which is a scope.
    let failed = scope(async |s| {
        s.launch(async move { mine(&b) });
        park().await?;
        Ok(())
    })
    .await
    .expect_err("a child failed");
    assert!(failed.downcast_ref::<Mine>().is_some(), "{failed:?}");
    drop(failed);
    // Nobody takes it from the handle.
    let task = Scope::build().supervisor().run(async |s| {
        let task = s.spawn(async move { mine(&c) });
        assert!(task.join().await?.is_failed());
        drop(task);
        Ok(())
    });
    task.await.expect("a supervisor");
    drop(lab.take_failures());
    // It is the body's own.
    let own = scope(async |_| {
        mine(&d).map_err(|mine| Error::from_boxed(Box::new(mine)))?;
        Ok(())
    });
    drop(own.await);
    // Two at once, in one job.
    let both = scope(async |s| {
        s.launch(async move { mine(&e) });
        s.launch(async move { mine(&f) });
        park().await?;
        Ok(())
    });
    drop(both.await);
    lab.settle().await;
    assert!(tally.drops() >= 5, "{}", tally.drops());
}

/// An error that is returned as a cancellation, which nobody needs any more.
pub async fn outcome_8_an_error_that_wraps_a_cancel_may_panic_when_it_is_dropped(lab: Lab) {
    #[derive(Debug)]
    struct Wrapped(
        kinfolk_core::Cancelled,
        #[expect(dead_code, reason = "drops")] Bomb,
    );
    impl fmt::Display for Wrapped {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("wrapped")
        }
    }
    impl std::error::Error for Wrapped {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }
    let tally = Tally::new();
    let bomb = Bomb(tally.clone());
    let task = spawn(async move {
        let told = park().await.expect_err("it is cancelled");
        Err::<(), _>(Wrapped(told, bomb))
    });
    lab.settle().await;
    task.cancel("enough");
    assert!(task.outcome().await.unwrap().is_cancelled());
    let bomb = Bomb(tally.clone());
    let late = timeout(MS, async move {
        let told = park().await.expect_err("its time is up");
        Err::<(), _>(Wrapped(told, bomb))
    });
    assert_eq!(late.await.expect_err("late").kind(), ErrorKind::TimedOut);
    assert_eq!(tally.drops(), 2);
}

/// What a panic carried goes off when nobody takes it.
pub async fn outcome_1_a_payload_whose_destructor_panics_harms_nobody(lab: Lab) {
    let tally = Tally::new();
    let [a, b, c] = [(); 3].map(|()| Bomb(tally.clone()));
    let job = detach(async move { throw(a) });
    assert!(job.join().await.unwrap().is_failed());
    drop((lab.take_failures(), job));
    let failed = scope(async |_| {
        throw(b);
        Ok(())
    });
    assert_eq!(
        failed.await.expect_err("it panicked").kind(),
        ErrorKind::Panicked
    );
    let failed = blocking(move |_| throw(c));
    assert_eq!(
        failed.await.expect_err("it panicked").kind(),
        ErrorKind::Panicked
    );
    lab.settle().await;
    assert_eq!(tally.drops(), 3);
}

/// Is ready with a value, and panics when it is dropped, as the value does.
struct Spent(Bomb);

impl Future for Spent {
    type Output = Bomb;

    fn poll(self: std::pin::Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Bomb> {
        Poll::Ready(Bomb(self.0.0.clone()))
    }
}

/// The same with a result.
struct TrySpent(Spent);

impl Future for TrySpent {
    type Output = kinfolk_core::Result<Bomb>;

    fn poll(mut self: std::pin::Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        std::pin::Pin::new(&mut self.0).poll(cx).map(Ok)
    }
}

/// outcome-1: a future that has returned its value and panics when it is dropped fails the
/// body that it belongs to; what the value does when it goes then ends there.
pub async fn outcome_1_a_future_that_goes_off_after_its_end_fails_its_body(lab: Lab) {
    let tally = Tally::new();
    let spent = || Spent(Bomb(tally.clone()));
    let (in_time, attempted, told) = (spent(), attempt(spent()), spent());
    let in_scope = scope(async |_| Ok(told.or_cancel().await?));
    let ends = [
        timeout(MS, in_time).await.map(std::mem::forget),
        attempted.await.map(std::mem::forget),
        in_scope.await.map(std::mem::forget),
    ];
    for end in ends {
        let error = end.expect_err("the future panics");
        assert_eq!(error.kind(), ErrorKind::Panicked);
    }
    assert_eq!(tally.drops(), 6, "each future and each value");
    lab.take_failures();
}

/// outcome-1: so it is where code of ours awaits the future of the program: no value is
/// forgotten, nor is one that a closure makes which goes off when the loop around it ends.
pub async fn outcome_1_a_future_that_goes_off_where_we_await_it_loses_no_value(lab: Lab) {
    let tally = Tally::new();
    let spent = || Spent(Bomb(tally.clone()));
    let (shielded, cell) = (spent(), OnceCell::new());
    let tries = Backoff::new().tries(3);
    let ends = [
        scope(async |_| Ok(try_shield(shielded).await?)).await,
        scope(async |_| retry(tries, spent).await).await,
        scope(async |_| restarting(Backoff::new().tries(1), spent).await).await,
        scope(async |_| Ok(forever(spent).await.map(|never| match never {})?)).await,
        scope(async |_| {
            cell.get_or_init(spent).await?;
            Ok(Bomb(tally.clone()))
        })
        .await,
        scope(async |_| {
            let made = cell.get_or_try_init::<Error, _>(|| TrySpent(spent()));
            made.await?;
            Ok(Bomb(tally.clone()))
        })
        .await,
    ];
    for end in ends {
        let error = end.map(std::mem::forget).expect_err("the future panics");
        assert_eq!(error.kind(), ErrorKind::Panicked);
    }
    assert_eq!(tally.drops(), 12, "each future and each value");
    // The closures end with their loops, after a value or an error has been returned.
    let bomb = Bomb(tally.clone());
    let tried = retry(tries, move || {
        let _held = &bomb;
        async { Bomb(Tally::new()) }
    });
    set_off(tried.await.expect("a value"));
    let bomb = Bomb(tally.clone());
    let restarted = restarting(tries, move || {
        let _held = &bomb;
        async { Bomb(Tally::new()) }
    });
    set_off(restarted.await.expect("a value"));
    let bomb = Bomb(tally.clone());
    let rounds = forever(move || {
        let _held = &bomb;
        async { Err::<(), _>(std::io::Error::other("enough")) }
    });
    assert!(
        rounds
            .await
            .is_err_and(|error| error.kind() == ErrorKind::Failed)
    );
    assert_eq!(tally.drops(), 15);
    lab.take_failures();
}

/// A value that is not taken goes off where it is dropped.
pub async fn outcome_6_a_value_whose_destructor_panics_harms_nobody(lab: Lab) {
    let tally = Tally::new();
    let bomb = || Bomb(tally.clone());
    // Without a handle; with one that is dropped; late; in a set.
    let (a, b, c, d, e) = (bomb(), bomb(), bomb(), bomb(), bomb());
    let _ = launch(async move { a }).join().await.unwrap();
    let task = spawn(async move { b });
    let _ = task.join().await.unwrap();
    drop(task);
    let task = spawn(async move {
        let _ = park().await;
        c
    });
    lab.settle().await;
    task.cancel("enough");
    assert_eq!(task.await.expect_err("stopped").kind(), ErrorKind::Stopped);
    let mut set = TaskSet::new();
    set.spawn(async move { d }).await.unwrap();
    set.spawn(async move { e }).await.unwrap();
    set.spawn(async { Bomb(Tally::new()) }).await.unwrap();
    lab.settle().await;
    let first = set.next().await.unwrap().expect("three");
    set_off(first);
    drop(set);
    assert!(tally.drops() >= 4, "{}", tally.drops());
}

/// Values that had come when a branch failed, and those of losers: two of them
/// go off in one call.
pub async fn handle_7_values_whose_destructors_panic_are_dropped_one_by_one(lab: Lab) {
    let tally = Tally::new();
    let bomb = || Bomb(tally.clone());
    let (a, b) = (bomb(), bomb());
    let gate = Gate::new();
    let branches = [Some(a), Some(b), None].map(|bomb| {
        let gate = gate.clone();
        async move {
            match bomb {
                Some(bomb) => Ok(bomb),
                None => {
                    gate.open();
                    Err(Error::msg("no"))
                }
            }
        }
    });
    assert_eq!(
        all(branches).await.expect_err("one failed").to_string(),
        "no"
    );
    assert_eq!(tally.drops(), 2);
    let late = |bomb: Bomb| async move {
        let _ = park().await;
        Ok::<_, Error>(Some(bomb))
    };
    let at_once = || async { Ok::<Option<Bomb>, Error>(None) };
    let won = race((late(bomb()), late(bomb()), at_once())).await;
    assert!(won.expect("the third").is_none());
    assert_eq!(tally.drops(), 4);
    let mut taken = 0;
    let won = race((late(bomb()), late(bomb()), at_once())).late(|bomb| {
        taken += 1;
        drop(bomb);
    });
    assert!(won.await.expect("the third").is_none());
    assert_eq!((taken, tally.drops()), (2, 6));
    drop(lab);
}

/// The walk over sources is made by us: one that panics has come to its end.
#[derive(Debug)]
struct Sourceless(AtomicUsize, usize);

impl fmt::Display for Sourceless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sourceless")
    }
}

impl std::error::Error for Sourceless {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        if self.0.fetch_add(1, SeqCst) >= self.1 {
            raise()
        }
        None
    }
}

impl From<Error> for Sourceless {
    fn from(error: Error) -> Sourceless {
        panic!("nothing else fails here: {error}")
    }
}

/// A `source` that panics the first time, the second time or later leaves
/// nothing open.
pub async fn outcome_8_a_source_that_panics_is_no_source(lab: Lab) {
    for calls in 0..4 {
        let broken = move || Err::<(), _>(Sourceless(AtomicUsize::new(0), calls));
        let task = spawn_supervised(async move { broken() }).await;
        assert_eq!(task.to_string(), "sourceless");
        let failed = scope(async |s| {
            for _ in 0..2 {
                let body = async move { broken() };
                s.task("broken").spawn_atomic(body).into_job();
            }
            park().await?;
            Ok(())
        });
        let failed = failed.await.expect_err("both failed");
        assert_eq!(failed.suppressed_count(), 1, "{failed:?}");
        let failed = scope(async |_| Ok(broken().map_err(|e| Error::from_boxed(Box::new(e)))?));
        assert_eq!(
            failed.await.expect_err("it failed").kind(),
            ErrorKind::Failed
        );
        let failed = scope_as(async |_| broken()).await;
        assert_eq!(failed.expect_err("it failed").1, calls);
        let failed = all((async move { broken() }, async { Ok::<_, Error>(()) }));
        assert_eq!(
            failed.await.expect_err("one failed").to_string(),
            "sourceless"
        );
    }
    drop(lab);
}

/// The failure of a task below a supervisor.
async fn spawn_supervised<T: Send + 'static, E>(
    body: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Error
where
    E: std::error::Error + Send + Sync + 'static,
{
    let failed = Scope::build().supervisor().run(async |s| {
        let outcome = s.spawn(body).outcome().await?;
        Ok(outcome.error().expect("it failed").clone())
    });
    failed.await.expect("a supervisor")
}

/// Asks the job for all that takes its lock, when it is dropped.
struct Asks(Arc<Mutex<Option<Job>>>, Tally);

impl Drop for Asks {
    fn drop(&mut self) {
        drop(self.1.guard());
        let job = self.0.lock().unwrap().clone();
        if let Some(job) = job {
            assert!(!job.name().is_empty());
            let _ = (job.parent(), job.reason(), job.interrupts());
            job.cancel("by a destructor");
        }
    }
}

impl fmt::Debug for Asks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Asks")
    }
}

impl fmt::Display for Asks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("asks")
    }
}

impl std::error::Error for Asks {}

/// Work that comes too late is dropped outside the lock of its job.
pub async fn io_2_work_that_is_refused_is_dropped_outside_the_lock(lab: Lab) {
    let place = Arc::new(Mutex::new(None));
    let out = place.clone();
    let task = spawn(async move {
        let here = Scope::current().expect("a job");
        let lease = here.lease();
        *out.lock().unwrap() = Some((here, lease));
    });
    lab.settle().await;
    let (here, lease) = place.lock().unwrap().take().expect("it ran");
    assert_eq!(task.job().state(), JobState::Completing);
    let tally = Tally::new();
    let asks = Asks(Arc::new(Mutex::new(Some(task.job()))), tally.clone());
    let work = Work::of_task(&here, move || drop(asks));
    assert!(work.is_none());
    assert_eq!(tally.drops(), 1);
    drop((lease, here));
    let _ = task.outcome().await;
}

/// A failure that takes another's place, or finds no room, lets go of it outside
/// the lock.
pub async fn outcome_2_a_failure_that_is_replaced_is_dropped_outside_the_lock(lab: Lab) {
    let tally = Tally::new();
    let place = Arc::new(Mutex::new(None));
    let asks = |tally: &Tally| Asks(place.clone(), tally.clone());
    let count = 40;
    let bodies: Vec<_> = (0..count).map(|_| asks(&tally)).collect();
    let failed = scope(async |s| {
        *place.lock().unwrap() = current_job();
        for body in bodies {
            s.task("asks")
                .spawn_atomic(async move { Err::<(), _>(body) })
                .into_job();
        }
        park().await?;
        Ok(())
    });
    let failed = failed.await.expect_err("all failed");
    assert_eq!(failed.suppressed_count(), count - 1);
    drop(failed);
    lab.settle().await;
    assert_eq!(tally.drops(), count);
}

/// outcome-2: the author adds context to the first of two failures; the second
/// stands beside the context.
pub async fn outcome_2_what_stood_beside_a_replaced_failure_is_kept(lab: Lab) {
    #[derive(Debug)]
    struct Context(Error);
    impl fmt::Display for Context {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "in context: {}", self.0)
        }
    }
    impl std::error::Error for Context {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }
    let failed = scope(async |s| {
        let inner = s.spawn(async {
            scope(async |s| {
                s.launch(async { Err::<(), _>(Error::msg("first")) });
                let second = async {
                    let _ = park().await;
                    Err::<(), _>(Error::msg("second"))
                };
                s.task("second").spawn_atomic(second).into_job();
                park().await?;
                Ok(())
            })
            .await
        });
        let error = shield(inner).await.expect_err("it failed");
        assert_eq!(error.suppressed().len(), 1, "{error:?}");
        Err::<(), _>(Error::from_boxed(Box::new(Context(error))))
    })
    .await
    .expect_err("it failed");
    assert!(
        failed.to_string().starts_with("in context: first"),
        "{failed}"
    );
    let beside: Vec<_> = failed.suppressed().iter().map(Error::to_string).collect();
    assert_eq!(beside, ["second"], "{failed:?}");
    drop(lab);
}

/// A waker that panics when it is woken, or when it goes.
struct Loud {
    when_woken: bool,
}

impl Wake for Loud {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.when_woken {
            raise()
        }
    }
}

impl Drop for Loud {
    fn drop(&mut self) {
        if !self.when_woken {
            raise()
        }
    }
}

/// Polls `future` once under a waker of its own that panics.
fn poll_loudly<F: Future + Unpin>(future: &mut F, when_woken: bool) -> bool {
    let waker = std::mem::ManuallyDrop::new(Waker::from(Arc::new(Loud { when_woken })));
    let polled = std::pin::Pin::new(future).poll(&mut Context::from_waker(&waker));
    let waker = std::mem::ManuallyDrop::into_inner(waker);
    let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(waker)));
    drop(dropped);
    polled.is_ready()
}

/// A timer, a join, a task, a scope, a blocking call and a cancel wake wakers
/// that panic, or let go of them: whoever does so goes on, and so do the others.
pub async fn cancel_1_a_waker_that_panics_stops_nobody(lab: Lab) {
    for when_woken in [true, false] {
        let gate = Gate::new();
        let (opened, called) = (gate.clone(), gate.clone());
        let task = spawn(async move { opened.wait().await });
        let mut second = spawn(async move { called.wait().await });
        let mut naps = [sleep(MS), sleep(2 * MS)];
        let mut join = task.join();
        let mut call = blocking(|_| ());
        let mut inner = Box::pin(scope(async |s| {
            s.launch(async { sleep(3 * MS).await });
            Ok(())
        }));
        for nap in &mut naps {
            assert!(!poll_loudly(nap, when_woken));
            // Another waker takes the place of the first.
            assert!(!poll_loudly(nap, when_woken));
        }
        for _ in 0..2 {
            assert!(!poll_loudly(&mut join, when_woken));
            assert!(!poll_loudly(&mut second, when_woken));
            assert!(!poll_loudly(&mut inner, when_woken));
        }
        let called = poll_loudly(&mut call, when_woken);
        gate.open();
        sleep(10 * MS).await.expect("time goes on");
        for nap in naps {
            nap.await.expect("its time has come");
        }
        assert!(join.await.expect("it has ended").is_completed());
        second.await.expect("it has ended");
        task.await.expect("it has ended");
        // A thread may be quicker than the first look at it.
        if !called {
            call.await.expect("it was made");
        }
        inner.await.expect("it has ended");
        // A cancel wakes what waits under a foreign waker; or it is let go of.
        let task = spawn(async move {
            let mut naps = [sleep(1000 * MS), sleep(1000 * MS)];
            for nap in &mut naps {
                poll_loudly(nap, when_woken);
            }
            park().await?;
            Ok::<_, Error>(())
        });
        lab.settle().await;
        task.cancel("enough");
        assert!(task.outcome().await.unwrap().is_cancelled());
        sleep(MS).await.expect("time goes on");
        lab.settle().await;
    }
}

/// Hooks that panic, and hooks whose captures panic when they go unused.
pub async fn cancel_8_a_hook_that_goes_off_harms_nobody(lab: Lab) {
    let tally = Tally::new();
    let bombs: Vec<_> = (0..4).map(|_| Bomb(tally.clone())).collect();
    let job = launch(async move {
        for bomb in bombs {
            on_cancel(move |_| drop(bomb)).keep();
        }
        checkpoint().await
    });
    assert!(matches!(job.join().await.unwrap(), Outcome::Completed(())));
    lab.settle().await;
    assert_eq!(tally.drops(), 4);
}

/// The value of a task-local goes off with its scope, and with one that is
/// dropped half-way.
pub async fn handle_10_a_local_whose_destructor_panics_harms_nobody(lab: Lab) {
    static LOCAL: Local<Bomb> = Local::new();
    let tally = Tally::new();
    LOCAL
        .scope(Bomb(tally.clone()), async { spawn(async {}).await })
        .await
        .expect("it has completed");
    assert_eq!(tally.drops(), 1);
    let mut half = Box::pin(LOCAL.scope(Bomb(tally.clone()), park()));
    std::future::poll_fn(|cx| {
        assert!(half.as_mut().poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
    drop(half);
    // One that was never opened.
    drop(LOCAL.scope(Bomb(tally.clone()), park()));
    lab.settle().await;
    assert_eq!(tally.drops(), 3);
}

/// The value of a call that is not taken goes off wherever it is dropped. On the
/// thread of a pool: `io_5_hostile_calls_cost_no_thread` in `tests/hostile.rs`.
pub async fn io_5_a_value_of_a_call_that_nobody_takes_harms_nobody(lab: Lab) {
    let tally = Tally::new();
    for abandon in [false, true] {
        let bomb = Bomb(tally.clone());
        let call = blocking(move |_| bomb);
        let mut call = Box::pin(if abandon { call.abandon() } else { call });
        is_pending(&mut call).await;
        lab.settle().await;
        drop(call);
    }
    lab.settle().await;
    assert_eq!(tally.drops(), 2);
    // One that may be called off, and then goes with what it was to work on.
    let bomb = Bomb(tally.clone());
    let mut call = Box::pin(blocking(move |_| bomb));
    is_pending(&mut call).await;
    drop(call);
    lab.settle().await;
}

/// What a factory has captured goes off when the timer is over: it fails neither the
/// scope of the timer nor a run, and no job hears of it.
pub async fn host_2_a_factory_whose_captures_panic_harms_nobody(lab: Lab) {
    let tally = Tally::new();
    let bomb = || Bomb(tally.clone());
    let (ticks, beat, never, main) = (Arc::new(AtomicUsize::new(0)), bomb(), bomb(), bomb());
    let made = scope(async |s| {
        let seen = ticks.clone();
        // Cancelled with its scope, between two runs.
        s.interval(MS, move || {
            let _held = &beat;
            seen.fetch_add(1, SeqCst);
            async {}
        })?
        .keep();
        // Given up by its token, before its first run.
        let token = s.delay(Duration::MAX, move || {
            drop(never);
            async {}
        });
        sleep(3 * MS).await?;
        drop(token);
        lab.settle().await;
        s.timer("main")
            .on(Main)
            .interval(MS, move || {
                let _held = &main;
                async {}
            })
            .map(kinfolk_core::TimerToken::keep)?;
        sleep(3 * MS).await?;
        Ok(7)
    });
    assert_eq!(made.await.expect("no failure"), 7);
    assert!(ticks.load(SeqCst) >= 3);
    // One that is refused, and one of the root.
    let ended: Scope = scope(async |s| Ok(s)).await.unwrap();
    let (late, of_root) = (bomb(), bomb());
    drop(ended.interval(MS, move || {
        let _held = &late;
        async {}
    }));
    let token = lab.root().interval(MS, move || {
        let _held = &of_root;
        async {}
    });
    sleep(2 * MS).await.unwrap();
    drop(token);
    lab.settle().await;
    assert_eq!(tally.drops(), 5);
    let mut heard = lab.take_failures();
    // Where there is no main lane, the timer of that lane says so.
    heard.retain(|error| !error.to_string().contains("no main lane"));
    assert!(heard.is_empty(), "nobody hears of it: {heard:?}");
}

/// An iterator that goes off when it is dropped.
struct Volatile(usize, #[expect(dead_code, reason = "dropped with it")] Bomb);

impl Iterator for Volatile {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.0 = self.0.checked_sub(1)?;
        Some(self.0)
    }
}

/// Items and closure of `for_each_concurrent` both go off: one by one. Two
/// destructors that panic in one unwinding would abort the program.
pub async fn handle_7_items_and_body_of_a_loop_may_both_panic(lab: Lab) {
    let tally = Tally::new();
    let bomb = || Bomb(tally.clone());
    let (items, held) = (Volatile(3, bomb()), bomb());
    let run = for_each_concurrent(items, 2, move |_| {
        let _held = &held;
        async {}
    });
    run.await.expect("all three");
    // Its time is up, and it is told.
    let (items, held) = (Volatile(3, bomb()), bomb());
    let run = for_each_concurrent(items, 2, move |_| {
        let _held = &held;
        sleep(Duration::MAX)
    });
    let late = timeout(MS, run).await.expect_err("nothing else ends it");
    assert_eq!(late.kind(), ErrorKind::TimedOut);
    // Given up half-way.
    let (items, held) = (Volatile(3, bomb()), bomb());
    let mut run = Box::pin(for_each_concurrent(items, 2, move |_| {
        let _held = &held;
        sleep(Duration::MAX)
    }));
    assert!(is_pending(&mut run).await);
    drop(run);
    lab.settle().await;
    assert_eq!(tally.drops(), 6);
}

/// What a body may return, but for the panic when it is asked what it is.
struct Undecided;

impl IntoOutcome for Undecided {
    type Value = u8;

    fn into_result(self) -> Result<u8, Error> {
        raise()
    }
}

/// An `into_result` that panics is the panic of the body which returned it.
pub async fn outcome_1_an_outcome_that_panics_fails_its_body(lab: Lab) {
    let panicked = |made: Result<u8, Error>| {
        assert_eq!(made.expect_err("it panicked").kind(), ErrorKind::Panicked);
    };
    let task = Scope::build().supervisor().run(async |s| {
        let outcome = s.spawn(async { Undecided }).outcome().await?;
        Ok(outcome.error().expect("it panicked").clone())
    });
    panicked(Err(task.await.expect("a supervisor")));
    panicked(shield(async { Undecided }).await);
    panicked(timeout(MS, async { Undecided }).await);
    panicked(race([async { Undecided }]).await);
    panicked(
        all((async { Undecided }, async { 7 }))
            .await
            .map(|(a, _)| a),
    );
    let local = local_scope(async |s| s.spawn(async { Undecided }).await);
    panicked(local.await);
    let job = detach(async { Undecided });
    assert!(job.join().await.unwrap().is_failed());
    assert_eq!(lab.take_failures().len(), 1);
}

/// Polls it once. What is there already, because a thread was quick, is dropped.
async fn is_pending<F: Future>(future: &mut std::pin::Pin<Box<F>>) -> bool {
    std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Pending => Poll::Ready(true),
        Poll::Ready(output) => {
            set_off(output);
            Poll::Ready(false)
        }
    })
    .await
}
