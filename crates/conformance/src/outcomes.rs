//! Rules of outcomes: what a body may return, who answers for a failure, what
//! a cancelled job's value is worth, and what an error tells.

use std::error::Error as StdError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use kinfolk_core::{
    BoxError, Cancelled, Error, ErrorKind, EventKind, Job, JobState, OrFail, Outcome, ReasonKind,
    Scope, Success, checkpoint, cleanup, current_job, launch, park, scope, shield, sleep, spawn,
    timeout,
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

impl StdError for Oops {}

/// An error of the author's that says where another one happened.
#[derive(Debug)]
struct Around(&'static str, BoxError);

impl std::fmt::Display for Around {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl StdError for Around {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.1)
    }
}

fn fail(word: &'static str) -> Result<(), Error> {
    Err(Oops(word)).or_fail()
}

fn oops(error: &Error) -> &'static str {
    error.downcast_ref::<Oops>().expect("an Oops").0
}

/// The error in front and those that go along, in order.
fn all(error: &Error) -> Vec<&'static str> {
    std::iter::once(error)
        .chain(error.suppressed())
        .map(oops)
        .collect()
}

/// Fails after it was told, when it has cleaned up.
async fn fails_late(word: &'static str) -> Result<(), Error> {
    let told = park().await;
    assert!(told.is_err());
    cleanup(sleep(10 * MS)).await?;
    fail(word)
}

/// Returns what it was told.
async fn parked() -> Result<(), Cancelled> {
    park().await.map(|_| ())
}

// ---- outcome-1 ----

struct User(u8);

impl Success for User {}

/// outcome-1: plain values, `Option` and a user's own type are successes.
pub async fn outcome_1_plain_values_are_successes(_lab: Lab) {
    spawn(async {}).await.unwrap();
    assert_eq!(spawn(async { 5_u32 }).await.unwrap(), 5);
    assert_eq!(spawn(async { "a".to_string() }).await.unwrap(), "a");
    assert_eq!(spawn(async { None::<u8> }).await.unwrap(), None);
    assert_eq!(spawn(async { vec![1, 2] }).await.unwrap(), [1, 2]);
    assert_eq!(spawn(async { (1, 'x') }).await.unwrap(), (1, 'x'));
    assert_eq!(spawn(async { User(7) }).await.unwrap().0, 7);
    let job = launch(async { None::<u8> });
    assert!(job.join().await.unwrap().is_completed());
}

/// outcome-1: a `Result` with any error is an outcome; `Err` means failed.
pub async fn outcome_1_any_error_is_a_failure(lab: Lab) {
    Scope::build()
        .supervisor()
        .run(async |s| {
            let value = s.spawn(async { Ok::<_, Oops>(3) });
            assert_eq!(value.outcome().await?.completed(), Some(3));
            let errors = [
                s.spawn(async { Err::<(), _>(Oops("typed")) }),
                s.spawn(async { Err::<(), _>("words") }),
                s.spawn(async { Err::<(), _>(String::from("owned words")) }),
                s.spawn(async { Err::<(), BoxError>("boxed".into()) }),
                s.spawn(async { Err::<(), _>(std::io::Error::other("io")) }),
            ];
            let mut texts = Vec::new();
            for task in errors {
                let outcome = task.outcome().await?;
                let error = outcome.error().expect("a failure");
                assert_eq!(error.kind(), ErrorKind::Failed);
                texts.push(error.to_string());
            }
            assert_eq!(texts, ["typed", "words", "owned words", "boxed", "io"]);
            Ok(())
        })
        .await
        .unwrap();
    assert!(lab.take_failures().is_empty());
}

/// outcome-1: in a scope `?` takes Cancelled, std's errors and, with
/// `or_fail`, any other.
pub async fn outcome_1_the_question_mark_infers_in_a_scope(_lab: Lab) {
    async fn run(which: u8) -> Result<u32, Error> {
        scope(async |s| {
            checkpoint().await?;
            let mut n = "1".parse::<u32>()?;
            if which == 1 {
                n += "x".parse::<u32>()?;
            }
            if which == 2 {
                Err(std::io::Error::other("io"))?;
            }
            if which == 3 {
                Err(Oops("other")).or_fail()?;
            }
            if which == 4 {
                s.cancel("enough");
            }
            checkpoint().await?;
            Ok(n)
        })
        .await
    }
    assert_eq!(run(0).await.unwrap(), 1);
    let parse = run(1).await.unwrap_err();
    assert!(parse.downcast_ref::<std::num::ParseIntError>().is_some());
    let io = run(2).await.unwrap_err();
    assert!(io.downcast_ref::<std::io::Error>().is_some());
    assert_eq!(oops(&run(3).await.unwrap_err()), "other");
    assert_eq!(run(4).await.unwrap_err().kind(), ErrorKind::Stopped);
}

/// outcome-1: `spawn` and `timeout` flatten: one `Result`, with our error.
pub async fn outcome_1_spawn_and_timeout_flatten(_lab: Lab) {
    let value: Result<u8, Error> = spawn(async { Ok::<u8, Oops>(3) }).await;
    assert_eq!(value.unwrap(), 3);
    let value: Result<u8, Error> = timeout(MS, async { Ok::<u8, Oops>(4) }).await;
    assert_eq!(value.unwrap(), 4);
    let error: Result<u8, Error> = timeout(MS, async { Err::<u8, _>(Oops("no")) }).await;
    let error = error.unwrap_err();
    assert_eq!((error.kind(), oops(&error)), (ErrorKind::Failed, "no"));
    let value: Result<u8, Error> = shield(async { Ok::<u8, Oops>(5) }).await;
    assert_eq!(value.unwrap(), 5);
}

/// outcome-1: a panic in a task is caught and means failed.
pub async fn outcome_1_a_panic_means_failed(lab: Lab) {
    Scope::build()
        .supervisor()
        .run(async |s| {
            let task = s.task("bad").spawn(async {
                assert!(never(), "boom");
            });
            let job = task.job();
            let outcome = task.outcome().await?;
            let error = outcome.error().expect("a failure");
            assert_eq!(error.kind(), ErrorKind::Panicked);
            assert_eq!(error.to_string(), "bad panicked: boom");
            assert_eq!(job.state(), JobState::Failed);
            Ok(())
        })
        .await
        .unwrap();
    assert!(lab.take_failures().is_empty());
}

/// False, in a way that the compiler does not see.
fn never() -> bool {
    std::hint::black_box(false)
}

/// outcome-1: a scope's body that panics: children are cancelled and waited
/// for, the call returns kind Panicked, and `resume` re-raises.
pub async fn outcome_1_a_panicking_scope_body_waits_for_its_children(lab: Lab) {
    let tally = Tally::new();
    let guard = tally.guard();
    let error = scope(async |s| {
        s.launch(async move {
            let _guard = guard;
            let told = park().await.unwrap_err();
            let reason = told.reason().root_cause();
            assert_eq!(reason.kind(), ReasonKind::BodyFailed);
            cleanup(sleep(10 * MS)).await?;
            Err::<(), Error>(told.into())
        });
        lab.settle().await;
        assert!(never(), "boom");
        Ok(())
    })
    .await
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Panicked);
    assert!(error.suppressed().is_empty());
    assert_eq!(tally.drops(), 1);
    assert_eq!(lab.elapsed(), 10 * MS);
    checkpoint().await.unwrap();
    let payload = catch_unwind(AssertUnwindSafe(|| error.resume())).unwrap_err();
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"boom"));
}

