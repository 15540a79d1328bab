//! Rules of cancellation: who is marked, who is woken, where a body is told,
//! and what becomes of those who cannot hear.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use kinfolk_core::{
    Cancelled, Error, ErrorKind, Job, JobId, JobKind, JobState, OrCancel, Patience, ReasonKind,
    Scope, Spawner, cancel_current, checkpoint, cleanup, current_job, ignore_cancellation,
    is_cancelled, launch, on_cancel, on_cancel_or_end, park, scope, shield, shield_for, sleep,
    spawn, timeout, yield_now,
};

use kinfolk_testkit::{Gate, Lab, Log, Tally};

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Where a task leaves something for another.
type Slot<T> = Arc<Mutex<Option<T>>>;

/// A named child of the current job, to be spawned.
fn named(name: &'static str) -> Spawner {
    Scope::current().expect("inside a job").task(name)
}

/// A body that waits in a point.
async fn parked() -> Result<(), Error> {
    park().await?;
    Ok(())
}

/// A body that waits in a foreign await, then reaches a point.
async fn deaf(gate: Gate) -> Result<(), Error> {
    gate.wait().await;
    checkpoint().await?;
    Ok(())
}

fn unaware(unaware: Duration) -> Patience {
    Patience {
        unaware,
        ..Patience::default()
    }
}

fn state(lab: &Lab, name: &str) -> JobState {
    let tree = lab.snapshot();
    tree.find(name)
        .unwrap_or_else(|| panic!("no {name} in\n{tree}"))
        .state
}

/// The waker of a hand-written combinator: it counts its rings.
#[derive(Default)]
struct Bell {
    rings: AtomicUsize,
    rung: AtomicBool,
    outer: Mutex<Option<Waker>>,
}

impl Bell {
    fn rings(&self) -> usize {
        self.rings.load(SeqCst)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rings.fetch_add(1, SeqCst);
        self.rung.store(true, SeqCst);
        let outer = self
            .outer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(outer) = outer {
            outer.wake();
        }
    }
}

/// A hand-written combinator: polls its future under a waker of its own, and
/// only when that waker was used.
struct Relay<F> {
    inner: Pin<Box<F>>,
    bell: Arc<Bell>,
    begun: bool,
}

fn relay<F: Future>(bell: &Arc<Bell>, inner: F) -> Relay<F> {
    Relay {
        inner: Box::pin(inner),
        bell: bell.clone(),
        begun: false,
    }
}

impl<F: Future> Future for Relay<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        *self
            .bell
            .outer
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
        if self.begun && !self.bell.rung.swap(false, SeqCst) {
            return Poll::Pending;
        }
        self.begun = true;
        let waker = Waker::from(self.bell.clone());
        self.inner.as_mut().poll(&mut Context::from_waker(&waker))
    }
}

/// Says, when dropped, under which job that happened.
struct DropSays(Slot<JobId>);

impl Drop for DropSays {
    fn drop(&mut self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = current_job().map(|job| job.id());
    }
}

fn read<T: Clone>(slot: &Mutex<Option<T>>) -> Option<T> {
    slot.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Polls once, under the waker of the current task.
async fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx))).await
}

// --- cancel-1 ---

/// cancel-1: any number of times; true exactly for the call that moved the job.
/// Also: K8.
pub async fn cancel_1_true_exactly_for_the_call_that_moved_it(lab: Lab) {
    let task = spawn(parked());
    let job = task.job();
    lab.settle().await;
    let before = lab.counters().cancellations_requested;
    assert!(job.cancel("first"));
    assert!(!job.cancel("second"));
    assert!(!task.cancel("third"));
    assert_eq!(lab.counters().cancellations_requested, before + 1);
    let outcome = task.outcome().await.unwrap();
    assert_eq!(outcome.reason().unwrap().text(), Some("first"));
    assert!(!job.cancel("after the end"));
    assert_eq!(lab.counters().cancellations_requested, before + 1);
}

/// cancel-1: of cancels from four threads exactly one moves the job, and no
/// body is polled on any of them.
/// Also: M2, T25.
pub async fn cancel_1_any_thread_may_cancel(lab: Lab) {
    let threads = Arc::new(Mutex::new(Vec::new()));
    let seen = threads.clone();
    let tally = Tally::new();
    let task = spawn(tally.count(std::future::poll_fn({
        let mut inner = Box::pin(parked());
        move |cx| {
            seen.lock().unwrap().push(std::thread::current().id());
            inner.as_mut().poll(cx)
        }
    })));
    lab.settle().await;
    let job = task.job();
    let (polls, drops) = (tally.polls(), tally.drops());
    let cancellers: Vec<_> = (0..4)
        .map(|_| {
            let job = job.clone();
            std::thread::spawn(move || (std::thread::current().id(), job.cancel("from outside")))
        })
        .collect();
    let answers: Vec<_> = cancellers.into_iter().map(|t| t.join().unwrap()).collect();
    assert_eq!(answers.iter().filter(|(_, moved)| *moved).count(), 1);
    assert!(job.cancel_requested());
    assert_eq!((tally.polls(), tally.drops()), (polls, drops));
    assert!(task.outcome().await.unwrap().is_cancelled());
    for (thread, _) in answers {
        assert!(!threads.lock().unwrap().contains(&thread));
    }
}

/// cancel-1: when it has returned every descendant is marked, except behind a
/// shield or guard, and services.
/// Also: K10.
pub async fn cancel_1_every_descendant_is_marked_when_it_returns(lab: Lab) {
    let gate = Gate::new();
    let held = gate.clone();
    let top = named("top").spawn(async move {
        named("child").launch(parked());
        named("service").spawn_service(parked()).into_job();
        let behind = held.clone();
        named("shielding").launch(shield(async move {
            named("shielded").launch(deaf(behind));
            Ok::<_, Error>(())
        }));
        named("guarding").launch(async move {
            let _guard = ignore_cancellation().await?;
            named("guarded").launch(parked());
            held.wait().await;
            Ok::<_, Error>(())
        });
        Scope::named("scope")
            .run(async |s| {
                s.task("grandchild").launch(parked());
                Scope::named("inner").run_future(parked()).await
            })
            .await
    });
    lab.settle().await;
    assert!(top.cancel("all"));
    for name in [
        "top",
        "child",
        "shielding",
        "guarding",
        "scope",
        "inner",
        "grandchild",
    ] {
        assert_eq!(state(&lab, name), JobState::Cancelling, "{name}");
    }
    for name in ["shielded", "guarded", "service"] {
        assert_eq!(state(&lab, name), JobState::Active, "{name}");
    }
    gate.open();
    assert!(top.outcome().await.unwrap().is_cancelled());
}

/// cancel-1: each affected job is woken once, its scopes included, and a
/// second cancel wakes no task.
pub async fn cancel_1_each_job_is_woken_at_most_once(lab: Lab) {
    let gate = Gate::new();
    let inside = gate.clone();
    let tally = Tally::new();
    let task = spawn(tally.count(async move {
        let told = scope(async |_| scope(async |_| parked().await).await).await;
        inside.wait().await;
        told
    }));
    lab.settle().await;
    assert_eq!(tally.polls(), 1);
    assert!(task.cancel("once"));
    assert!(!task.cancel("twice"));
    lab.settle().await;
    assert_eq!(tally.polls(), 2);
    assert!(!task.cancel("thrice"));
    lab.settle().await;
    assert_eq!(tally.polls(), 2);
    gate.open();
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(tally.polls(), 3);
}

/// cancel-1: plus once per leaf registered under a foreign waker. A scope
/// polled under one is a job and a leaf.
pub async fn cancel_1_each_foreign_leaf_is_woken_once(lab: Lab) {
    let gate = Gate::new();
    let inside = gate.clone();
    let bells: [Arc<Bell>; 3] = Default::default();
    let leaves = bells.clone();
    let task = spawn(async move {
        let [a, b, c] = &leaves;
        let told = futures_util::join!(
            relay(a, park()),
            relay(b, sleep(HOUR)),
            relay(c, scope(async |_| parked().await))
        );
        inside.wait().await;
        assert!(told.0.is_err() && told.1.is_err() && told.2.is_err());
        checkpoint().await?;
        Ok::<_, Error>(())
    });
    lab.settle().await;
    let rings = || bells.each_ref().map(|bell| bell.rings());
    assert_eq!(rings(), [0, 0, 0]);
    assert!(task.cancel("once"));
    let [leaf, timer, inner] = rings();
    assert_eq!((leaf, timer), (1, 1));
    assert!((1..=2).contains(&inner), "{inner}");
    assert!(!task.cancel("twice"));
    assert_eq!(rings(), [1, 1, inner]);
    lab.settle().await;
    gate.open();
    assert!(task.outcome().await.unwrap().is_cancelled());
}

