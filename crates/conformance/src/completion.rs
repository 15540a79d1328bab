//! Completion and joining: how a job ends, and what those who wait get.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use kinfolk_core::{
    Error, EventKind, Job, JobId, JobState, Outcome, ReasonKind, Scope, cancel_current, checkpoint,
    cleanup, current_job, launch, park, scope, sleep, spawn, yield_now,
};

use kinfolk_testkit::{Gate, Lab, Log, Tally};

const MS: Duration = Duration::from_millis(1);

#[derive(Debug)]
struct Oops(&'static str);

impl std::fmt::Display for Oops {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Oops {}

/// A waker that writes a word.
struct Says(Log, &'static str);

impl Wake for Says {
    fn wake(self: Arc<Self>) {
        self.0.say(self.1);
    }
}

/// A waker that cancels a job.
struct Cancels(Job);

impl Wake for Cancels {
    fn wake(self: Arc<Self>) {
        self.0.cancel("woken");
    }
}

/// Polls once under a waker of the test's own.
fn poll_with<F: Future>(future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(waker))
}

/// The states a job went through, as its events tell.
fn states(lab: &Lab, id: JobId) -> Vec<JobState> {
    let mut seen = Vec::new();
    for event in lab.events() {
        if let EventKind::State { to } = event.kind
            && event.job == id
        {
            seen.push(to);
        }
    }
    seen
}

/// A scope ends after its children and grandchildren, and its caller goes on.
/// Also: K5.
pub async fn case_a01_scope_waits_for_children_and_grandchildren(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let before = lab.counters().living();
    let answer = scope(async move |s| {
        let (first, second, deep) = (words.clone(), words.clone(), words.clone());
        s.launch(async move {
            launch(async move {
                sleep(30 * MS).await?;
                deep.say("grandchild");
                Ok::<_, Error>(())
            });
            sleep(10 * MS).await?;
            first.say("first");
            Ok::<_, Error>(())
        });
        s.launch(async move {
            sleep(20 * MS).await?;
            second.say("second");
            Ok::<_, Error>(())
        });
        words.say("body");
        Ok(42)
    })
    .await;
    assert_eq!(answer.unwrap(), 42);
    assert_eq!(log.text(), "body first second grandchild");
    assert_eq!(lab.elapsed(), 30 * MS);
    assert_eq!(lab.counters().living(), before);
    checkpoint().await.unwrap();
}

/// After the scope, each handle gives its value at once.
pub async fn case_a02_handles_give_their_values_after_the_scope(lab: Lab) {
    let (first, second) = scope(async |s| {
        let first = s.spawn(async {
            sleep(50 * MS).await?;
            Ok::<_, Error>(42)
        });
        sleep(20 * MS).await?;
        let second = s.spawn(async {
            sleep(10 * MS).await?;
            Ok::<_, Error>(11)
        });
        Ok((first, second))
    })
    .await
    .unwrap();
    assert_eq!(lab.elapsed(), 50 * MS);
    assert!(first.is_ended() && second.is_ended());
    let polls = Tally::new();
    let first = polls.count(first.outcome()).await.unwrap();
    let second = polls.count(second.outcome()).await.unwrap();
    assert_eq!(first.completed(), Some(42));
    assert_eq!(second.completed(), Some(11));
    assert_eq!(polls.polls(), 2);
}

/// A job is seen as New, Active, Completing and Completed, in that order.
pub async fn case_a03_states_from_new_to_completed(lab: Lab) {
    scope(async |s| {
        let (body, child) = (Gate::new(), Gate::new());
        let (body_waits, child_waits) = (body.clone(), child.clone());
        let task = s.spawn_lazy(async move {
            launch(async move { child_waits.wait().await });
            body_waits.wait().await;
        });
        let job = task.job();
        lab.settle().await;
        assert_eq!(job.state(), JobState::New);

        assert!(task.start());
        lab.settle().await;
        assert_eq!(job.state(), JobState::Active);

        body.open();
        lab.settle().await;
        assert_eq!(job.state(), JobState::Completing);
        assert!(!job.is_ended() && !job.cancel_requested());
        assert_eq!(job.parent(), Some(s.job()));
        assert_eq!(lab.snapshot().children(job.id()).count(), 1);

        child.open();
        lab.settle().await;
        assert_eq!(job.state(), JobState::Completed);
        assert_eq!(job.parent(), None);
        assert_eq!(lab.snapshot().children(job.id()).count(), 0);
        assert_eq!(lab.snapshot().children(s.job().id()).count(), 0);
        task.await
    })
    .await
    .unwrap();
}

/// Joining an ended job again gives the same answer, and does not wait.
pub async fn case_a05_joining_twice_gives_the_same_outcome(lab: Lab) {
    Scope::build()
        .supervisor()
        .run(async |s| {
            let done = s.launch(async {});
            let failed = s.launch(async { Err::<(), _>(Oops("no")) });
            lab.settle().await;
            let polls = Tally::new();
            for _ in 0..2 {
                let outcome = polls.count(done.join()).await?;
                assert!(outcome.is_completed(), "{outcome:?}");
            }
            let first = polls.count(failed.join()).await?;
            let second = polls.count(failed.join()).await?;
            let (first, second) = (first.error().unwrap(), second.error().unwrap());
            assert!(first.same(second));
            assert_eq!(second.downcast_ref::<Oops>().unwrap().0, "no");
            assert_eq!(polls.polls(), 4);
            Ok(())
        })
        .await
        .unwrap();
}

/// Those who wait for a job are woken in the order of waiting, once each.
pub async fn case_a06_joiners_are_woken_in_order_and_once(lab: Lab) {
    let gate = Gate::new();
    let held = gate.clone();
    let job = launch(async move { held.wait().await });
    lab.settle().await;
    let log = Log::new();
    let wakers = ["one", "two", "three"].map(|word| Waker::from(Arc::new(Says(log.clone(), word))));
    let mut joins = [pin!(job.join()), pin!(job.join()), pin!(job.join())];
    for (join, waker) in joins.iter_mut().zip(&wakers) {
        assert!(poll_with(join.as_mut(), waker).is_pending());
    }
    assert!(log.is_empty());
    gate.open();
    lab.settle().await;
    assert_eq!(log.text(), "one two three");
    for (join, waker) in joins.iter_mut().zip(&wakers) {
        match poll_with(join.as_mut(), waker) {
            Poll::Ready(Ok(outcome)) => assert!(outcome.is_completed(), "{outcome:?}"),
            other => panic!("not ready: {}", other.is_ready()),
        }
    }
    assert_eq!(log.text(), "one two three");
}

/// Who joins several jobs gets each one's outcome, and is not touched by a
/// failure among them.
pub async fn case_a10_joining_many_gives_every_outcome(lab: Lab) {
    let texts = Scope::build()
        .supervisor()
        .run(async |s| {
            let jobs = [
                s.launch(async {}),
                s.launch(async { Err::<(), _>(Oops("no")) }),
                s.launch(async { sleep(10 * MS).await }),
            ];
            let joins = jobs.iter().map(Job::join);
            let mut texts = Vec::new();
            for outcome in futures_util::future::join_all(joins).await {
                texts.push(match outcome? {
                    Outcome::Completed(()) => "completed".to_string(),
                    Outcome::Failed(error) => error.to_string(),
                    Outcome::Cancelled { reason, .. } => reason.to_string(),
                });
            }
            assert!(!s.cancel_requested());
            checkpoint().await?;
            Ok(texts)
        })
        .await
        .unwrap();
    assert_eq!(texts, ["completed", "no", "completed"]);
    assert_eq!(lab.elapsed(), 10 * MS);
}

/// A joiner that is cancelled after the target's end, before it was polled, is
/// told so; the outcome is still there.
pub async fn case_a11_a_cancelled_joiner_loses_no_outcome(lab: Lab) {
    let gate = Gate::new();
    let held = gate.clone();
    let target = spawn(async move {
        held.wait().await;
        7
    });
    let watched = target.job();
    let joiner = Scope::current().unwrap().task("joiner").spawn_lazy({
        let watched = watched.clone();
        async move {
            let told = watched.join().await.unwrap_err();
            assert!(watched.is_ended());
            Err::<(), Error>(told.into())
        }
    });
    // The first in the list of those the end wakes: it cancels the joiner when
    // the target has ended and the joiner has not been woken yet.
    let cancels = Waker::from(Arc::new(Cancels(joiner.job())));
    let mut first = pin!(watched.join());
    assert!(poll_with(first.as_mut(), &cancels).is_pending());
    assert!(joiner.start());
    lab.settle().await;
    assert_eq!(joiner.job().state(), JobState::Active);
    gate.open();
    lab.settle().await;
    let ended = joiner.outcome().await.unwrap();
    assert_eq!(ended.reason().and_then(|r| r.text()), Some("woken"));
    assert!(watched.join().await.unwrap().is_completed());
    assert_eq!(target.await.unwrap(), 7);
}

/// A job whose body returned well and whose child fails later is Failed.
pub async fn case_a12_a_late_failing_child_fails_its_parent(lab: Lab) {
    Scope::build()
        .supervisor()
        .run(async |s| {
            let task = s.spawn(async {
                launch(async {
                    sleep(10 * MS).await?;
                    Err::<(), Error>(Error::msg("late"))
                });
                5
            });
            lab.settle().await;
            assert_eq!(task.job().state(), JobState::Completing);
            match task.outcome().await? {
                Outcome::Failed(error) => assert_eq!(error.to_string(), "late"),
                other => panic!("{other:?}"),
            }
            assert_eq!(lab.elapsed(), 10 * MS);
            Ok(())
        })
        .await
        .unwrap();
}

/// A cancelled job that returns a value is Cancelled, and the value is kept.
pub async fn case_a13_a_late_value_is_kept_in_cancelled(lab: Lab) {
    let task = spawn(async {
        let told = park().await.unwrap_err();
        assert_eq!(told.reason().text(), Some("enough"));
        cleanup(sleep(10 * MS)).await?;
        Ok::<_, Error>("x")
    });
    lab.settle().await;
    assert!(task.cancel("enough"));
    match task.outcome().await.unwrap() {
        Outcome::Cancelled { reason, late } => {
            assert_eq!(reason.kind(), ReasonKind::Asked);
            assert_eq!(late, Some("x"));
        }
        other => panic!("{other:?}"),
    }
}

/// A lazy job stays New until it is started, by hand or by a join, once.
pub async fn case_a15_a_lazy_job_waits_for_its_start(lab: Lab) {
    scope(async |s| {
        let by_hand = s.spawn_lazy(async { 1 });
        let by_join = s.spawn_lazy(async { 2 });
        for _ in 0..10 {
            yield_now().await?;
        }
        lab.settle().await;
        assert_eq!(by_hand.job().state(), JobState::New);
        assert_eq!(by_join.job().state(), JobState::New);

        assert!(by_hand.start());
        assert!(!by_hand.start());
        lab.settle().await;
        assert_eq!(by_hand.job().state(), JobState::Completed);

        assert!(by_join.join().await?.is_completed());
        assert!(!by_join.start());
        assert_eq!(by_hand.await? + by_join.await?, 3);
        Ok(())
    })
    .await
    .unwrap();
}

/// A scope whose lazy job was never started ends; the job is cancelled, and
/// was never polled.
pub async fn case_a15_a_lazy_job_never_started_holds_nothing_open(lab: Lab) {
    let tally = Tally::new();
    let lazy = scope(async |s| Ok(s.spawn_lazy(tally.count(async { 1 }))))
        .await
        .unwrap();
    assert_eq!(lab.elapsed(), Duration::ZERO);
    match lazy.outcome().await.unwrap() {
        Outcome::Cancelled { reason, late } => {
            assert_eq!(reason.kind(), ReasonKind::ScopeEnded);
            assert_eq!(late, None);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!((tally.polls(), tally.drops()), (0, 1));
}

/// Only the listed edges are taken, and an ended job moves no more.
/// Also: K2, tree-2.
pub async fn src_k01_only_the_listed_transitions_happen(lab: Lab) {
    use JobState::{Cancelled, Cancelling, Completed, Failed};
    Scope::build()
        .supervisor()
        .run(async |s| {
            let completes = s.launch(async {});
            let fails = s.launch(async { Err::<(), _>(Oops("no")) });
            let stops = s.launch(async { park().await.map(|_| ()) });
            let stops_badly = s.launch(async {
                let _told = park().await;
                Err::<(), _>(Oops("no"))
            });
            let stops_late = s.launch(async {
                let _told = park().await;
            });
            let unpolled = s.launch(async {});
            assert!(unpolled.cancel("at once"));
            lab.settle().await;
            for job in [&stops, &stops_badly, &stops_late] {
                assert!(job.cancel("enough"));
                assert_eq!(job.state(), Cancelling);
            }
            lab.settle().await;
            let expected = [
                (completes, vec![Completed]),
                (fails, vec![Failed]),
                (stops, vec![Cancelling, Cancelled]),
                (stops_badly, vec![Cancelling, Failed]),
                (stops_late, vec![Cancelling, Cancelled]),
                (unpolled, vec![Cancelling, Cancelled]),
            ];
            for (job, path) in expected {
                assert!(!job.cancel("too late"));
                assert_eq!(states(&lab, job.id()), path);
                assert_eq!(Some(&job.state()), path.last());
                assert!(job.state().is_terminal());
            }
            Ok(())
        })
        .await
        .unwrap();
}

/// A job that has ended has no living child, however it ended.
/// Also: T3, tree-2.
pub async fn src_k03_an_ended_job_has_no_living_child(lab: Lab) {
    async fn family(fail: bool) -> Result<(), Error> {
        for n in 1..4 {
            launch(async move {
                launch(async move {
                    let told = park().await;
                    cleanup(sleep(n * MS)).await?;
                    told?;
                    Ok::<_, Error>(())
                });
                sleep(n * MS).await
            });
        }
        sleep(2 * MS).await?;
        if fail {
            return Err(Error::msg("no"));
        }
        Ok(())
    }
    Scope::build()
        .supervisor()
        .run(async |s| {
            let fails = s.launch(family(true));
            let stops = s.launch(family(false));
            let stops_early = s.launch(family(false));
            lab.settle().await;
            stops_early.cancel("enough");
            sleep(5 * MS).await?;
            stops.cancel("enough");
            assert!(fails.join().await?.is_failed());
            assert!(stops.join().await?.is_cancelled());
            assert!(stops_early.join().await?.is_cancelled());
            Ok(())
        })
        .await
        .unwrap();
    let mut parents = Vec::new();
    let mut ended: Vec<JobId> = Vec::new();
    for event in lab.events() {
        match event.kind {
            EventKind::Attach { parent } => {
                assert!(!ended.contains(&parent), "{parent:?} took a child too late");
                parents.push((event.job, parent));
            }
            EventKind::State { to } if to.is_terminal() => {
                for (child, parent) in &parents {
                    assert!(
                        *parent != event.job || ended.contains(child),
                        "{parent:?} ended before {child:?}"
                    );
                }
                ended.push(event.job);
            }
            _ => {}
        }
    }
    // The scope, and three families of a body, three children, three
    // grandchildren and the shields in which those cleaned up.
    assert_eq!(ended.len(), 1 + 3 * 10);
}

/// What is launched is a child of the job that launches it; outside any job
/// there is no current one.
pub async fn src_k06_a_child_belongs_to_the_current_job(_lab: Lab) {
    let outer = current_job().unwrap();
    scope(async |s| {
        assert_eq!(current_job(), Some(s.job()));
        assert_eq!(s.job().parent(), Some(outer.clone()));
        let parent = s.job();
        let task = spawn(async move {
            let me = current_job().unwrap();
            assert_eq!(me.parent(), Some(parent));
            let child = launch(async { sleep(MS).await });
            assert_eq!(child.parent(), Some(me.clone()));
            (me, child)
        });
        let id = task.id();
        let (me, child) = task.await?;
        assert_eq!(me.id(), id);
        assert!(child.is_ended());
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(current_job(), Some(outer));
    let outside = std::thread::spawn(|| current_job().is_none() && Scope::current().is_none());
    assert!(outside.join().unwrap());
}

/// A spawned task gives its value, its failure or its cancellation to whoever
/// waits, and whoever is woken sees it.
pub async fn src_k07_a_task_gives_its_result_to_who_is_woken(lab: Lab) {
    Scope::build()
        .supervisor()
        .run(async |s| {
            let gate = Gate::new();
            let (a, b) = (gate.clone(), gate.clone());
            let value = s.spawn(async move {
                a.wait().await;
                vec![1, 2, 3]
            });
            let failure = s.spawn(async move {
                b.wait().await;
                Err::<(), _>(Oops("no"))
            });
            let stopped = s.spawn(async { park().await.map(|_| ()) });
            let jobs = [value.job(), failure.job(), stopped.job()];
            lab.settle().await;
            assert!(jobs.iter().all(|job| !job.is_ended()));
            let waiters = jobs.map(|job| {
                s.spawn(async move {
                    let _outcome = job.join().await?;
                    Ok::<_, Error>(job.state())
                })
            });
            lab.settle().await;
            gate.open();
            stopped.cancel("enough");
            let mut seen = Vec::new();
            for waiter in waiters {
                seen.push(waiter.await?);
            }
            assert_eq!(
                seen,
                [JobState::Completed, JobState::Failed, JobState::Cancelled]
            );
            assert_eq!(value.await?, [1, 2, 3]);
            assert_eq!(failure.await.unwrap_err().to_string(), "no");
            let stopped = stopped.outcome().await?;
            assert_eq!(stopped.reason().and_then(|r| r.text()), Some("enough"));
            Ok(())
        })
        .await
        .unwrap();
}

/// A job that cancels itself ends Cancelled, unless something failed in it.
/// Also: K14.
pub async fn src_k16_a_job_that_cancels_itself_ends_cancelled(_lab: Lab) {
    Scope::build()
        .supervisor()
        .run(async |s| {
            let returns = s.spawn(async {
                assert!(cancel_current("me"));
                assert!(!cancel_current("again"));
                4
            });
            let told = s.spawn(async {
                cancel_current("me");
                checkpoint().await
            });
            let fails = s.spawn(async {
                cancel_current("me");
                Err::<(), _>(Oops("no"))
            });
            let child_fails = s.spawn(async {
                let child = Scope::current().unwrap();
                drop(
                    child
                        .spawn_atomic(async { Err::<(), _>(Oops("child")) })
                        .into_job(),
                );
                cancel_current("me");
                checkpoint().await
            });
            match returns.outcome().await? {
                Outcome::Cancelled { reason, late } => {
                    assert_eq!((reason.text(), late), (Some("me"), Some(4)));
                }
                other => panic!("{other:?}"),
            }
            match told.outcome().await? {
                Outcome::Cancelled { reason, late } => {
                    assert_eq!((reason.text(), late), (Some("me"), None));
                }
                other => panic!("{other:?}"),
            }
            for (task, words) in [(fails, "no"), (child_fails, "child")] {
                let outcome = task.outcome().await?;
                let error = outcome.error().unwrap();
                assert_eq!(error.to_string(), words);
                assert_eq!(error.during().unwrap().text(), Some("me"));
            }
            Ok(())
        })
        .await
        .unwrap();
}

/// A join tells success, failure or the reason of the cancellation, now and
/// later.
pub async fn src_k19_a_join_tells_how_the_job_ended(lab: Lab) {
    Scope::build()
        .supervisor()
        .run(async |s| {
            let done = s.launch(async { 1 });
            let failed = s.launch(async { Err::<(), _>(Oops("no")) });
            let stopped = s.launch(async { park().await.map(|_| ()) });
            lab.settle().await;
            stopped.cancel("enough");
            for _ in 0..2 {
                assert!(done.join().await?.is_completed());
                assert_eq!(failed.join().await?.error().unwrap().to_string(), "no");
                let outcome = stopped.join().await?;
                let reason = outcome.reason().unwrap();
                assert_eq!(reason.kind(), ReasonKind::Asked);
                assert_eq!(reason.text(), Some("enough"));
            }
            assert!(stopped.reason().unwrap().text() == Some("enough"));
            Ok(())
        })
        .await
        .unwrap();
}

/// Thirty-two who wait are woken once each, and none stays registered.
pub async fn src_k20_every_waiter_is_woken_exactly_once(lab: Lab) {
    let gate = Gate::new();
    let held = gate.clone();
    let job = launch(async move { held.wait().await });
    lab.settle().await;
    let before = lab.counters();
    let polls: Vec<Tally> = (0..32).map(|_| Tally::new()).collect();
    for tally in &polls {
        let job = job.clone();
        launch(tally.count(async move { job.join().await.map(|_| ()) }));
    }
    lab.settle().await;
    let snapshot = lab.snapshot();
    let node = snapshot.nodes().iter().find(|node| node.id == job.id());
    assert_eq!(node.unwrap().waiters, 32);
    let waiting = lab.counters();
    assert_eq!(waiting.waiters_registered - before.waiters_registered, 32);
    assert_eq!(waiting.waiters_woken, before.waiters_woken);

    gate.open();
    lab.settle().await;
    let after = lab.counters();
    assert_eq!(after.waiters_registered, waiting.waiters_registered);
    assert_eq!(after.waiters_woken - waiting.waiters_woken, 32);
    assert_eq!(after.waiters_removed, before.waiters_removed);
    assert_eq!(after.waiters_pending(), before.waiters_pending());
    for tally in &polls {
        assert_eq!((tally.polls(), tally.drops()), (2, 1));
    }
}