/// outcome-1: a scope's closure that panics before it has made a body is a
/// body that panicked.
pub async fn outcome_1_a_panicking_closure_is_a_panicking_body(_lab: Lab) {
    let mut node = None;
    let error = scope(|s| {
        node = Some(s.job());
        s.launch(parked());
        assert!(never(), "boom");
        async { Ok(()) }
    })
    .await
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Panicked);
    assert_eq!(node.unwrap().state(), JobState::Failed);
    checkpoint().await.unwrap();
}

// ---- outcome-2 ----

/// outcome-2: the first failing child cancels siblings and body with
/// ChildFailed, and the parent ends Failed with it.
/// Also: K12.
pub async fn outcome_2_the_first_failing_child_cancels_the_family(_lab: Lab) {
    let mut jobs = Vec::new();
    let mut reason = None;
    let error = scope(async |s| {
        jobs.push(s.job());
        jobs.push(s.launch(parked()));
        jobs.push(s.task("bad").launch(async {
            sleep(10 * MS).await?;
            fail("bad")
        }));
        reason = park().await.err().map(|told| told.reason().clone());
        Ok(())
    })
    .await
    .unwrap_err();
    assert_eq!(oops(&error), "bad");
    assert_eq!(error.job(), Some(jobs[2].id()));
    let reason = reason.unwrap();
    assert_eq!(reason.kind(), ReasonKind::ChildFailed);
    assert_eq!(reason.culprit(), Some((jobs[2].id(), "bad")));
    assert_eq!(jobs[0].state(), JobState::Failed);
    let sibling = jobs[1].join().await.unwrap();
    let sibling = sibling.reason().unwrap();
    assert_eq!(sibling.kind(), ReasonKind::Parent);
    assert!(sibling.same(&reason));
}

/// A waker that looks, once a job has ended, whether others are cancelled.
struct Looks {
    ended: Job,
    others: Vec<Job>,
    seen: Log,
}

impl Wake for Looks {
    fn wake(self: Arc<Self>) {
        if self.ended.is_ended() {
            for job in &self.others {
                self.seen.say(format!("{}", job.cancel_requested()));
            }
        }
    }
}

/// outcome-2: the siblings are cancelled before the failing child's end is
/// visible to anyone.
pub async fn outcome_2_siblings_are_cancelled_before_the_end_is_visible(lab: Lab) {
    let mut jobs = Vec::new();
    let seen = Log::new();
    let error = scope(async |s| {
        let gate = Gate::new();
        let held = gate.clone();
        let bad = s.launch(async move {
            held.wait().await;
            fail("bad")
        });
        let sibling = s.launch(parked());
        jobs = vec![bad.clone(), sibling, s.job()];
        lab.settle().await;
        let waker = Waker::from(Arc::new(Looks {
            ended: bad.clone(),
            others: jobs[1..].to_vec(),
            seen: seen.clone(),
        }));
        let mut join = pin!(bad.join());
        let polled = join.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        gate.open();
        lab.settle().await;
        Ok(())
    })
    .await
    .unwrap_err();
    assert_eq!(oops(&error), "bad");
    assert_eq!(seen.text(), "true true");
    let events = lab.events();
    let at = |job: &Job, to| {
        let wanted = EventKind::State { to };
        let found = events
            .iter()
            .position(|e| e.job == job.id() && e.kind == wanted);
        found.expect("it went there")
    };
    let visible = at(&jobs[0], JobState::Failed);
    assert!(at(&jobs[1], JobState::Cancelling) < visible);
    assert!(at(&jobs[2], JobState::Cancelling) < visible);
}

/// outcome-2: later failures are kept in order, bounded, and counted.
pub async fn outcome_2_later_failures_are_bounded_and_counted(lab: Lab) {
    let error = scope(async |s| {
        for n in 0..100_u32 {
            s.launch(async move {
                let _told = park().await;
                cleanup(sleep(n * MS)).await?;
                Err::<(), Error>(Error::msg(n.to_string()))
            });
        }
        lab.settle().await;
        fail("first")
    })
    .await
    .unwrap_err();
    assert_eq!(oops(&error), "first");
    assert_eq!(error.suppressed_count(), 100);
    assert_eq!(error.to_string(), "first (and 100 more)");
    let kept: Vec<String> = error.suppressed().iter().map(Error::to_string).collect();
    let expected: Vec<String> = (0..32).map(|n: u32| n.to_string()).collect();
    assert_eq!(kept, expected);
}

/// outcome-2: a child's error that the body passes on is listed once.
pub async fn outcome_2_a_failure_passed_on_is_listed_once(_lab: Lab) {
    let error = scope(async |s| {
        let bad = s.spawn(async { fail("bad") });
        let other = s.clone();
        s.launch(async move {
            // Its brother hears of it too, and says the same.
            let error = bad.await.unwrap_err();
            let again = error.clone();
            let carries = other.spawn_atomic(async move { Err::<(), _>(again) });
            drop(carries);
            Err::<(), _>(error)
        });
        Ok(())
    })
    .await
    .unwrap_err();
    assert_eq!(all(&error), ["bad"]);

    let error = scope(async |s| {
        s.spawn(async { fail("bad") }).await?;
        Ok(())
    })
    .await
    .unwrap_err();
    assert_eq!(all(&error), ["bad"]);
}

/// outcome-2: a failure that goes along with another is not listed again when
/// it comes by itself.
pub async fn outcome_2_a_suppressed_failure_is_not_listed_again(lab: Lab) {
    let error = scope(async |s| {
        let mut second = None;
        let first = scope(async |inner| {
            second = Some(inner.spawn(fails_late("second")));
            lab.settle().await;
            fail("first")
        })
        .await
        .unwrap_err();
        assert_eq!(all(&first), ["first", "second"]);
        let second = second.unwrap();
        s.launch(async move {
            let error = second.await.unwrap_err();
            let _told = park().await;
            Err::<(), _>(error)
        });
        lab.settle().await;
        Err::<(), _>(first)
    })
    .await
    .unwrap_err();
    assert_eq!(all(&error), ["first", "second"]);
    assert_eq!(error.suppressed_count(), 1);
}

/// outcome-2: a body error that has a recorded failure among its sources takes
/// its place.
pub async fn outcome_2_added_context_takes_the_place_of_the_failure(_lab: Lab) {
    let error = scope(async |s| {
        let task = s.spawn(async { fail("bad") });
        let error = task.await.unwrap_err();
        Err::<(), _>(Around("while loading", error.into())).or_fail()
    })
    .await
    .unwrap_err();
    assert_eq!(error.to_string(), "while loading");
    assert_eq!(error.downcast_ref::<Around>().unwrap().0, "while loading");
    assert!(error.suppressed().is_empty());

    let error = scope(async |s| {
        let task = s.spawn(async { fail("bad") });
        let error = task.await.unwrap_err();
        Err::<(), _>(std::io::Error::other(error)).or_fail()
    })
    .await
    .unwrap_err();
    assert!(error.downcast_ref::<std::io::Error>().is_some());
    assert!(error.suppressed().is_empty());
}