/// cancel-1: no body is polled, resumed or dropped inside the call, whatever
/// it was doing.
pub async fn cancel_1_nothing_runs_inside_the_call(lab: Lab) {
    let gate = Gate::new();
    let tally = Tally::new();
    let waits = gate.clone();
    let inner = tally.clone();
    let top = spawn(tally.count(async move {
        launch(inner.count(parked()));
        named("deaf")
            .patience(unaware(Duration::ZERO))
            .launch(inner.count(deaf(waits)));
        parked().await
    }));
    lab.settle().await;
    let fresh = spawn(tally.count(parked()));
    assert!(fresh.cancel("before its start"));
    assert!(top.cancel("while it waits"));
    assert_eq!((tally.polls(), tally.drops()), (3, 0));
    assert!(top.outcome().await.unwrap().is_cancelled());
    assert!(fresh.outcome().await.unwrap().is_cancelled());
    assert_eq!(tally.drops(), 4);
}

/// cancel-1: a hook that panics does not stop the walk.
pub async fn cancel_1_a_hook_that_panics_does_not_stop_the_walk(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let task = spawn(async move {
        let told = words.clone();
        on_cancel(move |_| told.say("first")).keep();
        on_cancel(|_| panic!("a hook's own")).keep();
        let told = words.clone();
        on_cancel(move |_| told.say("third")).keep();
        named("child").launch(async move {
            on_cancel(move |_| words.say("child")).keep();
            parked().await
        });
        parked().await
    });
    lab.settle().await;
    let child = lab.snapshot().find("child").unwrap().id;
    assert!(task.cancel("all the same"));
    let mut said: Vec<_> = log.text().split(' ').map(str::to_string).collect();
    said.sort();
    assert_eq!(said, ["child", "first", "third"]);
    assert_eq!(state(&lab, "child"), JobState::Cancelling);
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert!(!lab.snapshot().nodes().iter().any(|node| node.id == child));
}

/// A waker that panics.
struct Broken;

impl Wake for Broken {
    fn wake(self: Arc<Self>) {
        panic!("a waker's own");
    }
}

/// cancel-1: a waker that panics does not stop the walk.
pub async fn cancel_1_a_waker_that_panics_does_not_stop_the_walk(lab: Lab) {
    let task = spawn(async {
        let broken = Waker::from(Arc::new(Broken));
        let mut leaf = Box::pin(park());
        assert!(
            leaf.as_mut()
                .poll(&mut Context::from_waker(&broken))
                .is_pending()
        );
        named("child").launch(parked());
        parked().await
    });
    lab.settle().await;
    assert!(task.cancel("all the same"));
    assert_eq!(state(&lab, "child"), JobState::Cancelling);
    assert!(task.outcome().await.unwrap().is_cancelled());
}

/// cancel-1: hooks run outside locks: one may look at the tree, cancel its own
/// job again and its parent, and register another hook.
/// Also: K23.
pub async fn cancel_1_hooks_run_outside_locks(lab: Lab) {
    let log = Log::new();
    scope(async |s| {
        let sibling = s.launch(parked());
        let (words, watching, parent) = (log.clone(), lab.clone(), s.clone());
        let child = s.task("child").launch(async move {
            let own = current_job().unwrap();
            let me = Scope::current().unwrap();
            on_cancel(move |_| {
                words.say(format!("{:?}", state(&watching, "child")));
                assert!(!own.cancel("again"));
                assert!(parent.cancel("from a hook"));
                words.say(format!("{:?}", sibling.state()));
                me.on_cancel(move |_| words.say("late")).keep();
            })
            .keep();
            parked().await
        });
        lab.settle().await;
        assert!(child.cancel("first"));
        assert_eq!(log.text(), "Cancelling Cancelling late");
        assert!(s.cancel_requested());
        Ok(())
    })
    .await
    .unwrap();
}