/// outcome-2: context added to a later failure stands where that one stood.
pub async fn outcome_2_added_context_keeps_its_place_in_the_order(lab: Lab) {
    let error = scope(async |s| {
        let (one, two, three) = (Gate::new(), Gate::new(), Gate::new());
        let mut tasks = Vec::new();
        for (gate, word) in [(&one, "one"), (&two, "two"), (&three, "three")] {
            let gate = gate.clone();
            tasks.push(s.spawn(async move {
                gate.wait().await;
                fail(word)
            }));
        }
        for gate in [&one, &two, &three] {
            lab.settle().await;
            gate.open();
        }
        lab.settle().await;
        let error = tasks.swap_remove(1).await.unwrap_err();
        Err::<(), _>(Around("context", error.into())).or_fail()
    })
    .await
    .unwrap_err();
    let later: Vec<String> = error.suppressed().iter().map(Error::to_string).collect();
    assert_eq!(oops(&error), "one");
    assert_eq!(later, ["context", "three"]);
}

/// outcome-2: the failure of a scope, timeout or shield goes to the caller
/// that awaits it; caught, it cancels no other job.
pub async fn outcome_2_a_caught_failure_stays_caught(lab: Lab) {
    let mut node = None;
    let answer = scope(async |s| {
        node = Some(s.job());
        let sibling = s.spawn(async {
            sleep(10 * MS).await?;
            Ok::<_, Error>(1)
        });
        let caught = scope(async |inner| {
            inner.launch(async { fail("scope") });
            Ok(())
        });
        assert_eq!(oops(&caught.await.unwrap_err()), "scope");
        let caught = timeout(MS, async {
            launch(async { fail("timeout") });
        });
        assert_eq!(oops(&caught.await.unwrap_err()), "timeout");
        let caught = shield(async {
            launch(async { fail("shield") });
        });
        assert_eq!(oops(&caught.await.unwrap_err()), "shield");
        let caught = scope(async |_| fail("body"));
        assert_eq!(oops(&caught.await.unwrap_err()), "body");
        checkpoint().await?;
        assert!(!s.cancel_requested());
        sibling.await
    })
    .await;
    assert_eq!(answer.unwrap(), 1);
    assert_eq!(node.unwrap().state(), JobState::Completed);
    assert!(lab.take_failures().is_empty());
}

// ---- outcome-3 ----

/// outcome-3: who holds the task of a failed child takes its failure; the
/// failure hook does not get it.
pub async fn outcome_3_the_holder_takes_the_failure(lab: Lab) {
    Scope::build()
        .supervisor()
        .run(async |s| {
            let awaited = s.spawn(async { fail("awaited") });
            let asked = s.spawn(async { fail("asked") });
            let joined = s.spawn(async { fail("joined") });
            lab.settle().await;
            assert!(lab.take_failures().is_empty(), "they are held");
            assert_eq!(oops(&awaited.await.unwrap_err()), "awaited");
            assert_eq!(oops(asked.outcome().await?.error().unwrap()), "asked");
            // A join only looks.
            assert!(joined.join().await?.is_failed());
            assert_eq!(oops(&joined.await.unwrap_err()), "joined");
            Ok(())
        })
        .await
        .unwrap();
    lab.settle().await;
    assert!(lab.take_failures().is_empty());
}

/// outcome-3: a failure that is not taken goes to the failure hook, once.
pub async fn outcome_3_what_nobody_takes_is_reported_once(lab: Lab) {
    Scope::build()
        .supervisor()
        .run(async |s| {
            let reported = || {
                let errors = lab.take_failures();
                errors.iter().map(oops).collect::<Vec<_>>()
            };
            s.launch(async { fail("launched") });
            lab.settle().await;
            assert_eq!(reported(), ["launched"]);

            let after = s.spawn(async { fail("dropped after") });
            lab.settle().await;
            assert!(after.join().await?.is_failed());
            drop(after);
            assert_eq!(reported(), ["dropped after"]);

            let before = s.spawn(async {
                let _told = park().await;
                fail("dropped before")
            });
            lab.settle().await;
            drop(before);
            lab.settle().await;
            assert_eq!(reported(), ["dropped before"]);

            let given_up = s.spawn(async { fail("given up") }).into_job();
            lab.settle().await;
            assert!(given_up.join().await?.is_failed());
            assert_eq!(reported(), ["given up"]);

            let given_up = s.spawn(async { fail("given up late") });
            lab.settle().await;
            drop(given_up.into_job());
            assert_eq!(reported(), ["given up late"]);
            Ok(())
        })
        .await
        .unwrap();
    lab.settle().await;
    assert!(lab.take_failures().is_empty());
}

/// outcome-3: a failure that comes after the job that awaited it was cancelled and
/// went on is reported.
pub async fn outcome_3_a_failure_after_its_waiter_left_is_reported(lab: Lab) {
    Scope::build()
        .supervisor()
        .run(async |s| {
            let target = s.spawn(fails_late("late"));
            let waiter = s.spawn(async move {
                let error = target.await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Cancelled);
                Err::<(), _>(error)
            });
            lab.settle().await;
            waiter.cancel("you");
            assert!(waiter.outcome().await?.is_cancelled());
            assert!(lab.take_failures().is_empty());
            Ok(())
        })
        .await
        .unwrap();
    let reported = lab.take_failures();
    assert_eq!(reported.iter().map(oops).collect::<Vec<_>>(), ["late"]);
}

/// outcome-3: in a fail-fast scope the scope answers; the failure hook gets
/// nothing, whatever became of the handle.
pub async fn outcome_3_a_fail_fast_scope_answers_itself(lab: Lab) {
    let error = scope(async |s| {
        let held = s.spawn(async { fail("bad") });
        lab.settle().await;
        drop(held);
        Ok(())
    })
    .await
    .unwrap_err();
    assert_eq!(oops(&error), "bad");
    lab.settle().await;
    assert!(lab.take_failures().is_empty());
}

// ---- outcome-4 ----

/// outcome-4: a child that is cancelled alone, by whatever means, is no
/// failure and cancels no other job.
pub async fn outcome_4_a_child_cancelled_alone_cancels_nobody(lab: Lab) {
    let mut node = None;
    let answer = scope(async |s| {
        node = Some(s.job());
        let by_handle = s.spawn(parked());
        let by_job = s.launch(parked());
        let by_drop = s.spawn(parked());
        let by_itself = s.launch(async {
            kinfolk_core::cancel_current("me");
            checkpoint().await
        });
        let unpolled = s.launch(async {});
        unpolled.cancel("at once");
        let sibling = s.spawn(async {
            sleep(10 * MS).await?;
            Ok::<_, Error>(1)
        });
        lab.settle().await;
        by_handle.cancel("you");
        by_job.cancel("you");
        let dropped = by_drop.job();
        drop(by_drop);
        for job in [by_handle.job(), by_job, dropped, by_itself, unpolled] {
            assert!(job.join().await?.is_cancelled());
        }
        checkpoint().await?;
        assert_eq!(s.job().state(), JobState::Active);
        sibling.await
    })
    .await;
    assert_eq!(answer.unwrap(), 1);
    assert_eq!(node.unwrap().state(), JobState::Completed);
}

// ---- outcome-5 ----

/// outcome-5: a failure dominates the cancellation it happened during, and
/// remembers it.
/// Also: K14, P11.
pub async fn outcome_5_a_failure_remembers_what_it_happened_during(lab: Lab) {
    Scope::build()
        .supervisor()
        .run(async |s| {
            let task = s.spawn(fails_late("cleanup"));
            lab.settle().await;
            assert!(task.cancel("enough"));
            let job = task.job();
            let outcome = task.outcome().await?;
            let error = outcome.error().expect("failure dominates");
            assert_eq!((error.kind(), oops(error)), (ErrorKind::Failed, "cleanup"));
            let during = error.during().unwrap();
            assert_eq!(during.kind(), ReasonKind::Asked);
            assert_eq!(during.text(), Some("enough"));
            assert_eq!(job.state(), JobState::Failed);
            Ok(())
        })
        .await
        .unwrap();
}

/// outcome-5: a child's failure after the scope's own deadline does not
/// replace TimedOut; it goes along.
/// Also: K14.
pub async fn outcome_5_a_childs_failure_after_the_deadline_goes_along(lab: Lab) {
    for body_parks in [true, false] {
        let began = lab.elapsed();
        let error = Scope::build()
            .timeout(20 * MS)
            .run(async |s| {
                s.launch(fails_late("child"));
                if body_parks {
                    park().await?;
                }
                Ok(())
            })
            .await
            .unwrap_err();
        assert_eq!(lab.elapsed() - began, 30 * MS);
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!(error.reason().unwrap().kind(), ReasonKind::Deadline);
        assert_eq!(error.suppressed().len(), 1);
        let child = &error.suppressed()[0];
        assert_eq!(oops(child), "child");
        let during = child.during().unwrap().root_cause();
        assert_eq!(during.kind(), ReasonKind::Deadline);
    }
}

/// outcome-5: a child's failure before the deadline stays the failure, though
/// the deadline passes while the others clean up.
pub async fn outcome_5_a_childs_failure_before_the_deadline_stays(lab: Lab) {
    let error = Scope::build()
        .timeout(20 * MS)
        .run(async |s| {
            s.launch(async {
                let _told = park().await;
                cleanup(sleep(100 * MS)).await
            });
            s.launch(async {
                sleep(10 * MS).await?;
                fail("child")
            });
            park().await?;
            Ok(())
        })
        .await
        .unwrap_err();
    assert_eq!(lab.elapsed(), 110 * MS);
    assert_eq!(error.kind(), ErrorKind::Failed);
    assert_eq!(all(&error), ["child"]);
    assert!(error.during().is_none());
}

/// outcome-5: against TimedOut the body's own error wins.
pub async fn outcome_5_the_bodys_error_beats_its_deadline(lab: Lab) {
    let error = timeout(10 * MS, async {
        let _told = park().await;
        fail("body")
    })
    .await
    .unwrap_err();
    assert_eq!(lab.elapsed(), 10 * MS);
    assert_eq!((error.kind(), oops(&error)), (ErrorKind::Failed, "body"));
    assert_eq!(error.during().unwrap().kind(), ReasonKind::Deadline);
}

/// outcome-5: against Cancelled the body's own error wins.
pub async fn outcome_5_the_bodys_error_beats_an_enclosing_cancel(lab: Lab) {
    let task = spawn(async {
        let error = scope(async |_| {
            let _told = park().await;
            fail("body")
        })
        .await
        .unwrap_err();
        assert_eq!((error.kind(), oops(&error)), (ErrorKind::Failed, "body"));
        let during = error.during().unwrap();
        assert_eq!(during.kind(), ReasonKind::Parent);
        assert_eq!(during.text(), Some("enough"));
    });
    lab.settle().await;
    task.cancel("enough");
    assert!(task.outcome().await.unwrap().is_cancelled());
}

/// outcome-5: the body's own error wins over TimedOut and over a child's
/// failure after the deadline, which goes along.
pub async fn outcome_5_the_bodys_error_comes_before_a_late_child(_lab: Lab) {
    let error = Scope::build()
        .timeout(20 * MS)
        .run(async |s| {
            s.launch(async {
                let _told = park().await;
                fail("child")
            });
            let _told = park().await;
            cleanup(sleep(10 * MS)).await?;
            fail("body")
        })
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Failed);
    assert_eq!(all(&error), ["body", "child"]);
}

/// outcome-5: a body that passes on the failure a child had after the deadline
/// has returned an error of its own: it wins, and is listed once.
pub async fn outcome_5_a_late_childs_failure_passed_on_by_the_body_wins(_lab: Lab) {
    let error = Scope::build()
        .timeout(20 * MS)
        .run(async |s| {
            s.spawn(fails_late("child")).await?;
            Ok(())
        })
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Failed);
    assert_eq!(all(&error), ["child"]);
}

/// outcome-5: as above, with context added by the body.
pub async fn outcome_5_a_late_childs_failure_with_context_wins(_lab: Lab) {
    let error = Scope::build()
        .timeout(20 * MS)
        .run(async |s| {
            let error = s.spawn(fails_late("child")).await.unwrap_err();
            Err::<(), _>(Around("context", error.into())).or_fail()
        })
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Failed);
    assert!(error.downcast_ref::<Around>().is_some());
    assert!(error.suppressed().is_empty());
}

/// outcome-5: a child's failure after the deadline is not lost when an
/// enclosing cancellation takes the place of TimedOut: failure dominates.
pub async fn outcome_5_a_late_failure_dominates_an_enclosing_cancel(lab: Lab) {
    let task = spawn(async {
        let error = Scope::build()
            .timeout(20 * MS)
            .run(async |s| {
                s.launch(fails_late("child"));
                park().await?;
                Ok(())
            })
            .await
            .unwrap_err();
        let mut listed = std::iter::once(&error).chain(error.suppressed());
        let child = listed.find(|e| e.downcast_ref::<Oops>().is_some());
        assert_eq!(child.map(oops), Some("child"), "{error:?}");
        assert_ne!(error.kind(), ErrorKind::Cancelled);
    });
    sleep(25 * MS).await.unwrap();
    lab.settle().await;
    assert!(task.cancel("enough"));
    let outcome = task.outcome().await.unwrap();
    assert!(outcome.is_cancelled(), "{outcome:?}");
}

// ---- outcome-6 ----

/// outcome-6: a task whose cancel returned true never ends Completed; a value
/// it returned all the same is kept.
/// Also: P7.
pub async fn outcome_6_a_cancelled_task_never_completes(lab: Lab) {
    let swallows = spawn(async {
        let _told = park().await;
        1
    });
    let never_told = spawn(async {
        current_job().unwrap().cancel("me");
        2
    });
    let waits = spawn(async {
        // Over, but for a child: still open to a cancel.
        launch(parked());
        3
    });
    lab.settle().await;
    assert!(swallows.cancel("you"));
    assert!(waits.cancel("you"));
    for (task, value) in [(swallows, 1), (never_told, 2), (waits, 3)] {
        let job = task.job();
        match task.outcome().await.unwrap() {
            Outcome::Cancelled { late, .. } => assert_eq!(late, Some(value)),
            other => panic!("{other:?}"),
        }
        assert_eq!(job.state(), JobState::Cancelled);
    }
    let unpolled = spawn(async { 4 });
    assert!(unpolled.cancel("at once"));
    match unpolled.outcome().await.unwrap() {
        Outcome::Cancelled { late, .. } => assert_eq!(late, None),
        other => panic!("{other:?}"),
    }
    let done = spawn(async { 5 });
    lab.settle().await;
    assert!(!done.cancel("too late"));
    assert_eq!(done.outcome().await.unwrap().completed(), Some(5));
}