/// K21: a thousand siblings are cancelled with one wake each, all end
/// Cancelled, and nothing is left of them.
/// Also: cancel-1.
pub async fn src_k21_a_thousand_siblings(lab: Lab) {
    let tally = Tally::new();
    let living = lab.counters().living();
    scope(async |s| {
        let jobs: Vec<Job> = (0..1000).map(|_| s.launch(tally.count(parked()))).collect();
        lab.settle().await;
        assert_eq!(tally.polls(), 1000);
        assert!(s.cancel("all"));
        assert!(jobs.iter().all(|job| job.state() == JobState::Cancelling));
        lab.settle().await;
        assert_eq!((tally.polls(), tally.drops()), (2000, 1000));
        assert!(jobs.iter().all(|job| job.state() == JobState::Cancelled));
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(lab.counters().living(), living);
}

/// T2: each node's callback runs once, however often its tree is cancelled.
pub async fn src_t02_each_callback_runs_once(lab: Lab) {
    let fired = Arc::new(AtomicUsize::new(0));
    let count = fired.clone();
    let top = spawn(async move {
        for _ in 0..5 {
            let count = count.clone();
            launch(async move {
                for _ in 0..4 {
                    let count = count.clone();
                    on_cancel(move |_| {
                        count.fetch_add(1, SeqCst);
                    })
                    .keep();
                }
                parked().await
            });
        }
        parked().await
    });
    lab.settle().await;
    assert_eq!(fired.load(SeqCst), 0);
    assert!(top.cancel("once"));
    assert_eq!(fired.load(SeqCst), 20);
    assert!(!top.cancel("twice"));
    assert!(top.outcome().await.unwrap().is_cancelled());
    assert_eq!(fired.load(SeqCst), 20);
}

/// K18: a cancel before the children start: none is ever polled, all end
/// Cancelled, and so does the parent.
pub async fn src_k18_children_not_yet_started_are_never_polled(_lab: Lab) {
    let tally = Tally::new();
    let inner = tally.clone();
    let jobs = Arc::new(Mutex::new(Vec::new()));
    let list = jobs.clone();
    let parent = spawn(async move {
        for _ in 0..3 {
            list.lock().unwrap().push(launch(inner.count(parked())));
        }
        assert!(current_job().unwrap().cancel("too early"));
        parked().await
    });
    assert!(parent.outcome().await.unwrap().is_cancelled());
    assert_eq!((tally.polls(), tally.drops()), (0, 3));
    for job in jobs.lock().unwrap().iter() {
        assert_eq!(job.state(), JobState::Cancelled);
    }
}

// --- cancel-2 ---

/// cancel-2: not started: never polled. Running: told at its next point.
/// Waiting in a point: woken and told. Waiting in a non-point: told at the
/// next point it reaches.
/// Also: M3, M4, M5, M6.
pub async fn cancel_2_what_a_job_does_decides_where_it_is_told(lab: Lab) {
    let log = Log::new();
    let gate = Gate::new();

    let tally = Tally::new();
    let fresh = spawn(tally.count(parked()));
    assert!(fresh.cancel("not started"));
    assert!(fresh.outcome().await.unwrap().is_cancelled());
    assert_eq!((tally.polls(), tally.drops()), (0, 1));

    let words = log.clone();
    let running = spawn(async move {
        assert!(current_job().unwrap().cancel("running"));
        words.say("undisturbed");
        let told = checkpoint().await;
        words.say(told.as_ref().map_or("told", |()| "missed"));
        told
    });
    assert!(running.outcome().await.unwrap().is_cancelled());
    assert_eq!(log.text(), "undisturbed told");

    let waiting = spawn(sleep(HOUR));
    let words = log.clone();
    let (held, tally) = (gate.clone(), Tally::new());
    let deaf = spawn(tally.count(async move {
        held.wait().await;
        words.say("opened");
        checkpoint().await
    }));
    lab.settle().await;
    let before = lab.elapsed();
    assert!(waiting.cancel("in a point"));
    assert!(waiting.outcome().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed(), before);

    assert!(deaf.cancel("in a non-point"));
    lab.settle().await;
    assert_eq!(log.text(), "undisturbed told");
    assert_eq!(deaf.job().state(), JobState::Cancelling);
    gate.open();
    assert!(deaf.outcome().await.unwrap().is_cancelled());
    assert_eq!(log.text(), "undisturbed told opened");
}

/// K11: a body that reaches no point goes on undisturbed, for as long as it
/// takes.
pub async fn src_k11_a_body_without_points_only_delays(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let task = spawn(async move {
        let mut left = 50;
        std::future::poll_fn(|cx| {
            if left == 0 {
                return Poll::Ready(());
            }
            left -= 1;
            if left == 25 {
                cancel_current("half-way");
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
        words.say("spun");
        checkpoint().await?;
        words.say("missed");
        Ok::<_, Error>(())
    });
    let before = lab.elapsed();
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(log.text(), "spun");
    assert_eq!(lab.elapsed(), before);
    assert_eq!(lab.counters().jobs_force_dropped, 0);
}

// --- cancel-3 ---

/// cancel-3: every later point fails at entry, even if what it waits for is
/// ready; no timer is set, nobody registers, nothing inside is polled.
/// Also: K9.
pub async fn cancel_3_every_later_point_fails_at_entry(lab: Lab) {
    let ended = spawn(async {}).into_job();
    let living = spawn(parked());
    lab.settle().await;
    let target = living.job();
    let watching = lab.clone();
    let tally = Tally::new();
    let inner = tally.clone();
    let task = spawn(async move {
        assert!(cancel_current("now"));
        let before = watching.counters();
        for _ in 0..3 {
            checkpoint().await.unwrap_err();
            yield_now().await.unwrap_err();
            sleep(Duration::ZERO).await.unwrap_err();
            sleep(HOUR).await.unwrap_err();
            ended.join().await.unwrap_err();
            target.join().await.unwrap_err();
            inner.count(async { 1 }).or_cancel().await.unwrap_err();
            ignore_cancellation().await.unwrap_err();
            park().await.unwrap_err();
        }
        let after = watching.counters();
        assert_eq!(after.timers_set, before.timers_set);
        assert_eq!(after.waiters_registered, before.waiters_registered);
        checkpoint().await
    });
    let outcome = task.outcome().await.unwrap();
    assert_eq!(outcome.reason().unwrap().text(), Some("now"));
    assert_eq!((tally.polls(), tally.drops()), (0, 3));
    assert!(living.cancel("done with it"));
    assert!(living.outcome().await.unwrap().is_cancelled());
}

/// cancel-3: a wait that has taken effect returns its effect, and the next
/// point fails.
pub async fn cancel_3_what_has_taken_effect_is_not_lost(lab: Lab) {
    let gate = Gate::new();
    let opened = gate.clone();
    let waiter = spawn(async move {
        let child = spawn(async move {
            opened.wait().await;
            7
        });
        let value = child.await?;
        checkpoint().await.unwrap_err();
        Ok::<_, Error>(value)
    });
    lab.settle().await;
    // The child is ready and its waiter cancelled, in one go.
    gate.open();
    assert!(waiter.cancel("too late for the child"));
    let outcome = waiter.outcome().await.unwrap();
    assert!(outcome.is_cancelled(), "{outcome:?}");
    assert_eq!(outcome.into_value(), Some(7));
}

/// cancel-3: the first Cancelled comes at once; from the second on a point
/// yields once before it fails, whatever point it is.
pub async fn cancel_3_from_the_second_on_a_point_yields_once(lab: Lab) {
    let tally = Tally::new();
    let polls = tally.clone();
    let other = spawn(parked());
    let target = other.job();
    let task = spawn(tally.count(async move {
        assert!(cancel_current("now"));
        checkpoint().await.unwrap_err();
        assert_eq!(polls.polls(), 1);
        checkpoint().await.unwrap_err();
        assert_eq!(polls.polls(), 2);
        checkpoint().await.unwrap_err();
        assert_eq!(polls.polls(), 3);
        yield_now().await.unwrap_err();
        assert_eq!(polls.polls(), 4);
        sleep(HOUR).await.unwrap_err();
        assert_eq!(polls.polls(), 5);
        park().await.unwrap_err();
        assert_eq!(polls.polls(), 6);
        target.join().await.unwrap_err();
        assert_eq!(polls.polls(), 7);
        std::future::pending::<()>().or_cancel().await.unwrap_err();
        assert_eq!(polls.polls(), 8);
        ignore_cancellation().await.unwrap_err();
        assert_eq!(polls.polls(), 9);
    }));
    lab.settle().await;
    assert_eq!(tally.polls(), 9);
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert!(other.cancel("done with it"));
    assert!(other.outcome().await.unwrap().is_cancelled());
}

/// cancel-3: what inner scopes were told does not count.
pub async fn cancel_3_what_inner_scopes_were_told_does_not_count(_lab: Lab) {
    let tally = Tally::new();
    let polls = tally.clone();
    let task = spawn(tally.count(async move {
        assert!(cancel_current("now"));
        for _ in 0..5 {
            let told = scope(async |_| parked().await).await;
            assert_eq!(told.unwrap_err().kind(), ErrorKind::Cancelled);
        }
        assert_eq!(polls.polls(), 1);
        let told = scope(async |_| {
            checkpoint().await.unwrap_err();
            checkpoint().await.unwrap_err();
            parked().await
        })
        .await;
        assert_eq!(told.unwrap_err().kind(), ErrorKind::Cancelled);
        assert_eq!(polls.polls(), 3);
        let told = checkpoint().await;
        assert_eq!(polls.polls(), 3);
        told
    }));
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(tally.polls(), 3);
}

/// cancel-3: a body that swallows every Cancelled starves no other task.
pub async fn cancel_3_a_body_that_swallows_starves_nobody(lab: Lab) {
    let stop = Arc::new(AtomicBool::new(false));
    let seen = stop.clone();
    let begun = Gate::new();
    let begins = begun.clone();
    let task = spawn(async move {
        cancel_current("swallowed");
        begins.open();
        while !seen.load(SeqCst) {
            assert!(checkpoint().await.is_err());
        }
    });
    begun.wait().await;
    let helper = spawn(async move { stop.store(true, SeqCst) });
    helper.await.unwrap();
    let before = lab.elapsed();
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed(), before);
}

// --- cancel-4 ---

/// cancel-4: `cancel_requested` is the mark; `is_cancelled` is what the next
/// point here would say.
pub async fn cancel_4_the_mark_and_what_the_next_point_says(_lab: Lab) {
    let task = spawn(async {
        let job = current_job().unwrap();
        assert!(!job.cancel_requested() && !is_cancelled());
        scope(async |s| {
            assert!(s.cancel("only this"));
            assert!(s.cancel_requested() && is_cancelled());
            assert!(!job.cancel_requested());
            Ok(())
        })
        .await?;
        assert!(!is_cancelled());
        checkpoint().await.unwrap();

        let guard = ignore_cancellation().await?;
        assert!(job.cancel("now"));
        assert!(job.cancel_requested() && !is_cancelled());
        checkpoint().await.unwrap();
        drop(guard);
        assert!(is_cancelled());

        shield(async {
            assert!(job.cancel_requested() && !is_cancelled());
            checkpoint().await.unwrap();
        })
        .await?;
        assert!(is_cancelled());
        checkpoint().await?;
        Ok::<_, Error>(())
    });
    assert!(task.outcome().await.unwrap().is_cancelled());
}

/// cancel-4: leaves inside `FuturesUnordered` are told, one by one.
pub async fn cancel_4_leaves_inside_futures_unordered_are_told(lab: Lab) {
    let task = spawn(async {
        let mut all: FuturesUnordered<Boxed<Result<(), Error>>> = FuturesUnordered::new();
        all.push(Box::pin(parked()));
        all.push(Box::pin(async { Ok(sleep(HOUR).await?) }));
        all.push(Box::pin(scope(async |_| parked().await)));
        all.push(Box::pin(async {
            std::future::pending::<()>().or_cancel().await?;
            Ok(())
        }));
        // One inside another.
        all.push(Box::pin(async {
            let inner: FuturesUnordered<_> = (0..3).map(|_| parked()).collect();
            let told: Vec<_> = inner.collect().await;
            assert_eq!(told.len(), 3);
            told.into_iter().next().unwrap()
        }));
        let mut told = 0;
        while let Some(result) = all.next().await {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::Cancelled);
            told += 1;
        }
        told
    });
    lab.settle().await;
    let before = lab.elapsed();
    assert!(task.cancel("all of them"));
    assert_eq!(task.outcome().await.unwrap().into_value(), Some(5));
    assert_eq!(lab.elapsed(), before);
}

/// cancel-4: child tasks awaited inside `FuturesUnordered` are cancelled and
/// waited for, with a bounded number of turns.
pub async fn cancel_4_tasks_inside_futures_unordered_are_waited_for(lab: Lab) {
    let tally = Tally::new();
    let task = spawn(tally.count(async {
        let all: FuturesUnordered<_> = (1..=3_u32)
            .map(|n| {
                spawn(async move {
                    let _told = park().await;
                    cleanup(sleep(n * SEC)).await?;
                    Ok::<_, Error>(n)
                })
            })
            .collect();
        let values: Vec<_> = all.map(Result::unwrap).collect().await;
        Some(values)
    }));
    lab.settle().await;
    let before = lab.elapsed();
    assert!(task.cancel("slowly"));
    lab.settle().await;
    let polls = tally.polls();
    assert!(polls <= 5, "{polls} turns without a cause");
    let values = task.outcome().await.unwrap().into_value().flatten();
    assert_eq!(values, Some(vec![1, 2, 3]));
    assert_eq!(lab.elapsed() - before, 3 * SEC);
}

/// cancel-4: leaves inside `join!` are told, all of them.
pub async fn cancel_4_leaves_inside_join_are_told(lab: Lab) {
    let task = spawn(async {
        let told = futures_util::join!(park(), sleep(HOUR), parked());
        told.0.unwrap_err();
        told.1.unwrap_err();
        assert_eq!(told.2.unwrap_err().kind(), ErrorKind::Cancelled);
        "joined"
    });
    lab.settle().await;
    let before = lab.elapsed();
    assert!(task.cancel("all of them"));
    assert_eq!(task.outcome().await.unwrap().into_value(), Some("joined"));
    assert_eq!(lab.elapsed(), before);
}

/// cancel-4: a leaf inside `select!` is told, beside one that cannot hear.
pub async fn cancel_4_a_leaf_inside_select_is_told(lab: Lab) {
    use futures_util::FutureExt;
    let gate = Gate::new();
    let held = gate.clone();
    let task = spawn(async move {
        let mut never = held.wait().fuse();
        let mut waits = pin!(sleep(HOUR).fuse());
        futures_util::select! {
            () = never => "opened",
            told = waits => {
                told.unwrap_err();
                "told"
            }
        }
    });
    lab.settle().await;
    let before = lab.elapsed();
    assert!(task.cancel("told"));
    assert_eq!(task.outcome().await.unwrap().into_value(), Some("told"));
    assert_eq!(lab.elapsed(), before);
}

/// cancel-4: a leaf inside a hand-written combinator with its own waker is
/// told.
pub async fn cancel_4_a_leaf_under_a_waker_of_its_own_is_told(lab: Lab) {
    let bell = Arc::new(Bell::default());
    let outer = bell.clone();
    let task = spawn(async move {
        let inner = Arc::new(Bell::default());
        let told = relay(&outer, async { relay(&inner, sleep(HOUR)).await }).await;
        assert_eq!(inner.rings(), 1);
        told
    });
    lab.settle().await;
    assert_eq!(bell.rings(), 0);
    let before = lab.elapsed();
    assert!(task.cancel("told"));
    assert_eq!(bell.rings(), 1);
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed(), before);
}

/// cancel-4: a leaf first polled under its job's waker and then under another
/// is told all the same; so is one that comes back.
pub async fn cancel_4_a_leaf_that_changes_its_waker_is_told(lab: Lab) {
    let bell = Arc::new(Bell::default());
    let outer = bell.clone();
    let there = spawn(async move {
        let mut leaf = Box::pin(park());
        assert!(poll_once(&mut leaf).await.is_pending());
        relay(&outer, leaf).await.map(|_| ())
    });
    let back = spawn(async {
        let unused = Arc::new(Bell::default());
        let mut leaf = Box::pin(park());
        assert!(poll_once(&mut relay(&unused, &mut leaf)).await.is_pending());
        let told = leaf.await;
        assert_eq!(unused.rings(), 0);
        told.map(|_| ())
    });
    lab.settle().await;
    assert!(there.cancel("told"));
    assert!(back.cancel("told"));
    assert_eq!(bell.rings(), 1);
    assert!(there.outcome().await.unwrap().is_cancelled());
    assert!(back.outcome().await.unwrap().is_cancelled());
}

/// cancel-4: the leaves of a scope inside a combinator are told when the scope
/// alone is cancelled, and those beside it are not.
pub async fn cancel_4_a_scope_inside_a_combinator_is_told_alone(lab: Lab) {
    let task = spawn(async {
        let (send, inner) = (Arc::new(Mutex::new(None)), Arc::new(Bell::default()));
        let beside = Arc::new(Bell::default());
        let kept = send.clone();
        let cancels = async {
            sleep(10 * MS).await?;
            let inside: Scope = read(&send).unwrap();
            assert!(inside.cancel("only this"));
            Ok::<_, Error>(())
        };
        let (stopped, slept, _) = futures_util::join!(
            relay(
                &inner,
                scope(async move |s| {
                    *kept.lock().unwrap() = Some(s);
                    parked().await
                })
            ),
            relay(&beside, sleep(30 * MS)),
            cancels
        );
        assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Stopped);
        slept.unwrap();
        assert_eq!((inner.rings(), beside.rings()), (1, 1));
        checkpoint().await
    });
    let before = lab.elapsed();
    task.await.unwrap();
    assert_eq!(lab.elapsed() - before, 30 * MS);
}

// --- cancel-5 ---

/// cancel-5: `checkpoint` does nothing else: it neither yields nor registers.
pub async fn cancel_5_a_checkpoint_does_nothing_else(lab: Lab) {
    let tally = Tally::new();
    let task = spawn(tally.count(async {
        for _ in 0..20 {
            checkpoint().await?;
        }
        Ok::<_, Cancelled>(())
    }));
    let before = lab.counters();
    task.await.unwrap();
    assert_eq!(tally.polls(), 1);
    assert_eq!(lab.counters().timers_set, before.timers_set);
}

/// cancel-5: `or_cancel` makes a point of any future: its value if it comes,
/// and it is dropped when told, without being asked.
pub async fn cancel_5_or_cancel_drops_what_it_waits_for(lab: Lab) {
    assert_eq!(async { 7 }.or_cancel().await.unwrap(), 7);
    let gate = Gate::new();
    let tally = Tally::new();
    let (inner, held) = (tally.clone(), gate.clone());
    let task = spawn(async move {
        let told = inner.count(held.wait()).or_cancel().await;
        assert_eq!((inner.polls(), inner.drops()), (1, 1));
        told
    });
    lab.settle().await;
    let before = lab.elapsed();
    assert_eq!((tally.polls(), tally.drops()), (1, 0));
    assert!(task.cancel("told"));
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed(), before);
    assert_eq!(lab.counters().jobs_force_dropped, 0);
}