/// outcome-6: a scope keeps its Ok though it was cancelled, if no child was
/// cut short; its node ends Cancelled all the same.
/// Also: tree-2.
pub async fn outcome_6_a_scope_keeps_its_value_if_no_child_was_cut_short(lab: Lab) {
    let task = spawn(async {
        let mut node = None;
        let value = scope(async |s| {
            node = Some(s.job());
            s.launch(async {
                // A late value: not cut short.
                let _told = park().await;
                7
            });
            let _told = park().await;
            Ok(1)
        })
        .await;
        assert_eq!(node.unwrap().state(), JobState::Cancelled);
        checkpoint().await.unwrap_err();
        value
    });
    lab.settle().await;
    task.cancel("enough");
    assert_eq!(task.outcome().await.unwrap().into_value(), Some(1));

    let mut node = None;
    let value = Scope::build()
        .timeout(10 * MS)
        .run(async |s| {
            node = Some(s.job());
            s.launch(async {
                let _told = park().await;
                7
            });
            let _told = park().await;
            Ok(2)
        })
        .await;
    assert_eq!(value.unwrap(), 2);
    let node = node.unwrap();
    assert_eq!(node.state(), JobState::Cancelled);
    assert_eq!(node.reason().unwrap().kind(), ReasonKind::Deadline);
    checkpoint().await.unwrap();
}

/// outcome-6: a scope whose child was cut short by an enclosing cancellation
/// answers Cancelled, whether the child was told or never started.
pub async fn outcome_6_a_child_cut_short_from_above_costs_the_value(lab: Lab) {
    for starts in [true, false] {
        let task = spawn(async move {
            let me = current_job().unwrap();
            let error = scope(async |s| {
                s.launch(parked());
                if starts {
                    let _told = park().await;
                } else {
                    me.cancel("enough");
                }
                Ok(1)
            })
            .await
            .unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Cancelled);
            assert_eq!(error.reason().unwrap().text(), Some("enough"));
            Err::<(), _>(error)
        });
        lab.settle().await;
        task.cancel("enough");
        match task.outcome().await.unwrap() {
            Outcome::Cancelled { late, .. } => assert_eq!(late, None),
            other => panic!("{other:?}"),
        }
    }
}

/// outcome-6: a scope whose child was cut short by its own deadline answers
/// TimedOut.
pub async fn outcome_6_a_child_cut_short_by_the_deadline_costs_the_value(lab: Lab) {
    let error = Scope::build()
        .timeout(10 * MS)
        .run(async |s| {
            s.launch(parked());
            Ok(1)
        })
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(lab.elapsed(), 10 * MS);
    assert!(error.suppressed().is_empty());

    let error = timeout(10 * MS, async {
        launch(parked());
        let _told = park().await;
        2
    })
    .await
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    checkpoint().await.unwrap();
}

/// outcome-6: children ended by `s.cancel()`, by their handle, by themselves
/// or as services do not count.
pub async fn outcome_6_children_ended_on_purpose_do_not_count(lab: Lab) {
    let value = scope(async |s| {
        s.launch(parked());
        s.launch(parked());
        lab.settle().await;
        s.cancel("enough");
        Ok(1)
    })
    .await;
    assert_eq!(value.unwrap(), 1);

    let value = scope(async |s| {
        let service = s.spawn_service(parked()).into_job();
        drop(s.spawn(parked()));
        s.launch(parked()).cancel("you");
        lab.settle().await;
        assert!(!service.is_ended());
        Ok(2)
    })
    .await;
    assert_eq!(value.unwrap(), 2);

    // The same in a scope that is cancelled from outside, or times out.
    let task = spawn({
        let lab = lab.clone();
        async move {
            let value = scope(async |s| {
                drop(s.spawn_service(parked()).into_job());
                let one = s.launch(parked());
                lab.settle().await;
                one.cancel("you");
                lab.settle().await;
                let _told = park().await;
                Ok(3)
            });
            value.await
        }
    });
    sleep(MS).await.unwrap();
    task.cancel("enough");
    assert_eq!(task.outcome().await.unwrap().into_value(), Some(3));

    let value = Scope::build()
        .timeout(10 * MS)
        .run(async |s| {
            drop(s.spawn_service(parked()).into_job());
            let one = s.launch(parked());
            lab.settle().await;
            one.cancel("you");
            let _told = park().await;
            Ok(4)
        })
        .await;
    assert_eq!(value.unwrap(), 4);
}

// ---- outcome-7 ----

/// outcome-7: the five kinds, and what each means.
pub async fn outcome_7_the_kinds_of_errors(lab: Lab) {
    Scope::build()
        .supervisor()
        .run(async |s| {
            let failed = s.spawn(async { fail("no") }).await.unwrap_err();
            assert_eq!(failed.kind(), ErrorKind::Failed);
            assert!(failed.reason().is_none());

            let panicked = s.spawn(async { assert!(never(), "boom") });
            let panicked = panicked.await.unwrap_err();
            assert_eq!(panicked.kind(), ErrorKind::Panicked);

            let task = s.spawn(parked());
            task.cancel("you");
            let stopped = task.await.unwrap_err();
            assert_eq!(stopped.kind(), ErrorKind::Stopped);
            assert_eq!(stopped.reason().unwrap().text(), Some("you"));

            let stopped = scope(async |s| {
                s.cancel("block");
                checkpoint().await?;
                Ok(())
            });
            let stopped = stopped.await.unwrap_err();
            assert_eq!(stopped.kind(), ErrorKind::Stopped);
            assert_eq!(stopped.reason().unwrap().text(), Some("block"));

            let timed_out = timeout(MS, park()).await.unwrap_err();
            assert_eq!(timed_out.kind(), ErrorKind::TimedOut);
            assert_eq!(timed_out.reason().unwrap().kind(), ReasonKind::Deadline);

            let cancelled = s.spawn(async {
                let error = scope(async |_| {
                    park().await?;
                    Ok(())
                });
                let error = error.await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Cancelled);
                assert!(error.is_cancelled());
                assert_eq!(error.reason().unwrap().text(), Some("you"));
                let source = error.source().expect("it has its Cancelled as source");
                assert!(source.downcast_ref::<Cancelled>().is_some());
                Err::<(), _>(error)
            });
            lab.settle().await;
            cancelled.cancel("you");
            let outcome = cancelled.outcome().await?;
            assert!(outcome.is_cancelled(), "{outcome:?}");
            Ok(())
        })
        .await
        .unwrap();
}

/// outcome-7: an error names its job and the path from the root, through
/// scopes and tasks, and gives back what the author returned.
pub async fn outcome_7_an_error_names_its_job_and_its_path(_lab: Lab) {
    let mut id = None;
    let error = Scope::named("request")
        .run(async |s| {
            let task = s
                .task("db")
                .spawn(async { Scope::named("query").run(async |_| fail("no")).await });
            id = Some(task.id());
            task.await
        })
        .await
        .unwrap_err();
    assert_eq!(error.job_name(), Some("query"));
    assert_ne!(error.job(), id);
    assert_eq!(error.path().first().unwrap(), "root");
    let path = error.path();
    assert_eq!(path[path.len() - 3..], ["request", "db", "query"]);
    assert_eq!(oops(&error), "no");
    assert!(error.downcast_ref::<std::io::Error>().is_none());
}

/// outcome-7: what the author added context to can still be had by its type.
pub async fn outcome_7_downcasting_goes_through_added_context(_lab: Lab) {
    let error = scope(async |s| {
        let task = s.spawn(async { fail("bad") });
        let error = task.await.unwrap_err();
        Err::<(), _>(Around("context", error.into())).or_fail()
    })
    .await
    .unwrap_err();
    assert_eq!(error.downcast_ref::<Around>().unwrap().0, "context");
    assert_eq!(error.downcast_ref::<Oops>().map(|e| e.0), Some("bad"));

    let error = scope(async |_| Err::<(), _>(std::io::Error::other(Oops("bad")).into()));
    let error = error.await.unwrap_err();
    assert_eq!(error.downcast_ref::<Oops>().map(|e| e.0), Some("bad"));
}

/// outcome-7: what stopped or timed out names the job that did, also when it
/// has left the body of whoever waited.
pub async fn outcome_7_stopped_and_timed_out_name_the_job(lab: Lab) {
    Scope::build()
        .supervisor()
        .run(async |s| {
            let error = Scope::named("slow")
                .timeout(MS)
                .run(async |_| {
                    park().await?;
                    Ok(())
                })
                .await
                .unwrap_err();
            assert_eq!(error.job_name(), Some("slow"));

            let task = s.task("gone").spawn(parked());
            let id = task.id();
            task.cancel("you");
            let error = task.await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Stopped);
            assert_eq!(error.job(), Some(id));
            assert_eq!(error.job_name(), Some("gone"));

            let task = s.task("gone").spawn(parked());
            let cancels = task.job();
            let waiter = s.task("waiter").spawn(task);
            lab.settle().await;
            cancels.cancel("you");
            let error = waiter.await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Stopped);
            assert_eq!(error.job_name(), Some("gone"));
            Ok(())
        })
        .await
        .unwrap();
}

/// outcome-7: a Stopped or TimedOut that leaves a body is a failure of that
/// body.
pub async fn outcome_7_a_stopped_that_leaves_a_body_is_a_failure(lab: Lab) {
    let error = scope(async |s| {
        s.launch(async {
            timeout(MS, park()).await?;
            Ok::<_, Error>(())
        });
        let told = park().await.unwrap_err();
        assert_eq!(told.reason().kind(), ReasonKind::ChildFailed);
        Ok(())
    })
    .await
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);

    Scope::build()
        .supervisor()
        .run(async |s| {
            let target = s.spawn(parked());
            let cancels = target.job();
            let waiter = s.spawn(target);
            lab.settle().await;
            cancels.cancel("you");
            let outcome = waiter.outcome().await?;
            let error = outcome.error().expect("a failure of the waiter");
            assert_eq!(error.kind(), ErrorKind::Stopped);
            assert_eq!(error.reason().unwrap().text(), Some("you"));
            Ok(())
        })
        .await
        .unwrap();
    assert!(lab.take_failures().is_empty());
}

// ---- outcome-8 ----

/// outcome-8: a Cancelled carries the reason, the job at which the cancel
/// entered, and the call site.
pub async fn outcome_8_cancelled_carries_reason_origin_and_site(lab: Lab) {
    let task = spawn(async {
        let me = current_job().unwrap().id();
        let inner = scope(async move |_| {
            let told = park().await.unwrap_err();
            assert_eq!(told.reason().kind(), ReasonKind::Parent);
            assert_eq!(told.reason().root_cause().kind(), ReasonKind::Asked);
            assert_eq!(told.reason().text(), Some("enough"));
            assert_eq!(told.origin(), me);
            Ok(told.site())
        });
        let site = inner.await?;
        let told = checkpoint().await.unwrap_err();
        assert_eq!(told.reason().kind(), ReasonKind::Asked);
        assert_eq!(told.origin(), me);
        assert_eq!(told.site(), site);
        Ok::<_, Error>((site.file(), site.line()))
    });
    lab.settle().await;
    let line = line!() + 1;
    assert!(task.cancel("enough"));
    let late = task.outcome().await.unwrap().into_value();
    assert_eq!(late, Some((file!(), line)));
}

/// outcome-8: Cancelled is recognised among the sources of what a body
/// returns, through wrappers, boxes, `io::Error` and our own error.
pub async fn outcome_8_cancelled_is_found_among_the_sources(lab: Lab) {
    Scope::build()
        .supervisor()
        .run(async |s| {
            let tasks = [
                s.spawn(parked()),
                s.spawn(async { parked().await.map_err(Error::from) }),
                s.spawn(async { parked().await.map_err(BoxError::from) }),
                s.spawn(async { parked().await.map_err(std::io::Error::other) }),
                s.spawn(async {
                    let ours = parked().await.map_err(Error::from);
                    ours.map_err(std::io::Error::other)
                }),
                s.spawn(async { parked().await.map_err(|e| Around("a", e.into())) }),
                s.spawn(async {
                    let ours = parked().await.map_err(Error::from);
                    let deep = ours.map_err(|e| Around("a", e.into()));
                    deep.map_err(|e| Around("b", std::io::Error::other(e).into()))
                }),
            ];
            lab.settle().await;
            for task in tasks {
                assert!(task.cancel("enough"));
                let outcome = task.outcome().await?;
                let reason = outcome.reason().and_then(|r| r.text());
                assert_eq!(reason, Some("enough"), "{outcome:?}");
            }
            // Found in a scope's body too, which is then Cancelled, not Failed.
            let task = s.spawn(async {
                let error = scope(async |_| {
                    parked().await.map_err(std::io::Error::other)?;
                    Ok(())
                });
                let error = error.await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Cancelled);
                Err::<(), _>(error)
            });
            lab.settle().await;
            task.cancel("enough");
            let outcome = task.outcome().await?;
            assert!(outcome.is_cancelled(), "{outcome:?}");
            Ok(())
        })
        .await
        .unwrap();
}

/// What a scope that is born cancelled was told: stale once the scope is over.
async fn stale() -> Cancelled {
    let told = async { Ok::<_, Error>(checkpoint().await.unwrap_err()) };
    let block = Scope::build().cancelled("block").run_future(told);
    block.await.unwrap()
}