/// cancel-5: every point spends the turn's budget: a loop over any of them
/// starves no other task.
pub async fn cancel_5_a_loop_of_points_starves_nobody(lab: Lab) {
    let ended = spawn(async {}).into_job();
    lab.settle().await;
    for which in 0..4 {
        let stop = Arc::new(AtomicBool::new(false));
        let (begun, seen) = (Gate::new(), stop.clone());
        let opens = begun.clone();
        let ended = ended.clone();
        let task = spawn(async move {
            opens.open();
            while !seen.load(SeqCst) {
                match which {
                    0 => checkpoint().await?,
                    1 => sleep(Duration::ZERO).await?,
                    2 => async {}.or_cancel().await?,
                    _ => drop(ended.join().await?),
                }
            }
            Ok::<_, Error>(())
        });
        begun.wait().await;
        stop.store(true, SeqCst);
        task.await.unwrap();
    }
}

/// cancel-5: a told point spends none of the budget.
pub async fn cancel_5_a_told_point_spends_no_budget(_lab: Lab) {
    let tally = Tally::new();
    let task = spawn(tally.count(async {
        assert!(cancel_current("now"));
        for _ in 0..1000 {
            scope(async |_| parked().await).await.unwrap_err();
        }
        checkpoint().await
    }));
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(tally.polls(), 1);
}

// --- cancel-6 ---

/// cancel-6: idle and not told for a second: the future is dropped there, and
/// counted.
pub async fn cancel_6_a_deaf_job_is_dropped_after_a_second(lab: Lab) {
    let tally = Tally::new();
    let task = spawn(tally.count(deaf(Gate::new())));
    lab.settle().await;
    let (before, forced) = (lab.elapsed(), lab.counters().jobs_force_dropped);
    assert!(task.cancel("cannot hear"));
    sleep(999 * MS).await.unwrap();
    assert_eq!(tally.drops(), 0);
    let outcome = task.outcome().await.unwrap();
    assert_eq!(lab.elapsed() - before, SEC);
    assert_eq!(outcome.reason().unwrap().text(), Some("cannot hear"));
    assert_eq!(tally.drops(), 1);
    assert_eq!(lab.counters().jobs_force_dropped, forced + 1);
}

/// cancel-6: `unaware: MAX` is strictly cooperative.
pub async fn cancel_6_patience_without_end(lab: Lab) {
    let gate = Gate::new();
    let here = Scope::current().unwrap();
    let task = here
        .task("patient")
        .patience(unaware(Duration::MAX))
        .spawn(deaf(gate.clone()));
    lab.settle().await;
    assert!(task.cancel("cannot hear"));
    sleep(100 * HOUR).await.unwrap();
    assert_eq!(task.job().state(), JobState::Cancelling);
    gate.open();
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(lab.counters().jobs_force_dropped, 0);
}

/// cancel-6: `unaware: ZERO` is at once, for a job that cannot hear only: one
/// in a point is told and cleans up.
pub async fn cancel_6_no_patience(lab: Lab) {
    let none = unaware(Duration::ZERO);
    let hears = named("hears").patience(none).spawn(async {
        let told = park().await;
        cleanup(sleep(5 * SEC)).await?;
        told?;
        Ok::<_, Error>(())
    });
    let task = named("deaf").patience(none).spawn(deaf(Gate::new()));
    lab.settle().await;
    let before = lab.elapsed();
    assert!(task.cancel("cannot hear"));
    assert!(hears.cancel("hears"));
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed(), before);
    assert_eq!(lab.counters().jobs_force_dropped, 1);
    assert!(hears.outcome().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed() - before, 5 * SEC);
    assert_eq!(lab.counters().jobs_force_dropped, 1);
}

/// cancel-6: a job in a wait of ours is never dropped for being slow, not even
/// with no patience at all.
pub async fn cancel_6_a_wait_of_ours_is_never_dropped(lab: Lab) {
    let slow = || async {
        let _told = park().await;
        cleanup(sleep(20 * SEC)).await
    };
    let none = unaware(Duration::ZERO);
    let log = Log::new();
    let say = |word: &'static str| {
        let log = log.clone();
        move || log.say(word)
    };
    let before = lab.elapsed();
    scope(async |s| {
        let (a, b, c) = (say("shield"), say("child"), say("scope"));
        s.task("shield").patience(none).launch(async move {
            shield(sleep(100 * SEC)).await?;
            a();
            Ok::<_, Error>(())
        });
        s.task("child").patience(none).launch(async move {
            let child = spawn(slow());
            let _late = child.await;
            b();
        });
        s.task("scope").patience(none).launch(async move {
            let waited = scope(async |s| {
                s.launch(slow());
                Ok(())
            })
            .await;
            c();
            waited
        });
        lab.settle().await;
        assert!(s.cancel("slowly"));
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(lab.elapsed() - before, 100 * SEC);
    let text = log.text();
    assert_eq!(text.split(' ').count(), 3, "{text}");
    assert!(text.ends_with("shield"), "{text}");
    assert_eq!(lab.counters().jobs_force_dropped, 0);
}

/// cancel-6: idle though told for `cleanup`: dropped there; `MAX` is never.
pub async fn cancel_6_a_told_job_has_time_to_clean_up(lab: Lab) {
    let gate = Gate::new();
    let body = |gate: Gate| async move {
        let told = park().await;
        gate.wait().await;
        told?;
        Ok::<_, Error>(())
    };
    let usual = spawn(body(gate.clone()));
    let hasty = named("hasty")
        .patience(Patience {
            cleanup: 5 * SEC,
            ..Patience::default()
        })
        .spawn(body(gate.clone()));
    let endless = named("endless")
        .patience(Patience {
            cleanup: Duration::MAX,
            ..Patience::default()
        })
        .spawn(body(gate.clone()));
    lab.settle().await;
    let before = lab.elapsed();
    let forced = || lab.counters().jobs_force_dropped;
    for task in [&usual, &hasty, &endless] {
        assert!(task.cancel("clean up"));
    }
    assert!(hasty.outcome().await.unwrap().is_cancelled());
    assert_eq!((lab.elapsed() - before, forced()), (5 * SEC, 1));
    assert!(usual.outcome().await.unwrap().is_cancelled());
    assert_eq!((lab.elapsed() - before, forced()), (30 * SEC, 2));
    sleep(HOUR).await.unwrap();
    assert_eq!(endless.job().state(), JobState::Cancelling);
    gate.open();
    assert!(endless.outcome().await.unwrap().is_cancelled());
    assert_eq!(forced(), 2);
}

/// cancel-6: an open inline scope is a wait of the body around it: the
/// innermost idle job is dropped first, and its caller goes on with Cancelled.
pub async fn cancel_6_the_innermost_idle_job_is_dropped_first(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let tally = Tally::new();
    let inner = tally.clone();
    let task = spawn(async move {
        let outer = scope(async |_| {
            let cut = Scope::named("inner")
                .run_future(inner.count(deaf(Gate::new())))
                .await;
            assert_eq!(inner.drops(), 1);
            words.say(format!("{:?}", cut.as_ref().unwrap_err().kind()));
            cleanup(sleep(10 * MS)).await?;
            words.say("cleaned");
            cut
        })
        .await;
        words.say(format!("{:?}", outer.as_ref().unwrap_err().kind()));
        outer
    });
    lab.settle().await;
    let before = lab.elapsed();
    assert!(task.cancel("cannot hear"));
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(log.text(), "Cancelled cleaned Cancelled");
    assert_eq!(lab.elapsed() - before, SEC + 10 * MS);
    assert_eq!(lab.counters().jobs_force_dropped, 1);
}

/// cancel-6: told is what a point in its own body said; what its child tasks
/// were told does not count.
pub async fn cancel_6_a_told_child_does_not_make_its_parent_told(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let task = spawn(async move {
        launch(async move {
            let told = park().await;
            words.say("told");
            told.map(|_| ())
        });
        deaf(Gate::new()).await
    });
    lab.settle().await;
    let before = lab.elapsed();
    assert!(task.cancel("only the child hears"));
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(log.text(), "told");
    assert_eq!(lab.elapsed() - before, SEC);
    assert_eq!(lab.counters().jobs_force_dropped, 1);
}

/// cancel-6: a job that gets out of its foreign await in time, and is told,
/// is not dropped.
pub async fn cancel_6_a_job_that_hears_in_time_is_not_dropped(lab: Lab) {
    let gate = Gate::new();
    let held = gate.clone();
    let task = spawn(async move {
        held.wait().await;
        let told = checkpoint().await;
        cleanup(sleep(10 * SEC)).await?;
        told?;
        Ok::<_, Error>(())
    });
    lab.settle().await;
    let before = lab.elapsed();
    assert!(task.cancel("soon"));
    sleep(999 * MS).await.unwrap();
    gate.open();
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed() - before, 10 * SEC + 999 * MS);
    assert_eq!(lab.counters().jobs_force_dropped, 0);
}

/// cancel-6: patience is set per scope and per task, inherited below, and the
/// nearest setting holds.
pub async fn cancel_6_the_nearest_patience_holds(lab: Lab) {
    let before = lab.elapsed();
    let log = Log::new();
    let ends = |name: &'static str| {
        let at = DropAt(name, log.clone(), lab.clone(), before);
        async move {
            let _at = at;
            deaf(Gate::new()).await
        }
    };
    let (a, b, c) = (ends("a"), ends("b"), ends("c"));
    Scope::build()
        .patience(unaware(3 * SEC))
        .run(async |s| {
            s.launch(a);
            s.launch(scope(async |s| {
                s.launch(b);
                Ok(())
            }));
            s.task("longer").patience(unaware(8 * SEC)).launch(c);
            lab.settle().await;
            assert!(s.cancel("each in its time"));
            Ok(())
        })
        .await
        .unwrap();
    assert_eq!(lab.elapsed() - before, 8 * SEC);
    let text = log.text();
    let mut said: Vec<_> = text.split(' ').collect();
    said.sort_unstable();
    assert_eq!(said, ["a@3s", "b@3s", "c@8s"]);
    assert_eq!(lab.counters().jobs_force_dropped, 3);
}

/// Says, when dropped, what time it is.
struct DropAt(&'static str, Log, Lab, Duration);

impl Drop for DropAt {
    fn drop(&mut self) {
        let at = self.2.elapsed() - self.3;
        self.1.say(format!("{}@{at:?}", self.0));
    }
}

/// cancel-6: a shorter patience below the job at which the cancel entered
/// holds for the task that has it.
pub async fn cancel_6_a_shorter_patience_below_holds(lab: Lab) {
    let before = lab.elapsed();
    let log = Log::new();
    let ends = |name: &'static str| {
        let at = DropAt(name, log.clone(), lab.clone(), before);
        async move {
            let _at = at;
            deaf(Gate::new()).await
        }
    };
    let (a, b) = (ends("task"), ends("scope"));
    scope(async |s| {
        s.task("short").patience(unaware(10 * MS)).launch(a);
        s.launch(
            Scope::build()
                .patience(unaware(20 * MS))
                .run(async |_| b.await),
        );
        lab.settle().await;
        assert!(s.cancel("each in its time"));
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(log.text(), "task@10ms scope@20ms");
    assert_eq!(lab.elapsed() - before, 20 * MS);
    assert_eq!(lab.counters().jobs_force_dropped, 2);
}

/// cancel-6: a task that has no patience is dropped at once also when the
/// cancel entered above it, where patience is endless.
pub async fn cancel_6_no_patience_below_endless_patience(lab: Lab) {
    let gate = Gate::new();
    let held = gate.clone();
    let tally = Tally::new();
    let counted = tally.count(deaf(Gate::new()));
    let endless = Patience {
        unaware: Duration::MAX,
        cleanup: Duration::MAX,
    };
    let top = named("top").patience(endless).spawn(async move {
        named("hasty")
            .patience(unaware(Duration::ZERO))
            .launch(counted);
        deaf(held).await
    });
    lab.settle().await;
    assert!(top.cancel("now"));
    lab.settle().await;
    let dropped = (tally.drops(), lab.counters().jobs_force_dropped);
    let state = top.job().state();
    gate.open();
    assert!(top.outcome().await.unwrap().is_cancelled());
    assert_eq!((dropped, state), ((1, 1), JobState::Cancelling));
}

/// cancel-6: endless patience with those who cannot hear does not lift the
/// bound on clean-up: it holds from when they have been told.
pub async fn cancel_6_endless_patience_still_bounds_clean_up(lab: Lab) {
    let gate = Gate::new();
    let held = gate.clone();
    let task = named("patient")
        .patience(unaware(Duration::MAX))
        .spawn(async move {
            held.wait().await;
            let told = checkpoint().await;
            Gate::new().wait().await;
            told
        });
    lab.settle().await;
    assert!(task.cancel("in time"));
    sleep(HOUR).await.unwrap();
    gate.open();
    let before = lab.elapsed();
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed() - before, 30 * SEC);
    assert_eq!(lab.counters().jobs_force_dropped, 1);
}

/// cancel-6: a job that is told late, out of a wait of ours, has the whole
/// time of clean-up from then on.
pub async fn cancel_6_clean_up_counts_from_when_it_is_told(lab: Lab) {
    let task = spawn(async {
        shield(sleep(5 * SEC)).await?;
        let told = checkpoint().await;
        Gate::new().wait().await;
        told?;
        Ok::<_, Error>(())
    });
    lab.settle().await;
    let before = lab.elapsed();
    assert!(task.cancel("while shielded"));
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed() - before, 35 * SEC);
    assert_eq!(lab.counters().jobs_force_dropped, 1);
}