/// outcome-8: a stale Cancelled is a failure, in a task and in a scope.
pub async fn outcome_8_a_stale_cancelled_is_a_failure(_lab: Lab) {
    Scope::build()
        .supervisor()
        .run(async |s| {
            let task = s.spawn(async { Err::<(), _>(stale().await) });
            let job = task.job();
            let outcome = task.outcome().await?;
            let error = outcome.error().expect("a failure");
            assert_eq!(error.kind(), ErrorKind::Failed);
            assert!(!error.is_cancelled());
            assert_eq!(job.state(), JobState::Failed);
            Ok(())
        })
        .await
        .unwrap();
    let error = scope(async |_| Err::<(), _>(stale().await.into()))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Failed);
    let wrapped = scope(async |_| Err::<(), _>(std::io::Error::other(stale().await).into()))
        .await
        .unwrap_err();
    assert_eq!(wrapped.kind(), ErrorKind::Failed);
    checkpoint().await.unwrap();
}

/// outcome-8: a stale Cancelled is a failure also in a job that is cancelled
/// by another cancel.
pub async fn outcome_8_a_stale_cancelled_is_a_failure_in_a_cancelled_job(lab: Lab) {
    Scope::build()
        .supervisor()
        .run(async |s| {
            let task = s.spawn(async {
                let stale = stale().await;
                let _told = park().await;
                Err::<(), _>(stale)
            });
            lab.settle().await;
            task.cancel("enough");
            let outcome = task.outcome().await?;
            let error = outcome.error().expect("a failure");
            assert_eq!(error.kind(), ErrorKind::Failed);
            assert_eq!(error.during().unwrap().text(), Some("enough"));
            Ok(())
        })
        .await
        .unwrap();
}

/// outcome-8: a Cancelled of another job is a failure here.
pub async fn outcome_8_a_foreign_cancelled_is_a_failure(lab: Lab) {
    Scope::build()
        .supervisor()
        .run(async |s| {
            let other = s.spawn(async { Ok::<_, Error>(park().await.unwrap_err()) });
            lab.settle().await;
            other.cancel("you");
            let told = other.outcome().await?.into_value().unwrap();
            let task = s.spawn(async move { Err::<(), _>(told) });
            let job = task.job();
            let outcome = task.outcome().await?;
            let error = outcome.error().expect("a failure");
            assert_eq!(error.kind(), ErrorKind::Failed);
            assert!(error.downcast_ref::<Cancelled>().is_some());
            assert_eq!(job.state(), JobState::Failed);
            Ok(())
        })
        .await
        .unwrap();
}

/// outcome-8: a Cancelled whose origin is further up the chain of origins has
/// reached the job: it means cancelled.
pub async fn outcome_8_a_cancelled_from_further_up_means_cancelled(lab: Lab) {
    let (seen, child) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(None)));
    let (sees, shows) = (seen.clone(), child.clone());
    let (inner, gate) = (Gate::new(), Gate::new());
    let (cancels, held) = (inner.clone(), gate.clone());
    let task = spawn(async move {
        let told = sees.clone();
        launch(async move {
            let outer = park().await.unwrap_err();
            *told.lock().unwrap() = Some(outer.clone());
            Err::<(), _>(outer)
        });
        scope(async move |s| {
            *shows.lock().unwrap() = Some(s.launch(async move {
                let own = park().await.unwrap_err();
                assert_eq!(own.reason().text(), Some("block"));
                held.wait().await;
                let outer = sees.lock().unwrap().clone().unwrap();
                assert_eq!(outer.reason().text(), Some("outside"));
                Err::<(), _>(outer)
            }));
            cancels.wait().await;
            s.cancel("block");
            Ok(())
        })
        .await
    });
    lab.settle().await;
    inner.open();
    lab.settle().await;
    assert!(task.cancel("outside"));
    lab.settle().await;
    gate.open();
    let outcome = task.outcome().await.unwrap();
    assert!(outcome.is_cancelled(), "{outcome:?}");
    let child = child.lock().unwrap().take().unwrap();
    let outcome = child.join().await.unwrap();
    assert!(outcome.is_cancelled(), "{outcome:?}");
}

/// outcome-8: a body may return what it was told from inside its clean-up: its
/// task ends Cancelled.
pub async fn outcome_8_cancelled_may_be_returned_through_a_clean_up(lab: Lab) {
    let task = spawn(async {
        let told = parked().await;
        cleanup(async {
            sleep(10 * MS).await?;
            told?;
            Ok::<_, Error>(())
        })
        .await
    });
    lab.settle().await;
    task.cancel("enough");
    let outcome = task.outcome().await.unwrap();
    let reason = outcome.reason().and_then(|r| r.text());
    assert_eq!(reason, Some("enough"), "{outcome:?}");
}

/// outcome-8: a shield protects what is spawned inside it. The cancel that it
/// holds back has not reached a child there: one that returns it has failed.
/// Also: shield-2.
pub async fn outcome_8_a_cancel_has_not_reached_the_children_of_a_shield(lab: Lab) {
    let task = spawn(async {
        let told = park().await.unwrap_err();
        let inside = told.clone();
        let cleaned = cleanup(children_that_return(inside)).await?;
        let shielded = shield(children_that_return(told)).await?;
        Ok::<_, Error>([cleaned, shielded].concat())
    });
    lab.settle().await;
    assert!(task.cancel("enough"));
    let ends = task.outcome().await.unwrap().into_value().expect("late");
    let failed = ("failed", ErrorKind::Failed, JobState::Failed);
    assert_eq!(ends, [failed; 10]);
}

fn word<T>(outcome: &Outcome<T>) -> &'static str {
    match outcome {
        Outcome::Completed(_) => "completed",
        Outcome::Failed(_) => "failed",
        Outcome::Cancelled { .. } => "cancelled",
    }
}

/// Children of a scope here, each of which returns `told`: what awaiting,
/// joining and looking say of them.
async fn children_that_return(
    told: Cancelled,
) -> Result<Vec<(&'static str, ErrorKind, JobState)>, Error> {
    let mut ends = Vec::new();
    // Awaited. The value would be one that owns memory.
    for nested in [false, true] {
        let told = told.clone();
        let end = Scope::build().supervisor().run(async move |s| {
            let task = s.spawn(async move {
                if nested {
                    scope(async |_| Err::<(), _>(told.into())).await?;
                    return Ok(String::new());
                }
                Err::<String, Error>(told.into())
            });
            let job = task.job();
            let error = task.await.expect_err("it has no value");
            let joined = job.join().await?;
            Ok((word(&joined), error.kind(), job.state()))
        });
        ends.push(end.await?);
    }
    // Asked for its outcome.
    let passed = told.clone();
    let end = Scope::build().supervisor().run(async move |s| {
        let task = s.spawn(async move { Err::<String, _>(passed) });
        let job = task.job();
        let outcome = task.outcome().await?;
        let error = outcome.error().expect("a failure").kind();
        Ok((word(&outcome), error, job.state()))
    });
    ends.push(end.await?);
    // Nobody owns it: its scope fails.
    let passed = told.clone();
    let mut job = None;
    let launched = scope(async |s| {
        job = Some(s.launch(async move { Err::<String, _>(passed) }));
        Ok(())
    });
    let error = launched.await.expect_err("a child has failed");
    let job = job.expect("launched");
    let joined = job.join().await?;
    ends.push((word(&joined), error.kind(), job.state()));
    // A local one.
    let mut job = None;
    let local = kinfolk_core::local_scope(async |s| {
        let task = s.spawn(async { Err::<String, _>(told) });
        job = Some(task.job());
        task.await
    });
    let error = local.await.expect_err("it has no value");
    let job = job.expect("spawned");
    let joined = job.join().await?;
    ends.push((word(&joined), error.kind(), job.state()));
    Ok(ends)
}