/// cancel-6: a job that was in a wait of ours is idle from when that wait is
/// over, not from the cancel.
pub async fn cancel_6_idle_counts_from_when_the_job_is_idle(lab: Lab) {
    let task = spawn(async {
        shield(sleep(5 * SEC)).await?;
        deaf(Gate::new()).await
    });
    lab.settle().await;
    let before = lab.elapsed();
    assert!(task.cancel("while shielded"));
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed() - before, 6 * SEC);
    assert_eq!(lab.counters().jobs_force_dropped, 1);
}

/// cancel-6: the same for clean-up: a told job is idle from when its last wait
/// of ours is over.
pub async fn cancel_6_clean_up_counts_from_when_the_job_is_idle(lab: Lab) {
    let task = spawn(async {
        let told = park().await;
        cleanup(sleep(20 * SEC)).await?;
        Gate::new().wait().await;
        told?;
        Ok::<_, Error>(())
    });
    lab.settle().await;
    let before = lab.elapsed();
    assert!(task.cancel("clean up"));
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed() - before, 50 * SEC);
    assert_eq!(lab.counters().jobs_force_dropped, 1);
}

/// cancel-6: a guard holds the forced drop back with the cancel; when it goes,
/// patience begins.
pub async fn cancel_6_patience_begins_when_the_guard_goes(lab: Lab) {
    let task = spawn(async {
        let guard = ignore_cancellation().await?;
        sleep(5 * SEC).await?;
        drop(guard);
        deaf(Gate::new()).await
    });
    lab.settle().await;
    let before = lab.elapsed();
    assert!(task.cancel("while guarded"));
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed() - before, 6 * SEC);
    assert_eq!(lab.counters().jobs_force_dropped, 1);
}

/// cancel-6: a shield's budget is spent, and what is inside cannot hear: it is
/// dropped when its patience is spent too.
pub async fn cancel_6_a_deaf_shield_is_dropped_after_its_budget(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let task = spawn(async move {
        let cut = shield_for(2 * SEC, deaf(Gate::new())).await;
        words.say(format!("{:?}", cut.as_ref().unwrap_err().kind()));
        cut
    });
    lab.settle().await;
    let before = lab.elapsed();
    assert!(task.cancel("held back"));
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(log.text(), "Cancelled");
    assert_eq!(lab.elapsed() - before, 3 * SEC);
    assert_eq!(lab.counters().jobs_force_dropped, 1);
}

/// cancel-6: a service that cannot hear is dropped a second after its scope
/// has ended otherwise.
pub async fn cancel_6_a_deaf_service_is_dropped(lab: Lab) {
    let before = lab.elapsed();
    scope(async |s| {
        let _kept = s.spawn_service(deaf(Gate::new())).into_job();
        sleep(5 * SEC).await?;
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(lab.elapsed() - before, 6 * SEC);
    assert_eq!(lab.counters().jobs_force_dropped, 1);
}

/// cancel-6: a scope opened by a told body counts as told from then on: one that
/// cannot hear has the time for clean-up, counted from when it is idle.
pub async fn cancel_6_a_deaf_scope_opened_while_cleaning_up(lab: Lab) {
    let task = spawn(async {
        let told = park().await;
        cleanup(sleep(10 * SEC)).await?;
        let cut = scope(async |_| deaf(Gate::new()).await).await;
        assert_eq!(cut.unwrap_err().kind(), ErrorKind::Cancelled);
        told.map(|_| ()).map_err(Error::from)
    });
    lab.settle().await;
    let before = lab.elapsed();
    assert!(task.cancel("clean up"));
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed() - before, 40 * SEC);
    assert_eq!(lab.counters().jobs_force_dropped, 1);
}

/// cancel-6: a job with a leaf of ours under a foreign waker is not idle,
/// whatever else it waits for.
pub async fn cancel_6_a_leaf_under_a_foreign_waker_is_a_wait_of_ours(lab: Lab) {
    let gate = Gate::new();
    let held = gate.clone();
    let task = spawn(async move {
        let both: FuturesUnordered<Boxed<Result<(), Error>>> = FuturesUnordered::new();
        both.push(Box::pin(shield(sleep(5 * SEC))));
        both.push(Box::pin(deaf(held)));
        let ends: Vec<_> = both.collect().await;
        ends.into_iter().collect::<Result<Vec<()>, Error>>()
    });
    lab.settle().await;
    let before = lab.elapsed();
    assert!(task.cancel("with one that can wait"));
    sleep(4 * SEC).await.unwrap();
    gate.open();
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed() - before, 5 * SEC);
    assert_eq!(lab.counters().jobs_force_dropped, 0);
}

/// cancel-6: it is dropped by its own next turn: its locals go under its own
/// job.
/// Also: cancel-9.
pub async fn cancel_6_a_forced_drop_happens_under_its_own_job(lab: Lab) {
    let slot = Arc::new(Mutex::new(None));
    let says = DropSays(slot.clone());
    let task = spawn(async move {
        let _says = says;
        deaf(Gate::new()).await
    });
    let id = task.id();
    lab.settle().await;
    assert!(task.cancel("cannot hear"));
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(read(&slot), Some(id));
}

// --- cancel-7 ---

/// cancel-7: a timeout over any future takes its time and no longer.
pub async fn cancel_7_a_timeout_over_a_foreign_future_takes_its_time(lab: Lab) {
    let tally = Tally::new();
    let before = lab.elapsed();
    let error = timeout(10 * MS, tally.count(Gate::new().wait()))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(lab.elapsed() - before, 10 * MS);
    assert_eq!((tally.polls(), tally.drops()), (2, 1));
    checkpoint().await.unwrap();
}

/// cancel-7: what a point tells gets the time to return.
pub async fn cancel_7_what_is_told_gets_the_time_to_return(lab: Lab) {
    let log = Log::new();
    let before = lab.elapsed();
    let error = timeout(10 * MS, async {
        let told = park().await;
        assert_eq!(
            told.as_ref().unwrap_err().reason().kind(),
            ReasonKind::Deadline
        );
        cleanup(sleep(50 * MS)).await?;
        log.say("cleaned");
        told?;
        Ok::<_, Error>(())
    })
    .await
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(lab.elapsed() - before, 60 * MS);
    assert_eq!(log.text(), "cleaned");
}

/// cancel-7: it is polled once more when it fires: what is ready then is kept.
pub async fn cancel_7_it_is_polled_once_more(lab: Lab) {
    let before = lab.elapsed();
    let mut polls = 0;
    let answer = timeout(
        10 * MS,
        std::future::poll_fn(|_| {
            polls += 1;
            if polls == 2 {
                Poll::Ready(7)
            } else {
                Poll::Pending
            }
        }),
    )
    .await;
    assert_eq!(answer.unwrap(), 7);
    assert_eq!(polls, 2);
    assert_eq!(lab.elapsed() - before, 10 * MS);
}

/// cancel-7: everything in it has been marked and woken before that poll: a
/// leaf under a foreign waker is told in it.
pub async fn cancel_7_a_leaf_inside_a_combinator_is_told(lab: Lab) {
    let before = lab.elapsed();
    let bell = Arc::new(Bell::default());
    let told = Log::new();
    let error = timeout(10 * MS, async {
        let (a, b) = futures_util::join!(relay(&bell, park()), async {
            let mut all: FuturesUnordered<_> = (0..2).map(|_| sleep(HOUR)).collect();
            while let Some(slept) = all.next().await {
                told.say(slept.map_or("told", |()| "slept"));
            }
        });
        let () = b;
        a.map(|_| ())
    })
    .await
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(bell.rings(), 1);
    assert_eq!(told.text(), "told told");
    assert_eq!(lab.elapsed() - before, 10 * MS);
}

/// cancel-7: a timeout inside a timeout: both have no patience, so the outer
/// one takes its time and no longer.
pub async fn cancel_7_nested_timeouts_over_a_foreign_future(lab: Lab) {
    let log = Log::new();
    let before = lab.elapsed();
    let error = timeout(10 * MS, async {
        let inner = timeout(HOUR, Gate::new().wait()).await;
        log.say(format!("{:?}", inner.as_ref().unwrap_err().kind()));
        inner
    })
    .await
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(log.text(), "Cancelled");
    assert_eq!(lab.elapsed() - before, 10 * MS);
}

/// cancel-7: the same with a plain scope inside: the timeout's patience holds
/// for what is open in it.
pub async fn cancel_7_a_timeout_over_a_scope_that_cannot_hear(lab: Lab) {
    let before = lab.elapsed();
    let error = timeout(10 * MS, scope(async |_| deaf(Gate::new()).await))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(lab.elapsed() - before, 10 * MS);
}

/// cancel-7: told in one branch, deaf in the other: it has been told, so it
/// has the time of `cleanup`.
pub async fn cancel_7_told_and_then_deaf_has_the_time_of_clean_up(lab: Lab) {
    let before = lab.elapsed();
    let error = timeout(10 * MS, async {
        let (told, ()) = futures_util::join!(park(), Gate::new().wait());
        told.map(|_| ())
    })
    .await
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(lab.elapsed() - before, 30 * SEC + 10 * MS);
}

/// cancel-7: a timeout whose task is cancelled does not use its own patience
/// but that of the place: the cancel is not its own.
pub async fn cancel_7_an_enclosing_cancel_is_not_the_timeouts_own(lab: Lab) {
    let task = spawn(async {
        let cut = timeout(HOUR, parked()).await;
        assert_eq!(cut.as_ref().unwrap_err().kind(), ErrorKind::Cancelled);
        cut
    });
    lab.settle().await;
    let before = lab.elapsed();
    assert!(task.cancel("from outside"));
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed(), before);
}

/// cancel-7: a child task in the timeout is told and waited for, also when the
/// body itself cannot hear.
pub async fn cancel_7_children_are_told_and_waited_for(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let before = lab.elapsed();
    let error = timeout(10 * MS, async {
        launch(async move {
            let told = park().await;
            cleanup(sleep(40 * MS)).await?;
            words.say("child");
            told?;
            Ok::<_, Error>(())
        });
        Gate::new().wait().await;
    })
    .await
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(log.text(), "child");
    assert_eq!(lab.elapsed() - before, 50 * MS);
}

// --- cancel-8 ---