/// outcome-8: scopes inside a clean-up are part of the body that was told: they
/// pass on what it returns as Cancelled.
pub async fn outcome_8_cancelled_may_be_returned_through_scopes_in_a_clean_up(lab: Lab) {
    let task = spawn(async {
        let told = park().await.unwrap_err();
        cleanup(async {
            let through = timeout(50 * MS, async {
                sleep(10 * MS).await?;
                scope(async |_| Err::<(), _>(told.into())).await
            });
            let error = through.await.expect_err("returned");
            assert_eq!(error.kind(), ErrorKind::Cancelled);
            Err::<(), _>(error)
        })
        .await
    });
    lab.settle().await;
    assert!(task.cancel("enough"));
    let outcome = task.outcome().await.unwrap();
    assert!(outcome.is_cancelled(), "{outcome:?}");
}

// ---- outcome-9 ----

/// outcome-9: the first reason wins.
pub async fn outcome_9_the_first_reason_wins(lab: Lab) {
    let task = spawn(parked());
    lab.settle().await;
    assert!(task.cancel("first"));
    assert!(!task.cancel("second"));
    let outcome = task.outcome().await.unwrap();
    assert_eq!(outcome.reason().unwrap().text(), Some("first"));

    // An explicit one is not replaced by a deadline.
    let error = Scope::build()
        .timeout(10 * MS)
        .run(async |s| {
            s.cancel("explicit");
            let told = park().await;
            cleanup(sleep(20 * MS)).await?;
            let reason = s.cancel_reason().unwrap();
            assert_eq!(reason.kind(), ReasonKind::Asked);
            assert_eq!(reason.text(), Some("explicit"));
            told?;
            Ok(())
        })
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stopped);
    assert_eq!(error.reason().unwrap().text(), Some("explicit"));
}

/// outcome-9: an explicit reason replaces a deadline's, also for those below,
/// who hold a pointer and no copy.
/// Also: K15.
pub async fn outcome_9_an_explicit_reason_replaces_a_deadlines(lab: Lab) {
    let mut child = None;
    let error = Scope::build()
        .timeout(10 * MS)
        .run(async |s| {
            child = Some(s.launch(async {
                let told = park().await.unwrap_err();
                let cause = told.reason().root_cause();
                assert_eq!(cause.kind(), ReasonKind::Deadline);
                cleanup(sleep(20 * MS)).await?;
                Err::<(), Error>(told.into())
            }));
            let told = park().await.unwrap_err();
            assert_eq!(told.reason().kind(), ReasonKind::Deadline);
            lab.settle().await;
            assert!(!s.cancel("explicit"), "it was cancelled before");
            assert!(!s.cancel("again"));
            let reason = s.cancel_reason().unwrap();
            assert_eq!(reason.kind(), ReasonKind::Asked);
            assert_eq!(reason.text(), Some("explicit"));
            let below = child.as_ref().unwrap().reason().unwrap();
            assert!(below.same(&reason));
            Err::<(), _>(told.into())
        })
        .await
        .unwrap_err();
    assert_eq!(error.reason().unwrap().text(), Some("explicit"));
    let outcome = child.unwrap().join().await.unwrap();
    let reason = outcome.reason().unwrap();
    assert_eq!(reason.kind(), ReasonKind::Parent);
    assert_eq!(reason.root_cause().kind(), ReasonKind::Asked);
    assert_eq!(reason.text(), Some("explicit"));
}

/// outcome-9: a descendant sees Parent, at any depth, with the cause where the
/// cancel entered.
pub async fn outcome_9_descendants_see_parent_and_the_root_cause(lab: Lab) {
    let reasons = Arc::new(Mutex::new(Vec::new()));
    let sees = reasons.clone();
    let task = spawn(async move {
        let (child, deep) = (sees.clone(), sees.clone());
        launch(async move {
            launch(async move {
                let told = park().await.unwrap_err();
                deep.lock().unwrap().push(told.reason().clone());
                Err::<(), _>(told)
            });
            let told = park().await.unwrap_err();
            child.lock().unwrap().push(told.reason().clone());
            Err::<(), _>(told)
        });
        parked().await
    });
    let job = task.job();
    lab.settle().await;
    task.cancel("enough");
    let outcome = task.outcome().await.unwrap();
    let own = outcome.reason().unwrap();
    assert_eq!(own.kind(), ReasonKind::Asked);
    assert_eq!(own.origin(), job.id());
    let reasons = reasons.lock().unwrap();
    assert_eq!(reasons.len(), 2);
    for reason in &*reasons {
        assert_eq!(reason.kind(), ReasonKind::Parent);
        assert_eq!(reason.root_cause().kind(), ReasonKind::Asked);
        assert_eq!(reason.origin(), job.id());
        assert!(reason.same(own));
    }
}

/// outcome-9: each way of being cancelled has its kind.
pub async fn outcome_9_each_cause_has_its_kind(lab: Lab) {
    async fn kind(job: &Job) -> ReasonKind {
        let outcome = job.join().await.unwrap();
        outcome
            .reason()
            .expect("it was cancelled")
            .root_cause()
            .kind()
    }
    let asked = launch(parked());
    asked.cancel("you");
    assert_eq!(kind(&asked).await, ReasonKind::Asked);

    let task = spawn(parked());
    let dropped = task.job();
    drop(task);
    assert_eq!(kind(&dropped).await, ReasonKind::HandleDropped);

    let mut child = None;
    let error = timeout(MS, async {
        child = Some(launch(parked()));
    });
    assert_eq!(error.await.unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(kind(&child.unwrap()).await, ReasonKind::Deadline);

    let mut child = None;
    let error = scope(async |s| {
        child = Some(s.launch(parked()));
        lab.settle().await;
        s.launch(async { fail("child") });
        Ok(())
    });
    assert_eq!(oops(&error.await.unwrap_err()), "child");
    assert_eq!(kind(&child.unwrap()).await, ReasonKind::ChildFailed);

    let mut child = None;
    let error = scope(async |s| {
        child = Some(s.launch(parked()));
        fail("body")
    });
    assert_eq!(oops(&error.await.unwrap_err()), "body");
    assert_eq!(kind(&child.unwrap()).await, ReasonKind::BodyFailed);

    let kept = Arc::new(Mutex::new(None));
    let keeps = kept.clone();
    let mut half = Box::pin(Scope::build().run_future(async move {
        *keeps.lock().unwrap() = Some(launch(parked()));
        parked().await
    }));
    assert!(futures_util::poll!(&mut half).is_pending());
    drop(half);
    let child = kept.lock().unwrap().take().unwrap();
    assert_eq!(kind(&child).await, ReasonKind::ScopeDropped);

    let ended = scope(async |s| Ok(s)).await.unwrap();
    let refused = ended.launch(parked());
    assert_eq!(kind(&refused).await, ReasonKind::ScopeEnded);
}