/// cancel-8: of cancel, end and disarm exactly one wins.
/// Also: T17.
pub async fn cancel_8_of_cancel_end_and_disarm_exactly_one_wins(lab: Lab) {
    let log = Log::new();
    let hook = |word: &'static str| {
        let log = log.clone();
        on_cancel_or_end(move |reason| {
            log.say(format!("{word}:{}", reason.map_or("end", |_| "cancel")));
        })
    };
    scope(async |s| {
        let cancelled = hook("a");
        assert!(s.cancel("now"));
        assert!(!cancelled.disarm());
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(log.text(), "a:cancel");

    scope(async |s| {
        hook("b").keep();
        s.launch(sleep(10 * MS));
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(log.text(), "a:cancel b:end");

    let tally = Tally::new();
    scope(async |s| {
        let disarmed = hook("c");
        assert!(disarmed.disarm());
        drop(hook("d"));
        let guard = tally.guard();
        let also = on_cancel(move |_| drop(guard));
        assert!(also.disarm());
        assert_eq!(tally.drops(), 1);
        s.cancel("nobody listens");
        Ok(())
    })
    .await
    .unwrap();
    lab.settle().await;
    assert_eq!(log.text(), "a:cancel b:end");
}

/// cancel-8: at a normal end a hook for cancel alone is dropped uncalled, and
/// one for the end runs when the children are gone.
pub async fn cancel_8_end_hooks_run_at_the_end_of_the_job(_lab: Lab) {
    let log = Log::new();
    let (a, b, c) = (log.clone(), log.clone(), log.clone());
    let tally = Tally::new();
    let guard = tally.guard();
    let task = spawn(async move {
        on_cancel_or_end(move |reason| {
            assert!(reason.is_none());
            a.say("end");
        })
        .keep();
        on_cancel(move |_| {
            drop(guard);
            b.say("cancel");
        })
        .keep();
        launch(async move {
            sleep(10 * MS).await?;
            c.say("child");
            Ok::<_, Error>(())
        });
    });
    task.await.unwrap();
    assert_eq!(log.text(), "child end");
    assert_eq!(tally.drops(), 1);
}

/// cancel-8: publishing into a cancelled job fires at once, with its reason;
/// into a guarded one when the guard goes.
/// Also: T15.
pub async fn cancel_8_publishing_into_a_cancelled_job_fires_at_once(_lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let task = spawn(async move {
        let guard = ignore_cancellation().await?;
        assert!(cancel_current("why"));
        let said = words.clone();
        on_cancel(move |reason| said.say(reason.text().unwrap().to_string())).keep();
        assert_eq!(words.text(), "");
        drop(guard);
        assert_eq!(words.text(), "why");
        let said = words.clone();
        let fired = on_cancel(move |reason| said.say(format!("{:?}", reason.kind())));
        assert_eq!(words.text(), "why Asked");
        assert!(!fired.disarm());
        checkpoint().await?;
        Ok::<_, Error>(())
    });
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(log.text(), "why Asked");
}

/// cancel-8: a hook registered in a shield moves to the enclosing job at its
/// exit: it fires then if that is cancelled, later if that is cancelled later.
pub async fn cancel_8_a_hook_made_in_a_shield_moves_at_its_exit(_lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let task = spawn(async move {
        let say = |word: &'static str| {
            let words = words.clone();
            move |_: &_| words.say(word)
        };
        shield(async {
            on_cancel(say("first")).keep();
        })
        .await?;
        let disarmed = shield(async { Some(on_cancel(say("never"))) }).await?;
        assert!(disarmed.unwrap().disarm());
        assert_eq!(words.text(), "");
        let job = current_job().unwrap();
        shield(async {
            on_cancel(say("second")).keep();
            assert!(job.cancel("now"));
            assert_eq!(words.text(), "first");
            checkpoint().await.unwrap();
            assert_eq!(words.text(), "first");
        })
        .await?;
        assert_eq!(words.text(), "first second");
        checkpoint().await?;
        Ok::<_, Error>(())
    });
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(log.text(), "first second");
}

/// cancel-8: cancel hooks run on the canceller's thread, before the call
/// returns, under no job.
pub async fn cancel_8_cancel_hooks_run_on_the_cancellers_thread(lab: Lab) {
    let slot = Arc::new(Mutex::new(None));
    let ran = slot.clone();
    let task = spawn(async move {
        on_cancel(move |_| {
            let here = (std::thread::current().id(), current_job().is_some());
            *ran.lock().unwrap() = Some(here);
        })
        .keep();
        parked().await
    });
    lab.settle().await;
    let job = task.job();
    let there = slot.clone();
    let thread = std::thread::spawn(move || {
        assert!(job.cancel("from a thread"));
        assert_eq!(read(&there), Some((std::thread::current().id(), false)));
    });
    thread.join().unwrap();
    assert!(task.outcome().await.unwrap().is_cancelled());
}

// --- cancel-9 ---

/// cancel-9: a point obeys the job in whose poll it is polled, anew at each
/// poll.
pub async fn cancel_9_a_point_obeys_the_job_that_polls_it(lab: Lab) {
    let before = lab.elapsed();
    let mut nap = Box::pin(sleep(10 * MS));
    // First polled in a scope that is then cancelled, finished outside.
    scope(async |s| {
        assert!(poll_once(&mut nap).await.is_pending());
        assert!(s.cancel("only this"));
        Ok(())
    })
    .await
    .unwrap();
    nap.await.unwrap();
    assert_eq!(lab.elapsed() - before, 10 * MS);
    // First polled outside, then in a scope that is cancelled.
    let mut nap = Box::pin(sleep(10 * MS));
    assert!(poll_once(&mut nap).await.is_pending());
    let told = Scope::build()
        .cancelled("from the start")
        .run(async |_| Ok(nap.await?))
        .await;
    assert_eq!(told.unwrap_err().kind(), ErrorKind::Stopped);
    assert_eq!(lab.elapsed() - before, 10 * MS);
    assert_eq!(lab.counters().timers_pending(), 0);
}

/// cancel-9: a leaf moved to another job is told with that one and not with
/// the one it came from, under whatever waker it was polled there.
pub async fn cancel_9_a_leaf_moved_to_another_job(lab: Lab) {
    for foreign in [false, true] {
        let slot: Slot<Boxed<Result<(), Cancelled>>> = Arc::default();
        let given = slot.clone();
        let bell = Arc::new(Bell::default());
        let old = bell.clone();
        let from = spawn(async move {
            let mut leaf: Boxed<_> = Box::pin(sleep(HOUR));
            if foreign {
                let mut relay = relay(&old, &mut leaf);
                assert!(poll_once(&mut relay).await.is_pending());
            } else {
                assert!(poll_once(&mut leaf).await.is_pending());
            }
            *given.lock().unwrap() = Some(leaf);
            parked().await
        });
        lab.settle().await;
        let leaf = slot.lock().unwrap().take().unwrap();
        let to = spawn(leaf);
        lab.settle().await;
        let before = lab.elapsed();
        assert!(from.cancel("not the leaf"));
        assert!(from.outcome().await.unwrap().is_cancelled());
        lab.settle().await;
        assert_eq!(to.job().state(), JobState::Active);
        assert!(to.cancel("the leaf"));
        let outcome = to.outcome().await.unwrap();
        assert_eq!(outcome.reason().unwrap().text(), Some("the leaf"));
        assert_eq!(bell.rings(), 0);
        assert_eq!(lab.elapsed(), before);
    }
}

/// cancel-9: a scope is attached where it is first polled, not where it was
/// made.
pub async fn cancel_9_a_scope_is_attached_where_it_is_first_polled(lab: Lab) {
    let made = spawn(async {
        let made: Boxed<_> = Box::pin(Scope::named("made").run_future(parked()));
        Some(made)
    });
    let made = made.await.unwrap().unwrap();
    let task = named("polls").spawn(made);
    lab.settle().await;
    let tree = lab.snapshot();
    let node = tree.find("made").unwrap();
    assert_eq!((node.parent, node.kind), (Some(task.id()), JobKind::Scope));
    assert!(task.cancel("with it"));
    assert_eq!(state(&lab, "made"), JobState::Cancelling);
    assert!(task.outcome().await.unwrap().is_cancelled());
}

/// Opens a scope in one task and hands it over half-way. The body of the first
/// task stays until the gate is opened, cancelled or not.
async fn open_and_hand_over(
    lab: &Lab,
    body: impl Future<Output = Result<(), Error>> + Send + 'static,
) -> (kinfolk_core::Task<()>, Boxed<Result<(), Error>>, Gate) {
    let slot: Slot<Boxed<Result<(), Error>>> = Arc::default();
    let given = slot.clone();
    let gate = Gate::new();
    let stays = gate.clone();
    let opens = named("opens").spawn(async move {
        let mut moved: Boxed<_> = Box::pin(Scope::named("moved").run_future(body));
        assert!(poll_once(&mut moved).await.is_pending());
        *given.lock().unwrap() = Some(moved);
        shield(async move { stays.wait().await }).await
    });
    lab.settle().await;
    let moved = slot.lock().unwrap().take().unwrap();
    (opens, moved, gate)
}

/// cancel-9: a scope stays where it was first polled, whichever job polls it: the
/// cancel of its new poller does not reach it, that of its parent does.
pub async fn cancel_9_a_scope_stays_where_it_was_first_polled(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let (opens, moved, gate) = open_and_hand_over(&lab, async move {
        let told = park().await;
        words.say(told.as_ref().unwrap_err().reason().text().unwrap());
        told.map(|_| ()).map_err(Error::from)
    })
    .await;
    assert_eq!(opens.job().state(), JobState::Active);
    let polls = named("polls").spawn(async move {
        let told = moved.await;
        assert!(told.is_err());
        checkpoint().await
    });
    lab.settle().await;
    assert_eq!(
        lab.snapshot().find("moved").unwrap().parent,
        Some(opens.id())
    );
    assert!(polls.cancel("its poller"));
    lab.settle().await;
    assert_eq!(log.text(), "");
    assert_eq!(state(&lab, "moved"), JobState::Active);
    assert!(opens.cancel("its parent"));
    assert_eq!(state(&lab, "moved"), JobState::Cancelling);
    let outcome = polls.outcome().await.unwrap();
    assert_eq!(outcome.reason().unwrap().text(), Some("its poller"));
    assert_eq!(log.text(), "its parent");
    gate.open();
    assert!(opens.outcome().await.unwrap().is_cancelled());
}

/// cancel-9: a scope that is polled elsewhere goes no further than the body it
/// belongs to. Also: handle-5.
pub async fn cancel_9_a_moved_scope_ends_with_the_body_of_its_job(lab: Lab) {
    let before = lab.elapsed();
    let (opens, moved, gate) = open_and_hand_over(&lab, async { Ok(sleep(50 * MS).await?) }).await;
    let polls = spawn(async move {
        let error = moved.await.unwrap_err();
        checkpoint().await.unwrap();
        assert_eq!(error.kind(), ErrorKind::Cancelled);
        assert_eq!(error.reason().unwrap().kind(), ReasonKind::ScopeEnded);
    });
    lab.settle().await;
    gate.open();
    opens.await.unwrap();
    polls.await.unwrap();
    assert_eq!(lab.elapsed(), before);
    assert_eq!(lab.take_failures().len(), 1);
}

/// cancel-9: whoever polls a moved scope is not cancelled with it: what it
/// waited for was, so it gets Stopped.
/// Also: outcome-7.
pub async fn cancel_9_the_poller_of_a_moved_scope_is_not_cancelled(lab: Lab) {
    let (opens, moved, gate) = open_and_hand_over(&lab, parked()).await;
    let polls = spawn(async move {
        let error = moved.await.unwrap_err();
        checkpoint().await.unwrap();
        assert_eq!(error.kind(), ErrorKind::Stopped);
        "goes on"
    });
    lab.settle().await;
    assert!(opens.cancel("its parent"));
    assert_eq!(polls.await.unwrap(), "goes on");
    gate.open();
    assert!(opens.outcome().await.unwrap().is_cancelled());
}

/// cancel-9: a moved scope returns a value though its job is cancelled: the
/// poller gets it, unless a child was cut short. Also: outcome-7.
pub async fn cancel_9_a_moved_scope_keeps_its_value_unless_a_child_was_cut_short(lab: Lab) {
    for child in [false, true] {
        let (opens, moved, gate) = open_and_hand_over(&lab, async move {
            if child {
                launch(parked());
            }
            let _told = park().await;
            Ok(())
        })
        .await;
        let polls = spawn(async move {
            let value = moved.await;
            checkpoint().await.unwrap();
            let kind = value.err().map(|error| error.kind());
            assert_eq!(kind, child.then_some(ErrorKind::Stopped));
        });
        lab.settle().await;
        assert!(opens.cancel("its parent"));
        polls.await.unwrap();
        gate.open();
        assert!(opens.outcome().await.unwrap().is_cancelled());
    }
}

/// cancel-9: a moved scope that is dropped by its new owner ends in its job.
pub async fn cancel_9_a_moved_scope_that_is_dropped_elsewhere(lab: Lab) {
    let slot = Arc::new(Mutex::new(None));
    let says = DropSays(slot.clone());
    let (opens, moved, gate) = open_and_hand_over(&lab, async move {
        let _says = says;
        parked().await
    })
    .await;
    let id = lab.snapshot().find("moved").unwrap().id;
    spawn(async move { drop(moved) }).await.unwrap();
    assert_eq!(read(&slot), Some(id));
    assert!(lab.snapshot().find("moved").is_none());
    gate.open();
    opens.await.unwrap();
}

/// cancel-9: a future is dropped under its own job: never started, finished,
/// or given up half-way.
pub async fn cancel_9_a_future_is_dropped_under_its_own_job(lab: Lab) {
    let slot = Arc::new(Mutex::new(None));
    let says = DropSays(slot.clone());
    let fresh = spawn(async move {
        let _says = says;
    });
    let id = fresh.id();
    assert!(fresh.cancel("before its start"));
    assert!(fresh.outcome().await.unwrap().is_cancelled());
    assert_eq!(read(&slot), Some(id));

    let says = DropSays(slot.clone());
    let done = spawn(async move {
        let _says = says;
        checkpoint().await
    });
    let id = done.id();
    done.await.unwrap();
    assert_eq!(read(&slot), Some(id));

    let says = DropSays(slot.clone());
    let mut half = Box::pin(Scope::named("half").run_future(async move {
        let _says = says;
        parked().await
    }));
    assert!(poll_once(&mut half).await.is_pending());
    let id = lab.snapshot().find("half").unwrap().id;
    drop(half);
    assert_eq!(read(&slot), Some(id));
}

/// cancel-9: outside any job points never fail, and ambient `spawn` is an
/// error.
pub async fn cancel_9_outside_every_job(_lab: Lab) {
    let job = current_job().unwrap();
    let outside = std::thread::spawn(move || {
        let mut cx = Context::from_waker(Waker::noop());
        assert!(current_job().is_none() && Scope::current().is_none());
        assert!(!is_cancelled() && !cancel_current("nobody"));
        for _ in 0..1000 {
            let Poll::Ready(Ok(())) = pin!(checkpoint()).poll(&mut cx) else {
                panic!("a point failed outside any job");
            };
        }
        assert!(pin!(park()).poll(&mut cx).is_pending());
        let Poll::Ready(Ok(7)) = pin!(async { 7 }.or_cancel()).poll(&mut cx) else {
            panic!("a point failed outside any job");
        };
        let spawned = std::panic::catch_unwind(|| drop(spawn(async {})));
        let words = spawned.unwrap_err();
        let words = words.downcast_ref::<String>().unwrap();
        assert!(words.contains("outside any Kinfolk job"), "{words}");
        job.cancel_requested()
    });
    assert!(!outside.join().unwrap());
}
